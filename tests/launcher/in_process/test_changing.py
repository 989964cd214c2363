"""What a worker does about the next world, decided without a clock, a socket or a process."""

import pytest

from launcher.elastic.changing import Coming, Due, Plan, step_to_change_at

BUILT = Coming().planned(Plan(epoch=5, rank=0, size=3), 4).ready(5)
OVER = Coming().planned(Plan(epoch=5, rank=0, size=1, now=True), 4)


def test_nothing_is_asked_of_steps_while_a_group_is_built_beside_them() -> None:
    assert not BUILT.watched
    assert BUILT.due(10) is Due.GO_ON


def test_a_worker_goes_on_to_the_step_that_it_agreed_to_and_waits_there_for_the_others() -> None:
    agreed = BUILT.agreed(5, 12)
    assert [agreed.due(step) for step in (11, 12)] == [Due.GO_ON, Due.WAIT]


def test_all_move_once_it_is_decided_and_not_before_their_step() -> None:
    decided = BUILT.agreed(5, 12).decided(5)
    assert [decided.due(step) for step in (11, 12)] == [Due.GO_ON, Due.MOVE]


def test_who_has_no_place_in_the_next_world_parts_at_the_same_step() -> None:
    plan = Plan(epoch=5, rank=0, size=2, parting=True)
    leaves = Coming().planned(plan, 4).agreed(5, 12).decided(5)
    assert [leaves.due(step) for step in (11, 12)] == [Due.GO_ON, Due.PART]


def test_a_world_that_is_over_is_left_as_soon_as_the_next_one_is_there() -> None:
    assert OVER.due(7) is Due.WAIT
    assert OVER.ready(5).due(7) is Due.MOVE


def test_what_was_decided_cannot_be_dropped_and_what_was_agreed_can() -> None:
    agreed = BUILT.agreed(5, 12)
    assert agreed.dropped(0) == Coming()
    assert agreed.decided(5).dropped(5).committed


@pytest.mark.parametrize("epoch", [3, 4, 5])
def test_an_older_plan_changes_nothing(epoch: int) -> None:
    assert BUILT.planned(Plan(epoch=epoch, rank=9, size=9, now=True), 4) is BUILT


def test_a_loss_overtakes_what_was_planned_even_if_it_was_decided() -> None:
    decided = BUILT.agreed(5, 12).decided(5)
    assert decided.planned(Plan(epoch=6, rank=0, size=2, now=True), 4).due(3) is Due.WAIT


def test_words_about_another_world_are_old() -> None:
    assert BUILT.agreed(4, 12) == BUILT.decided(6) == BUILT.dropped(4) == BUILT


def test_steps_shorter_than_a_word_takes_leave_it_the_time() -> None:
    assert step_to_change_at(10, 0.001, told_seconds=0.02) == 32


def test_one_that_leaves_does_not_wait_for_another_world_when_its_last_step_fails() -> None:
    plan = Plan(epoch=5, rank=0, size=2, parting=True)
    leaves = Coming().planned(plan, 4).agreed(5, 12)
    assert (leaves.relief(), leaves.decided(5).relief()) == (Due.WAIT, Due.PART)


def test_who_stays_goes_on_from_a_failed_step_in_a_world_that_comes_now_only() -> None:
    decided = BUILT.agreed(5, 12).decided(5)
    assert (decided.relief(), OVER.ready(5).relief()) == (Due.WAIT, Due.MOVE)
