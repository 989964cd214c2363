"""Events: facts about an object, which ``kubectl describe`` shows.

If a message is repeated within ten minutes, the count of its event increases, and no other event is
made. Many different messages with one reason become one event. An object with too many events gets
no more for a while. No caller waits for an event to be written: events that do not fit into the
queue are dropped and counted.
"""

import hashlib
import logging
import threading
from collections import OrderedDict, deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal, Protocol

from brain.errors import BrainError, NotFound
from scaler.kubernetes.runtime.cluster.kind import EVENT, Kind, Object
from scaler.kubernetes.runtime.pace import Clock
from scaler.kubernetes.runtime.status import instant

log = logging.getLogger(__name__)

Type = Literal["Normal", "Warning"]
#: Seconds within which a repetition is the same event.
SAME_SECONDS = 600.0
#: Number of different messages under one reason beyond which they become one event.
SIMILAR = 10
#: Number of events about an object at once, and seconds for each further event.
BURST, REFILL_SECONDS = 25.0, 300.0
#: Numbers of remembered objects and messages, and of events that may wait.
_REMEMBERED, _WAITING = 4096, 1000
_MESSAGE_LENGTH = 1024


@dataclass(frozen=True, slots=True)
class About:
    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str

    @classmethod
    def of(cls, obj: Object) -> "About":
        metadata = obj["metadata"]
        return cls(
            obj["apiVersion"],
            obj["kind"],
            metadata.get("namespace", ""),
            metadata["name"],
            metadata.get("uid", ""),
        )


@dataclass(frozen=True, slots=True)
class RecordedEvent:
    """One event in the form that the API server should have."""

    about: About
    type: Type
    reason: str
    message: str
    name: str
    count: int
    first: datetime
    last: datetime


@dataclass(slots=True)
class _Budget:
    left: float
    at: float


