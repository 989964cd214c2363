"""The savings of Brain's plans, counted from measurements only.

A plan that was applied and measured is compared with the size that a person requested, at
submission or later. Let ``g0`` be the measured throughput with the N0 accelerators of the requested
size, ``g1`` the measured throughput with the N1 accelerators of the plan, and ``t`` the time for
which the job trained with the plan. The plan used N1 t accelerator-hours; the same work would have
taken N0 t g1 / g0. The cost of the change (time without steps, repeated steps) is subtracted, also
for plans that fell short and for rollbacks. A plan that grows a job saves no accelerator-hours, but
spends additional ones so that the job ends sooner; the report shows both. Advice that was not
followed is counted separately, with the accelerator-hours that it promised to save.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from brain.estimates.usage import KIND, used_by
from brain.lifecycle.nodes import heard
from brain.lifecycle.observed import KIND as POINTS
from brain.lifecycle.observed import points
from brain.lifecycle.records import BRAIN
from brain.lifecycle.verdicts import verdicts
from brain.lifecycle.work import WorldStretch, accelerators_of, stretches
from brain.models.fitting import Z90
from brain.ports import Transaction
from brain.settings import Settings, prices_of
from brain.types.estimate import Band
from brain.types.job import Job
from brain.types.order import JOBS, Place
from brain.types.plan import PlanKind, PlanState, PlanVerdict, ScalePlan, Verdict
from brain.types.recommendation import Prediction
from brain.types.savings import HoursBucket, PlanSaving, Savings, SavingsOf

#: Number of newest jobs that are counted.
_JOBS, _PAGE = 5000, 200
#: Most plans that are listed one by one.
_SHOWN = 100
_HOUR = 3600.0
#: Number of buckets: the quarter-hours of a day.
BUCKETS = 96
_NEVER_TAKEN = frozenset(
    {PlanState.PROPOSED, PlanState.EXPIRED, PlanState.REJECTED, PlanState.SUPERSEDED}
)
#: Unit of counting for replicas with accelerators, and for those without.
_UNITS = {True: "GPU-h", False: "core-h"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """The time range of the request, in equal buckets."""

    since: datetime
    until: datetime

    @property
    def bucket(self) -> timedelta:
        """Return the width of a bucket; all buckets together may be longer than the span."""
        return max((self.until - self.since) / BUCKETS, timedelta(microseconds=1))

    def seconds(self, begin: datetime, end: datetime) -> float:
        """Return how many seconds between ``begin`` and ``end`` are within this span."""
        return max(0.0, (min(end, self.until) - max(begin, self.since)).total_seconds())

    def parts(self, begin: datetime, end: datetime) -> Iterator[tuple[int, float]]:
        """Yield each bucket that overlaps the given time, with the seconds of the overlap."""
        first = max(0, int((max(begin, self.since) - self.since) / self.bucket))
        for index in range(first, BUCKETS):
            start = self.since + index * self.bucket
            if start >= end:
                return
            inside = (min(end, start + self.bucket) - max(begin, start)).total_seconds()
            if inside > 0:
                yield index, inside


@dataclass(slots=True)
class _Count:
    """Hours counted so far, of jobs with accelerators or of jobs without."""

    allocated: float = 0.0
    saved: float = 0.0
    variance: float = 0.0
    sooner: float = 0.0
    sooner_variance: float = 0.0
    proposed: float = 0.0
    money: float | None = None
    plans: list[PlanSaving] = field(default_factory=list)
    #: Number of advice that was not taken, by verdict.
    scores: dict[Verdict, int] = field(default_factory=dict)
    held: list[float] = field(default_factory=lambda: [0.0] * BUCKETS)
    working: list[float] = field(default_factory=lambda: [0.0] * BUCKETS)
    spared: list[float] = field(default_factory=lambda: [0.0] * BUCKETS)


def savings(
    tx: Transaction, since: datetime, until: datetime, settings: Settings, now: datetime
) -> Savings:
    """Return the savings of plans from ``since`` to ``until``; ``until`` must not be later than
    ``now``.
    """
    span, counts = Span(since=since, until=until), {True: _Count(), False: _Count()}
    prices = prices_of(settings.accelerator_prices)
    for job in concerned(tx, since):
        worlds = stretches(tx.worlds.of(job.id), job, now)
        if any(span.seconds(one.begin, one.end) for one in worlds):
            count = counts[job.resources.gpus > 0]
            _hold(tx, count, job, worlds, span)
            _plans(tx, count, job, worlds, span, prices, now)
    capacity = _capacity(tx, now)
    return Savings(
        since=since,
        until=until,
        currency=settings.currency,
        of=tuple(
            _told(count, _UNITS[gpus], capacity[gpus], span)
            for gpus, count in counts.items()
            if count.allocated > 0
        ),
    )


def concerned(tx: Transaction, since: datetime) -> Iterator[Job]:
    """Yield the jobs that had not ended by ``since``, newest first; only the newest ``_JOBS`` jobs
    are searched.

    The worlds, plans, points and use of each page of jobs are read ahead.
    """
    after: Place | None = None
    for _ in range(_JOBS // _PAGE):
        page = tx.jobs.page(after=after, size=_PAGE)
        found = [job for job in page if job.finished_at is None or job.finished_at > since]
        ids = [job.id for job in found]
        tx.worlds.read_ahead(ids, every=True)
        tx.plans.read_ahead(ids, every=True)
        tx.fits.read_ahead(ids, KIND, POINTS)
        yield from found
        if len(page) < _PAGE:
            return
        after = JOBS.place(page[-1])


def _hold(
    tx: Transaction, count: _Count, job: Job, worlds: Iterable[WorldStretch], span: Span
) -> None:
    """Count a job's accelerator-hours, and those at work: stepping, not waiting for data."""
    each = accelerators_of(job)
    kept = used_by(tx.fits.get(job.id, KIND)).uses
    waits = {use.epoch: min(1.0, use.wait_share) for use in kept}
    for one in worlds:
        size = each * one.world.replicas
        count.allocated += size * span.seconds(one.begin, one.end) / _HOUR
        for index, seconds in span.parts(one.begin, one.end):
            count.held[index] += size * seconds
        for index, seconds in span.parts(one.stepping, one.end):
            count.working[index] += size * seconds * (1 - waits.get(one.world.epoch, 0.0))


