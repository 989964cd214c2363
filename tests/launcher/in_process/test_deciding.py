"""Changes that end no process, as membership decides them on a virtual clock."""

from dataclasses import replace
from typing import Any

from brain.types.world import Cause
from launcher.coordinator.membership import decide
from launcher.values.action import (
    DiscardWorld,
    End,
    FormWorld,
    Heal,
    ParkWorld,
    PrepareWorld,
    StopWorld,
    Switch,
    WaitFor,
)
from launcher.values.observation import JobObserved, PreparationObserved, WorldRules
from tests.launcher.observations import agent, agents, members, observation, world

RULES = WorldRules(prepare_seconds=60.0, debounce_seconds=0.0)


def elastic(*replicas: int, **fields: Any) -> Any:
    """A world of sessions that steps, and has never saved anything."""
    made = {"sessions": frozenset(replicas), "saves": replace(world(0).saves, count=0)}
    return world(*replicas, **(made | fields))


def seen(wished: int, here: tuple[int, ...], of: Any, **fields: Any) -> JobObserved:
    """A wish, agents and a world."""
    return observation(wished, *here, world=of, **({"rules": RULES} | fields))


def grown(*replicas: int) -> FormWorld:
    """A world of more replicas than before."""
    return FormWorld(members(replicas), Cause.MEMBERSHIP, 0, 3)


def test_growth_needs_no_checkpoint_and_is_built_beside_the_training() -> None:
    found = decide(seen(3, (0, 1, 2), elastic(0, 1, goal=3)), 100.0)
    assert found == PrepareWorld(grown(0, 1, 2), in_process=True)


def test_a_world_with_one_worker_that_has_no_session_takes_the_ordinary_way() -> None:
    found = decide(seen(3, (0, 1, 2), world(0, 1, goal=3)), 100.0)
    assert found == PrepareWorld(grown(0, 1, 2), in_process=False)


def test_once_all_agreed_to_a_step_the_next_world_is_decided() -> None:
    ready = PreparationObserved(form=grown(0, 1, 2), since=99.0, ready=True, in_process=True)
    found = decide(seen(3, (0, 1, 2), elastic(0, 1, goal=3, preparing=ready)), 100.0)
    assert found == Switch(grown(0, 1, 2))


def test_what_is_not_built_in_its_time_is_given_up_and_takes_the_ordinary_way() -> None:
    late = PreparationObserved(form=grown(0, 1, 2), since=-500.0, in_process=True)
    saved = world(0, 1, goal=3, sessions=frozenset({0, 1}), preparing=late)
    assert isinstance(decide(seen(3, (0, 1, 2), saved), 100.0), DiscardWorld)
    given_up = replace(saved, preparing=replace(late, failed="its members could not connect"))
    assert decide(seen(3, (0, 1, 2), given_up), 100.0) == ParkWorld()


def test_who_comes_while_a_world_is_built_waits_for_the_next_one() -> None:
    form = replace(grown(0, 1, 2), goal=4)
    built = PreparationObserved(form=form, since=99.0, in_process=True)
    found = decide(seen(4, (0, 1, 2, 3), elastic(0, 1, goal=4, preparing=built)), 100.0)
    assert isinstance(found, WaitFor)


def test_what_is_built_without_somebody_who_is_gone_is_built_anew() -> None:
    form = FormWorld(members((0, 1, 2, 3)), Cause.MEMBERSHIP, 0, 4)
    built = PreparationObserved(form=form, since=99.0, in_process=True)
    found = decide(seen(4, (0, 1, 2), elastic(0, 1, goal=4, preparing=built)), 100.0)
    assert found == DiscardWorld(None)


def test_a_member_with_notice_leaves_without_a_safe_point() -> None:
    going = (*agents(0, 1), agent(2, leaving_since=99.5))
    found = decide(seen(3, (), elastic(0, 1, 2), agents=going), 100.0)
    assert found == PrepareWorld(
        FormWorld(members((0, 1)), Cause.MEMBERSHIP, 0, 3), in_process=True
    )


def test_nobody_who_has_the_state_would_stay_so_it_goes_by_a_checkpoint() -> None:
    going = (agent(0, leaving_since=99.5), *agents(1))
    found = decide(seen(1, (), elastic(0), agents=going), 100.0)
    assert found == StopWorld(Cause.MEMBERSHIP)


def test_whoever_is_left_of_a_lost_member_goes_on_at_once() -> None:
    found = decide(seen(3, (0, 2), elastic(0, 1, 2), gone=frozenset({1})), 100.0)
    assert found == Heal(FormWorld(members((0, 2)), Cause.MEMBERSHIP, 0, 3))


