"""The inputs of a decision: everything that a policy may know about a job."""

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Protocol

from brain.errors import Undetermined
from brain.models.fitting import Z90, Point
from brain.models.job import JobModel
from brain.models.resources.servers import ServedJob
from brain.models.resources.sharding import ShardedMemory
from brain.models.sizes import Size
from brain.models.step_time.columns import Configuration
from brain.settings import Settings
from brain.types.allocation import Allocation
from brain.types.document import UNSAID
from brain.types.job import Job, OptimizeMode, PolicyMode
from brain.types.plan import ScalePlan
from brain.types.recommendation import Prediction
from brain.types.resources import NodeName, Resources
from brain.types.roles import PS, WORKER, is_group
from brain.typeset import gibibytes

#: Assumed standard deviation of log throughput in the model of servers; chosen.
_SERVED_SPREAD = 0.2
#: Relative tolerance of batches: quotients of equal batches may differ in the last digits.
_ROUNDING = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkLimits:
    """The remaining work of a run, and what remains of the owner's deadline and budget."""

    #: Seconds of training left at the present pace.
    work_seconds: float
    #: Seconds until the deadline, below 0 after it; None without one.
    deadline_seconds: float | None = None
    #: Replica-seconds that the budget still allows; None without one.
    replica_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Untenable:
    """A limit of the owner that the present size breaks."""

    #: The excess over the limit, in a few words.
    why: str
    #: True if another size keeps the limit; False if it only comes nearest.
    kept: bool = True

    def by(self, size: str, rate: str) -> str:
        """Return the reason to choose ``size``, whose throughput is ``rate``."""
        does = (
            "would keep the limit"
            if self.kept
            else ("would come nearest, because no size keeps the limit")
        )
        return f"{self.why}; {size} {does}, at {rate}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowNode:
    """A node that slowed a job down for several minutes."""

    node: NodeName
    #: Step time on the node over the median of the others.
    factor: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """One job at one moment."""

    job: Job
    #: The standing size, against which every other size is judged.
    current: Allocation
    #: Mode by which plans are approved.
    mode: PolicyMode
    active: ScalePlan | None = None
    #: The obstacle that would keep the active plan from beginning, if one was found.
    obstacle: str | None = None
    #: The point of the present world, or the reason why it is not measured.
    present: Point | Undetermined
    model: JobModel | None = None
    #: Unit of rates: examples/s, or steps/s if no batch was seen.
    unit: str = "examples/s"
    #: Sizes not excluded, and the excluded ones with the reason.
    sizes: tuple[int, ...]
    ruled_out: tuple[tuple[int, str], ...] = ()
    #: The reason why the present size has to be left at any cost of a restart; None if it may stay.
    untenable: Untenable | None = None
    #: Replicas of this job that fit its pool.
    room: int
    #: Seconds since the newest sample; None before the first in this world.
    telemetry_age_seconds: float | None
    #: Age from which telemetry is stale.
    stale_after_seconds: float
    #: Seconds since the present world formed.
    world_age_seconds: float
    #: True if a completed save was seen or is declared.
    checkpointed: bool
    #: True if its workers change to another world in process, so that none of their work is lost.
    in_process: bool = False
    #: Seconds of training that a stop now would lose.
    unsaved_seconds: float
    #: Seconds without training that a change costs, and the number of the job's own changes on
    #: which this estimate rests.
    restart_seconds: float
    restarts_measured: int = 0
    #: Seconds since a plan last changed the world; None if none ever did.
    since_change_seconds: float | None = None
    #: Changes by Brain's own advice within the last hour, successive growths counted once, and the
    #: sizes that they left.
    changes_lately: int = 0
    left_lately: frozenset[int] = frozenset()
    #: Seconds since the job was last moved to other nodes without need; None if it never was.
    since_move_seconds: float | None = None
    #: True if the last change was Brain's growth that kept its promise: the job is on its way up.
    ramping: bool = False
    #: Seconds since the last decision about this job; None before the first.
    since_decision_seconds: float | None = None
    #: Seconds trained so far, and seconds of training left.
    elapsed_seconds: float
    remaining_seconds: float
    #: True if a declaration or earlier runs give the end; otherwise the time left equals the time
    #: trained so far.
    end_known: bool = False
    #: The reason for the time left, in a few words.
    remaining_basis: str = (
        "Brain assumes that the run still needs as much time as it has taken so far"
    )
    limits: WorkLimits | None = None
    #: Sizes that fell short lately, with the fewest nodes of each; 1 if no nodes were named.
    disappointed: Mapping[int, int] = field(default_factory=dict)
    #: Sentence on why the replicas seem to be copies of one program; None if they do not.
    not_distributed: str | None = None
    #: Sentence on a rank that is slower than its peers; None without one.
    straggler: str | None = None
    #: Node of that rank, if it was the slowest for minutes on end.
    slow: SlowNode | None = None
    #: Most examples of a micro-batch that a device certainly holds; None if no memory was read.
    device_examples: float | None = None
    #: Device memory of a job that shards its state over its workers; None: it does not, or no
    #: memory was read.
    sharded: ShardedMemory | None = None
    #: Share of the step time that workers wait for data; busy share of its nodes' CPUs.
    data_wait_share: float | None = None
    cpu_share: float | None = None
    #: Seconds of a step for which the script saves; None unless it saves after most steps.
    save_seconds: float | None = None
    #: Share of time in which processes of its nodes wait for storage, if workers wait for data.
    io_stalled_share: float | None = None
    #: The job with its parameter servers as measured; None: it has none, or they were not measured.
    served: ServedJob | None = None
    settings: Settings
    now: datetime

    @property
    def replicas(self) -> int:
        """Return the number of replicas of the present target."""
        return self.current.replicas

    @property
    def shared(self) -> bool:
        """Return True if Brain decides about the job together with the other jobs of its pool."""
        return self.job.document.optimize_mode is OptimizeMode.CLUSTER

    @property
    def measured(self) -> Prediction | None:
        """Return the throughput at the present size; None if too little was measured."""
        return self.present.measured if isinstance(self.present, Point) else None

    def predict(self, replicas: int) -> Prediction:
        """Return the model's throughput at a size.

        Raises:
            Undetermined: too little was measured, or the model cannot predict this size.
        """
        if isinstance(self.present, Undetermined):
            raise self.present
        if self.served is not None and replicas != self.replicas:
            if replicas <= self._beside + len(self.served.servers):
                raise Undetermined(
                    "the parameter servers would leave no replica for a worker", code="no-steps"
                )
            steps = self.served.best(replicas - self._beside).rate
            rate = self.present.rate * steps / self.served.rate(self.served.workers)
            rate *= self._seen_beside(replicas)
            high = rate * math.exp(Z90 * _SERVED_SPREAD)
            low = rate * math.exp(-Z90 * _SERVED_SPREAD)
            return Prediction(examples_per_second=rate, low=low, high=high, exploring=True)
        if self.serves and replicas != self.replicas:
            raise Undetermined("some servers have no reading from the last minute", code="no-usage")
        if self.groups and replicas != self.replicas:
            raise Undetermined("no model predicts replicas that differ", code="mixed-groups")
        assert self.model is not None, "a measured world has a model"
        nodes = self.present.nodes if replicas == self.present.replicas else None
        return self.model.predict(replicas, nodes=nodes)

    @property
    def groups(self) -> tuple[str, ...]:
        """Return the names of the job's groups."""
        return tuple(name for name, _ in self.current.roles if is_group(name))

    @property
    def serves(self) -> bool:
        """Return True if the job has parameter servers."""
        return PS in dict(self.current.roles)

    def _seen_beside(self, replicas: int) -> float:
        """Return the factor by which the model of servers missed the nearest measured larger size;
        in part for sizes nearer than that one.

        A smaller size was measured with fewer servers than it would have now.
        """
        assert self.served is not None
        here = self.replicas
        points = () if self.model is None else self.model.points
        seen = {point.replicas: point.rate for point in points if point.replicas > here}
        if not seen or replicas < here or not isinstance(self.present, Point):
            return 1.0
        size = min(seen, key=lambda size: abs(math.log(size / replicas)))
        steps = self.served.best(size - self._beside).rate
        said = self.present.rate * steps / self.served.rate(self.served.workers)
        share = min(1.0, math.log(replicas / here) / math.log(size / here))
        return math.pow(seen[size] / said, share)

    @property
    def _beside(self) -> int:
        """Return the replicas that are neither workers nor servers."""
        return sum(size.replicas for role, size in self.current.roles if role != PS)

    def at(self, replicas: int) -> Allocation:
        """Return the allocation with ``replicas``.

        If the job has parameter servers, the allocation has the best number of servers, and the
        processors that each server then needs. Workers keep at most what is ample for them, because
        a growth would multiply what they reserve and do not use.
        """
        if self.served is None or replicas == self.replicas:
            return replace(self.current, replicas=replicas)
        best, amounts = self.served.best(replicas - self._beside), self.current.of(PS)
        # Servers may use more than they reserve where no limit holds them.
        cpus = min(best.cpus, self.served.most_cpus)
        amounts = replace(amounts, cpu_millis=max(amounts.cpu_millis, round(1000 * cpus)))
        roles = tuple(
            (role, replace(size, replicas=best.servers) if role == PS else size)
            for role, size in self.current.roles
        )
        size = replace(self.current, replicas=replicas, roles=roles).reserving(PS, amounts)
        return size.reserving(WORKER, self._ample(size.workers, best.rate))

    def _ample(self, workers: int, rate: float) -> Resources:
        """Return the amounts of each worker at a size, which are at most ample."""
        assert self.served is not None
        has, (cpus, memory) = self.current.resources, self.served.ample(workers, rate)
        millis = has.cpu_millis
        if millis != UNSAID.cpu_millis:
            millis = round(min(millis, 1000 * cpus))
        return replace(has, cpu_millis=millis, memory_bytes=round(min(has.memory_bytes, memory)))

    def useful(self, replicas: int) -> float:
        """Return the predicted goodput at a size: examples/s, weighted by the value of an example.

        Raises:
            Undetermined: too little was measured, or the model cannot predict this size.
        """
        rate = self.predict(replicas).examples_per_second
        return rate * (self.model.worth(replicas) if self.model else 1.0)

    def runs(self, size: Size) -> Configuration | None:
        """Return the configuration at a size; None if the batch size at other sizes is unknown."""
        try:
            return self.model.runs(size) if self.model else None
        except Undetermined:
            return None

    def overflows(self, replicas: int) -> str | None:
        """Return why a worker might not fit its device at a smaller size; None if it fits.

        With fewer workers, each holds more of a divided training state, or more examples.
        """
        if replicas >= self.replicas:
            return None
        if self.sharded is not None and not self.sharded.fits(replicas):
            most, whole = self.sharded.most(replicas), self.sharded.capacity_bytes
            return (
                "the state is sharded over the workers: at this size each worker may hold up to "
                f"{gibibytes(most)}, but its device has only {gibibytes(whole)}"
            )
        if self.device_examples is None or self.model is None:
            return None
        runs = self.runs(Size(replicas=replicas))
        if runs is None or (held := runs.local_batch) <= self.device_examples * (1 + _ROUNDING):
            return None
        return (
            f"at this size each worker would hold {held:.0f} examples, but only "
            f"{self.device_examples:.0f} are known to fit its device"
        )

    def gain(self, replicas: int) -> float | None:
        """Return the predicted throughput at a size relative to the present throughput, minus 1;
        None if undetermined.
        """
        try:
            return self.predict(replicas).examples_per_second / self.rate - 1
        except Undetermined:
            return None

    def with_lower_raises(self) -> "Situation":
        """Return the situation in which each server may have at most half as many processors at
        other sizes as now allowed.
        """
        assert self.served is not None, "only a job with servers gets other amounts at another size"
        return replace(self, served=replace(self.served, most_cpus=self.served.most_cpus / 2))

    def without(self, sizes: Collection[int], why: str) -> "Situation":
        """Return the situation without ``sizes``; the present size always stays."""
        return self._ruled_out({size: why for size in self.sizes if size in sizes})

    def without_target(self, size: int, why: str) -> "Situation":
        """Return the situation without ``size``.

        If ``size`` is the present size, it becomes the only size instead, and its replicas keep
        their roles.
        """
        if size == self.replicas:
            return replace(self, served=None, sizes=(size,))
        return self.without((size,), why)

    def without_each(self, objection: "Objection") -> "Situation":
        """Return the situation without the sizes to which ``objection`` objects.

        A size that cannot be predicted stays, and is reported with the missing measurement.
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
        """Return the throughput at the present size, combined from measurement and model."""
        return self.predict(self.replicas).examples_per_second


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The chosen size and the main reason; if the chosen size is the present one, the choice is a
    hold.
    """

    replicas: int
    code: str
    #: One sentence with two numbers.
    reason: str
    next_step: str
    #: The reason why each other size was not taken.
    why_not: tuple[tuple[int, str], ...] = ()


#: Returns the reason to exclude a size, in a few words; None if there is none.
Objection = Callable[[Situation, int], str | None]


class Policy(Protocol):
    """A policy chooses a size for one job."""

    def choose(self, situation: Situation) -> Choice:
        """Return the size that the job should have, one of ``situation.sizes``."""
        ...


def deviation(prediction: Prediction) -> float:
    """Return the standard deviation of log throughput from the prediction's 90 % interval."""
    return math.log(prediction.high / prediction.low) / (2 * Z90)


def chance(prediction: Prediction, at_least: float) -> float:
    """Return the probability that the throughput is at least ``at_least``."""
    distance = math.log(prediction.examples_per_second / at_least) / deviation(prediction)
    return 0.5 * (1 + math.erf(distance / math.sqrt(2)))
