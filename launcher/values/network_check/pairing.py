"""The groups in which the nodes are tested."""

from collections.abc import Mapping, Sequence

from launcher.values.network_check.measurements import CheckRound, Group, Usual, replicas_of
from launcher.values.network_check.speeds import (
    comparisons,
    longer,
    references,
    speed_of,
    tries_of,
)

#: Share of the excess ``ratio - 1`` from which on a node is tried again.
SUSPECT = 0.4
ROUNDS = 3


def first_round(replicas: Sequence[int]) -> tuple[Group, ...]:
    """Return neighbours in pairs; an odd node joins the last pair, or is alone if there is no
    other.

    >>> first_round([0, 1, 2, 3, 4]), first_round([0, 1, 2])
    (((0, 1), (2, 3, 4)), ((0, 1), (2,)))
    """
    pairs = [tuple(replicas[at : at + 2]) for at in range(0, len(replicas), 2)]
    if len(pairs) > 2 and len(pairs[-1]) == 1:
        pairs[-2:] = [pairs[-2] + pairs[-1]]
    return tuple(pairs)


def next_round(
    rounds: Sequence[CheckRound], usual: Mapping[str, Usual], ratio: float
) -> tuple[Group, ...]:
    """Return groups that pair each suspect with a node that passed; suspects without such a partner
    are alone. The result is empty if no node is suspected, or if another round would show nothing
    new.
    """
    everybody = replicas_of(rounds)
    if len(rounds) >= ROUNDS or len(everybody) == 1:
        return ()
    suspected = _suspects(rounds, usual, ratio)
    if len(everybody) == 3:
        return _of_three(rounds, everybody, suspected, usual)
    well = [each for each in everybody if each not in suspected]
    again = [each for each in everybody if each in suspected]
    if len(rounds) > 1:
        # Tried alone for want of a partner: there may be one by now.
        alone = {group[0] for group in rounds[-1].groups if len(group) == 1}
        again = [each for each in again if each in alone]
    if not again or (len(rounds) > 1 and not well):
        return ()
    return tuple(
        (one, well[place]) if place < len(well) else (one,) for place, one in enumerate(again)
    )


def _of_three(
    rounds: Sequence[CheckRound],
    nodes: Sequence[int],
    suspected: set[int],
    usual: Mapping[str, Usual],
) -> tuple[Group, ...]:
    """Return the next of three pairs; the third is tried only if two leave the question open."""
    one, two, three = nodes
    if len(rounds) == 1:
        return ((two, three), (one,))
    kinds = {speed_of(tried).kind for tried in tries_of(rounds).values()}
    known = all(usual.get(kind, Usual()).exchange_seconds for kind in kinds)
    return () if known and not suspected else ((one, three), (two,))


def _suspects(rounds: Sequence[CheckRound], usual: Mapping[str, Usual], ratio: float) -> set[int]:
    """Return the replicas that took long, and all replicas of a group whose newest try failed.

    A replica's newest try is its newest with a partner, else its newest alone.
    """
    tries = tries_of(rounds)
    speeds = {replica: speed_of(tried) for replica, tried in tries.items()}
    good, cut = references(speeds, usual), 1 + SUSPECT * (ratio - 1)
    found = {
        replica
        for replica, speed in speeds.items()
        if any(longer(mine, other, cut) for _, mine, other in comparisons(speed, good))
    }
    newest: dict[int, tuple[Group, CheckRound]] = {}
    for of in rounds:
        for group in of.groups:
            for replica in group:
                if len(group) > 1 or not tries[replica].together:
                    newest[replica] = (group, of)
    for replica, (group, of) in newest.items():
        seen = [of.measured.get(each) for each in group]
        if any(each is None or not each.ok for each in seen):
            found.add(replica)
    return found
