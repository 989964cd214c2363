"""A replica that holds the others up while training goes on, by what heartbeats say."""

from collections.abc import Iterator

from brain.types.resources import NodeName
from launcher.coordinator.slow_nodes import Slowness
from launcher.values.diagnosis.slowness import LOOKS, SlowSuspect
from launcher.values.workers import Progress


def a_rank(rank: int, steps: int, own: float) -> Progress:
    """One of four ranks that step every 1.5 s, of which it waits what it does not work."""
    return Progress(
        rank=rank,
        local_rank=0,
        pid=1,
        steps=steps,
        last_step_ns=int(steps * 1.5e9) + 1,
        saved_step=0,
        parked=False,
        first_step_ns=1,
        waits=steps // 2,
        waited_ns=int(steps // 2 * (1.5 - own) * 1e9),
    )


def looks(own: list[float], count: int) -> Iterator[SlowSuspect | None]:
    """What is found at one look after the other, 45 s apart."""
    slowness = Slowness()
    for turn in range(1, count + 1):
        steps = 30 * turn
        ranks = [(a_rank(n, steps, each), n, NodeName(f"n{n}")) for n, each in enumerate(own)]
        yield slowness.look(ranks, 45.0 * turn, 1.15)


def test_the_rank_that_never_waits_is_named_after_enough_looks() -> None:
    found = list(looks([1.0, 1.0, 1.45, 1.0], LOOKS + 1))
    assert found[:LOOKS] == [None] * LOOKS
    last = found[-1]
    assert last is not None
    assert (last.replica, round(last.ratio, 2)) == (2, 1.45)


def test_ranks_that_work_alike_are_left_alone() -> None:
    assert list(looks([1.0, 1.05, 1.0, 1.1], 8)) == [None] * 8
