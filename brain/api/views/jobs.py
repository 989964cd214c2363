"""Views of jobs: for lists, for a job's page, and for scalers."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from brain import estimates, lifecycle, wire
from brain.api import auth
from brain.api.views.conditions import conditions, late, memory
from brain.api.views.measurements import WINDOW, RecentMeasurements
from brain.api.views.sparklines import Sparklines
from brain.lifecycle.desired import BATCH, FIRST_NODES
from brain.lifecycle.observed import WINDOWS_SECONDS
from brain.ports import Transaction
from brain.settings import Settings
from brain.types.job import Job, JobDocument
from brain.types.plan import ScalePlan
from brain.types.recommendation import Prediction
from brain.types.resources import PoolName
from brain.types.roles import WORKER
from brain.types.world import DesiredWorld, Member, World
from brain.views import DesiredJob, DesiredPool, GroupView, JobDetail, JobView, WorkerView

#: Fields that are shown as they are stored.
_COPIED = (
    "id",
    "owner",
    "pool",
    "state",
    "reason",
    "intent",
    "advise_only",
    "failures",
    "exit_code",
    "resources",
    "created_at",
    "updated_at",
    "finished_at",
    "version",
)


def job(tx: Transaction, job: Job, settings: Settings, now: datetime) -> JobView:
    """Return a job with the observations of its worlds and replicas."""
    return jobs(tx, [job], settings, now)[0]


def jobs(
    tx: Transaction,
    some: Sequence[Job],
    settings: Settings,
    now: datetime,
    sparklines: Sparklines | None = None,
) -> tuple[JobView, ...]:
    """Return jobs with the observations of their worlds and replicas.

    The number of queries does not depend on the number of jobs. Recent ``sparklines`` are reused.
    """
    if len(some) > 1:
        _read_ahead(tx, some, now)
    seen = [
        RecentMeasurements(tx, job, tx.worlds.latest(job.id), settings, job.finished_at or now)
        for job in some
    ]
    unsure = {job.id: now for job, it in zip(some, seen, strict=True) if it.unsure}
    if len(unsure) > 1:
        tx.telemetry.read_ahead(unsure, window=timedelta(seconds=WINDOWS_SECONDS[-1]))
    steps = tx.telemetry.steps([job.id for job in some])
    metrics = [(job, it.metric) for job, it in zip(some, seen, strict=True) if it.measured]
    drawn = (sparklines or Sparklines()).drawn(tx, metrics, now)
    return tuple(
        _job(tx, job, it, steps.get(job.id), drawn.get(job.id, ()), settings, now)
        for job, it in zip(some, seen, strict=True)
    )


def _read_ahead(tx: Transaction, some: Sequence[Job], now: datetime) -> None:
    ids = [job.id for job in some]
    tx.plans.read_ahead(ids)
    tx.worlds.read_ahead(ids)
    tx.fits.read_ahead(ids, BATCH, FIRST_NODES, estimates.USAGE)
    tx.telemetry.read_ahead({job.id: job.finished_at or now for job in some}, window=WINDOW)


def _job(
    tx: Transaction,
    job: Job,
    seen: RecentMeasurements,
    step: int | None,
    sparkline: tuple[float | None, ...],
    settings: Settings,
    now: datetime,
) -> JobView:
    document, world = job.document, tx.worlds.latest(job.id)
    plans = tx.plans.effective(job.id)
    wish, decision = lifecycle.wish(tx, job, settings), tx.plans.decision(job.id)
    throughput = seen.throughput()
    ends_at = _ends_at(document, step, seen.step_seconds() if throughput else None, now)
    members = () if world is None or world.ended_at or job.finished else world.members
    return JobView(
        **{name: getattr(job, name) for name in _COPIED},
        **_declared(document),
        conditions=conditions(tx, job, seen, settings, now) + late(job, ends_at),
        mode=lifecycle.effective_mode(job, settings),
        replicas=len(members),
        replicas_wished=wish.replicas,
        groups=_groups(job, wish, members),
        epoch=None if world is None else world.epoch,
        generation=wish.generation,
        unit_of_throughput=seen.unit,
        throughput=throughput,
        promised=_promised(plans, job, world),
        data_wait_share=seen.share("data_wait_share"),
        cpu_share=seen.share("cpu_share"),
        memory_share=seen.share("memory_share"),
        gpu_share=seen.share("gpu_share"),
        step=step,
        progress=_progress(document, step),
        ends_at=ends_at,
        telemetry_age_seconds=seen.age_seconds(now),
        stale_after_seconds=seen.stale_after_seconds,
        losses=tx.telemetry.losses(job.id),
        memory=None if job.finished else memory(world, now),
        sparkline=sparkline,
        plan=plans[0] if plans else None,
        verdict=lifecycle.newest_verdict(plans),
        decision=decision,
    )


def detail(tx: Transaction, one: Job, settings: Settings, now: datetime) -> JobDetail:
    return JobDetail(
        job=job(tx, one, settings, now),
        document=document(one),
        world=tx.worlds.latest(one.id),
        worlds=tuple(tx.worlds.of(one.id)),
        replicas=tuple(tx.worlds.replicas(one.id)),
        object_conditions=one.conditions,
    )


def document(job: Job) -> Mapping[str, Any]:
    """Return the document in the form that a person writes, with only the names of environment
    variables.
    """
    plain = wire.document_plain(job.document)
    return plain | {"environment": dict.fromkeys(plain.get("environment", {}), "")}


def wishes(
    tx: Transaction,
    pool: PoolName,
    settings: Settings,
    *,
    keep_apart: bool = True,
    known: str | None = None,
) -> DesiredPool:
    """Return the desired state of a pool, which its scaler has to bring about.

    ``keep_apart`` is True if this machine can confine the jobs of users who are not administrators.
    ``known`` is the version that the scaler has. If the version is still the same, the result
    contains no jobs.

    ``version`` changes whenever a job, its state or its desired world does. The number of queries
    does not depend on the number of jobs.
    """
    version = auth.sha256(wire.encode(lifecycle.wish_versions(tx, pool, settings)))[:16]
    if version == known:
        return DesiredPool(pool=pool, version=version, jobs=())
    unfinished = tx.jobs.unfinished(pool)
    ids = [job.id for job in unfinished]
    tx.plans.read_ahead(ids)
    tx.fits.read_ahead(ids, BATCH, FIRST_NODES)
    jobs = tuple(
        DesiredJob(
            job=job.id,
            name=job.document.name,
            project=job.document.project,
            state=job.state,
            wish=lifecycle.wish(tx, job, settings),
            document=document(job),
            member=job.owner if job.confined and keep_apart else None,
        )
        for job in unfinished
    )
    return DesiredPool(pool=pool, version=version, jobs=jobs)


def workers(tx: Transaction, job: Job, settings: Settings, now: datetime) -> tuple[WorkerView, ...]:
    """Return the step time of each worker of the present world by rank, over the last minute, or
    over three steps if they take longer.
    """
    return RecentMeasurements(tx, job, tx.worlds.latest(job.id), settings, now).workers()


def _declared(document: JobDocument) -> dict[str, Any]:
    """Return the fields of a document that its owner declared."""
    return {
        "name": document.name,
        "project": document.project,
        "optimize_mode": document.optimize_mode,
        "replicas_min": document.replicas.min,
        "replicas_max": document.replicas.max,
        "unit": document.replicas.unit,
        "processes_per_replica": document.processes_per_replica,
    }


def _groups(job: Job, wish: DesiredWorld, members: Sequence[Member]) -> tuple[GroupView, ...]:
    """Return the groups and roles of a job, its workers outside the groups first; empty if all
    replicas are alike, or the job has ended.
    """
    groups = wish.roles
    if not groups or job.finished:
        return ()
    size = replace(job.sized(wish.replicas), roles=groups)
    here = Counter(member.role for member in members)
    wished = {WORKER: size.workers} | {name: one.replicas for name, one in groups}
    return tuple(
        GroupView(
            name=name,
            replicas=here[name],
            replicas_wished=count if wish.replicas else 0,
            processes_per_replica=size.processes_of(name),
            resources=size.of(name),
        )
        for name, count in wished.items()
    )


def _promised(plans: Sequence[ScalePlan], job: Job, world: World | None) -> Prediction | None:
    if not plans:
        return None
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
    document: JobDocument, step: int | None, step_seconds: float | None, now: datetime
) -> datetime | None:
    if step is None or not document.steps or step_seconds is None:
        return None
    try:
        return now + timedelta(seconds=max(0, document.steps - step) * step_seconds)
    except OverflowError:  # some owners declare more steps than they will ever make
        return None
