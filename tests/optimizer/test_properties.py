"""Whatever was measured and declared, a decision keeps bounds, explains itself and repeats."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from brain.models.job_fit import forget_every_fit
from brain.optimizer import recommend
from brain.optimizer.situation import Situation, WorkLimits
from brain.types.allocation import Bounds
from tests.optimizer.test_policies import situation

HOURS = st.floats(0.0, 100.0).map(lambda hours: 3600.0 * hours)


@st.composite
def situations(draw: st.DrawFn) -> Situation:
    """A job of any bounds that was measured at some sizes at any rates."""
    unit = draw(st.sampled_from([1, 2, 3]))
    largest = draw(st.integers(unit, 24))
    bounds = Bounds(min=draw(st.integers(1, largest)), max=largest, unit=unit)
    sizes = tuple(bounds.sizes())
    measured = draw(st.lists(st.integers(1, 24), min_size=1, max_size=4, unique=True))
    rates = {size: draw(st.floats(0.01, 1e6)) for size in measured}
    at = draw(st.sampled_from(measured))
    limited = draw(st.booleans())
    seen = situation(
        rates,
        at=at,
        sizes=sizes,
        room=draw(st.integers(0, 30)),
        restart_seconds=draw(st.floats(0.1, 900.0)),
        elapsed_seconds=draw(HOURS),
        remaining_seconds=draw(HOURS),
        end_known=draw(st.booleans()),
        left_lately=frozenset(draw(st.lists(st.integers(1, 24), max_size=3))),
        data_wait_share=draw(st.none() | st.floats(0.0, 1.0)),
        limits=WorkLimits(
            work_seconds=draw(HOURS),
            deadline_seconds=draw(st.none() | HOURS),
            replica_seconds=draw(st.none() | HOURS),
        )
        if limited
        else None,
    )
    return seen


@settings(max_examples=60, deadline=None)
@given(situations())
def test_a_choice_is_the_present_size_or_one_that_bounds_unit_and_room_allow(seen: Situation):
    target = recommend(seen).target.replicas

    assert target == seen.replicas or (target in seen.sizes and target <= seen.room)


@settings(max_examples=60, deadline=None)
@given(situations())
def test_nothing_beyond_twice_what_was_measured_is_tried(seen: Situation):
    assert seen.model is not None

    target = recommend(seen).target.replicas

    assert target <= max(seen.replicas, 2 * max(p.replicas for p in seen.model.points))


@settings(max_examples=40, deadline=None)
@given(situations())
def test_the_same_situation_is_decided_the_same_way_to_the_last_digit(seen: Situation):
    first = recommend(seen)
    forget_every_fit()

    assert recommend(seen) == first


@settings(max_examples=60, deadline=None)
@given(situations())
def test_every_decision_says_why_and_what_it_thought_of_the_other_sizes(seen: Situation):
    decision = recommend(seen)

    said = decision.explanation
    told = {alternative.replicas for alternative in said.alternatives}
    assert said.code
    assert said.reason
    assert {*seen.sizes} - {decision.target.replicas, seen.replicas} <= told


@settings(max_examples=40, deadline=None)
@given(situations(), st.floats(61.0, 1e6))
def test_stale_telemetry_never_shrinks_or_grows(seen: Situation, age: float):
    assert recommend(replace(seen, telemetry_age_seconds=age)).hold
