"""Runs controllers over shared stores, while this operator leads.

    manager = Manager(cluster, terms=Terms(namespace="brain"))
    jobs = manager.store(JOB)
    manager.control("jobs", JOB, reconcile, owns=[POD])
    manager.start(); ...; manager.stop()

Leader and follower both keep stores, so that a new leader acts at once. Controllers write only
through ``manager.cluster``, which refuses once another process may hold the lease.
"""

import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random

from brain.errors import NotAllowed, NotFound
from scaler.kubernetes.runtime.cluster.client import Cluster
from scaler.kubernetes.runtime.cluster.kind import Key, Kind, Object, controller_of
from scaler.kubernetes.runtime.controller import Controller, Reconcile
from scaler.kubernetes.runtime.election import Election, ElectionTerms
from scaler.kubernetes.runtime.events import Recorder
from scaler.kubernetes.runtime.metrics import RuntimeMetrics
from scaler.kubernetes.runtime.pace import Backoff, Clock, spread
from scaler.kubernetes.runtime.queue import PAUSES, WorkQueue
from scaler.kubernetes.runtime.reflector import Reflector
from scaler.kubernetes.runtime.store import Index, Store, StoreChange

log = logging.getLogger(__name__)

#: Seconds between looks at all objects, even if no change was heard.
RESYNC_SECONDS = 600.0
#: Most seconds that ``stop`` waits for unfinished work, in all.
_LINGER_SECONDS = 15.0
_LOOK_SECONDS = 1.0

#: Returns the keys of a controller that a change of another kind concerns.
Concerns = Callable[[StoreChange], Iterable[Key]]


@dataclass(slots=True)
class _Watched:
    store: Store
    reflectors: list[Reflector]
    told: list[Callable[[StoreChange], None]]

    def tell(self, change: StoreChange) -> None:
        for told in self.told:
            try:
                told(change)
            except Exception:
                # The store has this version already, so it would not call other listeners again.
                log.exception("a change of %s", change.key)


@dataclass(frozen=True, slots=True)
class _Controlled:
    controller: Controller
    store: Store
    resync_seconds: float