def test_a_failed_worker_costs_its_replica_and_counts_as_a_failure() -> None:
    failed = elastic(0, 1, failed=1, broken=frozenset({1}))
    assert decide(seen(2, (0, 1), failed), 100.0) == Heal(
        FormWorld(members((0,)), Cause.FAILURE, 0, 2)
    )


def test_too_few_that_are_left_are_ended_as_ever() -> None:
    wanted = seen(2, (0, 1), elastic(0, 1, failed=1, broken=frozenset({1})))
    assert wanted.desired is not None
    strict = replace(wanted, desired=replace(wanted.desired, minimum=2))
    assert decide(strict, 100.0) == StopWorld(Cause.FAILURE)


def test_a_member_that_is_only_silent_is_waited_for_until_its_lease_is_over() -> None:
    silent = seen(3, (0, 1), elastic(0, 1, 2), lease_until=101.0)
    assert isinstance(decide(silent, 100.0), WaitFor)
    assert isinstance(decide(silent, 101.0), Heal)


def test_after_a_take_over_those_that_look_for_a_coordinator_are_waited_for() -> None:
    found = seen(3, (1,), elastic(0, 1, 2, was_elastic=True))
    found = replace(found, gone=frozenset({0}), lease_until=101.0)
    assert decide(found, 100.0) == WaitFor("replicas 2 have not come back", 101.0)


def test_the_side_of_a_cut_without_a_majority_does_not_go_on() -> None:
    minority = seen(3, (2,), elastic(0, 1, 2), lease_until=99.0)
    assert decide(minority, 100.0) == StopWorld(Cause.MEMBERSHIP)


def test_nothing_is_changed_before_all_have_gone_over() -> None:
    fresh = elastic(0, 1, goal=3, in_process=True, formed=False, since=99.0)
    assert isinstance(decide(seen(3, (0, 1, 2), fresh), 100.0), WaitFor)


def test_members_that_do_not_go_over_in_time_are_ended() -> None:
    stuck = elastic(0, 1, in_process=True, formed=False, since=-201.0)
    assert decide(seen(2, (0, 1), stuck), 100.0) == StopWorld(Cause.MEMBERSHIP)
    assert decide(
        seen(2, (0, 1), elastic(0, 1, in_process=True, unbuilt=True)), 100.0
    ) == StopWorld(Cause.MEMBERSHIP)


def test_workers_that_cannot_reach_each_other_meet_anew_when_no_cause_is_seen() -> None:
    torn = elastic(0, 1, torn_since=99.5)
    assert decide(seen(2, (0, 1), torn), 100.0) == WaitFor("workers cannot reach each other", 100.5)
    assert decide(seen(2, (0, 1), torn), 100.5) == Heal(
        FormWorld(members((0, 1)), Cause.MEMBERSHIP, 0, 2)
    )


def test_growth_that_could_not_be_built_is_tried_again_after_a_while() -> None:
    rests = seen(3, (0, 1, 2), elastic(0, 1, goal=3), build_after=101.0)
    assert decide(rests, 100.0) == WaitFor(
        "the new world's members could not connect; they try again", 101.0
    )
    assert decide(rests, 101.0) == PrepareWorld(grown(0, 1, 2), in_process=True)


def test_a_failure_that_would_only_come_again_ends_what_had_gone_on() -> None:
    assert decide(seen(2, (0, 1), elastic(0, 1), hopeless="twice"), 100.0) == StopWorld(
        Cause.FAILURE
    )


def test_workers_that_were_started_and_never_met_have_failed_unless_a_cause_is_seen() -> None:
    unmet = elastic(0, 1, unbuilt=True, torn_since=99.5)
    assert isinstance(decide(seen(2, (0, 1), unmet), 100.0), WaitFor)
    assert decide(seen(2, (0, 1), unmet), 100.5) == StopWorld(Cause.FAILURE)
    too_often = decide(seen(2, (0, 1), unmet, failures=1000), 100.5)
    assert isinstance(too_often, End)


def test_workers_that_wait_at_a_gate_are_none_to_switch_to() -> None:
    gated = PreparationObserved(form=grown(0, 1, 2), since=99.0, ready=True)
    found = decide(seen(3, (0, 1, 2), elastic(0, 1, goal=3, preparing=gated)), 100.0)
    assert found == DiscardWorld(None)


def test_a_group_that_was_built_in_process_holds_nobody_at_a_gate() -> None:
    built = PreparationObserved(form=grown(0, 1, 2), since=99.0, in_process=True)
    saved = world(0, 1, goal=3, preparing=built)
    assert decide(seen(3, (0, 1, 2), saved), 100.0) == DiscardWorld(None)


def test_nobody_joins_a_training_that_is_over() -> None:
    over = elastic(0, 1, goal=3, broken=frozenset({1}))
    assert isinstance(decide(seen(3, (0, 1, 2), over), 100.0), WaitFor)
