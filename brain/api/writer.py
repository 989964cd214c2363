"""The writer of telemetry in a process, which commits all waiting batches together.

A batch is answered once it is committed. While one transaction commits, other batches wait for the
next one. If commits are fast, the writer waits a moment for more batches. If a transaction fails,
its batches are divided and stored again, until only the samples that cannot be stored remain. If
the database cannot be reached, all batches fail.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from queue import SimpleQueue
from threading import Event, Lock, Thread
from typing import NamedTuple

from brain.api import auth
from brain.api.auth import SignIns
from brain.errors import BadInput, NotSignedIn, Overloaded, Unavailable
from brain.ports import Clock, SampleBatch, Stores
from brain.types.record import Token
from brain.types.telemetry import Receipt, RejectedSample

#: Most samples that wait to be stored, and most samples of one transaction. SQLite has one writer,
#: so decisions wait for each transaction.
_MOST_WAITING, _MOST_TOGETHER = 20_000, 2_000
#: Seconds for which the writer waits for more batches if the last commit was faster than this. A
#: commit costs as much as dozens of samples, and only senders wait for it.
_LINGER_SECONDS = 0.05
#: The result of a batch; rejected samples have their position in the batch.
Outcome = Receipt | Exception


class _Waiting(NamedTuple):
    """A batch, with the sender's token and the function that gets the outcome."""

    batch: SampleBatch
    token: Token
    loop: asyncio.AbstractEventLoop
    #: Called with the outcome on the event loop.
    done: Callable[[Outcome], None]


