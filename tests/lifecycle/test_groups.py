"""Groups of a job's replicas: submitted, held, resized by people, and predicted by nobody."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from brain import lifecycle, wire
from brain.api import views
from brain.errors import BadInput, Conflict
from brain.estimates import asking
from brain.lifecycle.capacity import holding
from brain.lifecycle.ledger import Ledger
from brain.lifecycle.observed import KIND, points
from brain.lifecycle.records import move_job
from brain.ports import StoredFit
from brain.scaling import expected_scaling
from brain.types.allocation import Bounds
from brain.types.estimate import EstimateQuestion
from brain.types.job import ApprovalPolicy, Job, JobState, PolicyMode
from brain.types.plan import PlanState, ScalePlan
from brain.types.resources import Resources
from brain.types.roles import RoleSize
from brain.types.telemetry import ReplicaReading, SourceId
from tests import builders
from tests.virtual import POOL, Laptop, scaling_by

LARGE = RoleSize(replicas=1, processes_per_replica=3, resources=Resources(cpu_millis=3000))


def training(**document: Any) -> Laptop:
    """Two replicas of one process and a large one of three, on a machine for twelve."""
    given: dict[str, Any] = {
        "policy": ApprovalPolicy(mode=PolicyMode.AUTO),
        "replicas": Bounds(min=2, max=9, start=3),
        "groups": {"large": LARGE},
    }
    return Laptop(scaling_by(0.9), cpus=12, **(given | document)).start().train(70)


def edit(here: Laptop, **wanted: Any) -> ScalePlan:
    nothing = {"cpu_millis": None, "memory_bytes": None, "replicas": None, "why": ""}
    given = {"by": "ada", "settings": here.settings, "now": here.now}
    with here.transaction() as (tx, job):
        return lifecycle.edit(tx, job, **(nothing | given | wanted))


def request(here: Laptop, replicas: int) -> ScalePlan:
    with here.transaction() as (tx, job):
        given = {"by": "ada", "why": "", "settings": here.settings, "now": here.now}
        return lifecycle.request(tx, job, replicas, **given)


def shown(here: Laptop) -> list[tuple[str, int, int, int]]:
    with here.transaction() as (tx, job):
        view = views.job(tx, job, here.settings, here.now)
    return [
        (one.name, one.replicas, one.replicas_wished, one.processes_per_replica)
        for one in view.groups
    ]


def test_brain_keeps_the_size_of_a_job_with_groups_and_says_why():
    here = training()
    here.live(60)
    assert not here.plans
    assert here.decision.explanation.code == "mixed-groups"
    assert "replicas of large differ from the others" in here.decision.explanation.reason


def test_a_person_resizes_each_group_by_itself():
    here = training()
    plan = edit(here, role="large", replicas=2)
    assert plan.explanation.reason == "ada asked for 3 → 4 replicas, large 1 → 2"
    assert (plan.current.processes, plan.target.processes, plan.promised) == (5, 8, None)
    here.turn()
    assert shown(here) == [("worker", 2, 2, 1), ("large", 1, 2, 3)]
    here.coordinate().train(70)
    assert here.plans[0].state in (PlanState.APPLIED, PlanState.VERIFIED)
    assert shown(here) == [("worker", 2, 2, 1), ("large", 2, 2, 3)]


def test_a_job_that_ended_shows_no_groups():
    here = training()
    with here.transaction() as (tx, job):
        move_job(tx, job, JobState.SUCCEEDED, "all workers ended with exit code 0", here.now)
    assert shown(here) == []


def test_a_size_without_a_group_changes_the_other_replicas():
    here = training()
    plan = request(here, 4)
    assert [(name, size.replicas) for name, size in plan.target.roles] == [("large", 1)]
    assert plan.target.workers == 3


def test_a_size_that_leaves_only_groups_is_refused():
    here = training()
    edit(here, role="large", replicas=2)
    here.turn()
    with pytest.raises(BadInput, match="ask for at least 3"):
        request(here.coordinate(), 2)


def test_a_group_has_room_by_its_own_amounts():
    with pytest.raises(Conflict, match="replicas with these amounts now"):
        edit(training(), role="large", replicas=4)


#: Four accelerators of each of two types, on a node of its own.
TYPES = [
    builders.node(name, accelerator=name.upper(), capacity=Resources(cpu_millis=8000, gpus=4))
    for name in ("a", "b")
]


def a_job(id: str = "mixed", *, large: int = 1, **fields: Any) -> Job:
    """Replicas of two accelerators A, and ``large`` replicas of four accelerators B."""
    group = RoleSize(
        replicas=large,
        processes_per_replica=4,
        resources=Resources(cpu_millis=1000, gpus=4),
        accelerator="B",
    )
    given: dict[str, Any] = {
        "replicas": Bounds(min=large + 1, max=9),
        "resources": Resources(cpu_millis=1000, gpus=2),
        "accelerator": "A",
        "groups": {"large": group},
    }
    made = builders.job(id, name=id)
    return replace(made, document=replace(made.document, **(given | fields)))


def test_each_group_fits_the_nodes_of_its_accelerator_by_its_own_amounts():
    assert Ledger(TYPES, ()).rooms(a_job()) == {"b": 1, "a": 2}
    # The second group has no node left, so nothing beyond the first counts.
    assert Ledger(TYPES, ()).room(a_job(large=2)) == 1


def test_what_groups_hold_is_taken_from_the_nodes_of_their_accelerator():
    here = Laptop(scaling_by(0.9), cpus=12)
    with here.stores.transaction() as tx:
        taken = holding(tx, replace(a_job(), state=JobState.STARTING))
    ledger = Ledger(TYPES, [taken])
    assert {name: left.gpus for name, left in ledger.free.items()} == {"a": 2, "b": 0}
    other = a_job("other", groups={}, accelerator=None)
    assert ledger.rooms(other) == {"a": 1, "b": 0}
    # Its own replicas are where they are, and two more fit beside the first.
    assert ledger.rooms(a_job()) == {"b": 1, "a": 2}
    ledger.drop(taken.job)
    assert {name: left.gpus for name, left in ledger.free.items()} == {"a": 4, "b": 4}


def test_no_size_of_a_job_with_groups_is_predicted():
    here = training()
    here.turn()
    with here.transaction() as (tx, job):
        sizes = expected_scaling(tx, job, here.settings, here.now).sizes
    other = [one for one in sizes if one.replicas != 3]
    assert not any(one.prediction for one in other)
    assert {one.undetermined for one in other} == {"no model predicts replicas that differ"}


def test_a_document_with_groups_is_not_estimated():
    here = training()
    document = replace(here.document, name="another")
    with (
        here.transaction() as (tx, _),
        pytest.raises(BadInput, match="leave groups out") as refused,
    ):
        asking.ask(
            tx,
            document,
            EstimateQuestion(),
            owner="ada",
            pool=POOL,
            settings=here.settings,
            now=here.now,
        )
    assert refused.value.field == "groups"


def test_what_a_job_with_groups_measured_is_no_measurement_of_other_runs():
    here = training()
    here.live(60)
    alike = replace(here.document, name="alike", groups={})
    id = here.submit(alike, id=builders.JOB.replace("0001", "0009"))
    with here.stores.transaction() as tx:
        lifecycle.earlier.inherit(tx, tx.jobs.get(id), here.now)
        assert tx.fits.get(id, lifecycle.earlier.RUNS) is None
        question = {"owner": "ada", "pool": POOL, "settings": here.settings, "now": here.now}
        assert asking.ask(tx, alike, EstimateQuestion(), **question).exploring


@pytest.mark.parametrize(("groups", "counts"), [({"large": LARGE}, False), ({}, True)])
def test_a_job_with_groups_compares_no_kinds_of_accelerator(
    groups: dict[str, RoleSize], counts: bool
):
    here = training(groups=groups)
    here.live(60)
    with here.transaction() as (tx, job):
        one, *_ = points(tx, job)
        both = [one, replace(one, accelerator="A100", step_seconds=one.step_seconds / 3)]
        kept = wire.encode(both).decode()
        tx.fits.put(StoredFit(job=job.id, kind=KIND, parameters=kept, fitted_at=here.now))
        found = lifecycle.earlier.compared(tx, POOL, [])
    assert (here.id in found) is counts


def test_each_group_gets_amounts_by_the_use_of_its_own_replicas_on_a_shared_machine():
    ample = Resources(cpu_millis=6000)
    here = training(groups={"large": replace(LARGE, resources=ample)})
    groups = {0: "worker", 1: "worker", 2: "large"}
    size = here.document.allocation
    here.observe(
        *(builders.replica(id, role=name, resources=size.of(name)) for id, name in groups.items())
    )
    while not here.plans and here.now < builders.NOW + timedelta(hours=1):
        own = tuple(
            ReplicaReading(replica=id, cpu_millis=2500 if name == "large" else 500, memory_bytes=1)
            for id, name in groups.items()
        )
        sample = builders.host(
            int(here.now.timestamp()), measured_at=here.now, replica_readings=own
        )
        with here.stores.transaction() as tx:
            mine = replace(sample, job=here.id, source=SourceId("machine"))
            tx.telemetry.add([mine], received_at=here.now, offset_seconds=0.0)
        here.train(5).turn()
    (plan,) = here.plans
    assert plan.in_place
    assert plan.target.of("large").cpu_millis < ample.cpu_millis
    assert plan.target.of("worker") == plan.current.of("worker")
