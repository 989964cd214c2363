"""Advice that was not taken is held against what was measured later, and nothing follows."""

from dataclasses import replace

import pytest

from brain import lifecycle
from brain.types.job import ApprovalPolicy, JobState, PolicyMode
from brain.types.plan import PlanState, ScalePlan, Verdict
from tests.virtual import QUICK, Laptop, scaling_by

#: Proposals expire at once, so that a turn leaves advice that nobody took.
BRIEF = replace(QUICK, proposal_seconds=5.0)


def advised(exponent: float = 0.9) -> Laptop:
    """A job in shadow mode that was advised to take two replicas, and was not resized."""
    mode = ApprovalPolicy(mode=PolicyMode.SHADOW)
    laptop = Laptop(scaling_by(exponent), settings=BRIEF, policy=mode).start()
    laptop.live(60)
    assert laptop.size == 1
    return laptop


def ask_for(laptop: Laptop, replicas: int) -> None:
    """A person takes that size all the same."""
    with laptop.transaction() as (tx, job):
        lifecycle.request(
            tx, job, replicas, by="ada", why="", settings=laptop.settings, now=laptop.now
        )
    laptop.coordinate()


def not_taken(laptop: Laptop) -> list[ScalePlan]:
    """What advised two replicas and was never applied."""
    ended = (PlanState.EXPIRED, PlanState.SUPERSEDED)
    return [p for p in laptop.plans if p.state in ended and p.target.replicas == 2]


def test_shadow_advice_has_no_score_while_nobody_knows():
    assert all(plan.outcome.verdict is None for plan in not_taken(advised()))


def test_shadow_advice_is_kept_where_the_size_then_does_what_was_promised():
    laptop = advised()
    ask_for(laptop, 2)
    laptop.live(60)
    plan = not_taken(laptop)[0]
    assert plan.outcome.verdict is Verdict.KEPT
    assert plan.outcome.measured is not None
    assert plan.outcome.detail.startswith("not taken; ")


def test_shadow_advice_falls_short_where_it_would_have():
    laptop = advised()
    laptop.step_seconds = lambda replicas: 0.2
    ask_for(laptop, 2)
    laptop.live(60)
    assert {plan.outcome.verdict for plan in not_taken(laptop)} == {Verdict.FELL_SHORT}


def test_a_score_changes_neither_state_nor_size():
    laptop = advised()
    ask_for(laptop, 2)
    before = [plan.state for plan in not_taken(laptop)]
    laptop.live(60)
    assert [plan.state for plan in not_taken(laptop)] == before
    assert laptop.size == 2


def test_a_score_is_written_down_once():
    laptop = advised()
    ask_for(laptop, 2)
    laptop.live(60)
    scored = laptop.events("plan.scored")
    assert len(scored) == len(set(scored)) == len(not_taken(laptop))


@pytest.mark.parametrize("state", [JobState.SUCCEEDED, JobState.FAILED])
def test_advice_of_a_job_that_never_ran_at_its_size_stays_unknown(state: JobState):
    laptop = advised()
    with laptop.transaction() as (tx, job):
        lifecycle.end(tx, job, state, "over", laptop.now)
    assert {plan.outcome.verdict for plan in not_taken(laptop)} == {Verdict.INCONCLUSIVE}
    assert "never ran with 2" in not_taken(laptop)[0].outcome.detail
