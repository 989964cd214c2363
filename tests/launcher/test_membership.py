"""Who is in the next world, when it forms, and why not: decided without a process."""

from dataclasses import replace

import pytest

from brain.types.job import Intent
from brain.types.world import Cause, ReplicaExit
from launcher.coordinator.membership import decide, may_form, next_epoch
from launcher.values.action import (
    STAY,
    End,
    FormWorld,
    HoldWorld,
    ParkWorld,
    Relabel,
    Release,
    Revert,
    StopWorld,
    Swap,
    Unpark,
    WaitFor,
)
from launcher.values.observation import HeldWorld, Saves, WorldChange, WorldPhase, WorldRules
from tests.launcher.elastic import desired
from tests.launcher.observations import (
    ORDINARY,
    agent,
    agents,
    ended,
    members,
    observation,
    parked,
    planned,
    world,
)

NOW = 1000.0
LATE = 1e6


# --- beginning ---------------------------------------------------------------------------------


def test_nothing_forms_before_the_wish_is_known() -> None:
    assert isinstance(decide(observation(None, 0), NOW), WaitFor)


def test_a_first_world_forms_as_soon_as_all_are_here() -> None:
    assert decide(observation(2, 0, 1), 0.0) == FormWorld(members([0, 1]), Cause.START, 0, 2)


def test_a_first_world_waits_for_the_rest_as_long_as_patience_lasts() -> None:
    seen = observation(2, 0, desired_since=NOW)

    assert decide(seen, NOW) == WaitFor("1 of 2 replicas are here", NOW + 30)
    assert decide(seen, NOW + 30) == FormWorld(members([0]), Cause.START, 0, 2)


def test_a_first_world_of_fewer_waits_for_an_earlier_one_to_find_it() -> None:
    rules = replace(ORDINARY, alone_seconds=40.0)
    seen = observation(2, 0, desired_since=NOW, rules=rules)

    assert decide(seen, NOW + 30) == WaitFor("1 of 2 replicas are here", NOW + 40)
    assert decide(observation(2, 0, 1, desired_since=NOW, rules=rules), NOW) == FormWorld(
        members([0, 1]), Cause.START, 0, 2
    )


def test_fewer_than_the_minimum_never_form() -> None:
    seen = observation(None, 0)

    assert isinstance(decide(replace(seen, desired=desired(4, minimum=2)), LATE), WaitFor)


def test_a_first_world_that_cannot_be_formed_is_given_up_in_time() -> None:
    rules = replace(ORDINARY, join_seconds=600.0)
    seen = replace(
        observation(None, 0, desired_since=NOW, rules=rules), desired=desired(4, minimum=2)
    )

    assert decide(seen, NOW + 599) == WaitFor("1 of at least 2 replicas are here", NOW + 600)
    assert decide(seen, NOW + 600) == End(
        ReplicaExit.FAILED,
        1,
        "1 of at least 2 replicas are here after 600 s (--rdzv-conf join_timeout=)",
    )


def test_31_replicas_of_unit_4_run_28_and_keep_3_spares() -> None:
    seen = observation(None, *range(31))
    action = decide(replace(seen, desired=desired(32, unit=4, minimum=4)), LATE)

    assert isinstance(action, FormWorld)
    assert action.members == members(range(28))
    running = world(*range(28), goal=32)
    assert (
        decide(replace(seen, desired=desired(32, unit=4, minimum=4), world=running), LATE) == STAY
    )


def test_32_replicas_of_unit_4_grow_from_28_only_together() -> None:
    wanted, running = desired(32, unit=4, minimum=4), world(*range(28), goal=32)
    short = observation(None, *range(31), desired_since=NOW, world=running)

    assert isinstance(decide(replace(short, desired=wanted), NOW), WaitFor)
    assert decide(replace(short, desired=wanted, agents=agents(*range(32))), NOW) == ParkWorld()


# --- planned changes ---------------------------------------------------------------------------


def test_a_planned_growth_parks_only_when_the_joiners_are_here() -> None:
    waiting = planned(2, observation(1, 0, world=world(0), desired_since=NOW))

    assert decide(waiting, NOW) == WaitFor("1 of 2 replicas are here", NOW + 30)
    assert decide(replace(waiting, agents=agents(0, 1)), NOW) == ParkWorld()


def test_a_planned_change_swaps_at_the_safe_point() -> None:
    seen = planned(2, observation(1, 0, 1, world=parked(0)))

    assert decide(seen, NOW) == Swap(planned=True)


def test_a_planned_world_forms_in_the_wished_size() -> None:
    seen = planned(2, observation(1, 0, 1, world=ended(0, by=Cause.PLAN)))

    assert decide(seen, NOW) == FormWorld(members([0, 1]), Cause.PLAN, 1, 2)


