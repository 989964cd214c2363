"""Decide which part of a world may continue while the other is silent, so that only one does."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence

from launcher.values.witness import NO_WITNESS, WitnessObserved


def may_form(
    last: Sequence[int],
    reachable: Collection[int],
    gone: Collection[int],
    lease_expired: bool,
    coordinated: int | None = None,
    witness: WitnessObserved = NO_WITNESS,
) -> bool:
    """True if a world may be formed although members of the last world are silent.

    A world may be formed with more than half of the members, or with proof that all others are
    gone. Once the lease of the silent members ran out, more than half of the members that are not
    proved to be gone will do, or exactly half with the member that decides between halves. So at
    most one of the two sides of a cut network goes on, whatever either side knows.
    """
    here = sum(replica in reachable for replica in last)
    silent = _silent(last, reachable, gone)
    if 2 * here > len(last) or silent == 0:
        return True
    if not lease_expired or here < silent:
        return False
    return here > silent or decides(last, gone, coordinated, witness) in reachable


def decides(
    last: Sequence[int], gone: Collection[int], coordinated: int | None, witness: WitnessObserved
) -> int | None:
    """Return the member whose half continues when the world was cut in two; None if not known yet.

    The member that ``coordinated`` knows for sure if the witness is in force; every other member
    knows of a witness that may be. Once the former is gone, a known witness counts. Without a
    witness, the half of the member that coordinated continues or, if that is gone, the half of the
    lowest rank.
    """
    there = coordinated in last and coordinated not in gone
    if witness.in_force or (witness.path and not there):
        return witness.holder
    return coordinated if there else next((r for r in last if r not in gone), None)


def half_to_ask_for(
    last: Sequence[int],
    reachable: Collection[int],
    gone: Collection[int],
    coordinated: int | None,
    witness: WitnessObserved,
) -> int | None:
    """Return the member for whose half to take the witness now; None if no half shall take it."""
    here = [replica for replica in last if replica in reachable]
    if not here or len(here) != _silent(last, reachable, gone) or witness.asked:
        return None
    by_witness = witness.path and decides(last, gone, coordinated, witness) is None
    return here[0] if by_witness else None


def quorum_at(
    last: Collection[int], confirmed: Mapping[int, float], gone: Collection[int]
) -> float:
    """Return the instant from which the lease of a world's members may be counted.

    ``confirmed`` maps each member to the time, on the coordinator's clock, of the newest message
    that the member is known to have heard from the coordinator. The returned instant is the latest
    at which more than half of the members, or all that are not proved to be gone, had heard the
    coordinator: a successor that some of them follow cannot have begun before.
    """
    at = sorted((confirmed[replica] for replica in last if replica in confirmed), reverse=True)
    more_than_half = len(last) // 2 + 1
    majority = at[more_than_half - 1] if len(at) >= more_than_half else -math.inf
    dead = sum(replica in gone and replica not in confirmed for replica in last)
    everybody = at[-1] if at and len(at) + dead == len(last) else -math.inf
    return max(majority, everybody)


def may_renew(heard: Iterable[float], lapsed_at: float, *, lost: bool, holds: bool) -> bool:
    """True if leases that ran out while everything stood still may be renewed, in a world whose own
    agents alone can begin another world.

    Only with proof that no successor was begun: the coordinator ``holds`` its leadership where new
    agents look for it, and every agent that followed it then does so still, on the connection that
    it had (nobody was ``lost``), and has ``heard`` it since. A successor would have needed some of
    them, and they would have left.

    >>> may_renew([12.0, 13.0], 11.0, lost=False, holds=True)
    True
    >>> may_renew([12.0, 10.0], 11.0, lost=False, holds=True)
    False
    """
    return holds and not lost and all(at > lapsed_at for at in heard)


def next_epoch(known: Iterable[int]) -> int:
    """Return the epoch after every epoch that any agent has heard of."""
    return max(known, default=0) + 1


def _silent(last: Sequence[int], reachable: Collection[int], gone: Collection[int]) -> int:
    return sum(replica not in reachable and replica not in gone for replica in last)
