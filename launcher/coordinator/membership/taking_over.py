"""Decides which part of a world may continue while the other part is silent, so that at most one
part continues.
"""

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
    """True if a world may form although members of the last world are silent.

    A world may form with more than half of the members, or with proof that all others are gone.
    Once the lease of the silent members has expired, more than half of the members that are not
    proved to be gone are enough; so is exactly half, if it contains the member that decides between
    halves. So at most one side of a cut network continues.
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
    """Return the member whose half continues if a world is cut into halves; None if not known yet.

    Only the member that ``coordinated`` knows for certain if the witness is in force. Other members
    know a witness that may be in force; if the member that coordinated is gone, they use this
    witness. Without a witness, the half of the member that coordinated continues or, if it is gone,
    the half of the lowest rank.
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
    """Return the member for whose half the witness is to be taken now; None if it is not to be
    taken.
    """
    here = [replica for replica in last if replica in reachable]
    if not here or len(here) != _silent(last, reachable, gone) or witness.asked:
        return None
    by_witness = witness.path and decides(last, gone, coordinated, witness) is None
    return here[0] if by_witness else None


def quorum_at(
    last: Collection[int], confirmed: Mapping[int, float], gone: Collection[int]
) -> float:
    """Return the time from which the lease of a world's members is counted.

    ``confirmed`` maps each member to the time, on the coordinator's clock, of the coordinator's
    newest message that the member has confirmed. The result is the latest time at which more than
    half of the members, or all that are not proved to be gone, had received the coordinator's
    messages. A successor cannot have begun before this time, because some of these members would
    have to follow it.
    """
    at = sorted((confirmed[replica] for replica in last if replica in confirmed), reverse=True)
    more_than_half = len(last) // 2 + 1
    majority = at[more_than_half - 1] if len(at) >= more_than_half else -math.inf
    dead = sum(replica in gone and replica not in confirmed for replica in last)
    everybody = at[-1] if at and len(at) + dead == len(last) else -math.inf
    return max(majority, everybody)


def may_renew(heard: Iterable[float], lapsed_at: float, *, lost: bool, holds: bool) -> bool:
    """True if leases that expired while this machine was paused may be renewed.

    The function applies only to a world whose successor would have to consist of the world's own
    agents. A renewal needs proof that no successor has begun: the coordinator still ``holds`` the
    leadership, and every agent that followed the coordinator is still connected (no agent was
    ``lost``) and has ``heard`` the coordinator since the leases expired at ``lapsed_at``. A
    successor would have needed some of these agents, and they would have left. Times are seconds of
    the coordinator's clock.

    >>> may_renew([12.0, 13.0], 11.0, lost=False, holds=True)
    True
    >>> may_renew([12.0, 10.0], 11.0, lost=False, holds=True)
    False
    """
    return holds and not lost and all(at > lapsed_at for at in heard)


def next_epoch(known: Iterable[int]) -> int:
    """Return the epoch after the highest one that any agent has received."""
    return max(known, default=0) + 1


def _silent(last: Sequence[int], reachable: Collection[int], gone: Collection[int]) -> int:
    return sum(replica not in reachable and replica not in gone for replica in last)