class Correlator:
    """Decides to which event a message belongs. Pure: times are arguments."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[object, ...], tuple[RecordedEvent, float]] = OrderedDict()
        self._similar: OrderedDict[tuple[object, ...], tuple[set[str], float]] = OrderedDict()
        self._budgets: OrderedDict[About, _Budget] = OrderedDict()

    def observe(
        self, about: About, type: Type, reason: str, message: str, now: datetime, elapsed: float
    ) -> RecordedEvent | None:
        """Return the event to write, with its count; None if this object has too many events."""
        if not self._afford(about, elapsed):
            return None
        message = message[:_MESSAGE_LENGTH]
        key: tuple[object, ...] = (about, type, reason, message)
        if self._many(about, type, reason, message, elapsed):
            key, message = key[:3], f"one of many events with this reason: {message}"
        entry, at = self._known.pop(key, (None, 0.0))
        if entry is None or elapsed - at > SAME_SECONDS:
            entry = RecordedEvent(about, type, reason, message, _name(key, about, now), 0, now, now)
        entry = replace(entry, message=message, count=entry.count + 1, last=now)
        self._known[key] = entry, elapsed
        _trim(self._known)
        return entry

    def _many(self, about: About, type: Type, reason: str, message: str, elapsed: float) -> bool:
        """True if too many different messages came under this reason lately."""
        key = (about, type, reason)
        messages, at = self._similar.pop(key, (set(), elapsed))
        if elapsed - at > SAME_SECONDS:
            messages = set()
        if len(messages) <= SIMILAR:
            messages.add(message)
        self._similar[key] = messages, elapsed
        _trim(self._similar)
        return len(messages) > SIMILAR

    def _afford(self, about: About, elapsed: float) -> bool:
        budget = self._budgets.pop(about, None) or _Budget(BURST, elapsed)
        budget.left = min(BURST, budget.left + (elapsed - budget.at) / REFILL_SECONDS)
        budget.at = elapsed
        self._budgets[about] = budget
        _trim(self._budgets)
        if budget.left < 1.0:
            return False
        budget.left -= 1.0
        return True


class EventWriter(Protocol):
    """The methods of ``Cluster`` that a recorder needs."""

    def create(self, kind: Kind, obj: Object) -> dict[str, Any]: ...
    def merge(self, kind: Kind, namespace: str, name: str, patch: Object) -> dict[str, Any]: ...


class Recorder:
    """Writes events in a separate thread, so that callers do not wait."""

    def __init__(
        self,
        cluster: EventWriter,
        *,
        clock: Clock,
        component: str = "brain-scaler",
        instance: str = "",
    ) -> None:
        self._cluster, self._clock = cluster, clock
        self._component, self._instance = component, instance
        self._correlator = Correlator()
        #: Events that wait, and the time of the clock from which each is written.
        self._waiting: OrderedDict[str, tuple[RecordedEvent, float]] = OrderedDict()
        #: Names of events that were created, oldest first.
        self._written: deque[str] = deque(maxlen=_REMEMBERED)
        self._changed = threading.Condition()
        #: Number of events that were not written, for want of queue space or of the API server.
        self.dropped = 0

    def record(
        self,
        obj: Object | About,
        type: Type,
        reason: str,
        message: str,
        *,
        hold_seconds: float = 0.0,
        replaces: str = "",
    ) -> None:
        """Record an event about ``obj``, without waiting until it is written.

        The event waits for ``hold_seconds``. It takes the place of the object's waiting events with
        the reason ``replaces``.
        """
        about = obj if isinstance(obj, About) else About.of(obj)
        elapsed = self._clock.elapsed()
        with self._changed:
            entry = self._correlator.observe(
                about, type, reason, message, self._clock.now(), elapsed
            )
            if entry is None or (entry.name not in self._waiting and self._full):
                self.dropped += 1
                return
            if replaces:
                self._withdraw(about, replaces)
            # A waiting event is written once, with the newest count.
            self._waiting[entry.name] = entry, elapsed + hold_seconds
            self._changed.notify()

    def _withdraw(self, about: About, reason: str) -> None:
        for name, (entry, _) in list(self._waiting.items()):
            if (entry.about, entry.reason) == (about, reason):
                del self._waiting[name]

    @property
    def _full(self) -> bool:
        return len(self._waiting) >= _WAITING

    def run(self, stop: threading.Event) -> None:
        """Write until ``stop`` is set; then try once to write each event that still waits."""
        while not stop.is_set():
            with self._changed:
                self._changed.wait_for(lambda: self._due() or stop.is_set(), 1.0)
            self.step()
        self.step(held=True)

    def wake(self) -> None:
        """Wake ``run``, so that it checks ``stop``."""
        with self._changed:
            self._changed.notify_all()

    def _due(self, *, held: bool = False) -> str | None:
        """Return the name of the oldest due event; with ``held``, of the oldest event."""
        elapsed = self._clock.elapsed()
        due = (name for name, (_, at) in self._waiting.items() if held or at <= elapsed)
        return next(due, None)

    def step(self, *, held: bool = False) -> None:
        """Write the events that are due; if ``held`` is True, write all other waiting events, too.

        An event that cannot be written is dropped, because events are not a permanent record.
        """
        while True:
            with self._changed:
                name = self._due(held=held)
                if name is None:
                    return
                entry, _ = self._waiting.pop(name)
            try:
                self._write(entry)
            except BrainError as why:
                self.dropped += 1
                log.info(
                    "event %s of %s cannot be written: %s", entry.reason, entry.about.name, why
                )
            except Exception:
                # An error over one event must not stop the next one.
                self.dropped += 1
                log.exception("event %s of %s", entry.reason, entry.about.name)

    def _write(self, entry: RecordedEvent) -> None:
        where = entry.about.namespace or "default"
        if entry.name in self._written:
            patch = {
                "count": entry.count,
                "lastTimestamp": instant(entry.last),
                "message": entry.message,
            }
            try:
                self._cluster.merge(EVENT, where, entry.name, patch)
                return
            except NotFound:
                # The API server keeps events for an hour.
                log.debug("event %s was deleted; a new event is created", entry.name)
        self._cluster.create(EVENT, self._event(entry, where))
        self._written.append(entry.name)

    def _event(self, entry: RecordedEvent, where: str) -> dict[str, Any]:
        about = entry.about
        reference: Mapping[str, str] = {
            "apiVersion": about.api_version,
            "kind": about.kind,
            "namespace": about.namespace,
            "name": about.name,
            "uid": about.uid,
        }
        return {
            "apiVersion": EVENT.api_version,
            "kind": EVENT.kind,
            "metadata": {"namespace": where, "name": entry.name},
            "involvedObject": reference,
            "type": entry.type,
            "reason": entry.reason,
            "message": entry.message,
            "count": entry.count,
            "firstTimestamp": instant(entry.first),
            "lastTimestamp": instant(entry.last),
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "reportingInstance": self._instance,
        }


def _name(key: tuple[object, ...], about: About, now: datetime) -> str:
    digest = hashlib.sha256(f"{key}{now.isoformat()}".encode()).hexdigest()[:16]
    # Names of objects have at most 253 characters.
    return f"{about.name[:236]}.{digest}"


def _trim(known: OrderedDict[Any, Any]) -> None:
    while len(known) > _REMEMBERED:
        known.popitem(last=False)
