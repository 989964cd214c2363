"""The tick: one turn after another for each pool whose lease this process holds."""

import logging
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path

from brain import cycle, lifecycle
from brain.api.bell import Bell
from brain.api.events import last_event_id
from brain.api.metrics import Metrics, ServiceCondition
from brain.errors import Unavailable
from brain.pool.rounds import Memo
from brain.ports import Clock, Stores, Tracer, Transaction, untraced
from brain.service.disk import sweep
from brain.settings import Settings
from brain.types.job import JobId
from brain.types.pool import PoolLease
from brain.types.resources import PoolName

#: A function like ``cycle.turn``, with any result.
Turn = Callable[[Stores, PoolName, Settings, datetime], object]

_log = logging.getLogger("brain.tick")

#: Least seconds between two ticks, however often ``hurry`` is called. A longer tick rests as long
#: as it took, at most ``tick_seconds``: changes gather meanwhile, and requests get their turn.
_PAUSE_SECONDS = 0.05
#: Least seconds that a tick rests before awaited samples begin the next.
_REST_SECONDS = 0.5
#: Seconds between retentions, between checks of the disk, and before the first of both.
_RETENTION_SECONDS, _DISK_SECONDS, _FIRST_SECONDS = 3600.0, 60.0, 30.0
#: Number and length of the steps in which an hour of samples is retired.
_STEPS, _STEP = 12, timedelta(minutes=5)
#: A retention is skipped if the clock advanced so much more than the time that passed.
_SET_FORWARD = timedelta(hours=1)
_DAY = timedelta(hours=24)
#: Time for which ended tokens and sessions stay in the list.
_ENDED = timedelta(days=30)
#: Largest backward step of a clock that counts as a correction.
_SET_BACK = timedelta(seconds=1)
#: Free bytes below which the disk counts as nearly full.
_DISK_BYTES = 200 * 1024 * 1024
#: Name of no real pool, whose lease is taken to test if the database can be written again.
_PROBE = PoolName("-")


class _LeaseLost(Unavailable):
    """Another Brain decides for the pool now, which is no bug of the job at hand."""


class _Fenced:
    """Stores that call ``look`` in each writing transaction, before anything is written in it."""

    def __init__(self, stores: Stores, look: Callable[[Transaction], None]) -> None:
        self._stores, self._look = stores, look

    @contextmanager
    def transaction(self, *, read_only: bool = False) -> Iterator[Transaction]:
        """Open a transaction; see ``brain.ports.Stores``."""
        with self._stores.transaction(read_only=read_only) as tx:
            if not read_only:
                self._look(tx)
            yield tx

    def size_bytes(self) -> int:
        return self._stores.size_bytes()

    def close(self) -> None:
        """Leave the connections open, because the service owns them."""


