"""What a change costs its coordinator grows with the number of agents, and no faster."""

from collections import Counter

from tests.launcher.crowd import Change, simulate

SMALL, LARGE = 100, 1000


def frames(change: Change) -> int:
    """All frames of a change, either way."""
    return sum(change.sent.values()) + sum(change.heard.values())


def test_frames_per_change_grow_linearly_and_turns_not_at_all() -> None:
    small, large = simulate(SMALL), simulate(LARGE)

    for name in ("formed", "killed", "joined"):
        beyond = 2 * LARGE // SMALL  # of the two agents that come and go
        assert frames(large[name]) <= (LARGE // SMALL) * frames(small[name]) + beyond
        assert large[name].turns <= small[name].turns + 2


def test_a_loss_costs_two_orders_for_each_survivor_and_two_answers() -> None:
    killed = simulate(SMALL)["killed"]
    survivors = SMALL - 1

    assert killed.sent == Counter(Halt=survivors, Run=survivors)
    assert killed.heard == Counter(Stopped=survivors, Started=survivors, Said=2)


def test_heartbeats_are_answered_and_nothing_is_decided_upon_them() -> None:
    beaten = simulate(SMALL)["beaten"]

    assert beaten.sent == Counter(Lease=SMALL)
    assert beaten.turns == 0
