"""The stores as they were at an earlier time, without later data.

A *cut* is a position in the order of events; event ids increase in the order of commits. So if one
turn has several events, the past of a decision contains only the events that precede the decision.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from brain import wire
from brain.inmemory import MemoryStores
from brain.lifecycle import work
from brain.lifecycle.desired import reached
from brain.lifecycle.observed import KIND, WINDOWS_SECONDS
from brain.models.fitting import MINIMUM_WINDOWS, Point
from brain.ports import StoredFit, Transaction
from brain.settings import Settings
from brain.simulator.replay.record import Record, Recording
from brain.types.job import Intent, Job, JobId, JobState
from brain.types.plan import Outcome, PlanState, ScalePlan
from brain.types.record import Event
from brain.types.resources import PoolName, Resources
from brain.types.telemetry import Phase, Sample, SampleSource, SourceId, ThroughputSample
from brain.types.world import Replica, ReplicaState, World

#: Longest times that a turn looks back at saves and at hosts.
_SAVES, _HOSTS = timedelta(hours=24), timedelta(minutes=2)
_REACHED = frozenset({PlanState.APPLIED, PlanState.VERIFIED, PlanState.ROLLED_BACK})
_JUDGED = frozenset({PlanState.VERIFIED, PlanState.ROLLED_BACK})
_STATES = {f"job.{state}": state for state in JobState}
_PLANS = {f"plan.{state}": state for state in PlanState}


class PastEvidence(StrEnum):
    """The data that is still stored about a past world: samples, only fitted points, or nothing."""

    SAMPLES = "samples"
    #: True if the world's samples are no longer stored; its point then stands for its whole time.
    POINTS = "points"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """A position between two events."""

    #: First event id that is not in the past.
    before: int
    at: datetime


def past(
    recording: Recording, tx: Transaction, pool: PoolName, cut: Cut, settings: Settings
) -> tuple[MemoryStores, dict[JobId, PastEvidence]]:
    """Return the stores of a pool at a cut, and the evidence for each job that ran then.

    Args:
        tx: A transaction of the recorded stores, from which samples are read.
    """
    stores, evidence = MemoryStores(), dict[JobId, PastEvidence]()
    with stores.transaction() as into:
        for node in recording.nodes:
            if node.pool == pool:
                into.nodes.put(replace(node, seen_at=cut.at))
        policy = tx.pools.policy(pool)
        if policy is not None:
            into.pools.put_policy(replace(policy, version=0))
        for record in recording.jobs:
            if record.job.pool == pool and record.job.created_at <= cut.at:
                job = job_then(record, cut)
                into.jobs.add(job)
                for plan in plans_then(record, cut):  # other jobs may have waited for the plan
                    into.plans.add(plan)
                if not job.finished:
                    evidence[job.id] = _fill(record, tx, into, cut, settings)
    return stores, evidence


def job_then(record: Record, cut: Cut) -> Job:
    """Return a job as it was at a cut."""
    moves = [(e, _STATES[e.kind]) for e in _until(record.events, cut) if e.kind in _STATES]
    told = [e for e in _until(record.events, cut) if e.kind in _ADVISING]
    state = moves[-1][1] if moves else JobState.QUEUED
    return replace(
        record.job,
        state=state,
        reason=moves[-1][0].message if moves else "submitted",
        amounts=_amounts(record, cut),
        intent=Intent.SUSPEND if state is JobState.SUSPENDED else Intent.RUN,
        advise_only=told[-1].message if told and told[-1].kind == "job.advise-only" else None,
        exit_code=None,
        finished_at=moves[-1][0].at if moves and state in _ENDS else None,
        updated_at=moves[-1][0].at if moves else record.job.created_at,
        version=1,
    )


#: Events that change whether Brain may act on a job.
_ADVISING = frozenset({"job.advise-only", "job.advise-only-lifted"})
_ENDS = frozenset({JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED})


def _amounts(record: Record, cut: Cut) -> Resources | None:
    """Return the amounts that each replica was to reserve at a cut; None: those of the document."""
    met = (plan for plan in plans_then(record, cut) if plan.changes_resources and reached(plan))
    newest = max(met, key=lambda plan: plan.generation, default=None)
    if newest is None or newest.target.resources == record.job.document.resources:
        return None
    return newest.target.resources


def plans_then(record: Record, cut: Cut) -> Iterator[ScalePlan]:
    """Yield the plans that existed at a cut, in their state at that time, lowest generation
    first.
    """
    states: dict[int, tuple[PlanState, datetime]] = {}
    for event in _until(record.events, cut):
        if event.kind in _PLANS and event.subject is not None:
            states[event.subject] = _PLANS[event.kind], event.at
    for plan in reversed(record.plans):
        if plan.generation in states:
            state, at = states[plan.generation]
            yield replace(
                plan, state=state, updated_at=at, outcome=_outcome(plan, state), version=1
            )


def worlds_then(record: Record, cut: Cut) -> Iterator[World]:
    """Yield the worlds that had formed at a cut, lowest epoch first."""
    had = _Had(record, cut)
    for world in reversed(record.worlds):
        if not had(world.formed_at, world.epoch, "world.formed"):
            continue
        stepped = had(world.stepping_at, world.epoch, "world.stepping")
        ended = had(world.ended_at, world.epoch, "world.lost", "world.finished", "world.stopped")
        yield replace(
            world,
            stepping_at=world.stepping_at if stepped else None,
            downtime_seconds=world.downtime_seconds if stepped else None,
            steps_redone=world.steps_redone if stepped else None,
            ended_at=world.ended_at if ended else None,
        )


def replicas_then(record: Record, cut: Cut) -> Iterator[Replica]:
    """Yield the replicas that had started at a cut, with the amounts that they should reserve at
    that time.
    """
    had, amounts = _Had(record, cut), _amounts(record, cut) or record.job.document.resources
    for replica in record.replicas:
        if not had(replica.started_at, replica.id, "replica.starting", "replica.running"):
            continue
        if replica.ended_at is None or had(replica.ended_at, replica.id, "replica.exited"):
            yield replace(replica, resources=replica.resources and amounts)
        else:
            yield replace(
                replica,
                resources=replica.resources and amounts,
                state=ReplicaState.RUNNING,
                ended_at=None,
                exit=None,
                exit_code=None,
                detail="",
            )


class _Had:
    """Return True if something had happened at a cut, by its event, else by its time."""

    def __init__(self, record: Record, cut: Cut) -> None:
        self._cut = cut
        self._told = {(e.kind, e.subject): e.id for e in reversed(record.events)}

    def __call__(self, at: datetime | None, subject: int, *kinds: str) -> bool:
        if at is None:
            return False
        ids = [self._told[kind, subject] for kind in kinds if (kind, subject) in self._told]
        return min(ids) < self._cut.before if ids else at < self._cut.at


def _fill(
    record: Record, tx: Transaction, into: Transaction, cut: Cut, settings: Settings
) -> PastEvidence:
    """Copy one job's past into the stores from which it is read."""
    job = record.job.id
    worlds = list(worlds_then(record, cut))
    for world in worlds:
        into.worlds.put(world)
    into.worlds.put_replicas(job, replicas_then(record, cut))
    if not worlds:
        return PastEvidence.NOTHING
    earlier = [point for point in record.points if point.epoch < worlds[-1].epoch]
    parameters = wire.encode(earlier).decode()
    into.fits.put(StoredFit(job=job, kind=KIND, parameters=parameters, fitted_at=cut.at))
    declarations = tx.fits.get(job, work.KIND)
    if declarations is not None:
        into.fits.put(declarations)
    _beside(record, tx, into, cut)
    return _samples(record, tx, into, worlds[-1], cut, settings)


