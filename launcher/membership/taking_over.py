"""Who may form a world, and let its workers live, while others are silent."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence


def may_form(
    last: Sequence[int],
    reachable: Collection[int],
    gone: Collection[int],
    lease_expired: bool,
    coordinated: int | None = None,
) -> bool:
    """Whether a world may be formed although members of the last one are not heard of.

    With more than half of them; or with proof that all others are gone; or, once the lease of the
    silent ones ran out, with more than half of those that are not proved to be gone, or exactly
    half and among them who ``coordinated`` (were that one gone, the lowest rank). So of the two
    sides of a cut network one at most goes on, whatever either knows.
    """
    here = sum(replica in reachable for replica in last)
    silent = sum(replica not in reachable and replica not in gone for replica in last)
    if 2 * here > len(last) or silent == 0:
        return True
    first = [coordinated, *last] if coordinated in last else last
    decides = next(replica for replica in first if replica not in gone)
    return lease_expired and (here > silent or (here == silent and decides in reachable))


def quorum_at(
    last: Collection[int], confirmed: Mapping[int, float], gone: Collection[int]
) -> float:
    """Until when the members of a world may be given a lease, counted from the returned instant.

    ``confirmed`` says of each member the newest word of the coordinator that it is known to have
    heard, by the coordinator's clock. What is returned is the latest instant at which more than
    half, or all that are not proved to be gone, had heard of it: a successor that some of them
    follow cannot have begun before.
    """
    at = sorted((confirmed[replica] for replica in last if replica in confirmed), reverse=True)
    more_than_half = len(last) // 2 + 1
    majority = at[more_than_half - 1] if len(at) >= more_than_half else -math.inf
    dead = sum(replica in gone and replica not in confirmed for replica in last)
    everybody = at[-1] if at and len(at) + dead == len(last) else -math.inf
    return max(majority, everybody)


def next_epoch(known: Iterable[int]) -> int:
    """Return the epoch after all that anybody has heard of."""
    return max(known, default=0) + 1
