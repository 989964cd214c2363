"""What saves cost and delay is read from the traces."""

from collections.abc import Sequence

from benchmarks.elastic import saving
from benchmarks.elastic.saving import Wait, waited
from benchmarks.elastic.trace import Mark, Worker
from benchmarks.report import Row


def mark(at: float, what: str, step: int, rank: int = 0) -> Mark:
    return Mark(at=at, what=what, world=2, rank=rank, step=step)


def old_world(last: int) -> Worker:
    """Rank 0 of a world that makes a step in 0.1 s and saves every tenth in 0.05 s."""
    marks = [mark(0.1 * step, "step", step) for step in range(1, last + 1)]
    marks += [mark(0.1 * step + 0.05, "saved", step) for step in range(10, last + 1, 10)]
    return Worker(pid=1, marks=tuple(sorted(marks, key=lambda each: each.at)))


def new_world(first: int) -> Worker:
    steps = [mark(9.0 + 0.1 * index, "step", first + index) for index in range(3)]
    return Worker(pid=2, marks=tuple(steps))


def change(last: int, first: int) -> Wait:
    """A change that was wished for at 2.32 s, between the 23rd step and the 24th."""
    return waited([old_world(last), new_world(first)], [1], 2.32, 10)


def test_a_change_at_the_next_save_waits_as_long_as_the_formula_says() -> None:
    found = change(last=30, first=31)

    assert round(found.seconds, 6) == round(found.expected_seconds, 6) == 0.73
    assert (found.steps_lost, found.saved_lost) == (0, 0)


def test_a_change_that_misses_a_save_waits_an_interval_more_than_the_formula() -> None:
    found = change(last=40, first=41)

    assert round(found.seconds - found.expected_seconds, 6) == 1.0


def test_steps_after_the_last_save_are_lost_and_none_of_the_save() -> None:
    found = change(last=35, first=31)

    assert (found.steps_lost, found.saved_lost) == (5, 0)


def test_a_complete_save_that_was_not_loaded_is_a_loss_of_its_steps() -> None:
    found = change(last=35, first=21)

    assert (found.steps_lost, found.saved_lost) == (15, 10)


def wait(seconds: float, lost: int = 0) -> Wait:
    return Wait(seconds=seconds, expected_seconds=1.0, steps_lost=lost, saved_lost=lost)


def met(rows: Sequence[Row]) -> list[bool]:
    return [row.met for row in rows]


def test_the_longest_interval_is_held_to_the_formula_and_no_interval_may_lose_a_step() -> None:
    shortest, *_, longest = saving.INTERVALS

    assert met(saving.interval_rows(longest, [wait(0.9), wait(1.2)])) == [True, True]
    assert met(saving.interval_rows(longest, [wait(2.0), wait(1.0, lost=1)])) == [False, False]
    assert met(saving.interval_rows(shortest, [wait(2.0), wait(1.0, lost=1)])) == [True, False]


def test_a_kill_may_lose_steps_but_none_that_was_saved() -> None:
    killed = Wait(seconds=0.0, expected_seconds=0.5, steps_lost=7, saved_lost=0)
    seen = {name: [{"kill": killed}] for name in (saving.OURS, "torchrun tuned")}

    assert met(saving.async_rows("kill", seen)) == [True, True]


def test_a_planned_change_may_lose_no_step() -> None:
    seen = {name: [{"join": wait(1.0, lost=1)}] for name in (saving.OURS, "torchrun tuned")}

    assert met(saving.async_rows("join", seen)) == [False, False]
