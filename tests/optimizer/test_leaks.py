"""A restart before memory runs out, or not: each price decides."""

from dataclasses import replace

import pytest

from brain.optimizer.leaks import Leak, choose_restart
from brain.types.estimate import Band

#: Ten minutes are left of an hour, and the script saves every five.
LEAK = Leak(
    left=Band(value=600, low=500, high=700),
    age_seconds=3000,
    save_seconds=300,
    saved_seconds=10,
    restart_seconds=10,
    heal_seconds=20,
    keeps_work=False,
    last_failure=False,
    ends_seconds=None,
    asks=False,
)


def test_a_restart_costs_its_part_of_the_time_that_it_gives_up():
    choice = choose_restart(LEAK)
    assert choice.restart
    assert (choice.restart_costs, choice.crash_costs) == (12, 170)
    assert (
        "a restart at a save costs 12 s of training, and running out of memory costs 2 min 50 s"
        in (choice.reason)
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"ends_seconds": 400}, "but the run ends first, in 6 min 40 s"),
        ({"save_seconds": None}, "it cannot predict a safe point"),
        ({"save_seconds": 2000}, "before the next save, which is about 33 min away"),
        ({"left": Band(value=900, low=800, high=1000)}, "pays only in the last 11 min before that"),
        ({"restart_seconds": 200}, "a restart at a save costs 4 min of training"),
        ({"keeps_work": True, "restart_seconds": 20}, "running out of memory costs 20 s"),
    ],
)
def test_it_is_left_alone_with_the_reason(change: dict[str, object], said: str):
    choice = choose_restart(replace(LEAK, **change))
    assert not choice.restart
    assert said in choice.reason


def test_a_person_gets_time_to_approve():
    early = replace(LEAK, left=Band(value=3000, low=2900, high=3100), asks=True)
    assert choose_restart(early).restart
    assert not choose_restart(replace(early, asks=False)).restart


def test_the_last_failure_is_avoided_at_any_price():
    choice = choose_restart(replace(LEAK, restart_seconds=200, last_failure=True))
    assert choice.restart
    assert "ends the job, whose restarts are used up" in choice.reason
