"""The tables of legal moves of jobs and plans."""

import pytest

from brain.errors import IllegalTransition
from brain.types.job import FINISHED, JOB_MOVES, JobState
from brain.types.plan import ACTIVE, PLAN_MOVES, PlanState
from tests.builders import NOW, at, job, plan

JOB_PAIRS = [(one, other) for one in JobState for other in JobState if one is not other]
PLAN_PAIRS = [(one, other) for one in PlanState for other in PlanState if one is not other]


def reachable(moves: dict, start: object) -> set[object]:
    """Every state that some sequence of moves leads to."""
    seen, waiting = {start}, [start]
    while waiting:
        for state in moves[waiting.pop()]:
            if state not in seen:
                seen.add(state)
                waiting.append(state)
    return seen


@pytest.mark.parametrize(("one", "other"), [p for p in JOB_PAIRS if p[1] in JOB_MOVES[p[0]]])
def test_a_job_makes_every_move_of_the_table(one: JobState, other: JobState):
    moved = job(state=one).moved(other, "because", at(5))

    assert (moved.state, moved.reason, moved.updated_at) == (other, "because", at(5))
    assert moved.finished_at == (at(5) if other in FINISHED else None)


@pytest.mark.parametrize(("one", "other"), [p for p in JOB_PAIRS if p[1] not in JOB_MOVES[p[0]]])
def test_a_job_makes_no_other_move(one: JobState, other: JobState):
    with pytest.raises(IllegalTransition, match=f"is {one}; it cannot become {other}"):
        job(state=one).moved(other, "because", NOW)


@pytest.mark.parametrize(("one", "other"), [p for p in PLAN_PAIRS if p[1] in PLAN_MOVES[p[0]]])
def test_a_plan_makes_every_move_of_the_table(one: PlanState, other: PlanState):
    assert plan(state=one).moved(other, at(5)).state is other


@pytest.mark.parametrize(("one", "other"), [p for p in PLAN_PAIRS if p[1] not in PLAN_MOVES[p[0]]])
def test_a_plan_makes_no_other_move(one: PlanState, other: PlanState):
    with pytest.raises(IllegalTransition, match=f"is {one}; it cannot become {other}"):
        plan(state=one).moved(other, NOW)


def test_every_state_of_a_job_can_be_reached_and_left_or_is_final():
    assert reachable(dict(JOB_MOVES), JobState.QUEUED) == set(JobState)
    assert {state for state, moves in JOB_MOVES.items() if not moves} == FINISHED


def test_every_state_of_a_plan_can_be_reached_and_only_active_ones_can_be_left():
    assert reachable(dict(PLAN_MOVES), PlanState.PROPOSED) == set(PlanState)
    assert {state for state, moves in PLAN_MOVES.items() if moves} == ACTIVE


def test_a_new_reason_in_the_same_state_is_always_legal():
    assert job(state=JobState.RUNNING).moved(JobState.RUNNING, "2 step", NOW).reason == "2 step"