class Manager:
    """The stores, controllers and the election of one operator process."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        terms: ElectionTerms | None = None,
        namespaces: Sequence[str] = (),
        identity: str | None = None,
        clock: Clock | None = None,
        random: Random | None = None,
        metrics: RuntimeMetrics | None = None,
        component: str = "brain-scaler",
    ) -> None:
        """Without ``terms`` there is no other operator. Without ``namespaces`` all are served."""
        self._clock, self._random = clock or cluster.clock, random or Random()
        self.metrics = metrics or RuntimeMetrics()
        self.identity = identity or _identity()
        self._namespaces = tuple(dict.fromkeys(namespaces)) or ("",)
        door = cluster.observed(self.metrics.requests(cluster.host))
        self._reading = door
        self.election = self._election(door, terms)
        #: The client for controllers: it writes only while this operator leads.
        self.cluster = door.fenced(self.election.left) if self.election else door
        self.events = Recorder(
            self.cluster, clock=self._clock, component=component, instance=self.identity
        )
        self._watched: dict[tuple[Kind, str], _Watched] = {}
        self._controlled: list[_Controlled] = []
        self._threads: list[threading.Thread] = []
        self._workers: list[threading.Thread] = []
        self._elector: threading.Thread | None = None
        self._stop, self._resign = threading.Event(), threading.Event()

    @property
    def leading(self) -> bool:
        """True if this operator may act now."""
        return self.election is None or self.election.leading

    @property
    def deposed(self) -> bool:
        """True if this operator led and another operator may have led since; then this one never
        acts again.
        """
        return self.election is not None and self.election.deposed

    @property
    def trouble(self) -> list[str]:
        """Return why stores may be out of date; empty if they are not."""
        return [
            f"{reflector.kind}: {reflector.trouble}"
            for watched in self._watched.values()
            for reflector in watched.reflectors
            if reflector.trouble
        ]

    def store(
        self, kind: Kind, *, label_selector: str = "", indexes: Mapping[str, Index] | None = None
    ) -> Store:
        """Return the store of a kind, watched from ``start`` on; all callers get the same store."""
        watched = self._watch(kind, label_selector)
        for name, index in (indexes or {}).items():
            watched.store.index(name, index)
        return watched.store

    def listen(
        self, kind: Kind, told: Callable[[StoreChange], None], *, label_selector: str = ""
    ) -> None:
        """Call ``told`` with every change of a kind, on the watching thread; ``told`` must be
        quick.
        """
        self._watch(kind, label_selector).told.append(told)

    def control(
        self,
        name: str,
        kind: Kind,
        reconcile: Reconcile,
        *,
        workers: int = 4,
        owns: Sequence[Kind] = (),
        also: Mapping[Kind, Concerns] | None = None,
        when: Callable[[StoreChange], bool] = lambda change: True,
        resync_seconds: float = RESYNC_SECONDS,
        pauses: Backoff = PAUSES,
        label_selector: str = "",
    ) -> Controller:
        """Call ``reconcile`` with the key of every object of ``kind`` that has changed.

        ``reconcile`` is also called for every object each ``resync_seconds``, and after changes to
        related objects. ``owns`` has kinds of objects that an object of ``kind`` controls. ``also``
        has further kinds, each with a function that names the affected objects of ``kind``. If
        ``when`` returns False for a change of the object itself, this change is ignored; so changes
        of only the status can be ignored, for example.
        """
        queue = WorkQueue(self._clock, self._random, pauses=pauses, sight=self.metrics.queue(name))
        controller = Controller(
            name,
            queue,
            reconcile,
            workers=workers,
            clock=self._clock,
            sight=self.metrics.controller(name, workers),
            may_act=self._may_act,
        )
        self.listen(
            kind,
            lambda change: queue.add(change.key) if when(change) else None,
            label_selector=label_selector,
        )
        for owned in owns:
            self.listen(owned, partial(_tell_owner, queue, kind))
        for other, concerns in (also or {}).items():
            self.listen(other, partial(_tell_concerned, queue, concerns))
        store = self.store(kind, label_selector=label_selector)
        self._controlled.append(_Controlled(controller, store, resync_seconds))
        return controller

    def start(self) -> None:
        """Watch, join the election, and act once the stores are synced and this process leads."""
        for watched in self._watched.values():
            for reflector in watched.reflectors:
                self._spawn(f"watch {reflector.kind}", partial(reflector.run, self._stop))
        if self.election is not None:
            self._elector = _started("election", partial(self.election.run, self._resign))
        self._spawn("events", partial(self.events.run, self._stop))
        self._spawn("work", self._work)

    def synced(self, wait_seconds: float = 0.0) -> bool:
        """Wait up to ``seconds``; return True if every store has a complete list."""
        until = time.monotonic() + wait_seconds
        return all(
            reflector.synced.wait(max(0.0, until - time.monotonic()))
            for watched in self._watched.values()
            for reflector in watched.reflectors
        )

    @property
    def unready(self) -> str:
        """The reason why a store has no complete list yet; empty if all stores have one."""
        return "" if self.synced() else "; ".join(["lists objects", *self.trouble])

    def stop(self) -> None:
        """Let workers finish, then release the lease, then end all threads."""
        self._stop.set()
        for controlled in self._controlled:
            controlled.controller.queue.close()
        for watched in self._watched.values():
            for reflector in watched.reflectors:
                reflector.stop()
        self.events.wake()
        until = time.monotonic() + _LINGER_SECONDS
        # Threads that start workers end before the workers do.
        idle = _ended(self._threads, until) and _ended(self._workers, until)
        self._resign.set()
        if self.election is None or self._elector is None:
            return
        if _ended([self._elector], until) and idle:
            self.election.release()
        else:
            # A write may still be on its way: the next leader waits for the lease to run out.
            log.warning(
                "some requests have not ended, so this operator does not release its lease; "
                "another operator waits until the lease expires"
            )

    def _work(self) -> None:
        """Start the workers once all stores are full; then look at everything now and then."""
        while not self.synced(_LOOK_SECONDS):
            if self._stop.is_set():
                return
        for controlled in self._controlled:
            self._workers += controlled.controller.start(self._stop)
        # A follower's changes wait in its queues, so a new leader looks at everything.
        due = {each.controller.name: self._later(each) for each in self._controlled}
        while not self._stop.wait(_LOOK_SECONDS):
            for each in self._controlled:
                if self._clock.elapsed() >= due[each.controller.name]:
                    _look_at_all(each, each.resync_seconds / 10, self._random)
                    due[each.controller.name] = self._later(each)

    def _later(self, controlled: _Controlled) -> float:
        return self._clock.elapsed() + spread(controlled.resync_seconds, self._random)

    def _may_act(self, wait_seconds: float) -> bool:
        return self.election is None or self.election.wait(wait_seconds)

    def _watch(self, kind: Kind, label_selector: str) -> _Watched:
        known = self._watched.get((kind, label_selector))
        if known is not None:
            return known
        watched = self._watched[kind, label_selector] = _Watched(Store(), [], [])
        for namespace in self._namespaces if kind.namespaced else ("",):
            watched.reflectors.append(
                Reflector(
                    self._reading,
                    kind,
                    watched.store,
                    clock=self._clock,
                    random=self._random,
                    namespace=namespace,
                    label_selector=label_selector,
                    told=watched.tell,
                )
            )
        return watched

    def _election(self, door: Cluster, terms: ElectionTerms | None) -> Election | None:
        if terms is None:
            return None
        self.metrics.leads(terms.name, False)
        return Election(
            door.hasty(2 * terms.retry_seconds),
            terms,
            self.identity,
            clock=self._clock,
            random=self._random,
            told=partial(self.metrics.leads, terms.name),
        )

    def _spawn(self, name: str, work: Callable[[], None]) -> None:
        self._threads.append(_started(name, work))


def served(cluster: Cluster, kind: Kind, namespaces: Sequence[str]) -> bool:
    """True if a kind is installed, and this process may read it."""
    try:
        # With a list of namespaces this process has rights in these alone.
        cluster.list(kind, next(iter(namespaces), ""), limit=1)
    except (NotFound, NotAllowed):
        return False
    return True


def _started(name: str, work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work, name=name, daemon=True)
    thread.start()
    return thread


def _ended(threads: Sequence[threading.Thread], until: float) -> bool:
    """True if all of the threads ended by ``until`` on the process's clock."""
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    return not any(thread.is_alive() for thread in threads)


def _look_at_all(controlled: _Controlled, within_seconds: float, random: Random) -> None:
    for key in controlled.store.keys_in():
        controlled.controller.queue.add_after(key, within_seconds * random.random())


def _tell_owner(queue: WorkQueue, kind: Kind, change: StoreChange) -> None:
    for obj in _sides(change):
        if owner := controller_of(obj, kind):
            queue.add(owner)


def _tell_concerned(queue: WorkQueue, concerns: Concerns, change: StoreChange) -> None:
    for key in concerns(change):
        queue.add(key)


def _sides(change: StoreChange) -> list[Object]:
    return [side for side in (change.old, change.new) if side is not None]


def _identity() -> str:
    """Return an identity that is never reused: after a restart a process must not own its old
    lease.
    """
    return f"{socket.gethostname()}_{os.getpid()}_{uuid.uuid4().hex[:12]}"
