"""Who may form a world while others are silent."""

from collections.abc import Collection, Iterable


def may_form(
    last: Collection[int], reachable: Collection[int], gone: Collection[int], lease_expired: bool
) -> bool:
    """Whether a world may be formed although members of the last one are not heard of.

    With more than half of them; or with proof that all others are gone; or once the lease of the
    silent ones ran out, unless they are more than half themselves: they may have formed a world.
    """
    here = sum(replica in reachable for replica in last)
    silent = sum(replica not in reachable and replica not in gone for replica in last)
    return 2 * here > len(last) or silent == 0 or (lease_expired and 2 * silent <= len(last))


def next_epoch(known: Iterable[int]) -> int:
    """Return the epoch after all that anybody has heard of."""
    return max(known, default=0) + 1
