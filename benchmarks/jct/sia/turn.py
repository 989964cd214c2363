"""Brain's service in Sia's simulator, with one turn per round.

Sia gets a fact that Brain does not get: a profile of each job on one GPU of every kind. Brain may
move jobs between kinds (``migrate``, which is off by default). Brain counts a move between nodes of
one kind as a restart; the simulator does not.
"""

import math
from collections import Counter
from collections.abc import Sequence

from benchmarks.jct.driven import Driven, Knowledge, Script, Standing
from benchmarks.jct.sia.cluster import RESTART_SECONDS, SLOWDOWN, Kind
from benchmarks.jct.sia.jobs import Grant, Job, largest_local_at
from benchmarks.jct.sia.run import Division
from brain.ports import Stores
from brain.simulator.applications import Shape
from brain.simulator.placing import Placement
from brain.simulator.spec import NodeKind

#: Of no script here: each says what its own restart costs.
_RESTARTS = 60.0


class Turn:
    """A policy that reports the events to the service; the desired worlds are the division."""

    def __init__(self, kinds: Sequence[Kind], knowledge: Knowledge) -> None:
        nodes = {kind.name: NodeKind(count=kind.nodes, gpus=kind.gpus_per_node) for kind in kinds}
        self._driven = Driven(nodes, knowledge, restart_seconds=_RESTARTS, migrate=True)

    @property
    def stores(self) -> Stores:
        """Return the service's stores."""
        return self._driven.stores

    def admit(self, job: Job) -> None:
        """Let Brain choose the batch sizes."""
        job.batching = self._batch

    def decide(
        self, now: float, jobs: Sequence[Job], kinds: Sequence[Kind], current: Division
    ) -> Division:
        """See ``Policy``."""
        placements = self._driven.round(now, jobs, _script, _standing)
        return {name: self._grant(nodes) for name, nodes in placements.items() if nodes}

    def _grant(self, placement: Placement) -> Grant:
        """Return a placement in the simulator's form, with the nodes with most GPUs first."""
        ordered = sorted(Counter(placement).items(), key=lambda one: (-one[1], one[0]))
        kind = self._driven.nodes[placement[0]].kind
        first = next(node.index for node in self._driven.nodes if node.kind == kind)
        return Grant(
            kind=kind,
            shape=tuple(gpus for _, gpus in ordered),
            nodes=tuple(node - first for node, _ in ordered),
        )

    def _batch(self, job: Job, kind: str, shape: tuple[int, ...]) -> tuple[int, int]:
        return self._driven.batch(job.name, kind, shape)


class Measured(Script):
    """A script whose micro-batches are at most as large as the largest ones measured at a
    placement.
    """

    def parts(self, kind: str, shape: Shape, local: int) -> tuple[int, int]:
        """See ``Script``."""
        parts = math.ceil(local / largest_local_at(self.tables[kind], shape))
        return math.ceil(local / parts), parts


def _script(job: Job) -> Script:
    return Measured(
        name=job.application,
        tables=job.tables,
        slowdown=SLOWDOWN[job.application],
        restart_seconds=RESTART_SECONDS[job.application],
    )


def _standing(job: Job) -> Standing:
    table = next(iter(job.tables.values()))
    return Standing(job.progress / table.progress[-1], job.finished)
