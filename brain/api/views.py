"""Builds what the API answers with from the stores; reads only, decides nothing."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from math import sqrt
from statistics import fmean, median, stdev
from typing import Any

from brain import lifecycle, wire
from brain.api import auth
from brain.ports import Point, Transaction
from brain.settings import Settings
from brain.types.job import Job, JobDocument, JobState
from brain.types.plan import ScalePlan
from brain.types.recommendation import Prediction, Recommendation
from brain.types.resources import Node, PoolName, Resources
from brain.types.telemetry import Phase, ThroughputSample
from brain.types.world import ReplicaState, World
from brain.views import (
    Condition,
    JobDetail,
    JobView,
    JobWish,
    NodeView,
    PlanView,
    PoolWishes,
    Series,
    SeriesPoint,
    WorkerView,
)

#: What "now" means for throughput, and how finely its scatter is looked at.
WINDOW = timedelta(minutes=1)
_SLICES = 12
#: The sparkline: so many points over so long.
_SPARK_POINTS, _SPARK_SPAN = 48, timedelta(hours=3)
#: 5th to 95th percentile of a normal, in standard errors.
_NINETY_PERCENT = 1.645
#: A worker so much slower than the median of its peers is called a straggler.
STRAGGLER = 0.15
#: A node that was silent for so long is not ready; its scaler speaks every few seconds.
_NODE_SILENT = timedelta(seconds=60)
#: Beyond so many worlds the steps of a job are no longer summed up for a view.
_WORLDS_SUMMED = 20

_STEPPING = frozenset({JobState.RUNNING, JobState.CHANGING, JobState.DEGRADED})

#: Units of the metrics that ``TelemetryStore.series`` knows.
UNITS: Mapping[str, str] = {
    "examples_per_second": "examples/s",
    "steps_per_second": "steps/s",
    "step_seconds": "s",
    "replicas": "replicas",
}


def job(tx: Transaction, job: Job, settings: Settings, now: datetime) -> JobView:
    """A job with what was observed of it."""
    document, world, plans = job.document, tx.worlds.latest(job.id), tx.plans.of(job.id)
    wish = lifecycle.wish(tx, job, settings)
    decision = tx.plans.decision(job.id)
    seen = _Seen(tx, job, world, job.finished_at or now)
    step = seen.step(tx)
    return JobView(
        id=job.id,
        name=document.name,
        project=document.project,
        owner=job.owner,
        pool=job.pool,
        state=job.state,
        reason=job.reason,
        conditions=_conditions(tx, job, seen, decision, settings),
        intent=job.intent,
        mode=lifecycle.effective_mode(job, settings),
        optimize_mode=document.optimize_mode,
        advise_only=job.advise_only,
        failures=job.failures,
        exit_code=job.exit_code,
        created_at=job.created_at,
        updated_at=job.updated_at,
        finished_at=job.finished_at,
        version=job.version,
        replicas_min=document.replicas.min,
        replicas_max=document.replicas.max,
        unit=document.replicas.unit,
        replicas=0 if world is None or world.ended_at or job.finished else world.replicas,
        replicas_wished=wish.replicas,
        processes_per_replica=document.processes_per_replica,
        resources=document.resources,
        epoch=None if world is None else world.epoch,
        generation=wish.generation,
        unit_of_throughput=seen.unit,
        throughput=seen.throughput,
        promised=_promised(plans, job, world),
        data_wait_share=seen.share("data_wait_share"),
        cpu_share=seen.share("cpu_share"),
        memory_share=seen.share("memory_share"),
        gpu_share=seen.share("gpu_share"),
        step=step,
        progress=_progress(document, step),
        ends_at=_ends_at(document, step, seen, now),
        telemetry_age_seconds=seen.age_seconds(now),
        losses=tx.telemetry.losses(job.id),
        sparkline=_sparkline(tx, job, seen, now),
        plan=plans[0] if plans else None,
        decision=decision,
    )


def detail(tx: Transaction, one: Job, settings: Settings, now: datetime) -> JobDetail:
    """One job in full."""
    return JobDetail(
        job=job(tx, one, settings, now),
        document=document(one),
        world=tx.worlds.latest(one.id),
        worlds=tuple(tx.worlds.of(one.id)),
        replicas=tuple(tx.worlds.replicas(one.id)),
    )


def document(job: Job) -> Mapping[str, Any]:
    """The document as a person would write it; of the environment the names."""
    plain = wire.document_plain(job.document)
    return plain | {"environment": dict.fromkeys(plain.get("environment", {}), "")}


def plan(tx: Transaction, plan: ScalePlan, settings: Settings, now: datetime) -> PlanView:
    """A plan with its job's name and whether it can be approved."""
    owner = tx.jobs.get(plan.job)
    return PlanView(
        job_name=owner.document.name,
        plan=plan,
        blocked=lifecycle.refusal(owner, plan, settings, now),
        shadow=lifecycle.effective_mode(owner, settings) == "shadow",
    )