def _beside(record: Record, tx: Transaction, into: Transaction, cut: Cut) -> None:
    """Copy the saves of the last day, and the readings of hosts."""
    job = record.job.id
    seen: list[Sample] = [
        *tx.telemetry.saves(job, since=cut.at - _SAVES),
        *tx.telemetry.hosts(job, since=cut.at - _HOSTS),
    ]
    then = [sample for sample in seen if sample.measured_at <= cut.at]
    into.telemetry.add(then, received_at=cut.at)


def _samples(
    record: Record,
    tx: Transaction,
    into: Transaction,
    world: World,
    cut: Cut,
    settings: Settings,
) -> PastEvidence:
    """Return the newest samples of the world at the cut; if they are gone, samples like its
    point.
    """
    since = cut.at - timedelta(seconds=max(WINDOWS_SECONDS))
    kept = tx.telemetry.throughput(record.job.id, since=since, epoch=world.epoch)
    seen = [sample for sample in kept if sample.measured_at <= cut.at]
    if seen:
        into.telemetry.add(seen, received_at=cut.at)
        return PastEvidence.SAMPLES
    point = next((point for point in record.points if point.epoch == world.epoch), None)
    if point is None or world.stepping_at is None or world.stepping_at > cut.at:
        return PastEvidence.NOTHING
    made = list(like(point, world, record.job.id, cut.at, settings))
    into.telemetry.add(made, received_at=cut.at)
    return PastEvidence.POINTS


def like(
    point: Point, world: World, job: JobId, at: datetime, settings: Settings
) -> Iterator[ThroughputSample]:
    """Yield samples from which ``measure`` would compute ``point``."""
    steps = max(1, -(-settings.minimum_steps // MINIMUM_WINDOWS))
    local = None
    if point.examples_per_step is not None:
        local = max(1, round(point.examples_per_step / point.processes / point.accumulation))
    for window in range(MINIMUM_WINDOWS):
        for rank in range(point.processes):
            yield ThroughputSample(
                place=SampleSource(
                    job=job,
                    source=SourceId(f"{world.epoch}-{rank}"),
                    replica=rank,
                    local_rank=0,
                    rank=rank,
                    epoch=world.epoch,
                    generation=world.generation,
                ),
                measured_at=at - timedelta(seconds=MINIMUM_WINDOWS - window),
                sequence=window,
                phase=Phase.TRAINING,
                nodes=point.nodes,
                replicas=point.replicas,
                processes=point.processes,
                accelerator=point.accelerator,
                local_batch=local,
                accumulation=point.accumulation,
                steps=steps,
                step=point.last_step,
                step_seconds=point.step_seconds,
                step_seconds_mean=point.step_seconds,
                data_wait_seconds=0.0,
                examples_per_second=None
                if local is None
                else local * point.accumulation / point.step_seconds,
            )


def _outcome(plan: ScalePlan, state: PlanState) -> Outcome:
    if state in _JUDGED or (state is PlanState.SUPERSEDED and plan.outcome.epoch is not None):
        return plan.outcome
    if state in _REACHED:
        return replace(plan.outcome, measured=None, verdict=None, detail="")
    return Outcome()


def _until(events: Iterable[Event], cut: Cut) -> Iterator[Event]:
    return (event for event in events if event.id < cut.before)
