"""Jobs that share a pool are decided about together; guards are named after what they prevent."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brain import lifecycle
from brain.errors import BadInput, Conflict
from brain.lifecycle.capacity import has_left
from brain.lifecycle.observed import KIND
from brain.pool.rounds import Memo
from brain.ports import StoredFit
from brain.types.allocation import Bounds
from brain.types.job import ApprovalPolicy, JobState
from brain.types.plan import PlanState
from brain.types.resources import NodeName, Resources
from brain.types.sharing import PoolShares, ProjectShare, StoredPolicy
from tests.pool.rounds.fleet import POOL, QUICK, Fleet, scaling_by


def two(*, mode: str = "auto", **changed: Any) -> Fleet:
    """A job that scales and one that hardly does, on four cores; both have tried one and two."""
    fleet = Fleet({"a": 4}, settings=replace(QUICK, **changed))
    for name, exponent in (("good", 0.95), ("bad", 0.2)):
        fleet.submit(
            name, scaling_by(exponent), policy=ApprovalPolicy(), replicas=Bounds(min=1, max=4)
        )
    fleet.live(24)
    assert (fleet.size("good"), fleet.size("bad")) == (2, 2)
    fleet.settings = replace(fleet.settings, policy_mode=mode)
    return fleet


def divide(fleet: Fleet, **projects: ProjectShare) -> None:
    """Write the policy of the pool."""
    policy = PoolShares(projects=projects)
    with fleet.stores.transaction() as tx:
        tx.pools.put_policy(
            StoredPolicy(pool=POOL, policy=policy, by="ada", updated_at=fleet.now, version=0)
        )


def test_who_scales_gets_what_who_does_not_gives_up():
    fleet = two()

    fleet.live(60)

    assert (fleet.size("good"), fleet.size("bad")) == (3, 1)


def test_a_plan_that_needs_room_names_the_plan_that_makes_it_and_begins_after_it():
    fleet = two()
    seen = [plan for turn in fleet.live(60) for plan in turn.plans]

    grown = [plan for plan in seen if plan.job == fleet.jobs["good"].id]
    gives = fleet.plans("bad")[0]
    assert gives.target.replicas == 1
    assert grown[0].after == ((gives.job, gives.generation),)
    assert [plan.state for plan in grown[:2]] == [PlanState.APPROVED, PlanState.APPLYING]


def test_a_job_that_ran_with_as_few_makes_room_before_its_new_world_steps():
    fleet = two()
    fleet.starting = {"bad"}

    fleet.live(60)

    assert fleet.plans("bad")[0].state is PlanState.APPLYING
    assert fleet.size("good") == 3


def test_a_job_that_never_ran_with_as_few_keeps_its_room_until_its_new_world_steps():
    fleet = Fleet({"a": 4})
    fleet.submit("first", scaling_by(0.9), mode="approve", replicas=Bounds(min=1, max=2, start=2))
    fleet.live(8)
    fleet.starting = {"first"}
    with fleet.stores.transaction() as tx:
        job = tx.jobs.get(fleet.jobs["first"].id)
        asked = {"by": "ada", "why": "", "settings": fleet.settings, "now": fleet.now}
        shrinks = lifecycle.request(tx, job, 1, **asked)

    fleet.settle()

    assert fleet.size("first") == 1
    with fleet.stores.transaction(read_only=True) as tx:
        assert not has_left(tx, tx.plans.get(shrinks.job, shrinks.generation))


def test_a_running_job_makes_room_for_one_that_waits_to_start():
    fleet = Fleet({"a": 2})
    fleet.submit("first", scaling_by(0.9), replicas=Bounds(min=1, max=2, start=2))
    fleet.live(4)
    fleet.submit("second", scaling_by(0.9))

    fleet.live(40)

    assert (fleet.size("first"), fleet.size("second")) == (1, 1)


def test_nobody_who_runs_is_stopped_for_another():
    fleet = Fleet({"a": 2})
    fleet.submit("first", scaling_by(0.9), replicas=Bounds(min=2, max=2))
    fleet.live(20)
    fleet.submit("urgent", scaling_by(0.9), priority=5)

    fleet.live(40)

    assert fleet.size("first") == 2
    assert fleet.job(fleet.jobs["urgent"].id).state is JobState.QUEUED


def test_stale_telemetry_never_shrinks():
    fleet = two(stale_seconds=8)
    fleet.train(70, silent="bad")

    fleet.turn()
    fleet.turn()

    assert fleet.decision("bad").explanation.code == "stale-telemetry"
    assert fleet.size("bad") == 2
    assert not fleet.plans("bad")[0].active


def test_the_first_round_after_a_start_only_observes():
    fleet = two()
    fleet.memo = Memo(POOL)
    fleet.train(15)

    first = fleet.turn()

    assert first.round is not None
    assert first.round.observed_only
    assert first.plans == ()
    fleet.train(10)
    assert fleet.turn().plans


def test_prices_survive_a_restart():
    fleet = two()
    fleet.live(140)
    before = fleet.round.prices

    fleet.memo = Memo(POOL)
    fleet.train(2).turn()

    assert fleet.round.prices == pytest.approx(before, rel=0.5)
    assert before["cpu"] > 0


def test_a_memo_spares_work_and_changes_no_outcome():
    forgetful, mindful = two(), two()
    mindful.memo = Memo(POOL)

    forgetful.live(120)
    mindful.live(120)

    sizes = [(each.size("good"), each.size("bad")) for each in (forgetful, mindful)]
    assert sizes[0] == sizes[1]


def test_a_job_that_nothing_happens_to_is_not_looked_at_again():
    fleet = two()
    fleet.memo = Memo(POOL)
    fleet.live(60)
    looked = dict(fleet.memo.looked)

    fleet.turn()

    assert fleet.memo.looked == looked


def test_what_needs_anothers_room_is_approved_only_after_it():
    fleet = two(mode="approve")
    fleet.live(40)
    gives, needs = fleet.plans("bad")[0], fleet.plans("good")[0]
    assert (gives.state, needs.state) == (PlanState.PROPOSED, PlanState.PROPOSED)

    with (
        fleet.stores.transaction() as tx,
        pytest.raises(Conflict, match="needs resources that plan 2 of bad frees"),
    ):
        lifecycle.approve(tx, needs, by="ada", version=None, settings=fleet.settings, now=fleet.now)


def test_what_needs_room_that_a_person_refused_ends_with_that_reason():
    fleet = two(mode="approve")
    fleet.live(40)
    gives, needs = fleet.plans("bad")[0], fleet.plans("good")[0]
    with fleet.stores.transaction() as tx:
        lifecycle.reject(tx, gives, by="ada", version=None, why="mine", now=fleet.now)

    fleet.turn()

    with fleet.stores.transaction(read_only=True) as tx:
        needs = tx.plans.get(needs.job, needs.generation)
    assert needs.state is PlanState.EXPIRED
    assert needs.outcome.detail == (
        "plan 2 of bad, which should have freed room for this plan, is Rejected"
    )


def test_a_person_who_said_no_is_not_asked_again_within_the_hour():
    fleet = two(mode="approve")
    fleet.live(40)
    gives = fleet.plans("bad")[0]
    with fleet.stores.transaction() as tx:
        lifecycle.reject(tx, gives, by="ada", version=None, why="mine", now=fleet.now)

    fleet.live(120)

    assert fleet.plans("bad")[0].generation == gives.generation
    assert fleet.decision("bad").explanation.code == "rejected-lately"


def test_at_most_one_plan_of_a_job_is_active():
    fleet = two(mode="approve")

    fleet.live(60)

    for name in fleet.jobs:
        assert sum(plan.active for plan in fleet.plans(name)) <= 1


def test_a_project_never_gets_more_than_its_limit():
    fleet = Fleet({"a": 4})
    fleet.submit("good", scaling_by(0.95), project="vision")
    divide(fleet, vision=ProjectShare(limit=2))

    fleet.live(80)

    assert fleet.size("good") == 2


def test_a_guarantee_is_kept_whoever_else_wants_it():
    fleet = Fleet({"a": 4})
    fleet.submit("good", scaling_by(1.0), replicas=Bounds(min=1, max=4, start=1))
    fleet.submit("mine", scaling_by(0.6), project="vision")
    divide(fleet, vision=ProjectShare(guaranteed=2))

    fleet.live(120)

    assert fleet.size("mine") == 2


def test_at_most_a_part_of_the_pool_changes_hands_in_a_round():
    fleet = Fleet({"a": 12}, settings=replace(QUICK, moved_share=0.1))
    for name, exponent in zip("bcdefg", (0.97, 0.97, 0.97, 0.2, 0.2, 0.2), strict=True):
        fleet.submit(name, scaling_by(exponent), replicas=Bounds(min=1, max=4, start=1))

    turns = fleet.live(50)

    new = [[p for p in turn.plans if p.state is PlanState.APPROVED] for turn in turns]
    assert max(len(plans) for plans in new) == 1
    assert "at most 10 % of the pool's accelerators change owners at once" in " ".join(
        found.explanation.reason for turn in turns for found in turn.decisions.values()
    )


def test_a_drained_node_keeps_its_job_as_it_is():
    fleet = two()
    with fleet.stores.transaction() as tx:
        tx.nodes.put(replace(tx.nodes.get(NodeName("a")), schedulable=False))

    fleet.live(30)

    assert fleet.decision("good").explanation.code == "node-drained"


def test_every_decision_says_who_has_what_a_job_might_have_had():
    fleet = two()
    fleet.live(140)

    (share,) = [share for share in fleet.round.shares if share.name == "bad"]

    assert share.lost_to == "good"
    assert share.next_best is not None
    assert share.next_best.replicas == 2
    assert "good gains more from them" in fleet.decision("bad").explanation.reason


def mixed(**changed: Any) -> Fleet:
    """Two slow accelerators and two fast ones; one job on a slow one."""
    fleet = Fleet(
        {"slow": 2, "fast": 2},
        kinds={"slow": "T4", "fast": "A100"},
        settings=replace(QUICK, **changed),
    )
    with fleet.stores.transaction() as tx:
        tx.nodes.put(replace(tx.nodes.get(NodeName("fast")), schedulable=False))
    fleet.submit(
        "digits",
        scaling_by(0.9),
        resources=Resources(gpus=1),
        replicas=Bounds(min=1, max=2, start=1),
    )
    fleet.live(4)
    with fleet.stores.transaction() as tx:
        tx.nodes.put(replace(tx.nodes.get(NodeName("fast")), schedulable=True))
    return fleet


def test_a_job_stays_on_its_kind_of_accelerator_where_nobody_can_move_it():
    fleet = mixed()

    fleet.live(60)

    assert fleet.held() == {"slow": 2}
    assert fleet.round.units == {"T4": "GPU", "A100": "GPU"}


def test_a_job_moves_to_a_kind_it_never_tried_where_a_scaler_can_move_it():
    fleet = mixed(migrate=True)

    fleet.live(60)

    assert fleet.held() == {"fast": 2}


def begun_fast() -> Fleet:
    """One job had both kinds of accelerator and ended; another is on fast ones, beside idle slow
    ones.
    """
    fleet = mixed(migrate=True)
    fleet.live(60)
    assert fleet.held() == {"fast": 2}
    fleet.finish("digits")
    _usable(fleet, slow=False)
    both = Bounds(min=2, max=2)
    fleet.submit("letters", scaling_by(0.9), resources=Resources(gpus=1), replicas=both)
    fleet.live(4)
    _usable(fleet, slow=True)
    return fleet


def _usable(fleet: Fleet, *, slow: bool) -> None:
    with fleet.stores.transaction() as tx:
        tx.nodes.put(replace(tx.nodes.get(NodeName("slow")), schedulable=slow))


@pytest.mark.parametrize("restarted", [False, True], ids=["goes on", "restarted"])
def test_a_job_is_not_tried_on_a_kind_that_slowed_others_down(restarted: bool):
    fleet = begun_fast()
    if restarted:
        fleet.memo = Memo(POOL)

    fleet.live(60)

    assert fleet.held() == {"fast": 2}
    with fleet.stores.transaction(read_only=True) as tx:
        worlds = tx.worlds.of(fleet.jobs["letters"].id)
    assert len(worlds) == 1


def test_a_job_whose_measurements_cannot_be_read_is_left_out_of_the_comparison_and_told_once():
    fleet = begun_fast()
    fleet.memo = Memo(POOL)
    with fleet.stores.transaction() as tx:
        (ended,) = [job for job in tx.jobs.fitted(KIND, among=9) if job.finished]
        broken = StoredFit(job=ended.id, kind=KIND, parameters="[1", fitted_at=fleet.now)
        tx.fits.put(broken)

    first, second = [fleet.train(2).turn_with_bugs() for _ in range(2)]

    assert not first.undecided
    assert first.round is not None
    (bug,) = first.bugs
    assert bug.__notes__ == [
        f"job {ended.id} is left out of the comparison of the pool's accelerators"
    ]
    with pytest.raises(BadInput):
        first.checked()
    second.checked()


def test_a_pool_without_a_node_says_what_a_job_waits_for():
    fleet = Fleet({})
    fleet.submit("digits", scaling_by(0.9))

    fleet.live(6)

    (share,) = fleet.round.shares
    assert (share.outcome, share.replicas) == ("waits", 0)
    assert share.reason == "no node of pool local has registered yet"


def test_jobs_that_share_a_silent_pool_go_on_as_they_are():
    fleet = Fleet({"a": 4, "b": 4})
    fleet.memo = Memo(POOL)
    for name in ("one", "two"):
        fleet.submit(name, scaling_by(0.9))
    fleet.live(120)
    held, sizes = fleet.held(), [len(fleet.plans(name)) for name in ("one", "two")]
    assert held, "jobs run"

    fleet.gone = {"a", "b"}
    fleet.pass_time(60)
    fleet.live(120)

    assert (fleet.held(), [len(fleet.plans(name)) for name in ("one", "two")]) == (held, sizes)


def test_no_job_grows_onto_a_node_that_is_silent():
    fleet = Fleet({"a": 2, "b": 8})
    fleet.gone = {"b"}
    fleet.pass_time(60)
    fleet.submit("digits", scaling_by(0.9))

    fleet.live(120)

    assert fleet.held() == {"a": 2}


def test_a_job_that_nothing_drained_can_hold_is_refused_with_the_reason():
    fleet = Fleet({"a": 2})
    fleet.submit("digits", scaling_by(0.9), replicas=Bounds(min=2, max=2))
    with fleet.stores.transaction() as tx:
        tx.nodes.put(replace(tx.nodes.get(NodeName("a")), schedulable=False))

    fleet.live(6)

    (share,) = fleet.round.shares
    assert (share.outcome, share.replicas) == ("refused", 0)
    assert "bring back or add a node" in share.reason


def test_a_job_that_reserves_nothing_is_decided_about_alone():
    fleet = Fleet({"a": 2})
    fleet.submit("digits", scaling_by(0.9), resources=Resources())

    turns = fleet.live(20)

    assert all(turn.round is None for turn in turns)
    assert fleet.size("digits") == 2


def test_replicas_of_half_a_core_come_in_their_units():
    fleet = Fleet({"a": 2})
    each = Resources(cpu_millis=500)
    bounds = Bounds(min=2, max=4, unit=2)
    fleet.submit("digits", scaling_by(0.95), resources=each, replicas=bounds)

    turns = fleet.live(40)

    divided = next(turn.round for turn in turns if turn.round and turn.round.capacity)
    assert divided.capacity == {"cpu": 2.0}
    assert fleet.plans("digits")[0].target.replicas == 4


jobs = st.lists(
    st.tuples(st.floats(0.1, 1.0), st.integers(1, 3), st.integers(0, 3), st.sampled_from([1, 2])),
    min_size=1,
    max_size=5,
)


def lived(cores: list[int], wanted: list[tuple[float, int, int, int]]) -> tuple[list[object], ...]:
    """A fleet's life: what was promised of each node in each turn, and what became of the jobs."""
    fleet = Fleet({f"n{number}": count for number, count in enumerate(cores)})
    over: list[object] = []
    for number, (exponent, least, more, unit) in enumerate(wanted):
        bounds = Bounds(min=least * unit, max=(least + more) * unit, unit=unit)
        if bounds.min <= sum(cores):
            fleet.submit(f"j{number}", scaling_by(exponent), replicas=bounds)
        fleet.live(6)
        over += _promised_too_much(fleet, sum(cores))
    for _ in range(4):
        fleet.live(10)
        over += _promised_too_much(fleet, sum(cores))
    end = [(name, fleet.size(name), len(fleet.plans(name))) for name in fleet.jobs]
    return over, end


