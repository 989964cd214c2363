"""The next world is made ready while one trains: when, how long, and when that was for nothing."""

from dataclasses import replace

from brain.types.world import Cause
from launcher.coordinator.membership import decide
from launcher.values.action import (
    STAY,
    DiscardWorld,
    FormWorld,
    ParkWorld,
    PrepareWorld,
    StopWorld,
    Swap,
    WaitFor,
)
from launcher.values.observation import (
    JobObserved,
    PreparationObserved,
    Saves,
    WorldObserved,
    WorldRules,
)
from tests.launcher.elastic import desired
from tests.launcher.observations import agent, ended, members, observation, parked, planned, world

NOW = 1000.0
RULES = WorldRules()
ONE_IMPORTS = "1 of 2 replicas are here; 1 agent imports modules first"
TWO = FormWorld(members([0, 1]), Cause.PLAN, 1, 2)


def growing(now: WorldObserved, *here: int) -> JobObserved:
    """A plan of two replicas for a world of one."""
    return planned(2, observation(1, *here, world=now, rules=RULES))


def preparing(form: FormWorld = TWO, **fields: object) -> PreparationObserved:
    """What is prepared since ``NOW``."""
    return replace(PreparationObserved(form=form, since=NOW), **fields)


def test_a_growth_is_prepared_before_anybody_parks() -> None:
    assert decide(growing(world(0), 0, 1), NOW) == PrepareWorld(TWO)


def test_workers_park_once_those_of_the_next_world_wait_at_the_gate() -> None:
    waiting, ready = preparing(), preparing(ready=True)

    assert decide(growing(world(0, preparing=waiting), 0, 1), NOW) == WaitFor(
        "workers of a world of 2 replicas get ready", NOW + 60
    )
    assert decide(growing(world(0, preparing=ready), 0, 1), NOW) == ParkWorld()


def test_what_was_prepared_is_what_is_formed() -> None:
    ready = preparing(ready=True)

    assert decide(growing(parked(0, preparing=ready), 0, 1), NOW) == Swap(planned=True)
    assert decide(growing(ended(0, by=Cause.PLAN, preparing=ready), 0, 1), NOW) == TWO


def test_one_that_cannot_be_prepared_takes_the_ordinary_way() -> None:
    failed = preparing(failed="replica 1: no gate")

    assert decide(growing(world(0, preparing=failed), 0, 1), NOW) == ParkWorld()


def test_workers_that_do_not_come_to_the_gate_are_given_up() -> None:
    late = decide(growing(world(0, preparing=preparing()), 0, 1), NOW + 60)

    assert late == DiscardWorld("the next world's workers were not ready within 60 s")


def test_what_is_not_wanted_any_more_is_discarded() -> None:
    seen = observation(1, 0, 1, world=world(0, preparing=preparing(ready=True)), rules=RULES)

    assert decide(seen, NOW) == DiscardWorld(None)


def test_a_member_that_went_ends_what_was_prepared_with_it() -> None:
    three = FormWorld(members([0, 1, 2]), Cause.PLAN, 1, 3)
    seen = observation(1, 0, 1, world=world(0, preparing=preparing(three, ready=True)), rules=RULES)
    without = replace(planned(3, seen), desired_since=-1e6)

    assert decide(without, NOW) == DiscardWorld(None)


def test_a_later_joiner_waits_for_the_next_change_once_all_is_ready() -> None:
    two = FormWorld(members([0, 1]), Cause.MEMBERSHIP, 0, 3)
    seen = observation(3, 0, 1, 2, world=world(0, goal=3), rules=RULES)
    waiting = replace(seen, world=world(0, goal=3, preparing=preparing(two)))
    ready = replace(seen, world=world(0, goal=3, preparing=preparing(two, ready=True)))

    assert decide(waiting, NOW) == DiscardWorld(None)
    assert decide(ready, NOW) == ParkWorld()


def test_a_failure_meanwhile_makes_what_was_prepared_another_world() -> None:
    after = ended(0, by=Cause.FAILURE, preparing=preparing(ready=True))
    action = decide(growing(after, 0, 1), NOW)

    assert isinstance(action, FormWorld)
    assert action != TWO


def test_a_leave_with_notice_is_prepared_and_waits_for_a_save() -> None:
    going = (agent(0), agent(1, leaving_since=NOW))
    one = FormWorld(members([0]), Cause.MEMBERSHIP, 0, 2)
    seen = observation(2, world=world(0, 1), agents=going, rules=RULES)
    ready = preparing(one, ready=True)

    assert decide(seen, NOW) == PrepareWorld(one)
    assert decide(replace(seen, world=world(0, 1, preparing=ready)), NOW) == ParkWorld()
    assert decide(replace(seen, world=parked(0, 1, preparing=ready)), NOW) == Swap(planned=False)


