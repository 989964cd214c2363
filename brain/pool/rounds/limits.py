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
        self._memo = memo
        self._held: Counter[str] = Counter()
        if any(share.limit is not None for share in self._projects.values()):
            held = memo.by_project()
            self._held.update({name: self._thousandths(amounts) for name, amounts in held.items()})

    def take(self, job: Job, replicas: int) -> str | None:
        """Count a job's replicas towards its project's limit.

        If the limit does not allow them, count nothing and return the reason.
        """
        # Replicas that a job still has do not count twice when it begins again.
        wants = self._thousandths(self._memo.total(job.id, replicas)) - self._has(job)
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
        return self._thousandths(self._memo.ledger.reserved(job.id))

    def _thousandths(self, amounts: Resources) -> int:
        return amounts.gpus * 1000 if self._gpus else amounts.cpu_millis
