"""Input and output of the policy for many jobs. Frozen values; no I/O, no clock.

Accelerators are counted in whole numbers; a pool without any counts slots, or milli-CPUs. The unit
does not matter as long as ``PoolNode.capacity`` and ``PoolJob.gpus_per_replica`` count the same
thing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from numpy.typing import ArrayLike, NDArray

from brain.typeset import count, percent

Floats = NDArray[np.float64]

#: Columns of ``Curve.rows``.
REPLICAS, NODES, GOODPUT, DEVIATION = range(4)


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """The goodput of one job on one type of accelerator, a row per configuration.

    Build it with ``Curve.of``, once per fit: it is read in every round.
    """

    #: Shape (configurations, 4): replicas, nodes that they are spread over (0: as few as
    #: possible), goodput in examples/s, standard deviation of its logarithm.
    rows: Floats

    @classmethod
    def of(
        cls,
        replicas: ArrayLike,
        goodput: ArrayLike,
        deviation: ArrayLike = 0.0,
        nodes: ArrayLike = 0,
    ) -> "Curve":
        """A curve over ``replicas``: feasible sizes only, the job's smallest among them.

        One size may come several times, spread over different numbers of nodes.
        """
        columns = np.broadcast_arrays(*np.atleast_1d(replicas, nodes, goodput, deviation))
        return cls(np.stack(columns, axis=1).astype(np.float64))


@dataclass(frozen=True, slots=True)
class JobPlacement:
    """The present or future place of a job: a type of accelerator and the node of each replica."""

    accelerator: str
    nodes: tuple[str, ...]

    @property
    def replicas(self) -> int:
        """The number of replicas."""
        return len(self.nodes)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolJob:
    """One job at one moment, as far as sharing a cluster is concerned."""

    key: str
    #: By type of accelerator; types that the job may not use are absent. Bounds, unit, ramp and
    #: memory have been applied: every configuration may be chosen.
    curves: Mapping[str, Curve]
    tenant: str = ""
    #: Class; each step up counts ``Weights.priority_base`` times as much.
    priority: int = 0
    #: Useful work done so far, in seconds of one replica: speed-up × time.
    attained_seconds: float = 0.0
    #: Seconds to the end with one replica on the slowest type; None where nobody knows.
    remaining_seconds: float | None = None
    #: Since the job has been without accelerators; 0 while it runs.
    waited_seconds: float = 0.0
    #: Since it was submitted.
    age_seconds: float = 0.0
    #: Where it runs; None where it does not.
    current: JobPlacement | None = None
    #: Work that a change of its world loses.
    restart_seconds: float = 60.0
    #: It must stay as it is, now: a plan is under way, a person holds it.
    pinned: bool = False
    #: Accelerators of each replica; they are on one node.
    gpus_per_replica: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolNode:
    """A machine."""

    name: str
    accelerator: str
    capacity: int
    #: Where it is, widest first: zone, spine, rack. Nodes of equal paths are closest.
    path: tuple[str, ...] = ()
    #: False for one that is drained, lost, or slows down whoever runs on it.
    healthy: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """Accelerators of a tenant."""

    #: It gets these as soon as its jobs can use them, whoever else wants them.
    guaranteed: int = 0
    #: It never gets more than these; None: no limit.
    limit: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """The nodes that the jobs share, and how tenants divide them."""

    nodes: Sequence[PoolNode]
    quotas: Mapping[str, Quota] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Prices at the margin: the utility that one more accelerator would bring."""

    #: By type: drives the number of nodes, and what a tenant is charged.
    accelerators: Mapping[str, float] = field(default_factory=dict)
    #: By tenant, on top; below 0 where its guarantee is what gives it accelerators.
    tenants: Mapping[str, float] = field(default_factory=dict)


class RoundEffect(StrEnum):
    """The effect of a round on a job."""

    #: Runs as before.
    KEEPS = "keeps"
    STARTS = "starts"
    GROWS = "grows"
    SHRINKS = "shrinks"
    #: As many replicas, elsewhere.
    MOVES = "moves"
    #: Ran, and has to make room.
    STOPS = "stops"
    #: Waits for accelerators.
    WAITS = "waits"
    #: Cannot be judged; it keeps what it has.
    REFUSED = "refused"


_TOWARDS = {
    RoundEffect.STARTS: "with ",
    RoundEffect.GROWS: "to ",
    RoundEffect.SHRINKS: "to ",
    RoundEffect.MOVES: "with ",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """A configuration that a job might have had."""

    accelerator: str
    replicas: int
    #: Utility that it has more than what the job got; below 0 where it has less.
    gain: float
    #: What its accelerators would have cost more, at the prices of the round.
    cost: float

    @property
    def compared(self) -> str:
        """The gain of the option against its cost, for people."""
        if self.gain > 0 and self.cost > 0:
            return f"would bring {percent(self.gain / self.cost)} of what its accelerators cost"
        if self.gain < 0 and self.cost < 0:
            return f"would save {percent(self.cost / self.gain)} of what it gives up"
        return "would bring no more" if self.gain <= 0 else "would be better, and finds no room"


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """The share of one job in a round, and the reason for it."""

    key: str
    outcome: RoundEffect
    placement: JobPlacement | None
    before: JobPlacement | None
    #: What the grant is worth; 0 for nothing.
    utility: float = 0.0
    #: The best of the rest at the prices of the round.
    next_best: Option | None = None
    #: Who has the accelerators of ``next_best``, where they are all taken; the one to whom they
    #: are worth least.
    lost_to: str | None = None
    #: Why a job was refused, or did not get what prices allowed.
    because: str = ""

    @property
    def replicas(self) -> int:
        """0 where it gets nothing."""
        return self.placement.replicas if self.placement else 0

    @property
    def changes(self) -> bool:
        """True if the job's world has to change."""
        return self.placement != self.before

    @property
    def reason(self) -> str:
        """One sentence for people."""
        if self.outcome is RoundEffect.REFUSED:
            return self.because
        said = self.outcome.value
        if self.placement:
            size = count(self.replicas, "replica")
            said += f" {_TOWARDS.get(self.outcome, '')}{size} on {self.placement.accelerator}"
        other = self.next_best
        if other is not None:
            said += f"; {other.replicas} on {other.accelerator} {other.compared}"
            said += f", which {self.lost_to} has" if self.lost_to else ""
        return f"{said}; {self.because}" if self.because else said


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One change of a world."""

    key: str
    placement: JobPlacement | None
    #: Jobs whose own move has to free accelerators first.
    after: tuple[str, ...] = ()
    #: It has to let go before it has anything to go to: others wait for it in a circle.
    lets_go_first: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One division of a cluster among jobs, with the proof of how good it is."""

    #: One for every job that was asked about, in the order they came.
    grants: Mapping[str, Grant]
    #: Every move comes after those that it waits for.
    moves: tuple[Move, ...]
    #: Utility of all grants less ``Weights.shortfall`` for what guarantees lack.
    value: float
    #: No division has more.
    bound: float
    #: Pass them to the next round: it starts from there.
    prices: Prices
    #: Accelerators by type: how many of them healthy nodes have, and how many were given.
    capacity: Mapping[str, int]
    used: Mapping[str, int]
    #: What guarantees lack, by tenant; empty where every one is kept.
    short: Mapping[str, int] = field(default_factory=dict)

    @property
    def gap(self) -> float:
        """Share of the utility that a better division might add: 0.001 is 0.1 %."""
        scale = max(abs(self.bound), 1e-12)
        return max(0.0, self.bound - self.value) / scale