def test_after_patience_a_planned_growth_takes_what_there_is() -> None:
    seen = planned(4, observation(1, 0, 1, world=world(0), desired_since=NOW))

    assert isinstance(decide(seen, NOW + 29), WaitFor)
    assert decide(seen, NOW + 31) == ParkWorld()


def test_a_planned_growth_for_which_nobody_came_is_held() -> None:
    seen = planned(2, observation(1, 0, world=world(0)))

    assert decide(seen, LATE) == HoldWorld(
        "only 1 of 2 replicas have arrived, so the world cannot grow"
    )


def test_without_a_checkpoint_the_hold_says_what_it_would_lose() -> None:
    seen = planned(2, observation(1, 0, 1, world=world(0, saves=Saves(), since=NOW)))
    action = decide(seen, NOW + 600)

    assert isinstance(action, HoldWorld)
    assert "a resize would lose 10 minutes of work" in action.reason


def test_a_declared_checkpoint_is_waited_for() -> None:
    seen = planned(2, observation(1, 0, 1, world=world(0, saves=Saves(declared=True))))

    assert decide(seen, NOW) == ParkWorld()


def test_a_safe_point_is_waited_for_twice_the_interval() -> None:
    seen = planned(2, observation(1, 0, 1, world=parked(0, since=NOW, reached=False)))

    assert decide(seen, NOW + 1) == WaitFor("a safe point", NOW + 20)
    assert decide(seen, NOW + 20) == HoldWorld(
        "no checkpoint was completed within 20 s, so no safe point came"
    )


def test_a_machine_that_hesitates_does_not_cost_a_script_that_saves_often_its_change() -> None:
    often = Saves(count=5, interval_seconds=0.3)
    seen = planned(2, observation(1, 0, 1, world=parked(0, since=NOW, reached=False, saves=often)))

    assert decide(seen, NOW + 9) == WaitFor("a safe point", NOW + 10)
    assert isinstance(decide(seen, NOW + 10), HoldWorld)


def test_before_an_interval_was_seen_the_safe_point_is_waited_for_two_minutes() -> None:
    young = parked(0, since=NOW, reached=False, saves=Saves(count=1))

    assert decide(planned(2, observation(1, 0, 1, world=young)), NOW) == WaitFor(
        "a safe point", NOW + 120
    )


def test_a_script_that_was_signalled_to_save_has_the_time_of_the_rules() -> None:
    rules = WorldRules(signal_seconds=30)
    seen = planned(2, observation(1, 0, 1, world=parked(0, since=NOW, reached=False), rules=rules))

    assert decide(seen, NOW + 29) == WaitFor("a safe point", NOW + 30)
    assert isinstance(decide(seen, NOW + 30), HoldWorld)


def test_a_held_generation_is_not_tried_again() -> None:
    seen = planned(2, observation(1, 0, 1, world=world(0), held=HeldWorld(generation=1, saves=2)))

    assert decide(seen, LATE) == STAY


def test_a_plan_of_the_same_size_only_changes_the_label() -> None:
    assert decide(planned(1, observation(1, 0, world=world(0))), NOW) == Relabel(1, 1)


def test_a_restart_of_the_same_size_waits_for_its_safe_point_and_starts_nobody_before() -> None:
    seen = planned(1, observation(1, 0, world=world(0), rules=WorldRules()), anew=True)
    done = observation(1, 0, world=world(0, generation=1), desired=desired(1, generation=1))

    assert decide(seen, NOW) == ParkWorld()
    assert decide(replace(seen, world=parked(0)), NOW) == Swap(planned=True, anew=True)
    ends = replace(seen, world=ended(0, by=Cause.PLAN))
    assert decide(ends, NOW) == FormWorld(members([0]), Cause.PLAN, 1, 1)
    assert decide(replace(done, desired=desired(1, generation=1, anew=True)), NOW) == STAY


def test_a_restart_ends_processes_that_could_change_worlds_without_an_end() -> None:
    alive = world(0, sessions=frozenset({0}))

    assert decide(planned(1, observation(1, 0, world=alive), anew=True), NOW) == ParkWorld()


def test_a_world_that_was_lost_answers_a_restart_and_is_not_restarted_again() -> None:
    lost = planned(1, observation(1, 0, world=ended(0, by=Cause.FAILURE)), anew=True)

    assert decide(lost, LATE) == FormWorld(members([0]), Cause.FAILURE, 1, 1)


def test_a_restart_without_a_checkpoint_is_held_with_the_reason() -> None:
    seen = planned(1, observation(1, 0, world=world(0, saves=Saves())), anew=True)

    held = decide(seen, NOW)
    assert isinstance(held, HoldWorld)
    assert "a restart would lose 17 minutes of work" in held.reason


