"""Each guard by the incident that it prevents; they hold, and never shrink."""

from dataclasses import replace
from typing import Any

import pytest

from brain.errors import Undetermined
from brain.optimizer import recommend
from brain.optimizer.guards import ALL, dwelling, flapping
from brain.optimizer.situation import Situation
from brain.settings import Settings
from brain.types.job import Intent, JobState, OptimizeMode, PolicyMode
from brain.types.plan import PlanState
from tests.builders import document, job, plan
from tests.optimizer.test_policies import situation

#: What a job that wastes three of its four replicas looks like: whoever could would shrink it.
WASTEFUL = {1: 100.0, 2: 100.0, 4: 100.0}


def running(**fields: Any) -> Any:
    return job(state=JobState.RUNNING, **fields)


INCIDENTS = [
    ("stale telemetry never shrinks", {"telemetry_age_seconds": 61.0}, "stale-telemetry"),
    (
        "a script that never stepped is not taken from",
        {"telemetry_age_seconds": None, "world_age_seconds": 61.0},
        "no-steps",
    ),
    ("at most one active plan per job", {"active": plan(3)}, "plan-active"),
    ("a straggler is not read as bad scaling", {"straggler": "rank 3 needs 2 s"}, "straggler"),
    ("work that nobody saved is not lost", {"checkpointed": False}, "no-checkpoint"),
    ("a job is not changed over and over", {"changes_lately": 4}, "flapping"),
    ("two changes do not overlap", {"since_change_seconds": 299.0}, "dwell"),
    (
        "the first look after an outage decides nothing",
        {"since_decision_seconds": 61.0},
        "returned",
    ),
    ("too few steps decide nothing", {"present": Undetermined("9 steps", code="x")}, "x"),
    (
        "a world that is not whole decides nothing",
        {"job": job(state=JobState.DEGRADED)},
        "degraded",
    ),
    (
        "a suspended job is left alone",
        {"job": running(intent=Intent.SUSPEND)},
        "suspended",
    ),
    ("mode off proposes nothing", {"mode": PolicyMode.OFF}, "off"),
]


@pytest.mark.parametrize(
    ("fields", "code"), [pytest.param(f, c, id=incident) for incident, f, c in INCIDENTS]
)
def test_guard(fields: dict[str, Any], code: str):
    decision = recommend(situation(WASTEFUL, at=4, **fields))

    assert decision.hold
    assert decision.explanation.code == code
    assert decision.explanation.next_step


def test_a_reason_that_names_the_state_is_told_once():
    ended = job(state=JobState.CANCELLED, reason="cancelled by ann")

    decision = recommend(situation(WASTEFUL, at=4, job=ended))

    assert decision.explanation.reason == "the job was cancelled by ann"


def test_a_world_that_changes_in_process_needs_no_checkpoint():
    unsaved = situation(WASTEFUL, at=4, checkpointed=False, in_process=True)

    assert recommend(unsaved).target.replicas == 1


def test_a_world_far_smaller_than_what_stands_decides_nothing():
    partial = situation({1: 100.0})
    standing = replace(partial, current=replace(partial.current, replicas=4))

    decision = recommend(standing)

    assert decision.hold
    assert "measure 2 replicas first" in decision.explanation.reason


def test_without_an_incident_the_wasteful_job_would_be_shrunk():
    assert recommend(situation(WASTEFUL, at=4)).target.replicas == 1


def test_manual_jobs_are_left_to_people():
    manual = running()
    manual = type(manual)(
        id=manual.id,
        document=document(optimize_mode=OptimizeMode.MANUAL),
        pool=manual.pool,
        owner=manual.owner,
        state=manual.state,
        created_at=manual.created_at,
        updated_at=manual.updated_at,
    )

    assert recommend(situation(WASTEFUL, at=4, job=manual)).explanation.code == "manual"