class Ticker:
    """Runs turns of pools in a separate thread. A turn that fails is reported, and the next turn
    follows.
    """

    def __init__(
        self,
        stores: Stores,
        settings: Settings,
        clock: Clock,
        *,
        home: Path,
        bell: Bell,
        metrics: Metrics,
        condition: ServiceCondition,
        turn: Turn | None = None,
        trace: Tracer = untraced,
    ) -> None:
        self._stores, self._settings, self._clock = stores, settings, clock
        self._home, self._bell = home, bell
        self._metrics, self._condition, self._trace = metrics, condition, trace
        self._memos: dict[PoolName, Memo] = {}
        self._decide = turn or self._with_memo
        # The name stays the same after a restart, so that Brain gets back its own leases at once,
        # whatever the clock did meanwhile.
        self._holder = f"{socket.gethostname()}:{home.absolute()}"
        self._held: set[PoolName] = set()
        # The newest instant of a turn, because a clock that was set back makes cached values look
        # new.
        self._newest: datetime | None = None
        # Bugs of each pool as they were last logged, so that they are not logged every two seconds.
        self._told: dict[PoolName, frozenset[str]] = {}
        self._hurry, self._stopping = threading.Event(), threading.Event()
        # Time at which the last tick ended, and its duration.
        self._ended = self._lasted = 0.0
        #: Seconds of ``time.monotonic`` at which the next retention begins.
        self.retain_at = self._look_at = time.monotonic() + _FIRST_SECONDS
        self._retaining: threading.Thread | None = None
        #: Clock and ``time.monotonic`` at the last retention.
        self._retained = self._clock(), time.monotonic()
        self._thread = threading.Thread(target=self._run, name="tick", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def hurry(self) -> None:
        """Start the next tick (one turn of each pool) immediately, because a decision was made."""
        self._hurry.set()

    def measured(self, jobs: frozenset[str]) -> None:
        """Start a tick (one turn of each pool) if the loop awaits samples of one of ``jobs``, whose
        samples were just stored.

        Do nothing if the last tick ended less than half a second ago, or less than its own duration
        ago.
        """
        rested = time.monotonic() - self._ended
        if rested < max(_REST_SECONDS, self._lasted):
            return
        for memo in list(self._memos.values()):
            looked = memo.looked
            if any((last := looked.get(JobId(job))) and last.awaited for job in jobs):
                self._hurry.set()
                return

    def stop(self, seconds: float) -> None:
        """Stop after the turn in progress, waiting ``seconds`` at most, and release the leases."""
        self._stopping.set()
        self._hurry.set()
        self._thread.join(seconds)
        if self._thread.is_alive():
            _log.warning(
                "the service stops during a turn; the turn's open transaction is rolled back, and "
                "the next service runs the turn again"
            )
            return
        try:
            with self._stores.transaction() as tx:
                for pool in self._held:
                    tx.leases.release(pool, self._holder)
        except Unavailable as gone:
            _log.warning(
                "the leases of pools cannot be released, so other Brain processes wait until they "
                "expire: %s",
                gone.in_full,
            )

    def tick(self) -> None:
        """Run one turn for every pool."""
        try:
            self._look_after_stores()
            with self._stores.transaction(read_only=True) as tx:
                pools = tx.jobs.pools()
            for pool in pools:
                self._turn(pool)
        except Unavailable as gone:
            _log.warning("the database was unavailable during a decision turn: %s", gone.in_full)
            self._condition.worsen("database", str(gone))
            # Nobody decides without the database, although no other Brain took the leases.
            for pool in self._held:
                self._metrics.lease_held.labels(pool).set(False)

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._hurry.clear()
            began = time.monotonic()
            self.tick()
            self._ended = time.monotonic()
            self._lasted = self._ended - began
            # A stop that arrives before ``hurry`` was handled must not be lost.
            rest = min(self._lasted, self._settings.tick_seconds)
            if not self._stopping.wait(max(_PAUSE_SECONDS, rest)):
                self._hurry.wait(self._settings.tick_seconds)

    def _turn(self, pool: PoolName) -> None:
        began = time.monotonic()
        lease = self._lease(pool)
        if lease is not None:
            attributes: dict[str, str | int] = {"brain.pool": pool}
            with self._trace("turn", attributes):
                self._turn_with(lease, began, attributes)

    def _turn_with(self, lease: PoolLease, began: float, attributes: dict[str, str | int]) -> None:
        """Run a turn that began at ``began``; add a bug of the whole turn to its attributes."""
        pool, before = lease.pool, last_event_id(self._stores)
        fenced = _Fenced(self._stores, lambda tx: self._expect(tx, lease))
        try:
            done = self._decide(fenced, pool, self._settings, self._clock())
        except _LeaseLost:
            _log.warning(
                "another Brain took over pool %s during a turn; this process drops the rest of the "
                "turn",
                pool,
            )
            self._let_go(pool)
            return
        except Unavailable:
            raise
        except Exception as bug:  # noqa: BLE001 - one pool's bug must not end deciding for the others
            attributes["error.type"] = type(bug).__name__
            self._failed(pool, bug)
            return
        bugs = self._tell_bugs(pool, done) if isinstance(done, cycle.Turn) else 0
        self._metrics.ticks.labels(pool, "partly" if bugs else "ok").inc()
        self._metrics.turn_seconds.observe(time.monotonic() - began)
        self._condition.mend(f"turn:{pool}")
        if last_event_id(self._stores) != before:
            self._bell.ring()

    def _with_memo(
        self, stores: Stores, pool: PoolName, settings: Settings, now: datetime
    ) -> cycle.Turn:
        """Run a turn with a memo, which lasts as long as the lease is held."""
        if self._newest is not None and now < self._newest - _SET_BACK:
            self._memos.clear()
            self._newest = None
        self._newest = max(self._newest or now, now)
        memo = self._memos.setdefault(pool, Memo(pool))
        try:
            return cycle.turn(stores, pool, settings, now, memo=memo, trace=self._trace)
        except Unavailable:
            # The failed turn may have stored less than the memo says.
            self._memos.pop(pool, None)
            raise

    def _tell_bugs(self, pool: PoolName, done: cycle.Turn) -> int:
        """Log the bugs that a turn worked around, each once while it lasts; return their number."""
        bugs = {f"job {job}": bug for job, bug in done.undecided.items()}
        bugs |= {f"the division of the pool ({n})": bug for n, bug in enumerate(done.bugs, 1)}
        told = {what: f"{what}: {type(bug).__name__}: {bug}" for what, bug in bugs.items()}
        for what, sentence in told.items():
            if sentence not in self._told.get(pool, frozenset()):
                _log.error(
                    "a bug ended the decision turn of pool %s for %s; please report the traceback",
                    pool,
                    what,
                    exc_info=bugs[what],
                )
        self._told[pool] = frozenset(told.values())
        self._metrics.undecided.labels(pool).set(len(done.undecided))
        if told:
            more = f" and {len(told) - 1} more" if len(told) > 1 else ""
            self._condition.worsen(
                f"jobs:{pool}",
                f"pool {pool}: Brain cannot decide about {next(iter(told.values()))}{more}; "
                "these jobs keep their sizes, and the service's log has the error",
            )
        else:
            self._condition.mend(f"jobs:{pool}")
        return len(told)

    def _failed(self, pool: PoolName, bug: Exception) -> None:
        _log.error(
            "a bug ended the decision turn of pool %s; please report the traceback",
            pool,
            exc_info=bug,
        )
        self._memos.pop(pool, None)
        self._metrics.ticks.labels(pool, "failed").inc()
        self._condition.worsen(
            f"turn:{pool}",
            f"Brain cannot decide about pool {pool}: {type(bug).__name__}: {bug}; jobs keep "
            "their sizes, and the service's log has the error",
        )

    def _lease(self, pool: PoolName) -> PoolLease | None:
        with self._stores.transaction() as tx:
            lease = self._acquired(tx, pool)
        self._condition.mend("database")
        if lease is None:
            self._let_go(pool)
            return None
        self._metrics.lease_held.labels(pool).set(True)
        self._held.add(pool)
        return lease

    def _acquired(self, tx: Transaction, pool: PoolName) -> PoolLease | None:
        now = self._clock()
        until = now + timedelta(seconds=self._settings.lease_seconds)
        return tx.leases.acquire(pool, self._holder, until=until, now=now)

    def _expect(self, tx: Transaction, lease: PoolLease) -> None:
        """Renew the lease in a transaction that writes a decision.

        Raises:
            _LeaseLost: another Brain had the lease meanwhile, so its term has changed.
        """
        renewed = self._acquired(tx, lease.pool)
        if renewed is None or renewed.term != lease.term:
            raise _LeaseLost(f"another Brain holds the lease of pool {lease.pool}")

    def _let_go(self, pool: PoolName) -> None:
        self._metrics.lease_held.labels(pool).set(False)
        self._held.discard(pool)
        # Another Brain decides there now; this one only observes first if it gets the lease back.
        self._memos.pop(pool, None)

    def _look_after_stores(self) -> None:
        if self._condition.is_degraded("database"):
            self._lease(_PROBE)
        if time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + _DISK_SECONDS
            self._look_at_disk()
            self._condition.look_at_clocks(self._clock())
        running = self._retaining is not None and self._retaining.is_alive()
        if time.monotonic() >= self.retain_at and not running:
            self.retain_at = time.monotonic() + _RETENTION_SECONDS
            self._retaining = threading.Thread(
                target=self._retain_beside, name="retention", daemon=True
            )
            self._retaining.start()

    def _retain_beside(self) -> None:
        """Run ``retain`` in a thread of its own, because a large directory would delay turns."""
        if self._was_set_forward():
            # A wrong clock may be corrected within the hour, but deleted samples are gone.
            _log.warning(
                "the clock advanced more than the time that passed (it was set forward, or the "
                "machine slept); Brain deletes old data in an hour"
            )
            return
        try:
            self.retain()
        except Unavailable as gone:
            _log.warning(
                "the database was unavailable while old data was deleted: %s", gone.in_full
            )
        except Exception:  # noqa: BLE001 - the next one may succeed, and turns go on
            _log.exception("old data could not be deleted; Brain tries again in an hour")

    def _was_set_forward(self) -> bool:
        now, (then, began) = self._clock(), self._retained
        self._retained = now, time.monotonic()
        return now - then > timedelta(seconds=time.monotonic() - began) + _SET_FORWARD

    def retain(self) -> None:
        """Replace old samples by means and delete old means, as the settings say; then forget nodes
        that are gone, and delete old directories of ended jobs.
        """
        now = self._clock()
        oldest = now - timedelta(seconds=self._settings.raw_seconds)
        means = now - timedelta(seconds=self._settings.means_seconds)
        hours = now - timedelta(seconds=self._settings.hours_seconds)
        with self._stores.transaction() as tx:
            tx.telemetry.make_ready(now=now, keep=now - oldest)
        # In steps, because on SQLite everything else waits for each transaction.
        for left in range(_STEPS - 1, -1, -1):
            with self._stores.transaction() as tx:
                tx.telemetry.retire(
                    raw_before=oldest - left * _STEP, means_before=means, hours_before=hours
                )
        # In a transaction of its own: the ones above write only samples, and so need not wait for
        # other writers while they hold up ingest.
        with self._stores.transaction() as tx:
            tx.access.forget_answers(before=now - _DAY)
            tx.access.forget_tokens(before=now - _ENDED)
            lifecycle.forget_gone(tx, now)
        for job in sweep(self._home, self._stores, self._settings, now):
            _log.info("deleted %s of %s, which ended %s", job.path, job.name, job.finished_at)

    def _look_at_disk(self) -> None:
        free = shutil.disk_usage(self._home).free
        if free < _DISK_BYTES:
            sentence = f"only {free // 2**20} MiB are free in {self._home}; free some space"
            self._condition.worsen("disk", sentence)
        else:
            self._condition.mend("disk")
