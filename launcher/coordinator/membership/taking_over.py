"""Decide which agent may form a world, and let its workers live, while others are silent."""

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
    """True if a world may be formed although members of the last one are not heard of.

    With more than half of them; or with proof that all others are gone; or, once the lease of the
    silent ones ran out, with more than half of those that are not proved to be gone, or exactly
    half and among them who decides between halves. So of the two sides of a cut network one at
    most goes on, whatever either knows.
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
    """Return the member whose half continues when the world was cut in two; None if that is not
    known yet.

    Who ``coordinated`` knows for sure whether the witness is in force, and everybody knows of one
    that may be: once that member is gone, a witness that is known of counts. Without a witness it
    is who coordinated, or were that one gone, the lowest rank.
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
    """Return the member for whose half the witness is to be taken now; None: for none."""
    here = [replica for replica in last if replica in reachable]
    if not here or len(here) != _silent(last, reachable, gone) or witness.asked:
        return None
    by_witness = witness.path and decides(last, gone, coordinated, witness) is None
    return here[0] if by_witness else None


def quorum_at(
    last: Collection[int], confirmed: Mapping[int, float], gone: Collection[int]
) -> float:
    """Return the instant from which the lease of a world's members may be counted.

    ``confirmed`` says of each member the newest word of the coordinator that it is known to have
    heard, by the coordinator's clock. The returned instant is the latest at which more than half,
    or all that are not proved to be gone, had heard of the coordinator: a successor that some of
    them follow cannot have begun before.
    """
    at = sorted((confirmed[replica] for replica in last if replica in confirmed), reverse=True)
    more_than_half = len(last) // 2 + 1
    majority = at[more_than_half - 1] if len(at) >= more_than_half else -math.inf
    dead = sum(replica in gone and replica not in confirmed for replica in last)
    everybody = at[-1] if at and len(at) + dead == len(last) else -math.inf
    return max(majority, everybody)


def may_renew(heard: Iterable[float], lapsed_at: float, *, lost: bool, holds: bool) -> bool:
    """True if leases that ran out while everything stood still may be given once more, where only
    agents of the world itself can begin another.

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
