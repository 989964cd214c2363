"""Amounts of a running job: asked for, applied while it runs, verified, and rolled back."""

from dataclasses import replace
from typing import Any

import pytest

from brain import lifecycle
from brain.errors import BadInput, Conflict
from brain.lifecycle.amounts import ReplicaUse, shortage
from brain.lifecycle.capacity import room
from brain.types.job import ApprovalPolicy, JobState, OptimizeMode, PolicyMode
from brain.types.plan import PlanKind, PlanState, ScalePlan, Verdict
from brain.types.pool import Freeze, FreezeScope
from brain.types.resources import Resources
from brain.types.telemetry import ReplicaReading, SourceId
from brain.types.world import ReplicaState, WorldEvent
from tests import builders
from tests.virtual import Laptop, scaling_by

GIB = 2**30
MANUAL = ApprovalPolicy(mode=PolicyMode.APPROVE)
AUTO = ApprovalPolicy(mode=PolicyMode.AUTO)


def training(policy: ApprovalPolicy = MANUAL, **document: Any) -> Laptop:
    """Four cores, 8 GiB, and one replica that reserves a core and 2 GiB."""
    amounts = Resources(cpu_millis=1000, memory_bytes=2 * GIB)
    given = {"optimize_mode": OptimizeMode.MANUAL, "resources": amounts, "policy": policy}
    here = Laptop(scaling_by(0.9), cpus=4, **(given | document)).start()
    with here.stores.transaction() as tx:
        whole = Resources(cpu_millis=4000, memory_bytes=8 * GIB)
        tx.nodes.put(replace(builders.node(), capacity=whole))
    return here.train(70)


def edit(here: Laptop, **wanted: Any) -> ScalePlan:
    nothing = {"cpu_millis": None, "memory_bytes": None, "replicas": None, "why": ""}
    with here.transaction() as (tx, job):
        return lifecycle.edit(
            tx, job, by="ada", settings=here.settings, now=here.now, **(nothing | wanted)
        )


