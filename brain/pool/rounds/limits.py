"""The unused part of projects' limits, for jobs that are about to start."""

from collections import Counter

from brain.pool.rounds.cache import Memo
from brain.ports import Transaction
from brain.types.job import Job
from brain.types.resources import Resources
from brain.types.sharing import PoolShares


class AcceleratorLimits:
    """Counts the accelerators that projects hold and take; in a pool without accelerators, counts
    their cores.
    """

    def __init__(self, tx: Transaction, memo: Memo) -> None:
        stored = tx.pools.policy(memo.pool)
        self._projects = (stored.policy if stored else PoolShares()).projects
        self._gpus = any(node.capacity.gpus for node in memo.nodes)
        self._ledger = memo.ledger
        self._held: Counter[str] = Counter()
        if any(share.limit is not None for share in self._projects.values()):
            for job in memo.jobs():
                self._held[job.document.project] += self._has(job)

    def take(self, job: Job, replicas: int) -> str | None:
        """Count a job's replicas towards its project's limit.

        If the limit does not allow them, count nothing and return the reason.
        """
        # Replicas that a job still has do not count twice when it begins again.
        wants = replicas * self._thousandths(job) - self._has(job)
        project = job.document.project
        share = self._projects.get(project)
        limit = None if share is None else share.limit
        if limit is not None and wants > 0 and self._held[project] + wants > limit * 1000:
            unit = "GPUs" if self._gpus else "cores"
            has = self._held[project] / 1000
            return f"project {project} has {has:g} of the {limit} {unit} that its pool allows it"
        self._held[project] += wants
        return None

    def _has(self, job: Job) -> int:
        return sum(self._ledger.held(job.id).values()) * self._thousandths(job)

    def _thousandths(self, job: Job) -> int:
        each: Resources = job.resources
        return each.gpus * 1000 if self._gpus else each.cpu_millis
