"""The ledger of a dataset's shards, each of which is to do, being trained or done. Pure.

A dataset is divided into *shards*, ranges of examples. Each epoch has a different order of shards.
A shard that is handed out is *doing* until its holder reports that it is done. If the holder leaves
or its lease expires, the rest of the shard is *to do* again. So no example is lost, and if holders
report their progress, no example is trained twice.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from types import MappingProxyType
from typing import Any

from brain.errors import BadInput, Conflict
from launcher.data.order import ExampleOrder

#: Version of a ledger's state in checkpoints.
_VERSION = 1
#: Fields that must not change between saving and loading, with their names for users.
_FIXED = {
    "size": "the length of the data",
    "mark": "the data",
    "shard": "the length of a shard",
    "seed": "the seed",
    "shuffle": "whether it is shuffled",
}


@dataclass(frozen=True, slots=True, order=True)
class ShardSpan:
    """The examples of one epoch from ``start`` up to ``stop``: a shard, or the rest of a shard."""

    epoch: int
    start: int
    stop: int

    def rest(self, trained: int | None) -> "tuple[ShardSpan, ...]":
        """Return the rest of the span, from example ``trained`` on; with None, return the whole
        span.
        """
        start = self.start if trained is None else max(self.start, trained)
        return (replace(self, start=start),) if start < self.stop else ()

    def plain(self) -> list[int]:
        """Return the span in the form that is sent, and stored in checkpoints."""
        return [self.epoch, self.start, self.stop]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardTerms:
    """A dataset's identity, and the order in which its shards are handed out."""

    name: str
    #: Examples.
    size: int
    #: Examples of a shard; the last one may have fewer.
    shard: int
    epochs: int = 1
    seed: int = 0
    shuffle: bool = True
    #: Digest of the content; empty if only the length is known.
    mark: str = ""
    #: Seconds that one shard may take; None for as long as its holder is there.
    lease_seconds: float | None = None

    def __post_init__(self) -> None:
        if self.size < 1:
            raise BadInput(
                f"{self.name}: the dataset has no examples; give at least one", field="size"
            )
        for name in ("shard", "epochs"):
            if (count := getattr(self, name)) < 1:
                raise BadInput(f"{name}: {count} is below 1; give at least 1", field=name)

    @property
    def shards(self) -> int:
        """Number of shards in one epoch."""
        return -(-self.size // self.shard)

    def check(self, other: "ShardTerms", *, where: str) -> None:
        """Check that the data and order in these terms equal those in ``other``.

        ``where`` is a phrase for the error message that says where ``other`` was found.

        Raises:
            BadInput: the terms differ; the message names the difference.
        """
        for name, what in _FIXED.items():
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs:
                raise BadInput(
                    f"{self.name}: {what} was {theirs!r} {where} and is {mine!r} now ({name}); "
                    "keep the earlier value, or give the dataset another name",
                    field=name,
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldShard:
    span: ShardSpan
    #: On the clock of the process that keeps the ledger.
    until: float = math.inf


@dataclass(frozen=True, slots=True)
class ShardLedger:
    """The ledger of one dataset. It is immutable: methods that change it return a new ledger."""

    terms: ShardTerms
    #: Source of fresh shards: the epoch, and the number of its shards that were given out.
    epoch: int = 0
    given: int = 0
    #: Shards to do again, before fresh ones; sorted.
    back: tuple[ShardSpan, ...] = ()
    doing: Mapping[str, HeldShard] = field(default_factory=lambda: MappingProxyType({}))
    #: Whose lease ran out, and over what.
    lapsed: frozenset[tuple[str, ShardSpan]] = frozenset()

    @property
    def over(self) -> bool:
        """True if all epochs are done."""
        return not self.doing and not self.back and self.epoch >= self.terms.epochs

    def ask(
        self, holder: str, done: ShardSpan | None, now: float
    ) -> "tuple[ShardLedger, ShardSpan | None]":
        """Mark ``done`` as trained, and give the holder the next shard. Return the new ledger and
        the shard; None in place of the shard if none is available now.

        A request that is repeated because its answer was lost gets the same answer.

        Raises:
            Conflict: the lease of ``done`` ran out, and another worker has the shard.
        """
        mine = self.doing.get(holder)
        if mine is not None and mine.span != done:
            return self, mine.span
        after = self._without(holder) if mine is not None else self._late(holder, done)
        return after._give(holder, now)

    def hand_back(self, holder: str, trained: int | None = None) -> "ShardLedger":
        """Take back the shard of a holder that is gone and had trained on all examples before
        ``trained``.
        """
        mine = self.doing.get(holder)
        if mine is None:
            return self
        return self._without(holder)._returned(mine.span.rest(trained))

    def lapse(self, now: float) -> "ShardLedger":
        """Take back the shards whose leases have expired, so that other workers can get them."""
        after = self
        for holder, held in self.doing.items():
            if held.until <= now:
                after = replace(
                    after.hand_back(holder), lapsed=after.lapsed | {(holder, held.span)}
                )
        return after

    def claim(
        self, holder: str, held: ShardSpan | None, done: Sequence[ShardSpan], now: float
    ) -> "ShardLedger":
        """Take over a holder's shard and progress from its report, which may be newer than this
        ledger.
        """
        after = self.hand_back(holder)
        for span in (*done, *(() if held is None else (held,))):
            after = after._taken(span)
        taken = any(held == each.span for each in after.doing.values())
        return after if held is None or taken else after._hold(holder, held, now)

    def cut(self, trained: Mapping[str, int | None]) -> "ShardLedger":
        """Return the ledger for a checkpoint, in which all holders have handed back their untrained
        examples.
        """
        after = self
        for holder in self.doing:
            after = after.hand_back(holder, trained.get(holder))
        return replace(after, lapsed=frozenset())

    def state(self) -> dict[str, Any]:
        """Return the ledger's state as plain values, for a checkpoint; the ledger must come from
        ``cut``.
        """
        return {
            "v": _VERSION,
            "terms": {name: getattr(self.terms, name) for name in ("name", *_FIXED)},
            "epoch": self.epoch,
            "given": self.given,
            "back": [span.plain() for span in self.back],
        }

    @classmethod
    def of(cls, terms: ShardTerms, state: Mapping[str, Any] | None) -> "ShardLedger":
        """Build the ledger from a checkpoint's state; None gives the ledger before the first
        example.

        Raises:
            BadInput: the checkpoint belongs to other data, or is not the checkpoint of a ledger.
        """
        if state is None:
            return cls(terms)
        if state.get("v") != _VERSION:
            raise BadInput(
                f"{terms.name}: this is not a state of shards of version {_VERSION}; load a "
                "state that state_dict() returned",
                field="v",
            )
        with whole(terms.name):
            terms.check(replace(terms, **state["terms"]), where="in the checkpoint")
            back = tuple(ShardSpan(*map(int, span)) for span in state["back"])
            return cls(terms, epoch=int(state["epoch"]), given=int(state["given"]), back=back)

    def dump(self) -> dict[str, Any]:
        """Return the ledger as plain values for a successor, which starts the leases again."""
        doing = {holder: held.span.plain() for holder, held in self.doing.items()}
        return {**self.state(), "terms": asdict(self.terms), "doing": doing}

    @classmethod
    def load(cls, dumped: Mapping[str, Any], now: float) -> "ShardLedger":
        """Build the ledger that ``dump`` wrote.

        Raises:
            BadInput: the values are damaged.
        """
        with whole("a ledger"):
            terms = ShardTerms(**dumped["terms"])
            state = {**dumped, "terms": {name: getattr(terms, name) for name in ("name", *_FIXED)}}
            ledger = cls.of(terms, state)
            for holder, span in dumped["doing"].items():
                ledger = ledger._hold(holder, ShardSpan(*map(int, span)), now)
            return ledger

    def _give(self, holder: str, now: float) -> "tuple[ShardLedger, ShardSpan | None]":
        if self.back:
            span, after = self.back[0], replace(self, back=self.back[1:])
        elif self.epoch < self.terms.epochs:
            (span,) = self._fresh(self.given, self.given + 1)
            after = self._on(self.given + 1)
        else:
            return self, None
        return after._hold(holder, span, now), span

    def _hold(self, holder: str, span: ShardSpan, now: float) -> "ShardLedger":
        lease = self.terms.lease_seconds
        held = HeldShard(span=span, until=math.inf if lease is None else now + lease)
        return replace(self, doing=MappingProxyType({**self.doing, holder: held}))

    def _late(self, holder: str, done: ShardSpan | None) -> "ShardLedger":
        """Take a report that ``done`` is done from a worker without that shard: a repetition, or a
        late report.
        """
        if done is None or (holder, done) not in self.lapsed:
            return self
        if done not in self.back:
            raise Conflict(
                f"{self.terms.name}: the lease of examples {done.start} to {done.stop} ran out "
                f"after {self.terms.lease_seconds:g} s and another worker got these examples, so "
                "they are trained twice; give longer leases or smaller shards"
            )
        back = tuple(span for span in self.back if span != done)
        return replace(self, back=back, lapsed=self.lapsed - {(holder, done)})

    def _taken(self, span: ShardSpan) -> "ShardLedger":
        """Return the ledger with ``span`` no longer to do, even if this ledger never gave the span
        out.
        """
        after = self._up_to(span)
        apart = [rest for each in after.back for rest in _apart(each, span)]
        return replace(after, back=tuple(sorted(apart)))

    def _up_to(self, span: ShardSpan) -> "ShardLedger":
        """Return the ledger as if all fresh shards up to ``span`` had been given out and handed
        back.
        """
        after, number = self, span.start // self.terms.shard
        while after.epoch < self.terms.epochs and after.epoch <= span.epoch:
            last = self.terms.shards
            if after.epoch == span.epoch:
                last = after._order().place_of(number) + 1
            if last <= after.given:
                break
            after = after._returned(after._fresh(after.given, last))._on(last)
        return after

    def _fresh(self, first: int, stop: int) -> list[ShardSpan]:
        """Shards of this epoch's order."""
        terms, order = self.terms, self._order()
        starts = [order[place] * terms.shard for place in range(first, stop)]
        return [ShardSpan(self.epoch, at, min(at + terms.shard, terms.size)) for at in starts]

    def _order(self) -> ExampleOrder:
        terms = self.terms
        return ExampleOrder(terms.shards, seed=terms.seed, epoch=self.epoch, shuffle=terms.shuffle)

    def _on(self, given: int) -> "ShardLedger":
        if given < self.terms.shards:
            return replace(self, given=given)
        return replace(self, epoch=self.epoch + 1, given=0)

    def _returned(self, spans: Sequence[ShardSpan]) -> "ShardLedger":
        return replace(self, back=tuple(sorted((*self.back, *spans))))

    def _without(self, holder: str) -> "ShardLedger":
        rest = {who: held for who, held in self.doing.items() if who != holder}
        return replace(self, doing=MappingProxyType(rest))


@contextmanager
def whole(name: str) -> Iterator[None]:
    """Return a context in which code that reads a damaged state raises ``BadInput``.

    Raises:
        BadInput: a field of the state is missing or has another type.
    """
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError) as bad:
        raise BadInput(
            f"{name}: the state of shards is damaged ({bad}); load a state that state_dict() "
            "returned",
            field="state",
        ) from bad


def _apart(span: ShardSpan, other: ShardSpan) -> list[ShardSpan]:
    """Return the parts of ``span`` that remain when ``other`` is taken out of it."""
    if span.epoch != other.epoch or span.stop <= other.start or other.stop <= span.start:
        return [span]
    before = ShardSpan(span.epoch, span.start, other.start)
    after = ShardSpan(span.epoch, other.stop, span.stop)
    return [each for each in (before, after) if each.start < each.stop]