def _plans(
    tx: Transaction,
    count: _Count,
    job: Job,
    worlds: Sequence[WorldStretch],
    span: Span,
    prices: Mapping[str, float],
    now: datetime,
) -> None:
    """Count the savings and costs of a job's plans, and the savings that advice promised."""
    known, plans = points(tx, job), tx.plans.of(job.id)
    kind = job.document.accelerator or (known[-1].accelerator if known else "cpu")
    price = prices.get(kind, prices.get("*"))
    steps = {point.epoch: point.step_seconds for point in known}
    came = verdicts(plans)
    for stood in _stood(plans, worlds):
        told = _applied(count, job, stood, came[stood.plan.generation], span, steps)
        if told is not None:
            count.plans.append(told)
            if price is not None:
                count.money = (count.money or 0.0) + told.saved_hours * price
    for place, plan in enumerate(plans):
        taken = _met(plan) or plan.in_place
        if plan.kind is PlanKind.RESIZE and plan.state in _NEVER_TAKEN and not taken:
            following = plans[place - 1].created_at if place else job.finished_at or now
            if plan.state is PlanState.SUPERSEDED:  # which may be long before the next plan
                following = min(following, plan.updated_at)
            count.proposed += _promised(plan, span, following, accelerators_of(job))
            verdict = plan.outcome.verdict
            if verdict is not None and span.seconds(plan.created_at, following):
                count.scores[verdict] = count.scores.get(verdict, 0) + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Stood:
    """The time for which one of Brain's plans was in force, and the size with which the plan is
    compared.
    """

    plan: ScalePlan
    during: Sequence[WorldStretch]
    #: Replicas that a person asked for, and their throughput; None if that was not measured.
    asked: int
    made: Prediction | None


def _stood(plans: Sequence[ScalePlan], worlds: Sequence[WorldStretch]) -> Iterator[Stood]:
    """Yield Brain's applied plans, oldest first; a size that a person asks for starts a new
    comparison.
    """
    applied = sorted((plan for plan in plans if _met(plan)), key=lambda plan: plan.generation)
    asked: int | None = None
    made: Prediction | None = None
    for place, plan in enumerate(applied):
        if plan.kind is PlanKind.REQUEST or plan.proposed_by != BRAIN:
            asked = None
        elif plan.kind in (PlanKind.RESIZE, PlanKind.ROLLBACK):
            if asked is None:
                asked, made = plan.current.replicas, plan.measured
            following = applied[place + 1].outcome.epoch if place + 1 < len(applied) else None
            during = _in_force(worlds, plan, following)
            yield Stood(plan=plan, during=during, asked=asked, made=made)


def _met(plan: ScalePlan) -> bool:
    """Return True if a world reached a plan's size; amounts alone save nothing by themselves."""
    return plan.outcome.epoch is not None and not plan.in_place


def _in_force(
    worlds: Sequence[WorldStretch], plan: ScalePlan, following: int | None
) -> list[WorldStretch]:
    """Return the worlds of a plan from its first on, until one has another size or the next
    plan's begins.
    """
    found = []
    for one in worlds:
        epoch = one.world.epoch
        if epoch < (plan.outcome.epoch or 0):
            continue
        if one.world.replicas != plan.target.replicas or (following and epoch >= following):
            break
        found.append(one)
    return found


