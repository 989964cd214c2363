"""``shards``: an iterable over a dataset from which each worker takes shards when it needs them."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import islice
from typing import Any, Generic, TypeVar

from brain.errors import BadInput
from launcher.data.client import Client, client
from launcher.data.ledger import ShardLedger, ShardSpan, ShardTerms
from launcher.data.sources import Items, Source

T = TypeVar("T")
#: Shards of an epoch where nobody says how long they are: fine enough for a hundred workers.
_SHARDS = 1000
_CUT_SECONDS = 300.0


def shards(
    name: str,
    data: "Source[T] | Sequence[T] | int",
    *,
    shard: int | None = None,
    epochs: int = 1,
    seed: int = 0,
    shuffle: bool = True,
    lease_seconds: float | None = None,
) -> "Shards[T]":
    """Iterate over shards of ``data``; each worker gets its next shard when it requests one.

    ``name`` is the same in all workers of a job; each name stands for one iteration, over
    ``epochs`` epochs. ``data`` is a ``TextFile``, a sequence, or a number of indices. ``shard`` is
    the number of examples that one worker takes at a time (default: a thousandth of the data).
    Shards are shuffled, examples within a shard are not. ``lease_seconds`` is the time after which
    another worker also gets the shard, in case the worker hangs; by default a shard is handed out
    again only when its worker is gone.

    Raises:
        BadInput: ``data`` is empty, or there are several workers and no agent to divide the shards.
    """
    source: Any = Items(range(data)) if isinstance(data, int) else data
    source = source if hasattr(source, "read") else Items(source)
    terms = ShardTerms(
        name=name,
        size=source.size,
        shard=shard or max(1, source.size // _SHARDS),
        epochs=epochs,
        seed=seed,
        shuffle=shuffle,
        mark=source.mark,
        lease_seconds=lease_seconds,
    )
    return Shards(source, terms)


class Shards(Generic[T]):
    """One worker's part of a dataset. Iterate over it, or ``take`` some examples at a time."""

    def __init__(self, source: Source[T], terms: ShardTerms, asking: Client | None = None) -> None:
        self._source, self._terms, self._asking = source, terms, asking
        self._opened = False
        self._state: Mapping[str, Any] | None = None
        #: What this worker holds, its examples, and how many of those were handed out.
        self._span: ShardSpan | None = None
        self._items: Iterator[T] = iter(())
        self._at = 0
        #: Where the last step was made.
        self._stepped = 0
        self.over = False

    @property
    def epoch(self) -> int | None:
        """Return the epoch of the last example handed out; None before the first."""
        return None if self._span is None else self._span.epoch

    @property
    def index(self) -> int | None:
        """Return the index of the last example handed out; None before the first."""
        return None if self._span is None else self._at - 1

    def __iter__(self) -> Iterator[T]:
        """Yield examples until all workers have trained all epochs.

        Asking for the next example marks all earlier ones as trained. If all shards are given out
        while other workers still train theirs, this waits: those workers might leave.
        """
        while self._more(wait=True):
            item = next(self._items)  # asked for anew each time: ``undo`` may have been called
            self._at += 1
            yield item

    def take(self, count: int) -> list[T]:
        """Return the next ``count`` examples; fewer at a shard's end, and no examples if no shard
        is available now.

        ``take`` never waits for other workers, so it suits training in lockstep: the data ends when
        no rank gets an example. A call marks all earlier examples as trained.
        """
        if not self._more(wait=False):
            return []
        taken = list(islice(self._items, count))
        self._at += len(taken)
        return taken

    def step(self) -> None:
        """Report an optimizer step with all examples handed out so far.

        If worlds change in process, the call records the examples that this worker has trained.
        Without the call, if this worker is killed, other workers train again on examples of its
        shard that it has already trained. The call sends a message to the agent on this machine.
        """
        if self._span is not None and self._asking is not None:
            self._stepped = self._at
            self._asking.tell(do="at", name=self._terms.name, at=self._at)

    def undo(self) -> None:
        """After a failed step, hand out again the examples since the last ``step``."""
        if self._span is not None:
            self._at = self._stepped
            self._items = self._source.read(self._at, self._span.stop)

    def state_dict(self) -> dict[str, Any]:
        """Return the progress of all workers together, for the checkpoint.

        Every example that was handed out counts as trained. Every rank must call this method at the
        same step, and waits for the others.

        Raises:
            Unavailable: other ranks did not call it in time.
        """
        if self.over:  # this state does not change, and the coordinator may have forgotten it
            return ShardLedger(self._terms, epoch=self._terms.epochs).state()
        answer = self._ask("cut", at=self._trained, seconds=_CUT_SECONDS)
        state: dict[str, Any] = answer["state"]
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a checkpoint. Every rank must call this method before it takes examples.

        Raises:
            BadInput: the checkpoint belongs to other data, or this worker has taken examples.
        """
        if self._opened:
            raise BadInput(
                f"{self._terms.name}: examples were taken from this dataset before the "
                "checkpoint's state was loaded; load the state first",
                field="state",
            )
        ShardLedger.of(self._terms, state)
        self._state = state

    def close(self) -> None:
        """Stop taking shards. Other workers get the untrained rest of the present shard."""
        if self._opened:
            self._ask("close", at=self._trained)
            self._span, self._items, self._opened = None, iter(()), False

    @property
    def _trained(self) -> int | None:
        return None if self._span is None else self._at

    def _more(self, *, wait: bool) -> bool:
        """True if there is an example; asks for another shard if this one is used up."""
        if self._span is not None and self._at < self._span.stop:
            return True
        done = None if self._span is None else self._span.plain()
        self._span = None
        answer = self._ask("ask", done=done, wait=wait)
        self.over = "over" in answer
        if "span" not in answer:
            return False
        self._span = ShardSpan(*answer["span"])
        self._at = self._stepped = self._span.start
        self._items = self._source.read(self._span.start, self._span.stop)
        return True

    def _ask(self, do: str, **body: Any) -> Mapping[str, Any]:
        asking = self._asking = self._asking or client()
        if not self._opened:
            terms, label = asdict(self._terms), f"rank {os.environ.get('RANK', '0')}"
            asking.ask(
                do="open",
                name=self._terms.name,
                terms=terms,
                state=self._state,
                world=asking.world,
                label=label,
            )
            self._opened = True
        return asking.ask(do=do, name=self._terms.name, **body)