def wishes(tx: Transaction, pool: PoolName, settings: Settings) -> PoolWishes:
    """What a scaler should make true of a pool; ``version`` changes whenever anything does."""
    jobs = tuple(
        JobWish(
            job=job.id,
            name=job.document.name,
            project=job.document.project,
            state=job.state,
            wish=lifecycle.wish(tx, job, settings),
            document=document(job),
        )
        for job in tx.jobs.unfinished(pool)
    )
    marks = [(job.job, str(job.state), job.wish.version) for job in jobs]
    return PoolWishes(pool=pool, version=auth.sha256(wire.encode(marks))[:16], jobs=jobs)


def workers(tx: Transaction, job: Job, now: datetime) -> tuple[WorkerView, ...]:
    """Step time of each worker of the present world over the last minute, by rank."""
    world = tx.worlds.latest(job.id)
    if world is None:
        return ()
    samples = tx.telemetry.throughput(job.id, since=now - WINDOW, epoch=world.epoch)
    ranks: defaultdict[int, list[ThroughputSample]] = defaultdict(list)
    for sample in samples:
        if sample.phase is Phase.TRAINING:
            ranks[sample.place.rank].append(sample)
    times = {rank: median(s.step_seconds for s in some) for rank, some in ranks.items()}
    typical = median(times.values()) if times else 0.0
    nodes = {member.replica: member.node for member in world.members}
    return tuple(
        WorkerView(
            rank=rank,
            replica=ranks[rank][-1].place.replica,
            local_rank=ranks[rank][-1].place.local_rank,
            node=nodes.get(ranks[rank][-1].place.replica, world.members[0].node),
            step_seconds=seconds,
            deviation=seconds / typical - 1 if typical else 0.0,
            straggler=bool(typical) and seconds > typical * (1 + STRAGGLER),
        )
        for rank, seconds in sorted(times.items())
    )


def nodes(tx: Transaction, settings: Settings, now: datetime) -> tuple[NodeView, ...]:
    """All nodes with what live replicas reserve on them."""
    known = tx.nodes.of()
    reserved: defaultdict[str, Resources] = defaultdict(Resources)
    names: defaultdict[str, set[str]] = defaultdict(set)
    for pool in tx.jobs.pools():
        for job in tx.jobs.unfinished(pool):
            for replica in tx.worlds.replicas(job.id):
                if replica.state is not ReplicaState.EXITED:
                    reserved[replica.node] += job.document.resources
                    names[replica.node].add(job.document.name)
    return tuple(_node(node, reserved[node.name], names[node.name], now) for node in known)