def _applied(
    count: _Count,
    job: Job,
    stood: Stood,
    verdict: PlanVerdict,
    span: Span,
    steps: Mapping[int, float],
) -> PlanSaving | None:
    """Return the saving of a plan while it stood within the span, with the cost of its change."""
    plan, during = stood.plan, stood.during
    if not any(span.seconds(one.begin, one.end) for one in during):
        return None
    each, size = accelerators_of(job), plan.target.replicas
    cost = 0.0
    if span.since <= during[0].begin < span.until:
        redone = (plan.outcome.steps_redone or 0) * steps.get(plan.outcome.epoch or 0, 0.0)
        cost = ((plan.outcome.downtime_seconds or 0.0) + redone) / _HOUR
    ratio, wide = _ratio(stood)
    trained = sum(span.seconds(one.stepping, one.end) for one in during) / _HOUR
    spared = each * (stood.asked * ratio - size) if ratio is not None else 0.0
    saved = trained * spared - cost * each * size
    sooner = trained * (ratio - 1.0) - cost if ratio is not None else -cost
    count.saved += saved
    count.sooner += sooner
    if ratio is not None:
        count.variance += (trained * each * stood.asked * ratio * wide) ** 2
        count.sooner_variance += (trained * ratio * wide) ** 2
    for one in during:
        for index, seconds in span.parts(one.stepping, one.end):
            count.spared[index] += spared * seconds
    return PlanSaving(
        job=job.id,
        job_name=job.document.name,
        generation=plan.generation,
        replicas_asked=stood.asked,
        replicas=size,
        verdict=verdict,
        saved_hours=saved,
        sooner_hours=sooner,
        cost_seconds=cost * _HOUR,
    )


def _ratio(stood: Stood) -> tuple[float | None, float]:
    """Return measured throughput over that of the requested size, and the deviation of its
    logarithm.

    The ratio is None if the plan was not measured, or its verdict is inconclusive.
    """
    plan, before = stood.plan, stood.made
    after = plan.outcome.measured
    if before is None or after is None or plan.target.replicas == stood.asked:
        return None, 0.0
    if not (plan.restores or plan.outcome.verdict in (Verdict.KEPT, Verdict.FELL_SHORT)):
        return None, 0.0
    ratio = after.examples_per_second / before.examples_per_second
    return ratio, math.hypot(_deviation(before), _deviation(after))


def _deviation(measured: Prediction) -> float:
    half = (measured.high - measured.low) / 2
    return half / Z90 / measured.examples_per_second


def _promised(plan: ScalePlan, span: Span, until: datetime, each: float) -> float:
    """Return the accelerator-hours that advice promised to save while it stood."""
    if plan.promised is None or plan.measured is None:
        return 0.0
    ratio = plan.promised.examples_per_second / plan.measured.examples_per_second
    hours = span.seconds(plan.created_at, until) / _HOUR
    return hours * each * (plan.current.replicas * ratio - plan.target.replicas)


def _capacity(tx: Transaction, now: datetime) -> dict[bool, float]:
    """Return the accelerators of all nodes, and the processors of nodes without accelerators."""
    nodes = [node for node in heard(tx.nodes.of(), now) if node.schedulable]
    cores = sum(node.capacity.cpu_millis for node in nodes if not node.capacity.gpus) / 1000
    return {True: float(sum(node.capacity.gpus for node in nodes)), False: cores}


def _told(count: _Count, unit: str, capacity: float, span: Span) -> SavingsOf:
    half, sooner = (Z90 * math.sqrt(v) for v in (count.variance, count.sooner_variance))
    width = span.bucket.total_seconds()
    return SavingsOf(
        unit=unit,
        capacity=capacity,
        allocated_hours=count.allocated,
        working_hours=sum(count.working) / _HOUR,
        saved_hours=Band(value=count.saved, low=count.saved - half, high=count.saved + half),
        sooner_hours=Band(
            value=count.sooner, low=count.sooner - sooner, high=count.sooner + sooner
        ),
        saved_money=count.money,
        proposed_hours=count.proposed,
        plans=tuple(sorted(count.plans, key=lambda one: -abs(one.saved_hours))[:_SHOWN]),
        advice_kept=count.scores.get(Verdict.KEPT, 0),
        advice_fell_short=count.scores.get(Verdict.FELL_SHORT, 0),
        advice_inconclusive=count.scores.get(Verdict.INCONCLUSIVE, 0),
        buckets=tuple(
            HoursBucket(
                at=span.since + index * span.bucket,
                working=working / width,
                idle=max(0.0, held - working) / width,
                saved=spared / width,
            )
            for index, (held, working, spared) in enumerate(
                zip(count.held, count.working, count.spared, strict=True)
            )
        ),
    )
