"""The figures of a change are those of the traces."""

from collections.abc import Sequence
from pathlib import Path

from benchmarks.elastic import trace
from benchmarks.elastic.trace import Mark, Worker


def worker(
    pid: int, *, rank: int, world: int, first: int, at: Sequence[float], began: float = 0.0
) -> Worker:
    """A process that made steps from ``first`` on, at these instants."""
    steps = [
        Mark(at=when, what="step", world=world, rank=rank, step=first + index)
        for index, when in enumerate(at)
    ]
    begun = Mark(at=began, what="began", world=-1, rank=-1, step=-1)
    return Worker(pid=pid, marks=(begun, *steps))


OLD = [
    worker(1, rank=0, world=2, first=18, at=[9.90, 9.95, 10.00]),
    worker(2, rank=1, world=2, first=18, at=[9.90, 9.95, 10.00, 10.05]),
]


def changed(*new: Worker) -> trace.Change | None:
    """What the change from OLD, asked for at 10 s, cost."""
    return trace.change(
        [*OLD, *new], [1, 2], 1, asked_at=10, ended={1: 10.1, 2: 10.2}, started={3: 10.25}
    )


def test_a_gap_lasts_from_rank_0s_last_step_to_the_first_of_the_new_world() -> None:
    found = changed(worker(3, rank=0, world=1, first=21, at=[10.5], began=10.3))

    assert found is not None
    assert round(found.gap_seconds, 6) == 0.5
    assert round(found.idle_seconds, 6) == 0.45
    assert found.steps_lost == 0


def test_steps_that_are_done_again_count_as_lost_and_delay_progress() -> None:
    found = changed(worker(3, rank=0, world=1, first=19, at=[10.5, 10.55, 10.6], began=10.3))

    assert found is not None
    assert found.steps_lost == 2
    assert round(found.effective_seconds, 6) == 0.6


def test_a_change_is_over_only_when_the_new_world_is_further_than_the_old() -> None:
    assert changed(worker(3, rank=0, world=1, first=19, at=[10.5, 10.55], began=10.3)) is None


def test_a_world_of_another_size_is_not_the_new_one() -> None:
    assert changed(worker(3, rank=0, world=3, first=21, at=[10.5], began=10.3)) is None


def test_the_phases_of_a_gap_add_up_to_it() -> None:
    found = changed(worker(3, rank=0, world=1, first=21, at=[10.5], began=10.3))

    assert found is not None
    assert round(sum(found.phases.values()), 6) == 0.5
    assert round(found.phases["detect+stop"], 6) == 0.2


def test_what_was_done_while_the_old_world_trained_costs_nothing() -> None:
    found = changed(worker(3, rank=0, world=1, first=21, at=[10.5], began=9.0))

    assert found is not None
    assert found.phases["boot"] == 0


def test_where_processes_stay_the_longest_pause_is_the_gap() -> None:
    at = [9.9, 9.95, 10.0, 10.4, *(10.45 + 0.05 * step for step in range(10))]
    stayed = worker(1, rank=0, world=1, first=1, at=at)

    found = trace.reshaped([stayed], [1], 1, asked_at=9.97)

    assert found is not None
    assert round(found.gap_seconds, 6) == 0.4


def turning(pid: int, at: Sequence[float], sizes: Sequence[int], first: int = 1) -> Worker:
    """A process that stays while the size of its world changes."""
    marks = [
        Mark(at=when, what="step", world=size, rank=pid, step=first + index)
        for index, (when, size) in enumerate(zip(at, sizes, strict=True))
    ]
    return Worker(pid=pid, marks=tuple(marks))


def test_around_processes_that_stay_the_gap_is_that_of_who_waited_longest() -> None:
    one = turning(0, [9.9, 10.0, 10.10], [3, 3, 2])
    other = turning(1, [9.9, 9.98, 10.12], [3, 3, 2])

    found = trace.switched([one, other], [0, 1, 2], 2, asked_at=9.95)

    assert found is not None
    assert round(found.gap_seconds, 6) == 0.14
    assert found.steps_lost == 0


def test_a_world_has_not_changed_while_one_that_stays_still_waits() -> None:
    one = turning(0, [9.9, 10.0, 10.10], [3, 3, 2])
    other = turning(1, [9.9, 9.98], [3, 3])

    assert trace.switched([one, other], [0, 1, 2], 2, asked_at=9.95) is None


def test_a_step_that_is_made_again_counts_as_lost_where_processes_stay_too() -> None:
    again = turning(0, [9.9, 10.0], [3, 3], first=7)
    again = Worker(pid=0, marks=(*again.marks, *turning(0, [10.1], [2], first=8).marks))

    found = trace.switched([again], [0], 2, asked_at=9.95)

    assert found is not None
    assert found.steps_lost == 1


def test_a_world_is_stepping_when_each_of_its_ranks_is() -> None:
    assert trace.stepping(OLD, 2, 3) == OLD
    assert trace.stepping(OLD[:1], 2, 3) == []


def test_a_line_that_is_being_written_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "7.csv").write_text("1.5,step,2,0,3\n1.6,ste")

    assert trace.read(tmp_path) == [
        Worker(pid=7, marks=(Mark(at=1.5, what="step", world=2, rank=0, step=3),))
    ]