def test_a_plan_that_is_withdrawn_lets_the_workers_run_on() -> None:
    assert decide(observation(1, 0, 1, world=parked(0, reached=False)), NOW) == Unpark()


def test_a_world_that_never_steps_is_not_resized() -> None:
    idle = world(0, stepping=False, since=NOW)
    seen = planned(2, observation(1, 0, 1, world=idle, desired_since=NOW))

    assert decide(seen, NOW) == WaitFor("the world has not made a step yet", NOW + 120)
    assert isinstance(decide(seen, NOW + 120), HoldWorld)


def test_a_world_that_just_began_begins_again_for_the_replica_that_it_misses() -> None:
    seen = observation(2, 0, 1, world=world(0, stepping=False, since=NOW))

    assert decide(seen, NOW + 4) == Swap(planned=False)
    assert isinstance(decide(seen, NOW + 5), WaitFor)


def test_a_freeze_stops_plans_but_not_healing() -> None:
    frozen = planned(2, observation(1, 0, 1, world=world(0)), frozen=True)
    broken = replace(frozen, world=ended(0, by=Cause.FAILURE))

    assert decide(frozen, LATE) == STAY
    assert decide(broken, LATE) == FormWorld(members([0]), Cause.FAILURE, 0, 1)


# --- letting go --------------------------------------------------------------------------------


def test_agents_beyond_the_wish_are_released_once_the_world_steps() -> None:
    seen = observation(1, 0, 1, world=world(0))

    assert decide(seen, NOW) == Release((1,))
    assert decide(replace(seen, world=world(0, stepping=False)), NOW) == STAY


def test_those_let_go_are_kept_until_the_smaller_world_has_proved_itself() -> None:
    change = WorldChange(from_goal=2, from_generation=0, to_generation=1)
    seen = planned(1, observation(2, 0, 1, world=world(0, generation=1, change=change)))

    assert decide(seen, NOW) == STAY


def test_a_joiner_of_a_later_generation_is_not_sent_away() -> None:
    early = (agent(0), agent(1, generation=3))

    assert decide(observation(1, world=world(0), agents=early), NOW) == STAY


def test_a_leaving_member_is_kept_for_a_safe_point_but_not_for_long() -> None:
    seen = observation(2, world=world(0, 1), agents=(agent(0), agent(1, leaving_since=NOW)))

    assert decide(seen, NOW) == ParkWorld()
    assert decide(seen, NOW + 20) == StopWorld(Cause.MEMBERSHIP)


def test_a_member_that_left_is_released_when_the_others_have_formed() -> None:
    seen = observation(2, world=world(0), agents=(agent(0), agent(1, leaving_since=NOW)))

    assert decide(seen, NOW) == Release((1,))


# --- what ends by itself -----------------------------------------------------------------------


def test_a_failed_worker_ends_the_world() -> None:
    assert decide(observation(1, 0, world=world(0, failed=1)), NOW) == StopWorld(Cause.FAILURE)


def test_a_port_that_was_taken_is_no_failure_of_the_script() -> None:
    seen = observation(1, 0, world=world(0, failed=1, port_taken=True), failures=4)

    assert decide(seen, NOW) == StopWorld(Cause.MEMBERSHIP)


def test_more_failures_than_the_limit_end_the_job_with_the_workers_code() -> None:
    action = decide(observation(1, 0, world=world(0, failed=7), failures=4), NOW)

    assert isinstance(action, End)
    assert (action.exit, action.exit_code) == (ReplicaExit.FAILED, 7)


def test_a_script_that_fails_alike_before_any_step_is_given_up_sooner() -> None:
    failed = observation(
        1, 0, world=world(0, failed=7, stepping=False), rules=WorldRules(barren_worlds=3)
    )
    assert decide(replace(failed, barren=(7, 7)), 5) == StopWorld(Cause.FAILURE)
    assert decide(replace(failed, barren=(7, 1, 7)), 5) == StopWorld(Cause.FAILURE)
    reason = "3 worlds failed in the same way, and none of them has made a step"
    assert decide(replace(failed, barren=(7, 7, 7)), 5) == End(ReplicaExit.FAILED, 7, reason)


def test_a_lost_agent_ends_the_world_and_the_rest_form_at_once() -> None:
    lost = observation(2, 0, world=world(0, 1), gone=frozenset({1}), desired_since=NOW)
    after = replace(lost, world=ended(0, 1, by=Cause.MEMBERSHIP))

    assert decide(lost, NOW) == StopWorld(Cause.MEMBERSHIP)
    assert decide(after, NOW) == FormWorld(members([0]), Cause.MEMBERSHIP, 0, 2)


def test_a_replacement_joins_at_a_safe_point_like_any_growth() -> None:
    seen = observation(2, 0, 2, world=world(0, goal=2))

    assert decide(seen, NOW) == ParkWorld()
    assert decide(replace(seen, world=parked(0, goal=2)), NOW) == Swap(planned=False)


