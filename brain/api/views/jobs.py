"""Views of jobs: as lists show them, in full, and as a scaler needs them."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from brain import lifecycle, wire
from brain.api import auth
from brain.api.views.conditions import conditions, late, memory
from brain.api.views.seen import Seen
from brain.ports import Transaction
from brain.settings import Settings
from brain.types.job import Job, JobDocument
from brain.types.plan import PlanVerdict, ScalePlan
from brain.types.recommendation import Prediction
from brain.types.resources import PoolName
from brain.types.world import World
from brain.views import JobDetail, JobView, JobWish, PoolWishes, WorkerView

#: The sparkline: so many points over so long at most.
_SPARK_POINTS, _SPARK_SPAN = 48, timedelta(hours=3)
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
    """A job with the observations of its worlds and replicas."""
    document, world, plans = job.document, tx.worlds.latest(job.id), tx.plans.of(job.id)
    wish, decision = lifecycle.wish(tx, job, settings), tx.plans.decision(job.id)
    seen = Seen(tx, job, world, job.finished_at or now)
    throughput, step = seen.throughput(settings), seen.step()
    ends_at = _ends_at(document, step, seen.step_seconds() if throughput else None, now)
    return JobView(
        **{name: getattr(job, name) for name in _COPIED},
        **_declared(document),
        conditions=conditions(tx, job, seen, settings, now) + late(job, ends_at),
        mode=lifecycle.effective_mode(job, settings),
        replicas=0 if world is None or world.ended_at or job.finished else world.replicas,
        replicas_wished=wish.replicas,
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
        losses=tx.telemetry.losses(job.id),
        memory=None if job.finished else memory(world, now),
        sparkline=_sparkline(tx, job, seen, now),
        plan=plans[0] if plans else None,
        verdict=next(iter(lifecycle.verdicts(plans[:1]).values()), PlanVerdict.NOT_YET),
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
        object_conditions=one.conditions,
    )


def document(job: Job) -> Mapping[str, Any]:
    """The document as a person would write it; of the environment the names."""
    plain = wire.document_plain(job.document)
    return plain | {"environment": dict.fromkeys(plain.get("environment", {}), "")}


def wishes(tx: Transaction, pool: PoolName, settings: Settings) -> PoolWishes:
    """Return the wishes of a pool: the worlds that a scaler should bring about.

    ``version`` changes whenever a job, its state or its wish does.
    """
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
    return Seen(tx, job, tx.worlds.latest(job.id), now).workers()


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
    document: JobDocument, step: int | None, step_seconds: float | None, now: datetime
) -> datetime | None:
    if step is None or not document.steps or step_seconds is None:
        return None
    return now + timedelta(seconds=max(0, document.steps - step) * step_seconds)


def _sparkline(tx: Transaction, job: Job, seen: Seen, now: datetime) -> tuple[float | None, ...]:
    until = job.finished_at or now
    since = max(job.created_at, until - _SPARK_SPAN)
    if not seen.measured or since >= until:
        return ()
    points = tx.telemetry.series(
        job.id, seen.metric, since=since, until=until, points=_SPARK_POINTS
    )
    width = (until - since) / _SPARK_POINTS
    drawn: list[float | None] = [None] * _SPARK_POINTS
    for point in points:
        drawn[min(_SPARK_POINTS - 1, int((point.at - since) / width))] = point.mean
    return tuple(drawn)
