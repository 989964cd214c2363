"""Brain's service in Pollux's simulator, with one turn per round.

Brain gets the same information as Pollux except for one value: the gradient noise of a single
worker with one micro-batch per step.
"""

from collections.abc import Sequence

from benchmarks.jct.driven import Driven, Knowledge, Script, Standing
from benchmarks.jct.pollux import GPUS_PER_NODE, NODES, RESTART_SECONDS, Allocation, Job
from brain.ports import Stores
from brain.simulator.applications import Shape
from brain.simulator.placing import shape
from brain.simulator.spec import NodeKind

_KIND = "gpu"


class Turn:
    """A policy that reports the events to the service; the desired worlds are the allocation."""

    def __init__(
        self,
        knowledge: Knowledge,
        *,
        restart_seconds: float = RESTART_SECONDS,
        nodes: int = NODES,
        per_node: int = GPUS_PER_NODE,
    ) -> None:
        kinds = {_KIND: NodeKind(count=nodes, gpus=per_node)}
        self._driven = Driven(kinds, knowledge, restart_seconds=restart_seconds)

    @property
    def stores(self) -> Stores:
        """Return the service's stores."""
        return self._driven.stores

    def admit(self, job: Job) -> None:
        """Let the policy set batch sizes, except for jobs that cannot adapt."""
        job.batch = job.application.largest_batch if job.application.fixed else None

    def decide(
        self, now: float, jobs: Sequence[Job], capacity: Sequence[int], current: Allocation
    ) -> Allocation:
        """See ``Policy``."""
        placements = self._driven.round(now, jobs, _script, _standing)
        for job in jobs:
            if placements[job.name] and job.batch is None:
                self._batch(job, shape(placements[job.name]))
        return {name: list(nodes) for name, nodes in placements.items()}

    def _batch(self, job: Job, where: Shape) -> None:
        job.local_batch, job.accumulation = self._driven.batch(job.name, _KIND, where)
        if sum(where) == job.replicas:
            job.split()


def _script(job: Job) -> Script:
    return Script(name=job.script, tables={_KIND: job.application}, slowdown=job.slowdown)


def _standing(job: Job) -> Standing:
    return Standing(job.progress / job.application.progress[-1], job.completed)