def test_a_failed_growth_back_is_tried_again_after_the_next_save() -> None:
    seen = observation(2, 0, 2, world=world(0, goal=2), held=HeldWorld(generation=0, saves=2))
    saved = replace(seen, world=world(0, goal=2, saves=Saves(count=3, interval_seconds=10)))

    assert decide(seen, NOW) == STAY
    assert decide(saved, NOW) == ParkWorld()


def test_a_planned_world_that_fails_before_its_first_step_is_undone() -> None:
    change = WorldChange(from_goal=1, from_generation=0, to_generation=1)
    new = world(0, 1, generation=1, failed=1, stepping=False, change=change)
    after = ended(0, 1, by=Cause.REVERT, generation=1, change=change)

    assert isinstance(decide(planned(2, observation(1, 0, 1, world=new)), NOW), Revert)
    assert decide(planned(2, observation(1, 0, 1, world=after)), NOW) == FormWorld(
        members([0]), Cause.REVERT, 0, 1
    )


def test_a_world_that_steps_without_loading_is_undone() -> None:
    change = WorldChange(from_goal=1, from_generation=0, to_generation=1)
    new = world(0, 1, generation=1, unloaded=True, change=change)

    assert isinstance(decide(planned(2, observation(1, 0, 1, world=new)), NOW), Revert)


def test_a_finished_world_ends_the_job() -> None:
    action = decide(observation(1, 0, world=world(0, finished=True)), NOW)

    assert isinstance(action, End)
    assert action.exit is ReplicaExit.SUCCEEDED


def test_nothing_is_decided_while_workers_stop() -> None:
    stopping = world(0, phase=WorldPhase.STOPPING, failed=1)

    assert decide(observation(1, 0, world=stopping), NOW) == STAY


# --- what its owner wants ----------------------------------------------------------------------


def test_a_suspended_job_stops_at_a_safe_point() -> None:
    suspended = replace(observation(), desired=desired(0, intent=Intent.SUSPEND), agents=agents(0))

    assert decide(replace(suspended, world=world(0)), NOW) == ParkWorld()
    assert decide(replace(suspended, world=parked(0)), NOW) == StopWorld(None)
    action = decide(replace(suspended, world=ended(0, by=None)), NOW)
    assert isinstance(action, End)
    assert action.exit is ReplicaExit.LEFT


def test_a_cancelled_job_stops_at_once() -> None:
    cancelled = replace(observation(), desired=desired(0, intent=Intent.CANCEL), agents=agents(0))

    assert decide(replace(cancelled, world=world(0, saves=Saves())), NOW) == StopWorld(None)


def test_a_suspended_job_without_checkpoints_is_held() -> None:
    suspended = replace(observation(), desired=desired(0, intent=Intent.SUSPEND), agents=agents(0))

    assert isinstance(decide(replace(suspended, world=world(0, saves=Saves())), NOW), HoldWorld)


def test_a_resumed_job_starts_anew() -> None:
    resumed = observation(1, 5, world=ended(0, by=None), gone=frozenset({0}))

    assert decide(resumed, LATE) == FormWorld(members([5]), Cause.START, 0, 1)


# --- take-over ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("here", "gone", "lease_expired", "may"),
    [
        ((0, 1, 2), (), False, True),  # more than half
        ((0, 1), (), False, False),  # half is not enough
        ((0, 1), (), True, True),  # until the others have ended themselves
        ((0,), (1, 2, 3), False, True),  # proof that the rest is gone
        ((0,), (1,), False, False),
        ((0,), (), True, False),  # three silent ones may have formed a world
    ],
)
def test_who_may_form_a_world(
    here: tuple[int, ...], gone: tuple[int, ...], lease_expired: bool, may: bool
) -> None:
    assert may_form((0, 1, 2, 3), here, gone, lease_expired) is may


def test_a_successor_waits_for_members_that_may_come_back() -> None:
    seen = observation(2, 1, world=world(0, 1), lease_until=NOW + 10)

    assert decide(seen, NOW) == WaitFor("replicas 0 have not come back", NOW + 10)
    assert decide(replace(seen, gone=frozenset({0})), NOW) == StopWorld(Cause.MEMBERSHIP)
    assert decide(seen, NOW + 10) == StopWorld(Cause.MEMBERSHIP)


def test_a_successor_adopts_a_world_whose_members_all_came_back() -> None:
    assert decide(observation(2, 0, 1, world=world(0, 1)), NOW) == STAY


def test_epochs_rise_over_all_that_anybody_heard_of() -> None:
    assert next_epoch([3, 7, 5]) == 8
    assert next_epoch([]) == 1