def test_half_of_the_notice_is_kept_for_the_save() -> None:
    going = (agent(0), agent(1, leaving_since=NOW))
    one = FormWorld(members([0]), Cause.MEMBERSHIP, 0, 2)
    slow = world(0, 1, preparing=preparing(one))
    seen = observation(2, world=slow, agents=going, rules=RULES)

    assert decide(seen, NOW) == WaitFor("workers of a world of 1 replicas get ready", NOW + 10)
    assert decide(seen, NOW + 10) == ParkWorld()


def test_a_leave_waits_no_longer_for_a_save_than_twice_the_interval() -> None:
    going = (agent(0), agent(1, leaving_since=NOW))
    often = Saves(count=5, interval_seconds=6.0)
    waiting = parked(0, 1, since=NOW + 1, reached=False, saves=often)
    seen = observation(2, world=waiting, agents=going, rules=RULES)

    assert decide(seen, NOW + 2) == WaitFor("a member leaves at the next safe point", NOW + 13)
    assert decide(seen, NOW + 13) == StopWorld(Cause.MEMBERSHIP)


def test_a_leave_without_saves_is_at_once() -> None:
    going = (agent(0), agent(1, leaving_since=NOW))
    seen = observation(2, world=world(0, 1, saves=Saves()), agents=going, rules=RULES)

    assert decide(seen, NOW) == StopWorld(Cause.MEMBERSHIP)


def test_whoever_ends_the_last_agent_by_hand_ends_the_job_at_once() -> None:
    alone = (agent(0, leaving_since=NOW),)
    seen = observation(1, world=world(0), agents=alone, rules=RULES)

    assert decide(seen, NOW) == ParkWorld()
    assert decide(replace(seen, rules=WorldRules(last_waits=False)), NOW) == StopWorld(
        Cause.MEMBERSHIP
    )


# --- bursts ------------------------------------------------------------------------------------


def test_thirty_joiners_at_once_are_one_change() -> None:
    seen = observation(64, *range(31), world=world(0, goal=64), stirred_at=NOW, rules=RULES)
    seen = replace(seen, desired=desired(64, patience_seconds=0.1))
    action = decide(seen, NOW + 0.05)

    assert decide(seen, NOW + 0.04) == WaitFor("more agents may come or go", NOW + 0.05)
    assert isinstance(action, PrepareWorld)
    assert len(action.form.members) == 31


def test_a_wished_size_is_not_waited_beyond() -> None:
    seen = growing(world(0), 0, 1)

    assert decide(replace(seen, stirred_at=NOW), NOW) == PrepareWorld(TWO)


def test_agents_that_die_together_make_one_change() -> None:
    seen = observation(4, 0, 1, world=ended(0, 1, 2, 3, by=Cause.MEMBERSHIP), rules=RULES)
    seen = replace(seen, gone=frozenset({2, 3}), stirred_at=NOW)

    assert decide(seen, NOW + 0.01) == WaitFor("more agents may come or go", NOW + 0.05)
    assert isinstance(decide(seen, NOW + 0.05), FormWorld)


def test_a_joiner_that_is_not_ready_is_no_reason_to_change() -> None:
    cold = (agent(0), agent(1, ready=False, since=NOW))
    seen = observation(2, world=world(0, goal=2), agents=cold, rules=RULES)
    seen = replace(seen, desired=desired(2, patience_seconds=0))

    assert decide(seen, NOW) == WaitFor(ONE_IMPORTS, NOW + 10)
    assert decide(seen, NOW + 10) == STAY


def test_a_joiner_that_is_ready_waits_a_moment_for_one_that_is_about_to_be() -> None:
    warm = (agent(0), agent(1), agent(2, ready=False, since=NOW))
    seen = observation(4, world=world(0, goal=4), agents=warm, stirred_at=NOW, rules=RULES)
    seen = replace(seen, desired=desired(4, patience_seconds=0))

    assert decide(seen, NOW + 0.5) == WaitFor("more agents may come or go", NOW + 1)
    assert isinstance(decide(seen, NOW + 1), PrepareWorld)


def test_a_first_world_waits_for_those_that_get_ready_but_not_for_long() -> None:
    cold = (agent(0), agent(1, ready=False, since=NOW))
    seen = replace(observation(2, agents=cold, rules=RULES), desired=desired(2, patience_seconds=0))

    assert decide(seen, NOW) == WaitFor(ONE_IMPORTS, NOW + 10)
    assert decide(seen, NOW + 10) == FormWorld(members([0]), Cause.START, 0, 2)


def test_healing_waits_for_nobody_who_is_not_ready() -> None:
    cold = (agent(0), agent(2, ready=False, since=NOW))
    seen = observation(2, world=ended(0, 1, by=Cause.MEMBERSHIP), agents=cold, gone=frozenset({1}))

    assert decide(replace(seen, stirred_at=NOW), NOW + 1) == FormWorld(
        members([0]), Cause.MEMBERSHIP, 0, 2
    )
