"""Everything a policy may know of a job when it decides; nothing else enters a decision."""

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Protocol

from brain.errors import Undetermined
from brain.models.fitting import Z90, Point
from brain.models.job import JobModel
from brain.models.resources.servers import ServedJob
from brain.models.sizes import Size
from brain.models.step_time.columns import Configuration
from brain.settings import Settings
from brain.types.allocation import Allocation
from brain.types.job import Job, OptimizeMode, PolicyMode
from brain.types.plan import ScalePlan
from brain.types.recommendation import Prediction
from brain.types.resources import NodeName
from brain.types.roles import PS

#: Standard deviation of log throughput that the model of servers is taken to err by; chosen.
_SERVED_SPREAD = 0.2
#: Batches are shares of others: equal ones differ in the last digits.
_ROUNDING = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkLimits:
    """The work of a run to come, and the rest of the owner's deadline and budget."""

    #: Training to come at the present pace.
    work_seconds: float
    #: Until the deadline; None where there is none. Below 0 it has passed.
    deadline_seconds: float | None = None
    #: Replicas times seconds that the budget still allows; None where there is none.
    replica_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Untenable:
    """A limit of the owner's that the present size breaks."""

    #: By how much, in a few words.
    why: str
    #: Whether another size keeps it; else one only comes nearest.
    kept: bool = True

    def by(self, size: str, rate: str) -> str:
        """The reason to take ``size``, which does ``rate``."""
        does = "would keep it" if self.kept else "would come nearest, none would keep it"
        return f"{self.why}; {size} {does}, at {rate}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowNode:
    """A node that slowed a job down for minutes on end."""

    node: NodeName
    #: Step time there over the median of the others.
    factor: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """One job at one moment."""

    job: Job
    #: The size that stands, and with it every size that would be judged against it.
    current: Allocation
    #: Who approves.
    mode: PolicyMode
    active: ScalePlan | None = None
    #: Why the active plan would not begin now, where that was looked at; None where it would.
    obstacle: str | None = None
    #: The present world measured, or why it is not.
    present: Point | Undetermined
    model: JobModel | None = None
    #: examples/s, or steps/s where no batch was seen.
    unit: str = "examples/s"
    #: Sizes still in question, and those ruled out with the reason.
    sizes: tuple[int, ...]
    ruled_out: tuple[tuple[int, str], ...] = ()
    #: Why the present size cannot stay, where another is to be taken whatever a restart costs.
    untenable: Untenable | None = None
    #: Replicas of this job that fit its pool.
    room: int
    #: Age of the newest sample; None before the first in this world.
    telemetry_age_seconds: float | None
    #: Since the present world formed.
    world_age_seconds: float
    #: Whether a completed save was seen or is declared.
    checkpointed: bool
    #: Whether its workers go over into another world without being ended, so that none of their
    #: work is lost.
    in_process: bool = False
    #: Training that a stop now would lose.
    unsaved_seconds: float
    #: What a change costs without training, and how many of the job's own changes say so.
    restart_seconds: float
    restarts_measured: int = 0
    #: Since a plan last changed the world; None where none ever did.
    since_change_seconds: float | None = None
    #: Changes by Brain's own advice within the last hour, growths in a row as one, and the sizes
    #: that they left.
    changes_lately: int = 0
    left_lately: frozenset[int] = frozenset()
    #: Since it was last moved to other nodes without need; None where it never was.
    since_move_seconds: float | None = None
    #: Whether the last change was a growth of Brain's that kept its promise: on the way up.
    ramping: bool = False
    #: Since the last decision about this job; None before the first.
    since_decision_seconds: float | None = None
    #: Trained so far, and expected to come.
    elapsed_seconds: float
    remaining_seconds: float
    #: Whether a declaration or earlier runs tell the end; else it is as far ahead as the beginning
    #: is behind.
    end_known: bool = False
    #: Why that long, in a few words.
    remaining_basis: str = "as long as so far"
    limits: WorkLimits | None = None
    #: Sizes that fell short lately, and the fewest nodes that they did on; 1 where none were named.
    disappointed: Mapping[int, int] = field(default_factory=dict)
    #: Why its replicas are no job of several, in one sentence; None where nothing says so.
    not_distributed: str | None = None
    #: A rank that is slower than its peers, in one sentence.
    straggler: str | None = None
    #: The node of that rank, where it was the slowest for minutes on end.
    slow: SlowNode | None = None
    #: Most examples of a micro-batch that a device surely holds; None where no memory was read.
    device_examples: float | None = None
    #: Share of the step time that workers wait for data, and of its node's CPUs that are busy.
    data_wait_share: float | None = None
    cpu_share: float | None = None
    #: Share of the time in which processes of its nodes wait for storage, where workers wait.
    io_stalled_share: float | None = None
    #: The job and its parameter servers as measured; None: it has none, or they were not measured.
    served: ServedJob | None = None
    settings: Settings
    now: datetime

    @property
    def replicas(self) -> int:
        """The size that stands."""
        return self.current.replicas

    @property
    def shared(self) -> bool:
        """True if it is decided about together with the others of its pool."""
        return self.job.document.optimize_mode is OptimizeMode.CLUSTER

    @property
    def measured(self) -> Prediction | None:
        """Throughput at the present size; None where too little was measured."""
        return self.present.measured if isinstance(self.present, Point) else None

    def predict(self, replicas: int) -> Prediction:
        """Return the model's throughput at a size.

        Raises:
            Undetermined: nothing was measured yet, or the size is beyond what can be known.
        """
        if isinstance(self.present, Undetermined):
            raise self.present
        if self.served is not None and replicas != self.replicas:
            _, steps = self.served.best(replicas - self._beside)
            rate = self.present.rate * steps / self.served.rate(self.served.workers)
            high = rate * math.exp(Z90 * _SERVED_SPREAD)
            low = rate * math.exp(-Z90 * _SERVED_SPREAD)
            return Prediction(examples_per_second=rate, low=low, high=high, exploring=True)
        assert self.model is not None, "a measured world has a model"
        nodes = self.present.nodes if replicas == self.present.replicas else None
        return self.model.predict(replicas, nodes=nodes)

    @property
    def _beside(self) -> int:
        """Replicas that are neither workers nor servers."""
        return sum(size.replicas for role, size in self.current.roles if role != PS)

    def at(self, replicas: int) -> Allocation:
        """The size with so many replicas, as many of them servers as are best."""
        if self.served is None or replicas == self.replicas:
            return replace(self.current, replicas=replicas)
        servers, _ = self.served.best(replicas - self._beside)
        roles = tuple(
            (role, replace(size, replicas=servers) if role == PS else size)
            for role, size in self.current.roles
        )
        return replace(self.current, replicas=replicas, roles=roles)

    def useful(self, replicas: int) -> float:
        """Predicted goodput at a size: examples/s, each weighed by what it is worth.

        Raises:
            Undetermined: as ``predict``.
        """
        rate = self.predict(replicas).examples_per_second
        return rate * (self.model.worth(replicas) if self.model else 1.0)

    def runs(self, size: Size) -> Configuration | None:
        """Return the configuration at a size; None where the batch at other sizes is unknown."""
        try:
            return self.model.runs(size) if self.model else None
        except Undetermined:
            return None

    def overflows(self, replicas: int) -> str | None:
        """Return why a worker might not fit its device at a size: fewer workers hold more each."""
        if self.device_examples is None or self.model is None or replicas >= self.replicas:
            return None
        runs = self.runs(Size(replicas=replicas))
        if runs is None or (held := runs.local_batch) <= self.device_examples * (1 + _ROUNDING):
            return None
        return (
            f"each worker would hold {held:.0f} examples there, and {self.device_examples:.0f} "
            "surely fit its device"
        )

    def gain(self, replicas: int) -> float | None:
        """Predicted change of throughput against the present; None where it is undetermined."""
        try:
            return self.predict(replicas).examples_per_second / self.rate - 1
        except Undetermined:
            return None

    def without(self, sizes: Collection[int], why: str) -> "Situation":
        """The situation with ``sizes`` ruled out; the present one always stays."""
        return self._ruled_out({size: why for size in self.sizes if size in sizes})

    def without_each(self, objection: "Objection") -> "Situation":
        """The situation without the sizes that ``objection`` has something to say against.

        A size that cannot be predicted stays: it is reported as such, with the measurement that is
        missing.
        """
        out = {}
        for size in self.sizes:
            if size != self.replicas and self.gain(size) is not None:
                why = objection(self, size)
                if why is not None:
                    out[size] = why
        return self._ruled_out(out)

    def _ruled_out(self, why: Mapping[int, str]) -> "Situation":
        out = {size: reason for size, reason in why.items() if size != self.replicas}
        return replace(
            self,
            sizes=tuple(size for size in self.sizes if size not in out),
            ruled_out=(*self.ruled_out, *out.items()),
        )

    @property
    def rate(self) -> float:
        """Throughput at the present size, measurement and model taken together."""
        return self.predict(self.replicas).examples_per_second


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A size and its dominant reason; the present size is a hold."""

    replicas: int
    code: str
    #: One sentence with two numbers.
    reason: str
    next_step: str
    #: Why each other size was not taken.
    why_not: tuple[tuple[int, str], ...] = ()


#: Says why a size is out of the question, in a few words; None where it is not.
Objection = Callable[[Situation, int], str | None]


class Policy(Protocol):
    """Chooses a size for one job."""

    def choose(self, situation: Situation) -> Choice:
        """Return the size the job should have; never one outside of ``situation.sizes``."""
        ...


def deviation(prediction: Prediction) -> float:
    """Standard deviation of log throughput that a 90 % interval stands for."""
    return math.log(prediction.high / prediction.low) / (2 * Z90)


def chance(prediction: Prediction, at_least: float) -> float:
    """Probability that the throughput comes out as ``at_least`` or more."""
    distance = math.log(prediction.examples_per_second / at_least) / deviation(prediction)
    return 0.5 * (1 + math.erf(distance / math.sqrt(2)))
