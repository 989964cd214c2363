"""Input and output of ``allocate``, as frozen values; no I/O, no clock.

Accelerators are counted in whole numbers; a pool without accelerators counts slots or milli-CPUs.
The unit does not matter as long as ``PoolNode.capacity`` and ``PoolJob.gpus_per_replica`` count the
same thing.
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

    Build a curve with ``Curve.of`` once per fit, because every round reads it.
    """

    #: Shape (configurations, 4): replicas, nodes that the replicas are spread over (0: as few as
    #: possible), goodput in examples/s, standard deviation of the logarithm of goodput.
    rows: Floats

    @classmethod
    def of(
        cls,
        replicas: ArrayLike,
        goodput: ArrayLike,
        deviation: ArrayLike = 0.0,
        nodes: ArrayLike = 0,
    ) -> "Curve":
        """Return a curve over ``replicas``, which are all feasible and include the job's smallest
        size.

        One size may occur several times, each time with another number of nodes.
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
        return len(self.nodes)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolJob:
    """The data that the division needs about one job at one moment."""

    key: str
    #: Curves by type of accelerator, without types that the job may not use. Bounds, unit, ramp and
    #: memory are already applied: every configuration may be chosen.
    curves: Mapping[str, Curve]
    tenant: str = ""
    #: Priority class; each step up counts ``Weights.priority_base`` times as much.
    priority: int = 0
    #: Useful work done so far, in seconds of one replica: speed-up × time.
    attained_seconds: float = 0.0
    #: Seconds to the end with one replica on the slowest type; None if unknown.
    remaining_seconds: float | None = None
    #: Seconds that the job has been without accelerators; 0 while it runs.
    waited_seconds: float = 0.0
    #: Seconds since the job was submitted.
    age_seconds: float = 0.0
    #: Present placement; None while the job does not run.
    current: JobPlacement | None = None
    #: Seconds of work that a change of the job's world loses.
    restart_seconds: float = 60.0
    #: True if the job must keep its placement now, because a plan is under way or a person holds
    #: it.
    pinned: bool = False
    #: Accelerators of each replica, all on one node.
    gpus_per_replica: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolNode:
    """A node, with its accelerators and its path in the network."""

    name: str
    accelerator: str
    capacity: int
    #: Path of the node, widest first: zone, spine, rack. Nodes of equal paths are closest.
    path: tuple[str, ...] = ()
    #: False for a node that is drained, lost, or slows its jobs down.
    healthy: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """Guarantee and limit of a tenant, in accelerators."""

    #: Accelerators that the tenant's jobs get as soon as they can use them, before all other jobs.
    guaranteed: int = 0
    #: The most accelerators that the tenant may have; None: no limit.
    limit: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """The nodes that jobs share, and the quotas of tenants."""

    nodes: Sequence[PoolNode]
    quotas: Mapping[str, Quota] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Marginal prices: the utility that one more accelerator would add."""

    #: Price by type: it decides the number of nodes, and the charge to a tenant.
    accelerators: Mapping[str, float] = field(default_factory=dict)
    #: Surcharge by tenant; below 0 where the tenant's guarantee gives it accelerators.
    tenants: Mapping[str, float] = field(default_factory=dict)


class RoundEffect(StrEnum):
    """The effect of a round on a job."""

    #: The job runs as before.
    KEEPS = "keeps"
    STARTS = "starts"
    GROWS = "grows"
    SHRINKS = "shrinks"
    #: The job has as many replicas, on other nodes.
    MOVES = "moves"
    #: The job ran, and has to make room.
    STOPS = "stops"
    #: The job waits for accelerators.
    WAITS = "waits"
    #: The job cannot be judged, and keeps its accelerators.
    REFUSED = "refused"


_TOWARDS = {
    RoundEffect.STARTS: "with ",
    RoundEffect.GROWS: "to ",
    RoundEffect.SHRINKS: "to ",
    RoundEffect.MOVES: "with ",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """A configuration that a job could have got instead of its grant."""

    accelerator: str
    replicas: int
    #: Utility above the grant's; below 0 if the option is worth less.
    gain: float
    #: Cost of the option's accelerators above the grant's, at the prices of the round.
    cost: float

    @property
    def compared(self) -> str:
        """Return a phrase for people that compares the option's gain with its cost."""
        if self.gain > 0 and self.cost > 0:
            return f"would bring {percent(self.gain / self.cost)} of what its accelerators cost"
        if self.gain < 0 and self.cost < 0:
            return f"would save {percent(self.cost / self.gain)} of what it gives up"
        return "would bring no more" if self.gain <= 0 else "would be better, but has no room"


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """The share of one job in a round, and the reason for it."""

    key: str
    outcome: RoundEffect
    placement: JobPlacement | None
    before: JobPlacement | None
    #: Utility of the grant; 0 for no accelerators.
    utility: float = 0.0
    #: The best other configuration at the prices of the round.
    next_best: Option | None = None
    #: The job that holds the accelerators of ``next_best`` and values them least; None if some are
    #: free.
    lost_to: str | None = None
    #: The reason why a job was refused, or did not get the configuration that prices allowed.
    because: str = ""

    @property
    def replicas(self) -> int:
        """Return the number of granted replicas; 0 if the job got no accelerators."""
        return self.placement.replicas if self.placement else 0

    @property
    def changes(self) -> bool:
        """Return True if the job's world has to change."""
        return self.placement != self.before

    @property
    def reason(self) -> str:
        """Return the reason for the grant as one sentence for people."""
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
    """One job's change of its world in a round."""

    key: str
    placement: JobPlacement | None
    #: Jobs whose own moves have to free accelerators first.
    after: tuple[str, ...] = ()
    #: True if the job has to stop before its new accelerators are free, because jobs wait for each
    #: other in a circle.
    lets_go_first: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One division of a cluster among jobs, with a bound on the utility of any better division."""

    #: A grant for every job of the input, in the same order.
    grants: Mapping[str, Grant]
    #: Moves, each after the moves that it waits for.
    moves: tuple[Move, ...]
    #: Utility of all grants, less ``Weights.shortfall`` for each accelerator that guarantees lack.
    value: float
    #: Upper bound on the value of any division.
    bound: float
    #: Prices to pass to the next round, which begins with them.
    prices: Prices
    #: Accelerators of healthy nodes by type, and those of them that were granted.
    capacity: Mapping[str, int]
    used: Mapping[str, int]
    #: Accelerators that guarantees lack, by tenant; empty if every guarantee is kept.
    short: Mapping[str, int] = field(default_factory=dict)

    @property
    def gap(self) -> float:
        """Return the share of the utility that a better division could add at most: 0.001 is 0.1
        %.
        """
        scale = max(abs(self.bound), 1e-12)
        return max(0.0, self.bound - self.value) / scale
