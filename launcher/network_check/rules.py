"""Who is paired with whom, and what the measurements say. Pure.

A node's own speed is timed by itself, so that two nodes are enough to tell which one is slow. What
only a pair can show is tried twice, the second time with a partner that did well: who fails twice
is to blame, whoever was beside it is not.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path

Group = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What one node found in one round."""

    ok: bool
    #: What went wrong; empty where nothing did.
    reason: str = ""
    #: Seconds of its own arithmetic, and of exchanges with its group; 0 = not measured.
    compute_seconds: float = 0.0
    exchange_seconds: float = 0.0
    #: Only nodes of one kind are compared: the accelerator's name, ``cpu``.
    kind: str = "cpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """Who was grouped with whom, and what came of it, by replica."""

    groups: tuple[Group, ...]
    measured: Mapping[int, Measured]


@dataclass(frozen=True, slots=True, kw_only=True)
class Usual:
    """The best that was ever measured of one kind; 0 = never."""

    compute_seconds: float = 0.0
    exchange_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckTerms:
    """How nodes are checked."""

    #: Print what was measured, as ``--comm-perf-test`` wants it.
    print_all: bool = False
    exclude_stragglers: bool = False
    ratio: float = 2.0
    #: For one round: import torch, measure, give up.
    seconds: float = 120.0
    #: Where the best times are remembered; one file for all jobs of this state directory.
    memory: Path
    #: Says something that a person shall see.
    tell: Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdicts:
    """Nodes with a reason each; who is in neither is fine."""

    failed: Mapping[int, str] = field(default_factory=dict)
    slow: Mapping[int, str] = field(default_factory=dict)


def first_round(replicas: Sequence[int]) -> tuple[Group, ...]:
    """Neighbours in pairs; an odd one joins the last pair.

    >>> first_round([0, 1, 2, 3, 4])
    ((0, 1), (2, 3, 4))
    """
    pairs = [tuple(replicas[at : at + 2]) for at in range(0, len(replicas), 2)]
    if len(pairs) > 1 and len(pairs[-1]) == 1:
        pairs[-2:] = [pairs[-2] + pairs[-1]]
    return tuple(pairs)


def second_round(first: Round, usual: Mapping[str, Usual], ratio: float) -> tuple[Group, ...]:
    """Suspects beside nodes that did well, one each; suspects without such a partner alone. Empty
    where nobody is suspected, or where being alone was all there is."""
    well: list[int] = []
    suspects: list[int] = []
    for group in first.groups:
        (suspects if _suspicious(group, first, usual, ratio) else well).extend(group)
    if not suspects or len(first.measured) == 1:
        return ()
    paired = zip_longest(suspects, well[: len(suspects)])
    return tuple((one,) if other is None else (one, other) for one, other in paired)


def verdicts(rounds: Sequence[Round], usual: Mapping[str, Usual], ratio: float) -> Verdicts:
    """Who failed and who is slow: ``ratio`` times as long as others of its kind, or as such nodes
    ever took here (so that a cluster of which most are slow is seen, too)."""
    failed = {replica: why for replica in _everybody(rounds) if (why := _failure(replica, rounds))}
    failed |= _parted(rounds, failed)
    fine = [replica for replica in _everybody(rounds) if replica not in failed]
    slow: dict[int, str] = {}
    for replica in fine:
        kind = _best(replica, rounds).kind
        alike = [_best(r, rounds) for r in fine if _best(r, rounds).kind == kind]
        if why := _slowness(_best(replica, rounds), alike, usual.get(kind, Usual()), ratio):
            slow[replica] = why
    return Verdicts(failed=failed, slow=slow)


def remembered(rounds: Sequence[Round], usual: Mapping[str, Usual]) -> dict[str, Usual]:
    """What is usual from now on: the best of what was, and the middle of what is now."""
    found = dict(usual)
    best = [_best(replica, rounds) for replica in _everybody(rounds)]
    for kind in {each.kind for each in best if each.ok}:
        alike = [each for each in best if each.ok and each.kind == kind]
        before = usual.get(kind, Usual())
        found[kind] = Usual(
            compute_seconds=_least(before.compute_seconds, _middle(_computes(alike))),
            exchange_seconds=_least(before.exchange_seconds, _middle(_exchanges(alike))),
        )
    return found


def spared(
    slow: Mapping[int, str], replicas: Sequence[int], *, unit: int, minimum: int
) -> tuple[int, ...]:
    """Which slow nodes can be left out: all, while the rest is still enough; else none.

    >>> spared({3: "slow"}, [0, 1, 2, 3], unit=1, minimum=2)
    (3,)
    >>> spared({1: "slow"}, [0, 1], unit=2, minimum=2)
    ()
    """
    rest = len(replicas) - len(slow)
    usable = rest // unit * unit
    return tuple(sorted(slow)) if usable and usable >= minimum else ()


def _suspicious(group: Group, of: Round, usual: Mapping[str, Usual], ratio: float) -> bool:
    seen = [of.measured[replica] for replica in group if replica in of.measured]
    if len(seen) < len(group) or not all(each.ok for each in seen):
        return True
    everybody = [each for each in of.measured.values() if each.ok]
    return any(
        _longer(
            each.exchange_seconds,
            _exchanges([e for e in everybody if e.kind == each.kind]),
            usual.get(each.kind, Usual()).exchange_seconds,
            ratio,
        )
        for each in seen
    )


def _failure(replica: int, rounds: Sequence[Round]) -> str:
    """Why it is to blame: it failed whoever was beside it."""
    took = [each for each in rounds if any(replica in group for group in each.groups)]
    seen = [each.measured.get(replica) for each in took]
    if any(each is not None and each.ok for each in seen):
        return ""
    told = next((each.reason for each in reversed(seen) if each is not None), "it did not answer")
    return told or "it failed"


def _parted(rounds: Sequence[Round], failed: Mapping[int, str]) -> dict[int, str]:
    """Groups whose members are fine alone and failed together: what lies between them is broken,
    and nobody can say on whose side. The first stays."""
    found: dict[int, str] = {}
    if len(rounds) < 2:
        return found
    alone = {group[0] for group in rounds[1].groups if len(group) == 1}
    for group in rounds[0].groups:
        together = [rounds[0].measured.get(replica) for replica in group]
        left = [replica for replica in group if replica in alone and replica not in failed]
        if len(left) > 1 and not any(each is not None and each.ok for each in together):
            why = f"its connection with replica {left[0]} failed; alone both are fine"
            found |= dict.fromkeys(left[1:], why)
    return found


def _slowness(mine: Measured, alike: Sequence[Measured], usual: Usual, ratio: float) -> str:
    pairs = (
        ("arithmetic", mine.compute_seconds, _computes(alike), usual.compute_seconds),
        ("exchanges", mine.exchange_seconds, _exchanges(alike), usual.exchange_seconds),
    )
    for what, seconds, others, ever in pairs:
        if _longer(seconds, others, ever, ratio):
            times = seconds / _reference(others, ever)
            return f"its {what} took {seconds:.3g} s, {times:.1f} times as long as usual"
    return ""


def _longer(seconds: float, others: Sequence[float], ever: float, ratio: float) -> bool:
    return seconds > ratio * _reference(others, ever) > 0


def _reference(others: Sequence[float], ever: float) -> float:
    """What a good node takes: the lower middle of all, or what was ever reached."""
    return _least(ever, _middle(others))


def _middle(seconds: Iterable[float]) -> float:
    """The lower median: of two nodes the faster one, of a half-slow cluster one of the fast."""
    ordered = sorted(each for each in seconds if each > 0)
    return ordered[(len(ordered) - 1) // 2] if ordered else 0.0


def _least(one: float, other: float) -> float:
    return min(one, other) if one and other else one or other


def _best(replica: int, rounds: Sequence[Round]) -> Measured:
    """The best of its rounds: a slow partner is not its fault."""
    seen = [found for each in rounds if (found := each.measured.get(replica)) is not None]
    good = [each for each in seen if each.ok]
    if not good:
        return seen[0] if seen else Measured(ok=False)
    return Measured(
        ok=True,
        compute_seconds=min(_computes(good), default=0.0),
        exchange_seconds=min(_exchanges(good), default=0.0),
        kind=good[0].kind,
    )


def _computes(seen: Iterable[Measured]) -> list[float]:
    return [each.compute_seconds for each in seen if each.compute_seconds > 0]


def _exchanges(seen: Iterable[Measured]) -> list[float]:
    return [each.exchange_seconds for each in seen if each.exchange_seconds > 0]


def _everybody(rounds: Sequence[Round]) -> list[int]:
    return [replica for group in rounds[0].groups for replica in group]