@pytest.mark.parametrize(("changes", "seconds"), [(0, 300), (1, 300), (2, 600), (3, 1200)])
def test_a_job_is_left_alone_twice_as_long_after_each_further_change(changes: int, seconds: float):
    def held(since: float) -> bool:
        seen = situation(WASTEFUL, at=4, changes_lately=changes, since_change_seconds=since)
        return dwelling(seen) is not None

    assert held(seconds - 1)
    assert not held(seconds)


def sharing(**fields: Any) -> Situation:
    """A job that shares its pool."""
    alone = job(state=JobState.RUNNING)
    mine = replace(alone, document=document(optimize_mode=OptimizeMode.CLUSTER))
    return situation(WASTEFUL, at=4, job=mine, **fields)


@pytest.mark.parametrize(("restart", "seconds"), [(2.0, 8.0), (30.0, 120.0)])
def test_a_job_that_shares_its_pool_is_left_alone_as_long_as_its_own_restarts_say(
    restart: float, seconds: float
):
    def held(since: float) -> bool:
        seen = sharing(restart_seconds=restart, changes_lately=3, since_change_seconds=since)
        return dwelling(seen) is not None

    assert held(seconds - 1)
    assert not held(seconds)


def test_an_operator_may_leave_jobs_of_a_pool_alone_for_longer():
    settings = Settings(shared_dwell_seconds=600.0)

    assert dwelling(sharing(settings=settings, since_change_seconds=599.0)) is not None


@pytest.mark.parametrize(("restart", "most"), [(2.0, 180), (30.0, 12), (300.0, 4)])
def test_a_job_that_shares_its_pool_changes_for_a_tenth_of_an_hour_at_most(
    restart: float, most: int
):
    def flaps(changes: int) -> bool:
        return flapping(sharing(restart_seconds=restart, changes_lately=changes)) is not None

    assert flaps(most)
    assert not flaps(most - 1)


def test_expensive_restarts_are_let_pay_before_the_next():
    costly = situation(WASTEFUL, at=4, restart_seconds=120.0, since_change_seconds=1199.0)

    hold = dwelling(costly)

    assert hold is not None
    assert "Brain waits 20 min" in hold.reason


def test_a_guard_that_is_not_concerned_says_nothing():
    calm = situation(WASTEFUL, at=4, settings=Settings())

    assert [guard(calm) for guard in ALL] == [None] * len(ALL)


@pytest.mark.parametrize("state", [PlanState.PROPOSED, PlanState.APPROVED, PlanState.APPLYING])
def test_whatever_a_plan_waits_for_no_second_one_is_made(state: PlanState):
    decision = recommend(situation(WASTEFUL, at=4, active=plan(2, state=state)))

    assert decision.explanation.code == "plan-active"


def test_a_decision_tells_of_the_nearest_hundred_sizes_however_many_a_job_may_have():
    decision = recommend(situation(WASTEFUL, at=4, sizes=tuple(range(1, 5000))))

    told = [alternative.replicas for alternative in decision.explanation.alternatives]
    assert (len(told), told == sorted(told), 4999 in told) == (100, True, False)


def test_a_job_on_its_way_up_grows_on_before_the_rest_that_others_take():
    scales = {1: 100.0, 2: 195.0, 4: 380.0}
    resting = {"since_change_seconds": 70.0, "restart_seconds": 30.0}

    up = recommend(situation(scales, at=2, ramping=True, **resting))
    other = recommend(situation(scales, at=2, **resting))

    assert up.target.replicas > 2
    assert other.explanation.code == "dwell"


def test_a_job_on_its_way_up_gives_nothing_up_before_it_has_rested():
    up = situation(WASTEFUL, at=4, ramping=True, since_change_seconds=70.0, restart_seconds=30.0)

    assert recommend(up).hold


def test_a_step_on_the_way_up_pays_for_itself_before_the_next():
    up = situation(WASTEFUL, at=4, ramping=True, since_change_seconds=59.0, restart_seconds=30.0)

    hold = dwelling(up)

    assert hold is not None
    assert "Brain waits 1 min" in hold.reason