def measure(here: Laptop, seconds: int, **use: Any) -> None:
    """Train, while the machine is read every five seconds."""
    for _ in range(seconds // 5):
        here.train(5)
        sample = builders.host(
            int(here.now.timestamp()), measured_at=here.now, **({"job_cpu_millis": 400} | use)
        )
        with here.stores.transaction() as tx:
            tx.telemetry.add(
                [replace(sample, job=here.id, source=SourceId("machine"))],
                received_at=here.now,
                offset_seconds=0.0,
            )


def has(here: Laptop, amounts: Resources, unenforced: str = "") -> None:
    """Let the scaler report what the only replica reserves."""
    running = {"state": ReplicaState.RUNNING, "resources": amounts, "unenforced": unenforced}
    here.observe(builders.replica(0, **running))


def follow(here: Laptop) -> None:
    """Let the scaler give the replica what Brain wishes, and Brain take its turn."""
    has(here, here.wish().resources or here.job.document.resources)
    here.turn()


def test_amounts_are_applied_once_the_replica_has_them_and_no_world_changes():
    here = training()
    has(here, Resources(cpu_millis=1000, memory_bytes=2 * GIB))
    plan = edit(here, memory_bytes=4 * GIB, why="it grows")
    assert (plan.kind, plan.state) == (PlanKind.REQUEST, PlanState.APPLYING)
    assert plan.explanation.reason == "ada asked for memory 2 → 4 GiB each: it grows"
    assert "apply now" in plan.explanation.next_step
    asked = Resources(cpu_millis=1000, memory_bytes=4 * GIB)
    assert here.wish().resources == asked
    assert here.job.resources.memory_bytes == 2 * GIB, "what stands is what was there before"

    has(here, asked)
    here.turn()

    plan = here.plans[0]
    assert (plan.state, plan.outcome.epoch) == (PlanState.APPLIED, 1)
    assert (plan.outcome.downtime_seconds, here.world and here.world.epoch) == (0.0, 1)
    assert here.job.resources == asked


def test_amounts_are_not_applied_before_any_replica_is_known():
    here = training()
    edit(here, memory_bytes=4 * GIB)
    here.turn()
    assert here.plans[0].state is PlanState.APPLYING
    follow(here)
    assert here.plans[0].state is PlanState.APPLIED


def test_amounts_that_suffice_are_kept():
    here = training()
    measure(here, 60, replica_memory_bytes=GIB)
    edit(here, memory_bytes=int(1.5 * GIB))
    follow(here)
    measure(here, 30, replica_memory_bytes=GIB)
    follow(here)

    assert (here.plans[0].state, here.plans[0].outcome.verdict) == (
        PlanState.VERIFIED,
        Verdict.KEPT,
    )
    assert here.job.resources.memory_bytes == int(1.5 * GIB)


def test_amounts_that_are_too_little_are_rolled_back_where_brain_may_act():
    here = training(AUTO)
    measure(here, 60, replica_memory_bytes=GIB)
    edit(here, cpu_millis=500)
    follow(here)
    measure(here, 30, replica_memory_bytes=GIB, throttled_share=0.4)
    follow(here)
    follow(here)

    back, missed = here.plans
    assert (missed.state, missed.outcome.verdict) == (PlanState.ROLLED_BACK, Verdict.FELL_SHORT)
    assert (
        "throttled a replica in 40 % of its scheduler periods, and in 0 % before the change"
        in missed.outcome.detail
    )
    assert (back.kind, back.state) == (PlanKind.ROLLBACK, PlanState.APPLIED)
    assert here.job.resources.cpu_millis == 1000
    assert here.wish().resources is None, "the document's again"


def test_stops_are_no_fault_of_a_plan_that_lowers_no_cpu():
    here = training(AUTO)
    measure(here, 60, replica_memory_bytes=GIB)
    edit(here, memory_bytes=int(1.5 * GIB))
    follow(here)
    measure(here, 30, replica_memory_bytes=GIB, throttled_share=0.4)
    follow(here)

    assert here.plans[0].outcome.verdict is Verdict.KEPT


def test_an_amount_where_none_was_is_lowered_too():
    here = training(AUTO, resources=Resources())
    edit(here, cpu_millis=500)
    follow(here)
    measure(here, 30, throttled_share=0.4)
    follow(here)
    follow(here)

    assert here.plans[0].kind is PlanKind.ROLLBACK
    assert here.job.resources == Resources()


def test_in_other_modes_the_verdict_stands_beside_the_amounts_and_a_person_rolls_back():
    here = training(MANUAL)
    edit(here, cpu_millis=500)
    follow(here)
    measure(here, 30, throttled_share=0.4)
    follow(here)
    missed = here.plans[0]
    assert (missed.state, missed.outcome.verdict) == (PlanState.VERIFIED, Verdict.FELL_SHORT)

    with here.transaction() as (tx, _):
        given = {"version": None, "why": "", "settings": here.settings, "now": here.now}
        lifecycle.rollback(tx, missed, by="ada", **given)
    follow(here)

    assert here.job.resources.cpu_millis == 1000


def test_a_replica_that_refuses_ends_the_plan_with_its_reason():
    here = training()
    has(here, here.job.resources)
    edit(here, memory_bytes=GIB)
    has(here, here.job.resources, "memory 1 GiB is less than what is in use")
    here.turn()
    assert here.plans[0].state is PlanState.APPLYING, "it may have said so about earlier amounts"
    here.wait(10).turn()

    restored, failed = here.plans
    assert failed.state is PlanState.FAILED
    assert "is less than what is in use" in failed.outcome.detail
    assert (restored.kind, restored.state) == (PlanKind.RESTORE, PlanState.APPLIED)
    assert here.wish().resources is None


def test_where_a_replica_cannot_go_back_the_larger_amounts_stay():
    here = training()
    edit(here, memory_bytes=4 * GIB, replicas=2)
    larger = replace(here.job.resources, memory_bytes=4 * GIB)
    has(here, larger)
    here.report(WorldEvent.HELD, detail="no safe point came")
    assert here.wish().resources is None
    has(here, larger, "memory 2 GiB is less than what is in use")
    here.wait(10).turn()

    assert (here.plans[0].kind, here.plans[0].state) == (PlanKind.RESTORE, PlanState.FAILED)
    assert "the replicas keep the larger amounts" in here.plans[0].outcome.detail
    assert (here.job.state, here.job.resources) == (JobState.RUNNING, larger)
    assert (here.wish().replicas, here.wish().resources) == (1, larger)


def test_amounts_and_a_size_are_one_plan():
    here = training()
    plan = edit(here, memory_bytes=GIB * 3 // 2, replicas=3)
    assert plan.explanation.reason == "ada asked for 1 → 3 replicas, memory 2 → 1.5 GiB each"
    assert "The size changes at the next safe point." in plan.explanation.next_step
    here.coordinate()
    follow(here)

    assert here.plans[0].state is PlanState.APPLIED
    assert (here.size, here.job.resources.memory_bytes) == (3, GIB * 3 // 2)


def test_a_size_that_a_person_asked_for_stays_though_its_amounts_fell_short():
    here = training(AUTO)
    edit(here, cpu_millis=500, replicas=2)
    here.coordinate()
    follow(here)
    measure(here, 70, throttled_share=0.4)
    follow(here)

    missed = here.plans[0]
    assert (missed.state, missed.outcome.verdict) == (PlanState.VERIFIED, Verdict.FELL_SHORT)
    assert here.size == 2


def test_a_job_that_waits_for_too_much_starts_with_what_an_edit_asks_for():
    here = training()
    large = {"resources": Resources(memory_bytes=7 * GIB), "name": "large"}
    waits = here.submit(replace(here.document, **large), id="j2")
    here.turn()
    with here.stores.transaction() as tx:
        job = tx.jobs.get(waits)
        assert job.state is JobState.QUEUED
        nothing = {"cpu_millis": None, "replicas": None, "why": "", "by": "ada"}
        given = {"settings": here.settings, "now": here.now}
        plan = lifecycle.edit(tx, job, memory_bytes=3 * GIB, **nothing, **given)
    assert (plan.state, plan.outcome.verdict) == (PlanState.VERIFIED, Verdict.INCONCLUSIVE)
    here.turn()
    with here.stores.transaction() as tx:
        job = tx.jobs.get(waits)
        assert (job.state, job.resources.memory_bytes) == (JobState.STARTING, 3 * GIB)
        wish = lifecycle.wish(tx, job, here.settings)
        assert (wish.replicas, wish.resources) == (1, job.resources)


def test_a_later_size_keeps_the_amounts():
    here = training()
    edit(here, memory_bytes=GIB)
    follow(here)
    with here.transaction() as (tx, job):
        asked = {"by": "ada", "why": "", "settings": here.settings, "now": here.now}
        plan = lifecycle.request(tx, job, 4, **asked)

    assert plan.target.resources.memory_bytes == GIB
    assert not plan.changes_resources


def test_a_size_that_is_asked_for_during_an_edit_keeps_the_edit():
    here = training()
    has(here, here.job.resources)
    edit(here, memory_bytes=3 * GIB)
    asked = {"by": "ada", "why": "", "settings": here.settings, "now": here.now}
    with here.transaction() as (tx, job):
        plan = lifecycle.request(tx, job, 4, **asked)

    assert plan.target.replicas == 2, "of 3 GiB each no more fit"
    assert plan.target.resources.memory_bytes == 3 * GIB
    assert here.wish().resources == plan.target.resources


def test_a_job_that_reserves_nothing_may_have_another_size():
    here = training(resources=Resources())
    assert edit(here, replicas=2).target.replicas == 2


def test_other_jobs_get_what_an_edit_frees_and_not_what_it_takes():
    here = training()
    with here.transaction() as (tx, job):
        other = replace(job, id=builders.JobId("j2"))
        assert room(tx, other, here.now) == 3
    edit(here, memory_bytes=6 * GIB)
    with here.transaction() as (tx, job):
        assert room(tx, other, here.now) == 1


def fits(here: Laptop, memory_bytes: int) -> int:
    """Replicas of another job that fit."""
    with here.transaction() as (tx, job):
        amounts = replace(job.resources, memory_bytes=memory_bytes)
        return room(tx, replace(job, id=builders.JobId("j2"), amounts=amounts), here.now)


def test_nobody_gets_what_was_freed_before_it_is_known_not_to_be_missed():
    here = training()
    measure(here, 60, replica_memory_bytes=GIB // 2)
    edit(here, memory_bytes=GIB)
    follow(here)
    assert (here.plans[0].state, fits(here, 7 * GIB)) == (PlanState.APPLIED, 0)
    measure(here, 30, replica_memory_bytes=GIB // 2)
    follow(here)
    assert (here.plans[0].state, fits(here, 7 * GIB)) == (PlanState.VERIFIED, 1)


def test_nobody_gets_what_a_replica_still_has():
    here = training()
    has(here, replace(here.job.resources, memory_bytes=6 * GIB))
    assert fits(here, 2 * GIB) == 1


def test_a_way_back_to_amounts_for_which_no_room_is_left_lapses():
    here = training(AUTO)
    measure(here, 60, replica_memory_bytes=GIB)
    edit(here, memory_bytes=int(1.2 * GIB))
    follow(here)
    with here.stores.transaction() as tx:
        smaller = Resources(cpu_millis=4000, memory_bytes=int(1.5 * GIB))
        tx.nodes.put(replace(builders.node(), capacity=smaller))
    measure(here, 30, replica_memory_bytes=int(1.19 * GIB))
    follow(here)
    assert (here.plans[0].kind, here.plans[0].state) == (PlanKind.ROLLBACK, PlanState.APPROVED)

    here.wait(here.settings.proposal_seconds).turn()
    assert here.plans[0].state is PlanState.EXPIRED
    assert "the pool has room for 0 of 1 replica now" in here.plans[0].outcome.detail


def test_an_edit_of_a_job_that_is_being_suspended_says_so():
    here = training()
    with here.transaction() as (tx, job):
        lifecycle.suspend(tx, job, by="ada", now=here.now)
    plan = edit(here, memory_bytes=GIB)
    assert plan.explanation.next_step == (
        "No part of the edit applies now: a request to suspend the job is pending."
    )


def test_a_freeze_keeps_amounts_as_they_are_and_the_answer_says_so():
    here = training()
    with here.transaction() as (tx, job):
        frozen = Freeze(scope=FreezeScope.JOB, target=job.id, by="bob", why="audit", at=here.now)
        lifecycle.freeze(tx, frozen)
    plan = edit(here, memory_bytes=GIB)

    assert plan.state is PlanState.APPROVED
    assert plan.explanation.next_step.startswith("No part of the edit applies now: frozen by bob")


@pytest.mark.parametrize(
    ("wanted", "field", "says"),
    [
        ({}, "cpu_millis", "are all missing; give at least one"),
        ({"cpu_millis": -5}, "cpu_millis", "is not a possible amount for a replica; give 10 to"),
        ({"cpu_millis": 64_000}, "cpu_millis", "fits no node of pool local, even an empty one"),
        (
            {"memory_bytes": 1},
            "memory_bytes",
            "1 is not a possible amount for a replica; give 16777216",
        ),
        (
            {"memory_bytes": 99 * GIB},
            "memory_bytes",
            "no node has more than 4 CPUs, 8.00 GiB or 0",
        ),
        ({"memory_bytes": GIB // 2}, "memory_bytes", "above the 1.00 GiB that a replica uses"),
        ({"memory_bytes": GIB + 1}, "memory_bytes", "give at least 1130254552"),
        (
            {"cpu_millis": 200},
            "cpu_millis",
            "less than the 400 mCPU that a replica uses now; give at least 400",
        ),
        ({"replicas": 9}, "replicas", "not within the bounds 1:4"),
    ],
)
def test_an_impossible_edit_is_refused_with_field_and_remedy(
    wanted: dict[str, int], field: str, says: str
):
    here = training()
    measure(here, 10, replica_memory_bytes=GIB)
    with pytest.raises(BadInput, match=says) as refused:
        edit(here, **wanted)
    assert refused.value.field == field
    assert here.plans == []


def test_what_does_not_fit_now_and_what_changes_nothing_is_a_conflict():
    here = training()
    with pytest.raises(Conflict, match="room for 1 of 2 replicas with these amounts"):
        edit(here, memory_bytes=5 * GIB, replicas=2)
    with pytest.raises(Conflict, match="already has these values"):
        edit(here, memory_bytes=2 * GIB)


def test_memory_that_is_nearly_full_and_more_stops_are_too_little():
    amounts = Resources(cpu_millis=1000, memory_bytes=GIB)
    before = ReplicaUse(throttled=0.1)
    assert shortage(amounts, before, ReplicaUse(memory_bytes=0.9 * GIB, throttled=0.14)) == ""
    said = shortage(amounts, before, ReplicaUse(memory_bytes=0.96 * GIB, throttled=0.2))
    assert said == (
        "a replica uses 0.960 of 1.00 GiB and a CPU quota throttled a replica in 20 % of its "
        "scheduler periods, and in 10 % before the change"
    )


def test_a_replica_that_was_read_by_itself_bounds_an_edit():
    here = training()
    measure(here, 30, replica_readings=(ReplicaReading(replica=0, cpu_millis=900, memory_bytes=1),))
    with pytest.raises(BadInput, match="less than the 900 mCPU that a replica uses now"):
        edit(here, cpu_millis=500)