def _promised_too_much(fleet: Fleet, cores: int) -> list[object]:
    with fleet.stores.transaction(read_only=True) as tx:
        wished = {
            name: lifecycle.wish(tx, tx.jobs.get(one.id), fleet.settings).replicas
            for name, one in fleet.jobs.items()
        }
    most = sum(max(wished[name], fleet.size(name)) for name in fleet.jobs)
    over: list[object] = [wished] if most > cores else []
    nodes = fleet.held()
    return over + [nodes for name in nodes if nodes[name] > 4]


@settings(max_examples=12, deadline=None)
@given(cores=st.lists(st.integers(1, 4), min_size=1, max_size=3), wanted=jobs)
def test_a_round_never_promises_more_than_there_is(
    cores: list[int], wanted: list[tuple[float, int, int, int]]
) -> None:
    over, _ = lived(cores, wanted)
    assert over == []


@settings(max_examples=4, deadline=None)
@given(cores=st.lists(st.integers(1, 4), min_size=1, max_size=2), wanted=jobs)
def test_the_same_pool_is_divided_the_same_way_each_time(
    cores: list[int], wanted: list[tuple[float, int, int, int]]
) -> None:
    assert lived(cores, wanted) == lived(cores, wanted)


def test_a_proposal_of_a_pool_is_withdrawn_with_what_made_room_for_it_when_measurements_move():
    fleet = two(mode="approve")
    fleet.live(40)
    assert fleet.decision("good").explanation.code == "plan-active"
    fleet.jobs["good"].step_seconds = scaling_by(0.95, first=0.12)
    fleet.live(120)

    needs, gives = fleet.plans("good")[0], fleet.plans("bad")[0]
    assert (needs.state, gives.state) == (PlanState.SUPERSEDED, PlanState.SUPERSEDED)
    assert needs.outcome.detail.startswith("withdrawn: ")
    assert gives.outcome.detail.startswith(
        "withdrawn with plan 2 of good, for which this plan makes room"
    )
    decided = fleet.decision("good")
    assert decided.explanation.code != "plan-active"
    assert decided.measured is not None
    assert needs.measured is not None
    assert decided.measured.low > needs.measured.high
