"""Roles of a job: sizes and amounts of each, asked for, applied, judged."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from brain import lifecycle, wire
from brain.api import views
from brain.errors import BadInput, Conflict
from brain.estimates.history import rooms
from brain.lifecycle.amounts import recent_use
from brain.lifecycle.capacity import fitting, holding
from brain.lifecycle.work import accelerators_of
from brain.scaling import expected_scaling
from brain.types.allocation import Allocation, Bounds
from brain.types.document import JobDocument
from brain.types.explanation import Explanation
from brain.types.job import ApprovalPolicy, OptimizeMode, PolicyMode
from brain.types.plan import PlanKind, PlanState, ScalePlan, Verdict
from brain.types.resources import Resources
from brain.types.roles import RoleSize
from brain.types.telemetry import ReplicaReading, SourceId
from brain.types.world import Cause, WorldEvent
from brain.typeset import reallocated
from tests import builders
from tests.virtual import Laptop, scaling_by

GIB = 2**30
ONE, BUSY = Resources(cpu_millis=1000), Resources(cpu_millis=1500)
ROLES = {"ps": RoleSize(replicas=2), "chief": RoleSize()}


def training(cpus: int = 12, **document: Any) -> Laptop:
    """A chief, two servers and two workers, on a machine for twelve."""
    given: dict[str, Any] = {
        "optimize_mode": OptimizeMode.MANUAL,
        "policy": ApprovalPolicy(mode=PolicyMode.APPROVE),
        "replicas": Bounds(min=4, max=8, start=5),
        "roles": ROLES,
    }
    here = Laptop(scaling_by(0.9), cpus=cpus, **(given | document)).start()
    return here.train(70)


def edit(here: Laptop, role: str | None = "ps", **wanted: Any) -> ScalePlan:
    nothing = {"cpu_millis": None, "memory_bytes": None, "replicas": None, "why": ""}
    given = {"by": "ada", "settings": here.settings, "now": here.now, "role": role}
    with here.transaction() as (tx, job):
        return lifecycle.edit(tx, job, **(nothing | given | wanted))


def read(here: Laptop, **bytes_of: int) -> None:
    """Let the machine's collector say what replicas use: ``r3=GIB``."""
    own = tuple(
        ReplicaReading(replica=int(name[1:]), cpu_millis=100, memory_bytes=used)
        for name, used in bytes_of.items()
    )
    sample = builders.host(int(here.now.timestamp()), measured_at=here.now, replica_readings=own)
    with here.stores.transaction() as tx:
        mine = replace(sample, job=here.id, source=SourceId("machine"))
        tx.telemetry.add([mine], received_at=here.now, offset_seconds=0.0)


def names(here: Laptop) -> list[str]:
    assert here.world is not None
    return [member.role for member in here.world.members]


def test_a_document_of_roles_begins_with_them():
    here = training()
    assert names(here) == ["chief", "ps", "ps", "worker", "worker"]
    assert [name for name, _ in here.wish().roles] == ["chief", "ps"]


def test_another_server_is_one_plan_and_stands_once_its_world_steps():
    here = training()
    plan = edit(here, replicas=3, why="hot")
    assert plan.explanation.reason == "ada asked for 5 → 6 replicas, ps 2 → 3: hot"
    assert "at the next safe point" in plan.explanation.next_step
    assert plan.promised is None, "nobody knows what another server brings"
    here.coordinate()
    here.turn()

    assert here.plans[0].state is PlanState.APPLIED
    assert names(here) == ["chief", "ps", "ps", "ps", "worker", "worker"]

    with here.transaction() as (tx, job):
        asked = {"by": "ada", "why": "", "settings": here.settings, "now": here.now}
        later = lifecycle.request(tx, job, 7, **asked)
    assert dict(later.target.roles)["ps"].replicas == 3, "a later size keeps the roles"
    assert later.target.workers == 3


def reserve(here: Laptop, servers: Resources, others: Resources = ONE) -> None:
    """Let the scaler report what servers reserve, and the others; one processor unless said."""
    replicas = enumerate((others, servers, servers, others, others))
    here.observe(*(builders.replica(id, resources=amounts) for id, amounts in replicas))