class TelemetryWriter:
    """Stores batches in the order of their arrival. Safe to use from any thread."""

    def __init__(
        self,
        stores: Stores,
        clock: Clock,
        sign_ins: SignIns,
        stored: Callable[[Sequence[tuple[SampleBatch, Receipt]]], None],
    ) -> None:
        """``stored`` gets the result of every commit, before the waiting requests get it."""
        self._stores, self._clock, self._stored = stores, clock, stored
        self._sign_ins = sign_ins
        # A daemon thread, so that a database that does not answer cannot keep the process from
        # ending.
        self._thread = Thread(target=self._work, name="telemetry", daemon=True)
        self._tasks: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._lock = Lock()
        self._closed = False
        self._waiting: list[_Waiting] = []
        self._samples = 0
        self._writes = False

    @property
    def waiting(self) -> int:
        """Return the number of samples that wait to be stored; samples that are being committed do
        not count.
        """
        return self._samples

    def expect(self) -> None:
        """Raise if too many samples wait; call this before a batch is read.

        Raises:
            Overloaded: the error contains the seconds until the sender may try again.
        """
        if self._samples >= _MOST_WAITING:
            raise Overloaded(
                f"{self._samples} samples are waiting to be stored, too many for one more batch; "
                "send this batch again after the time in Retry-After",
                retry_after_seconds=1.0,
            )

    async def write(self, batch: SampleBatch, token: Token) -> Receipt:
        """Store a batch; return once it is committed.

        Raises:
            NotSignedIn: ``token`` is no longer valid.
            Unavailable: the database cannot be written, or the service stops; nothing of the batch
                was stored.
        """
        answer: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        self.put(batch, token, partial(_settle, answer))
        return await answer

    def put(self, batch: SampleBatch, token: Token, done: Callable[[Outcome], None]) -> None:
        """Store a batch. The running event loop calls ``done`` with a receipt or an error.

        The error is ``NotSignedIn`` if the token is no longer valid, and ``Unavailable`` if the
        database cannot be written, or if the service stops before the batch is committed.

        Raises:
            Unavailable: the service is already stopping.
        """
        waiting = _Waiting(batch, token, asyncio.get_running_loop(), done)
        with self._lock:
            if self._closed:
                raise _stopping()
            self._waiting.append(waiting)
            self._samples += len(batch.samples)
            begin, self._writes = not self._writes, True
        if begin:
            self._tasks.put(self._write_all)
            if self._thread.ident is None:
                self._thread.start()

    def close(self, seconds: float) -> None:
        """Refuse the waiting batches, and wait at most ``seconds`` for the open transaction."""
        with self._lock:
            self._closed = True
            left, self._waiting, self._samples = self._waiting, [], 0
        _tell(left, [_stopping() for _ in left])
        if self._thread.is_alive():
            idle = Event()
            self._tasks.put(idle.set)
            idle.wait(seconds)

    def _work(self) -> None:
        while True:
            self._tasks.get()()

    def _write_all(self) -> None:
        linger = 0.0
        while taken := self._take(linger):
            began = time.monotonic()
            outcomes = self._outcomes(taken)
            seconds = time.monotonic() - began
            linger = _LINGER_SECONDS if len(taken) > 1 and seconds < _LINGER_SECONDS else 0.0
            _tell(taken, outcomes)

    def _take(self, linger: float) -> Sequence[_Waiting]:
        """Wait ``linger`` seconds; return the waiting batches that the next transaction stores."""
        if linger:
            time.sleep(linger)
        with self._lock:
            count = samples = 0
            for each in self._waiting:
                samples += len(each.batch.samples)
                count += 1
                if samples >= _MOST_TOGETHER:
                    break
            taken, self._waiting = self._waiting[:count], self._waiting[count:]
            self._samples -= samples
            self._writes = bool(taken)
        return taken

    def _outcomes(self, waiting: Sequence[_Waiting], *, confirmed: bool = False) -> list[Outcome]:
        try:
            return self._together(waiting, confirmed=confirmed)
        except Unavailable as lost:
            return [lost] * len(waiting)
        except Exception as bad:  # noqa: BLE001 - the batch that causes it gets it
            if len(waiting) == 1:
                return [self._without_bad(waiting[0], bad)]
            half = len(waiting) // 2
            return [*self._outcomes(waiting[:half]), *self._outcomes(waiting[half:])]

    def _without_bad(self, waiting: _Waiting, bad: Exception) -> Outcome:
        """Store a batch without the samples that the database refuses, and reject these."""
        samples = waiting.batch.samples
        if not isinstance(bad, BadInput):
            return bad
        if len(samples) == 1:
            rejected = RejectedSample(index=0, reason=str(bad))
            return Receipt(stored=0, duplicates=0, rejected=(rejected,))
        half = len(samples) // 2
        first, second = (
            self._outcomes([waiting._replace(batch=replace(waiting.batch, samples=part))])[0]
            for part in (samples[:half], samples[half:])
        )
        if isinstance(first, Exception) or isinstance(second, Exception):
            return first if isinstance(first, Exception) else second
        moved = [replace(each, index=each.index + half) for each in second.rejected]
        return Receipt(
            stored=first.stored + second.stored,
            duplicates=first.duplicates + second.duplicates,
            rejected=(*first.rejected, *moved),
        )

    def _together(self, waiting: Sequence[_Waiting], *, confirmed: bool) -> list[Outcome]:
        """Store batches in one transaction, but separately those whose token may be invalid."""
        tokens = {each.token.id: each.token for each in waiting}
        now = self._clock()
        with self._stores.transaction() as tx:
            doubtful = frozenset() if confirmed else tx.uses.doubtful(tokens)
            good = [each for each in waiting if each.token.id not in doubtful]
            receipts = tx.telemetry.add_all([each.batch for each in good])
            used = [
                token
                for token in tokens.values()
                if token.id not in doubtful and auth.is_use_due(token, now)
            ]
            if used:
                tx.uses.note([token.id for token in used], now)
        self._sign_ins.used(used, now)
        self._stored(list(zip((each.batch for each in good), receipts, strict=True)))
        stored = iter(receipts)
        return [
            self._if_signed_in(each) if each.token.id in doubtful else next(stored)
            for each in waiting
        ]

    def _if_signed_in(self, waiting: _Waiting) -> Outcome:
        """Store a batch whose token may have been revoked, or whose job may have finished."""
        try:
            auth.check(self._stores, waiting.token.sha256, self._clock())
        except NotSignedIn as ended:
            self._sign_ins.forget(waiting.token)
            return ended
        except Unavailable as lost:
            return lost
        return self._outcomes([waiting], confirmed=True)[0]


def _stopping() -> Unavailable:
    return Unavailable("the service is stopping; send this batch again")


def _tell(waiting: Sequence[_Waiting], outcomes: Sequence[Outcome]) -> None:
    told = list(zip(waiting, outcomes, strict=True))
    for loop, _ in Counter(each.loop for each in waiting).items():
        mine = [(each.done, outcome) for each, outcome in told if each.loop is loop]
        if not loop.is_closed():
            loop.call_soon_threadsafe(_answer, mine)


def _answer(told: Sequence[tuple[Callable[[Outcome], None], Outcome]]) -> None:
    # Each is answered by itself, so that an error in one leaves the others their answers.
    loop = asyncio.get_running_loop()
    for done, outcome in told:
        loop.call_soon(done, outcome)


def _settle(answer: "asyncio.Future[Receipt]", outcome: Outcome) -> None:
    if answer.done():
        return
    if isinstance(outcome, Exception):
        answer.set_exception(outcome)
    else:
        answer.set_result(outcome)
