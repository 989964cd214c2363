"""Fleets of jobs in stores, of every kind that lists show."""

from dataclasses import replace

from brain import estimates, wire
from brain.estimates.usage import Used, folded
from brain.lifecycle.desired import BATCH, AskedBatch
from brain.ports import StoredFit, Stores
from brain.types.batch import BatchWish
from brain.types.document import BatchBounds
from brain.types.job import JobDocument, JobId, JobState
from brain.types.plan import Outcome, PlanState, ScalePlan, Verdict
from brain.types.pool import Freeze, FreezeScope
from brain.types.recommendation import Prediction
from brain.types.roles import RoleSize
from brain.types.telemetry import SourceId
from brain.types.world import ReplicaState
from tests.builders import (
    at,
    document,
    host,
    job,
    loss,
    node,
    plan,
    recommendation,
    replica,
    throughput,
    world,
)

#: When the fleet is looked at.
LOOKED_AT = at(60)


def job_id(number: int) -> JobId:
    """The id of a job of the fleet.

    Of every four jobs one runs, one is new, one is silent, and one ended. Of the silent ones, every
    other is frozen and has groups; the rest are of another project, never had a plan, and Brain
    chose their batches.
    """
    return JobId(f"0197f000-0000-7000-8000-{number:012d}")


def fill(stores: Stores, count: int, *, already: int = 0) -> None:
    """Store jobs with all that lists show of them, until there are ``count``."""
    with stores.transaction() as tx:
        tx.nodes.put(node(seen_at=LOOKED_AT))
        for number in range(already, count):
            id, state = job_id(number), _state(number)
            begun = job(
                id,
                state=state,
                created_at=at(-600),
                finished_at=at(30) if state is JobState.SUCCEEDED else None,
            )
            tx.jobs.add(replace(begun, document=_document(number)))
            if number % 8 == 2:
                tx.freezes.put(
                    Freeze(scope=FreezeScope.JOB, target=id, by="ada", why="demo", at=at(0))
                )
            if state is JobState.QUEUED:
                tx.plans.add(plan(1, job=id, state=PlanState.EXPIRED))
                continue
            tx.worlds.put(replace(world(1, formed_at=at(-600)), job=id))
            tx.worlds.put(replace(world(2, formed_at=at(-100), stepping_at=at(-99)), job=id))
            gone = replica(0, state=ReplicaState.EXITED, ended_at=at(50), unfit="it was slow")
            tx.worlds.put_replicas(id, [gone, replica(1)])
            if number % 8 != 6:
                tx.plans.add(_kept(id))
                tx.plans.add(plan(2, job=id, after=((job_id(number // 4 * 4 + 1), 1),)))
            tx.plans.decide(id, recommendation(1))
            source = SourceId(f"host-{number}")
            hosts = [replace(host(n, job=id), source=source) for n in (-400, 5, 30)]
            used = wire.encode(folded(Used(), hosts, tx.worlds.latest(id))).decode()
            tx.fits.put(StoredFit(job=id, kind=estimates.USAGE, parameters=used, fitted_at=at(0)))
            if number % 8 == 6:
                asked = AskedBatch(
                    wish=BatchWish(global_size=64, local_most=32), at=at(0), reason="it"
                )
                batch = wire.encode(asked).decode()
                tx.fits.put(StoredFit(job=id, kind=BATCH, parameters=batch, fitted_at=at(0)))
            tx.fits.put(StoredFit(job=id, kind="other", parameters="{}", fitted_at=at(0)))
            heard = range(-500, -400) if number % 4 == 2 else range(60)
            samples = [throughput(n, job=id, epoch=2, source=f"now-{number}") for n in heard]
            past = [throughput(n, job=id, source=f"past-{number}") for n in range(-120, -99)]
            lost = replace(loss(3, sequence=9, source=f"now-{number}"), job=id, measured_at=at(61))
            tx.telemetry.add([*samples, *past, lost, *hosts], received_at=LOOKED_AT)


def _document(number: int) -> JobDocument:
    """The document of a job of the fleet."""
    named = document(f"job-{number}")
    if number % 8 == 2:
        return replace(named, groups={"large": RoleSize(processes_per_replica=2)})
    if number % 8 == 6:
        batch = BatchBounds(global_size=64, global_max=256, tune=True)
        return replace(named, project="vision", batch=batch)
    return named


def _kept(id: JobId) -> ScalePlan:
    """A plan that was applied, measured and kept."""
    throughput = Prediction(examples_per_second=640.0, low=600.0, high=680.0)
    outcome = Outcome(epoch=2, measured=throughput, verdict=Verdict.KEPT)
    return plan(1, job=id, state=PlanState.VERIFIED, promised=throughput, outcome=outcome)


def _state(number: int) -> JobState:
    kinds = (JobState.RUNNING, JobState.QUEUED, JobState.RUNNING, JobState.SUCCEEDED)
    return kinds[number % 4]