def test_memory_of_servers_alone_changes_in_place_once_they_have_it():
    here = training()
    reserve(here, Resources(cpu_millis=1000))
    plan = edit(here, memory_bytes=2 * GIB)
    assert plan.explanation.reason == "ada asked for ps memory none → 2 GiB"
    assert plan.in_place
    wished = dict(here.wish().roles)["ps"].resources
    assert wished == Resources(cpu_millis=1000, memory_bytes=2 * GIB)
    here.turn()
    assert here.plans[0].state is PlanState.APPLYING

    reserve(here, Resources(cpu_millis=1000, memory_bytes=2 * GIB))
    here.turn()
    assert here.plans[0].state is PlanState.APPLIED


def test_an_edit_of_workers_leaves_servers_what_they_have():
    here = training()
    plan = edit(here, "worker", memory_bytes=GIB)
    assert plan.explanation.reason == "ada asked for worker memory none → 1 GiB"
    assert {role: size.resources for role, size in here.wish().roles} == {
        "chief": Resources(cpu_millis=1000),
        "ps": Resources(cpu_millis=1000),
    }
    assert here.wish().resources == Resources(cpu_millis=1000, memory_bytes=GIB)


def test_an_edit_of_all_is_refused_where_a_server_uses_more():
    here = training(resources=Resources(cpu_millis=1000, memory_bytes=5 * GIB // 4))
    read(here, r0=GIB // 4, r1=GIB // 4, r2=GIB, r3=GIB // 4, r4=GIB // 4)
    with pytest.raises(BadInput, match=r"above the 1\.00 GiB that a replica uses now"):
        edit(here, None, memory_bytes=GIB // 2)
    assert edit(here, "worker", memory_bytes=GIB // 2).in_place


def test_the_larger_of_two_amounts_is_found_for_each_role():
    one = Resources(cpu_millis=1000, memory_bytes=2 * GIB)
    had = Allocation(replicas=2, resources=one, roles=(("ps", RoleSize()),))
    more = had.reserving("ps", Resources(cpu_millis=500, memory_bytes=3 * GIB))
    both = had.loosest(more)
    assert both.of("ps") == Resources(cpu_millis=1000, memory_bytes=3 * GIB)
    assert both.of("worker") == one


def test_memory_that_a_server_uses_cannot_be_taken():
    here = training()
    read(here, r0=5 * GIB, r1=GIB, r2=3 * GIB, r3=GIB, r4=GIB)
    with here.transaction() as (tx, job):
        assert recent_use(tx, job, here.now, "ps").memory_bytes == 3 * GIB
        assert recent_use(tx, job, here.now, "worker").memory_bytes == GIB
    with pytest.raises(BadInput, match=r"above the 3\.00 GiB that a replica uses now"):
        edit(here, memory_bytes=3 * GIB)
    with pytest.raises(Conflict, match="room for 4 of 5 replicas with these amounts"):
        edit(here, memory_bytes=4 * GIB)
    assert edit(here, memory_bytes=int(3.5 * GIB)).in_place, "only servers reserve as much"


@pytest.mark.parametrize(
    ("role", "wanted", "field", "says"),
    [
        (
            "boss",
            {"replicas": 2},
            "role",
            "boss is neither a role nor a group of the job; the job has worker, chief, ps",
        ),
        ("ps", {"replicas": 0}, "replicas", "replicas 0 of role ps must be 1 or more"),
        ("chief", {"replicas": 2}, "replicas", "replicas 2 of role chief must be 1"),
        ("ps", {"replicas": 9}, "replicas", "12 is not within the bounds 4:8"),
        ("worker", {"replicas": 0}, "replicas", "3 is not within the bounds"),
    ],
)
def test_roles_that_cannot_be_are_refused_with_field_and_remedy(
    role: str, wanted: dict[str, int], field: str, says: str
):
    with pytest.raises(BadInput, match=says) as refused:
        edit(training(), role, **wanted)
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("changed", "field", "says"),
    [
        ({"roles": {"boss": RoleSize()}}, "roles.boss", "choose one of chief, ps, evaluator"),
        ({"roles": {"ps": RoleSize(replicas=0)}}, "roles.ps.replicas", "leave the role out"),
        ({"roles": {"chief": RoleSize()}}, "roles.ps", "add ps"),
        (
            {"roles": {"ps": RoleSize(resources=Resources(memory_bytes=-GIB))}},
            "roles.ps.resources.memoryBytes",
            "give 0 or more",
        ),
        ({"replicas": Bounds(min=3, max=8)}, "replicas.min", "raise replicas.min to 4"),
        ({"processes_per_replica": 2}, "roles", "replicas of one process"),
    ],
)
def test_documents_of_impossible_roles_are_refused(changed: Any, field: str, says: str):
    good = JobDocument(name="ads", command=("x",), replicas=Bounds(min=4, max=8), roles=ROLES)
    good.check()
    with pytest.raises(BadInput, match=says) as refused:
        replace(good, **changed).check()
    assert refused.value.field == field


def test_a_document_of_roles_is_read_as_it_is_written():
    size = RoleSize(replicas=2, resources=Resources(cpu_millis=500, memory_bytes=GIB))
    document = JobDocument(
        name="ads", command=("x",), replicas=Bounds(min=4, max=8), roles={"ps": size}
    )
    plain = wire.document_plain(document)
    assert plain["roles"] == {
        "ps": {
            "replicas": 2,
            "processesPerReplica": None,
            "accelerator": None,
            "resources": {"cpuMillis": 500, "memoryBytes": GIB, "gpus": 0},
        }
    }
    assert wire.job_document(plain) == document


def decided(here: Laptop, seconds: int, memory_bytes: int = GIB, **millis: int) -> None:
    """Live for so long, while the collector says how busy each replica is: ``r1=900``."""
    for _ in range(seconds // 5):
        own = tuple(
            ReplicaReading(replica=int(name[1:]), cpu_millis=busy, memory_bytes=memory_bytes)
            for name, busy in millis.items()
        )
        sample = builders.host(
            int(here.now.timestamp()), measured_at=here.now, replica_readings=own
        )
        with here.stores.transaction() as tx:
            mine = replace(sample, job=here.id, source=SourceId("machine"))
            tx.telemetry.add([mine], received_at=here.now, offset_seconds=0.0)
        here.live(5)


def managed(mode: PolicyMode = PolicyMode.AUTO) -> Laptop:
    return training(
        optimize_mode=OptimizeMode.SINGLE_JOB,
        policy=ApprovalPolicy(mode=mode),
        replicas=Bounds(min=4, max=6, start=5),
    )


def test_servers_that_are_full_get_another_beside_them():
    here = managed()
    decided(here, 60, r0=100, r1=950, r2=900, r3=300, r4=300)

    plan = here.plans[-1]
    assert plan.kind is PlanKind.RESIZE
    assert dict(plan.target.roles)["ps"].replicas == 3
    assert plan.target.workers == 2
    facts = {fact.label: fact.value for fact in plan.explanation.evidence}
    assert facts["parameter servers"] == "2, which use 95 %, 90 % of their reserved processors"
    assert plan.promised is not None
    assert plan.promised.exploring


def grown(cpus: int) -> Allocation:
    """Return the first other size of a job whose servers use half of their 1.5 CPUs."""
    here = training(
        cpus=cpus,
        optimize_mode=OptimizeMode.SINGLE_JOB,
        policy=ApprovalPolicy(mode=PolicyMode.AUTO),
        replicas=Bounds(min=5, max=8),
        roles={"chief": RoleSize(), "ps": RoleSize(replicas=2, resources=BUSY)},
    )
    reserve(here, BUSY)
    decided(here, 20, r0=100, r1=700, r2=700, r3=900, r4=900)
    return here.plans[-1].target


def test_a_growth_gives_servers_the_cpu_that_more_workers_ask_of_them():
    target = grown(cpus=32)
    assert (target.workers, dict(target.roles)["ps"].replicas) == (5, 2), "no more servers"
    assert 4000 < target.of("ps").cpu_millis < 5500
    assert target.of("worker") == ONE


def test_a_growth_raises_the_cpu_of_servers_no_further_than_their_machine_has():
    target = grown(cpus=12)
    assert target.replicas == 8
    assert 1500 < target.of("ps").cpu_millis <= 3000, "six of twelve are for the others"


def lavish() -> Laptop:
    """A job whose owner reserved far more for each replica than it uses."""
    much = Resources(cpu_millis=6000, memory_bytes=GIB // 2)
    here = training(
        cpus=64,
        optimize_mode=OptimizeMode.SINGLE_JOB,
        policy=ApprovalPolicy(mode=PolicyMode.AUTO),
        replicas=Bounds(min=5, max=8),
        resources=much,
        roles={"chief": RoleSize(), "ps": RoleSize(replicas=2)},
    )
    reserve(here, much, much)
    return here


def test_the_first_growth_lowers_what_workers_reserve_to_twice_what_they_use():
    here = lavish()
    decided(here, 20, GIB // 8, r0=100, r1=700, r2=700, r3=900, r4=800)

    plan = here.plans[-1]
    assert plan.target.workers == 5
    assert plan.target.of("worker").memory_bytes == GIB // 4
    assert 2 * 900 <= plan.target.of("worker").cpu_millis < 2 * 1100
    assert plan.target.of("chief") == plan.current.of("chief")


def test_a_growth_after_another_world_keeps_what_workers_reserve():
    here = lavish()
    for event in (WorldEvent.FORMED, WorldEvent.STEPPING):
        here.report(event, epoch=2, size=5, cause=Cause.FAILURE)
    decided(here, 20, GIB // 8, r0=100, r1=700, r2=700, r3=900, r4=800)

    plan = here.plans[-1]
    assert plan.target.workers == 5
    assert plan.target.of("worker") == plan.current.of("worker")


def test_a_growth_with_less_cpu_is_judged_by_its_throughput_and_not_by_quotas():
    here = lavish()
    decided(here, 20, GIB // 8, r0=100, r1=700, r2=700, r3=900, r4=800)
    plan = here.plans[-1]
    here.coordinate()
    reserve(here, plan.target.of("ps"), plan.target.of("worker"))
    own = tuple(
        ReplicaReading(replica=id, cpu_millis=900, memory_bytes=GIB // 8) for id in range(8)
    )
    stopped = replace(
        builders.host(throttled_share=0.5, replica_readings=own),
        job=here.id,
        source=SourceId("machine"),
    )
    said = [
        replace(stopped, sequence=1000 + at, measured_at=here.now - timedelta(seconds=5 * at))
        for at in range(3)
    ]
    sight = here.sight
    after = replace(plan, updated_at=here.now - timedelta(seconds=20))
    in_place = replace(after, current=replace(after.current, replicas=8))
    with here.transaction() as (tx, job):
        tx.telemetry.add(said, received_at=here.now, offset_seconds=0.0)
        short, _ = lifecycle.fell_short(tx, job, after, sight, here.settings)
        slower, _ = lifecycle.fell_short(tx, job, in_place, sight, here.settings)
    assert after.lowers_cpu
    assert short == ""
    assert "throttled a replica in 50 %" in slower


def test_another_size_leaves_amounts_that_nobody_named():
    here = managed()
    decided(here, 20, r0=100, r1=1200, r2=1100, r3=300, r4=300)
    assert here.plans[-1].target.replicas == 6
    assert here.plans[-1].target.amounts == here.plans[-1].current.amounts


def test_a_smaller_size_is_not_judged_by_the_fewer_servers_that_it_had():
    here = managed()
    decided(here, 20, r0=100, r1=950, r2=900, r3=300, r4=300)
    here.coordinate()
    assert names(here).count("ps") == 3
    decided(here, 60, r0=100, r1=500, r2=500, r3=500, r4=300, r5=300)
    assert [point.replicas for point in here.sight.earlier] == [5]
    with here.transaction() as (tx, job):
        known = expected_scaling(tx, job, here.settings, here.now).sizes
    rates = {one.replicas: one.prediction and one.prediction.examples_per_second for one in known}
    here_rate = rates[6]
    assert here_rate is not None
    assert rates[5] == pytest.approx(here_rate / 2, rel=0.1), "one of two workers is gone"
    assert rates[4] is None, "three servers and the chief are no job"


def test_what_if_asks_the_servers_and_not_the_model_of_equal_workers():
    here = managed(PolicyMode.SHADOW)
    decided(here, 20, r0=100, r1=50, r2=40, r3=900, r4=900)
    with here.transaction() as (tx, job):
        known = {
            one.replicas: one for one in expected_scaling(tx, job, here.settings, here.now).sizes
        }
    assert known[6].prediction is not None
    assert known[6].prediction.exploring

    here = managed(PolicyMode.SHADOW)
    here.live(20)
    with here.transaction() as (tx, job):
        known = {
            one.replicas: one for one in expected_scaling(tx, job, here.settings, here.now).sizes
        }
    assert known[6].prediction is None
    assert "some servers have no reading" in (known[6].undetermined or "")


def test_rows_so_hot_that_no_division_helps_get_no_other_server():
    here = managed()
    decided(here, 60, r0=100, r1=980, r2=100, r3=300, r4=300)
    assert here.plans == []
    with here.transaction() as (tx, job):
        decision = tx.plans.decision(job.id)
    assert decision is not None
    facts = {fact.label: fact.value for fact in decision.explanation.evidence}
    assert facts["parameter servers"].endswith("; server 0 delays the others")


def test_workers_come_where_servers_are_easy():
    here = managed()
    decided(here, 60, r0=100, r1=50, r2=40, r3=900, r4=900)
    assert dict(here.plans[-1].target.roles)["ps"].replicas == 2
    assert here.plans[-1].target.workers == 3


def test_without_readings_of_its_servers_nothing_is_decided():
    here = managed()
    here.live(60)
    assert here.plans == []


def test_memory_that_servers_nearly_fill_is_raised_for_them_alone():
    full = Resources(cpu_millis=1000, memory_bytes=int(1.05 * GIB))
    here = training(
        optimize_mode=OptimizeMode.SINGLE_JOB,
        policy=ApprovalPolicy(mode=PolicyMode.AUTO),
        replicas=Bounds(min=5, max=5),
        roles=ROLES | {"ps": RoleSize(replicas=2, resources=full)},
    )
    for _ in range(40):
        reserve(here, dict(here.wish().roles)["ps"].resources or full)
        decided(here, 20, r0=100, r1=100, r2=100, r3=100, r4=100)
    (plan,) = [one for one in here.plans if one.changes_resources]
    assert (plan.kind, plan.state) == (PlanKind.RESIZE, PlanState.VERIFIED)
    assert 1.1 * GIB < plan.target.of("ps").memory_bytes < 1.3 * GIB
    assert plan.target.of("worker") == plan.current.of("worker")


@pytest.mark.slow
def test_cpu_of_workers_falls_once_servers_hold_them_up_no_longer():
    two = Resources(cpu_millis=2000)
    here = training(
        optimize_mode=OptimizeMode.SINGLE_JOB,
        policy=ApprovalPolicy(mode=PolicyMode.AUTO),
        replicas=Bounds(min=5, max=5),
        resources=two,
        roles={"chief": RoleSize(resources=ONE), "ps": RoleSize(replicas=2, resources=two)},
    )
    for _ in range(60):
        wish = here.wish()
        servers, workers = dict(wish.roles)["ps"].resources or two, wish.resources or two
        held = enumerate((ONE, servers, servers, workers, workers))
        here.observe(*(builders.replica(id, resources=amounts) for id, amounts in held))
        decided(here, 20, r0=100, r1=1990, r2=1990, r3=500, r4=500)
    later, first = [one for one in here.plans if one.changes_resources][-2:]
    assert first.target.of("ps").cpu_millis > 2000
    assert first.target.of("worker").cpu_millis == 2000, "they may use more beside such servers"
    assert later.target.of("worker").cpu_millis < 1000


def test_a_server_that_needs_more_than_a_plan_gave_gets_more_and_the_plan_stays():
    tight, ample = (Resources(cpu_millis=1000, memory_bytes=n * GIB) for n in (1, 2))
    here = training(
        optimize_mode=OptimizeMode.SINGLE_JOB,
        policy=ApprovalPolicy(mode=PolicyMode.AUTO),
        replicas=Bounds(min=5, max=5),
        resources=ample,
        roles={"chief": RoleSize(resources=ONE), "ps": RoleSize(replicas=2, resources=tight)},
    )
    rate = here.sight.now
    with here.transaction() as (tx, job):
        _, had = lifecycle.standing(tx.plans.of(job.id), job)
        less = had.reserving("worker", replace(ample, memory_bytes=3 * GIB // 2))
        target = less.reserving("ps", replace(tight, memory_bytes=int(1.04 * GIB)))
        why = Explanation(code="resources", reason="it uses less", next_step="")
        given = {"settings": here.settings, "now": here.now}
        plan = lifecycle.propose_amounts(tx, job, target, why, rate, **given)
    for _ in range(12):
        wish = here.wish()
        asked = {role: size.resources or ample for role, size in wish.roles}
        workers = wish.resources or ample
        held = (asked["chief"], asked["ps"], asked["ps"], workers, workers)
        here.observe(*(builders.replica(id, resources=one) for id, one in enumerate(held)))
        decided(here, 20, r0=100, r1=100, r2=100, r3=100, r4=100)
    later, first = here.plans
    assert (first.generation, first.state) == (plan.generation, PlanState.VERIFIED)
    assert first.outcome.verdict is Verdict.KEPT
    assert later.target.of("ps").memory_bytes > 1.1 * GIB, "with no pause"
    assert later.target.of("worker").memory_bytes == 3 * GIB // 2


SMALL = Resources(cpu_millis=500)


def test_roles_are_let_in_where_their_sum_fits():
    two = Resources(cpu_millis=2000)
    sizes = {"chief": RoleSize(resources=SMALL), "ps": RoleSize(replicas=2, resources=SMALL)}
    document = {"roles": sizes, "resources": two, "replicas": Bounds(min=5, max=9)}
    manual = {"optimize_mode": OptimizeMode.MANUAL, "policy": ApprovalPolicy(mode=PolicyMode.OFF)}
    here = Laptop(scaling_by(0.9), cpus=6, **(manual | document)).start()
    assert here.job.state == "Running", "5.5 of 6 CPUs"
    asked = {"by": "ada", "why": "", "settings": here.settings, "now": here.now}
    with here.transaction() as (tx, job), pytest.raises(Conflict, match="room for 5"):
        lifecycle.request(tx, job, 6, **asked)

    large = {"ps": RoleSize(replicas=2, resources=two), "chief": RoleSize()}
    with pytest.raises(BadInput, match=r"room for 4 replicas; each replica needs 1\s400 mCPU"):
        Laptop(scaling_by(0.9), cpus=6, **(manual | document | {"roles": large, "resources": ONE}))


def test_what_a_plan_takes_from_servers_is_free_once_it_stands():
    here = training()
    reserve(here, ONE)
    plan = edit(here, cpu_millis=500)
    assert reallocated(plan.current, plan.target) == "ps CPU 1 → 0.5"
    with here.transaction() as (tx, job):
        (share,) = holding(tx, job).shares
        assert share.each == ONE, "it may want everything back"
        assert fitting(tx, job, job.document.allocation, here.now) == 8
    reserve(here, SMALL)
    with here.transaction() as (tx, _):
        (node,) = views.nodes(tx, tx.nodes.of(), here.now)
        assert node.reserved.cpu_millis == 4000, "two servers have half"
    here.turn()
    assert here.plans[0].state is PlanState.APPLIED


def test_no_throughput_is_promised_of_another_worker_beside_servers():
    here = training()
    assert edit(here, None, replicas=6).promised is None
    here = training()
    with here.transaction() as (tx, job):
        asked = {"by": "ada", "why": "", "settings": here.settings, "now": here.now}
        assert lifecycle.request(tx, job, 6, **asked).promised is None


def test_the_room_of_an_estimate_counts_what_roles_reserve():
    here = training()
    with here.transaction() as (tx, job):
        (room,) = rooms(tx, replace(job.document, resources=Resources()), job.pool, here.now)
        assert room.largest > 12, "nothing is reserved"
        own = {
            "chief": RoleSize(),
            "ps": RoleSize(replicas=2, resources=Resources(cpu_millis=5000)),
        }
        asked = replace(job.document, resources=ONE, roles=own)
        (room,) = rooms(tx, asked, job.pool, here.now)
    assert room.largest == 4, "five take 13 of 12 CPUs"


def test_while_servers_lack_what_a_plan_gives_them_no_size_is_looked_for():
    here = managed()
    reserve(here, ONE)
    plan = edit(here, replicas=3, memory_bytes=GIB)
    here.coordinate()
    decided(here, 60, r0=100, r1=980, r2=250, r3=300, r4=300, r5=300)
    assert names(here).count("ps") == 3
    assert [one.generation for one in here.plans] == [plan.generation]
    assert here.plans[0].state is PlanState.APPLYING


def test_cores_of_a_replica_are_the_mean_of_its_roles():
    own = {"chief": RoleSize(resources=SMALL), "ps": RoleSize(replicas=2, resources=SMALL)}
    document = JobDocument(
        name="ads", command=("x",), resources=ONE, replicas=Bounds(min=5, max=8), roles=own
    )
    assert accelerators_of(replace(builders.job(), document=document)) == 0.7
    alike = replace(document, roles={})
    assert accelerators_of(replace(builders.job(), document=alike)) == 1.0