def series(
    tx: Transaction, job: Job, metric: str, *, since: datetime, until: datetime, width: int
) -> Series:
    """A metric over time in at most half as many buckets as pixels (each has a low and a high)."""
    points = tx.telemetry.series(
        job.id, metric, since=since, until=until, points=max(1, width // 2)
    )
    return Series(
        metric=metric,
        unit=UNITS.get(metric, "share"),
        since=since,
        until=until,
        points=tuple(SeriesPoint(at=p.at, mean=p.mean, low=p.low, high=p.high) for p in points),
    )


class _Seen:
    """What was measured of a job around ``now``, in its present world."""

    def __init__(self, tx: Transaction, job: Job, world: World | None, now: datetime) -> None:
        self._tx, self._job, self.world, self._now = tx, job, world, now
        self.unit, self.throughput = "examples/s", None
        samples = self._samples()
        if samples and all(sample.examples_per_second is None for sample in samples):
            self.unit = "steps/s"
        self.newest = max((s.measured_at for s in samples), default=None)
        self.last = next((s for s in reversed(samples) if s.place.rank == 0), None)
        if job.state in _STEPPING:
            self.throughput = _interval(self._recent(self.metric, _SLICES))

    @property
    def metric(self) -> str:
        """The series that the job's throughput is read from."""
        return "examples_per_second" if self.unit == "examples/s" else "steps_per_second"

    def share(self, metric: str) -> float | None:
        """Mean of a share over the last minute; None where nothing was measured."""
        if self._job.state not in _STEPPING:
            return None
        points = self._recent(metric, 1)
        return points[-1].mean if points else None

    def age_seconds(self, now: datetime) -> float | None:
        """Age of the newest sample that is still kept raw; never negative."""
        return None if self.newest is None else max(0.0, (now - self.newest).total_seconds())

    def step(self, tx: Transaction) -> int | None:
        """Optimizer steps of the script so far: those of each world less those made again."""
        if self.world is None or self.last is None or self.world.epoch != self.last.place.epoch:
            return None
        worlds = sorted(tx.worlds.of(self._job.id), key=lambda world: world.epoch)
        if len(worlds) > _WORLDS_SUMMED:
            return None
        total = self.last.step
        for world, following in pairwise(worlds):
            done = self._steps_of(world, following.formed_at)
            if done is None:
                return None
            total += done - (following.steps_redone or 0)
        return total

    def _steps_of(self, world: World, until: datetime) -> int | None:
        samples = self._tx.telemetry.throughput(
            self._job.id, since=until - 2 * WINDOW, epoch=world.epoch
        )
        return next((s.step for s in reversed(samples) if s.place.rank == 0), 0)

    def _samples(self) -> Sequence[ThroughputSample]:
        """Those of the last minute; where there are none, the last ones there were."""
        for span in (WINDOW, timedelta(hours=1), timedelta(days=1)):
            samples = self._tx.telemetry.throughput(self._job.id, since=self._now - span)
            if samples or self.world is None:
                return samples
        return ()

    def _recent(self, metric: str, points: int) -> Sequence[Point]:
        began = self.world.formed_at if self.world else self._now
        since = max(began, self._now - WINDOW)
        if since >= self._now:
            return ()
        return self._tx.telemetry.series(
            self._job.id, metric, since=since, until=self._now, points=points
        )


def _interval(points: Sequence[Point]) -> Prediction | None:
    """Mean with its 90 % interval, from the scatter of slices of the last minute."""
    if not points:
        return None
    means = [point.mean for point in points]
    mean = fmean(means)
    if len(means) < 2:
        return Prediction(examples_per_second=mean, low=points[0].low, high=points[0].high)
    half = _NINETY_PERCENT * stdev(means) / sqrt(len(means))
    return Prediction(examples_per_second=mean, low=max(0.0, mean - half), high=mean + half)


def _conditions(
    tx: Transaction,
    job: Job,
    seen: _Seen,
    decision: Recommendation | None,
    settings: Settings,
) -> tuple[Condition, ...]:
    if job.finished:
        return ()
    found: list[tuple[str, str]] = []
    if decision is not None and decision.hold:
        found.append(("Holding", decision.explanation.reason))
    if job.advise_only is not None:
        found.append(("AdviseOnly", job.advise_only))
    if (freeze := lifecycle.frozen(tx, job)) is not None:
        found.append(("Frozen", f"frozen by {freeze.by}: {freeze.why}"))
    if job.state in _STEPPING:
        found += _measured_conditions(tx, job, seen, settings)
    return tuple(Condition(kind=kind, reason=reason) for kind, reason in found)


def _measured_conditions(
    tx: Transaction, job: Job, seen: _Seen, settings: Settings
) -> list[tuple[str, str]]:
    age = seen.age_seconds(seen._now)
    if age is not None and age > settings.stale_seconds:
        return [("StaleTelemetry", f"the newest sample is {age:.0f} s old")]
    slow = [worker for worker in workers(tx, job, seen._now) if worker.straggler]
    return [
        ("Straggler", f"rank {one.rank} on {one.node} is {one.deviation:.0%} slower than its peers")
        for one in slow[:1]
    ]


def _promised(plans: Sequence[ScalePlan], job: Job, world: World | None) -> Prediction | None:
    generation, _ = lifecycle.standing(plans, job)
    stands = next((plan for plan in plans if plan.generation == generation), None)
    if stands is None or world is None or world.replicas != stands.target.replicas:
        return None
    return stands.promised


def _progress(document: JobDocument, step: int | None) -> float | None:
    if step is None or not document.steps:
        return None
    return min(1.0, step / document.steps)


def _ends_at(
    document: JobDocument, step: int | None, seen: _Seen, now: datetime
) -> datetime | None:
    if step is None or not document.steps or seen.last is None or seen.throughput is None:
        return None
    left = max(0, document.steps - step)
    return now + timedelta(seconds=left * seen.last.step_seconds_mean)


def _sparkline(tx: Transaction, job: Job, seen: _Seen, now: datetime) -> tuple[float | None, ...]:
    until = job.finished_at or now
    since = max(job.created_at, until - _SPARK_SPAN)
    if seen.newest is None or since >= until:
        return ()
    points = tx.telemetry.series(
        job.id, seen.metric, since=since, until=until, points=_SPARK_POINTS
    )
    width = (until - since) / _SPARK_POINTS
    drawn: list[float | None] = [None] * _SPARK_POINTS
    for point in points:
        drawn[min(_SPARK_POINTS - 1, int((point.at - since) / width))] = point.mean
    return tuple(drawn)


def _node(node: Node, reserved: Resources, jobs: set[str], now: datetime) -> NodeView:
    return NodeView(
        name=node.name,
        pool=node.pool,
        accelerator=node.accelerator,
        capacity=node.capacity,
        reserved=reserved,
        slots=node.slots,
        seen_at=node.seen_at,
        ready=now - node.seen_at < _NODE_SILENT,
        schedulable=node.schedulable,
        jobs=tuple(sorted(jobs)),
    )
