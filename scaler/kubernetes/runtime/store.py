"""The API server's objects of one kind, as last received; they are read without copies and never
changed.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from scaler.kubernetes.runtime.cluster.kind import Key, Object, key_of, version_of

#: Number of deleted objects that are remembered.
_REMEMBERED = 4096
#: Fields that tell when a deletion was asked for.
_ASKED = ("deletionTimestamp", "deletionGracePeriodSeconds")
#: Returns the values under which an index finds an object.
Index = Callable[[Object], Iterable[str]]


class Amount(Protocol):
    """An amount that can be added and subtracted exactly: one number, or several."""

    def __add__(self: "A", other: "A", /) -> "A": ...
    def __sub__(self: "A", other: "A", /) -> "A": ...


A = TypeVar("A", bound=Amount)


@dataclass(frozen=True, slots=True)
class StoreChange:
    """A change to an object: added (``old`` is None), changed, or deleted (``new`` is None)."""

    key: Key
    old: Object | None
    new: Object | None

    @property
    def latest(self) -> Object:
        """Return the newest known version of the object."""
        found = self.new if self.new is not None else self.old
        assert found is not None, "a change has an old or a new object"
        return found


def meant(change: StoreChange) -> bool:
    """True if a client added or deleted the object, or changed its spec, labels or annotations.

    False for a change of only the status; most of these changes come from the operator itself.
    """
    if change.old is None or change.new is None:
        return True
    before, now = change.old["metadata"], change.new["metadata"]
    asked = ("generation", "deletionTimestamp", "labels", "annotations")
    return any(before.get(name) != now.get(name) for name in asked)


@dataclass(frozen=True, slots=True)
class _Summed:
    """Sums of one amount over objects, by group."""

    of: Callable[[Object], Any]
    by: Callable[[Object], str]
    sums: dict[str, Any] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    def move(self, old: Object | None, new: Object | None) -> None:
        """Update the sums after an object was added, changed or deleted."""
        before = (self.by(old), self.of(old)) if old is not None else None
        after = (self.by(new), self.of(new)) if new is not None else None
        if before == after:
            return
        if before is not None and after is not None and before[0] == after[0]:
            # Replaced in one assignment: concurrent readers take no lock.
            group = before[0]
            self.sums[group] = self.sums[group] - before[1] + after[1]
            return
        if before is not None:
            self._take(*before)
        if after is not None:
            self._give(*after)

    def _give(self, group: str, amount: Any) -> None:
        self.counts[group] = self.counts.get(group, 0) + 1
        self.sums[group] = self.sums[group] + amount if group in self.sums else amount

    def _take(self, group: str, amount: Any) -> None:
        self.counts[group] -= 1
        if self.counts[group]:
            self.sums[group] = self.sums[group] - amount
        else:
            # Nodes come and go: a group without objects disappears.
            del self.counts[group], self.sums[group]


class Store:
    """Objects of one kind by key and by named indexes. Many threads may use an instance.

    Callers get the stored objects themselves: copy an object before you change it.
    """

    def __init__(self, indexes: Mapping[str, Index] | None = None) -> None:
        self._indexes = dict(indexes or {})
        self._objects: dict[Key, Object] = {}
        self._found: dict[str, dict[str, set[Key]]] = {name: {} for name in self._indexes}
        self._summed: dict[str, _Summed] = {}
        self._trimmed: Callable[[Object], Object] = lambda obj: obj
        #: Objects known only from an answer to this process, with the versions heard before.
        self._learned: dict[Key, Object | None] = {}
        #: Deleted objects: a delayed answer must not bring one back.
        self._ended: dict[str, None] = {}
        self._listed = ""
        self._lock = threading.RLock()

    def __len__(self) -> int:
        return len(self._objects)

    def __contains__(self, key: Key) -> bool:
        return key in self._objects

    @property
    def whole(self) -> bool:
        """True once the store has held a complete list."""
        return bool(self._listed)

    def __iter__(self) -> Iterator[Object]:
        with self._lock:
            return iter(list(self._objects.values()))

    def get(self, key: Key) -> Object | None:
        """Return the object, or None."""
        return self._objects.get(key)

    def keys_in(self, namespace: str = "") -> list[Key]:
        with self._lock:
            return [key for key in self._objects if not namespace or key.namespace == namespace]

    def by(self, index: str, value: str) -> list[Object]:
        """Return the objects that ``index`` finds under ``value``, sorted by name."""
        with self._lock:
            return [self._objects[key] for key in sorted(self._found[index].get(value, ()))]

    def trim(self, trimmed: Callable[[Object], Object]) -> None:
        """Apply ``trimmed`` to each object that arrives from now on."""
        self._trimmed = trimmed

    def index(self, name: str, index: Index) -> None:
        """Add an index; an existing index of that name stays."""
        with self._lock:
            if name in self._indexes:
                return
            self._indexes[name] = index
            self._found[name] = {}
            for key, obj in self._objects.items():
                self._enter(name, index, key, obj)

    def values(self, index: str) -> list[str]:
        """Return every value under which ``index`` finds an object."""
        with self._lock:
            return list(self._found[index])

    def sums(
        self, name: str, of: Callable[[Object], A], by: Callable[[Object], str]
    ) -> Mapping[str, A]:
        """Return, for each value of ``by``, the sum of ``of`` over the objects with that value.

        The result stays up to date, and an update costs only the changed object. Callers must not
        change the result.
        """
        with self._lock:
            summed = self._summed.get(name)
            if summed is None:
                summed = self._summed[name] = _Summed(of, by)
                for obj in self._objects.values():
                    summed.move(None, obj)
        return summed.sums

    def sum(self, name: str, of: Callable[[Object], A], nothing: A) -> Callable[[], A]:
        """Return a function that reads the sum of ``of`` over all objects."""
        sums = self.sums(name, of, lambda obj: "")
        return lambda: sums.get("", nothing)

    def put(self, obj: Object, *, listed: bool = False) -> StoreChange | None:
        """Store the object; return None if this version, or a newer one, is already known.

        ``listed`` is True if the object comes from a list. Then it is stored even if its version is
        lower, as it is after the server was restored from a backup.
        """
        key, obj = key_of(obj), self._trimmed(obj)
        with self._lock:
            kept = self._objects.get(key)
            if kept is not None and not _newer(obj, kept):
                same = version_of(obj) == version_of(kept)
                if same and key in self._learned:
                    return StoreChange(key, self._learned.pop(key), kept)
                if same or not listed:
                    return None
            obj = _as_first_asked(obj, kept)
            old = self._learned.pop(key, kept)
            self._place(key, kept, obj)
        return StoreChange(key, old, obj)

    def learn(self, obj: Object) -> None:
        """Store the object that the operator's own write returned, if it is newer than the stored
        one.

        So the next reconcile finds the objects that the last one created, before the watch delivers
        them. A deleted object is not stored again.
        """
        key = key_of(obj)
        metadata = {name: v for name, v in obj["metadata"].items() if name != "managedFields"}
        with self._lock:
            old = self._objects.get(key)
            if not self._over(obj, old):
                self._learned.setdefault(key, old)
                self._place(key, old, self._trimmed({**obj, "metadata": metadata}))

    def _over(self, obj: Object, kept: Object | None) -> bool:
        """True if a newer version than ``obj``, or its deletion, is known."""
        if _uid(obj) in self._ended or not _later(version_of(obj), self._listed):
            return True
        return kept is not None and (_uid(kept) != _uid(obj) or not _newer(obj, kept))

    def listed(self, version: str) -> None:
        """Record that the store has all objects as of ``version``."""
        with self._lock:
            self._listed = version

    def drop(self, key: Key) -> StoreChange | None:
        """Remove an object; None if the object is not known."""
        with self._lock:
            old = self._objects.get(key)
            if old is None:
                return None
            self._place(key, old, None)
            self._learned.pop(key, None)
            self._ended[_uid(old)] = None
            if len(self._ended) > _REMEMBERED:
                del self._ended[next(iter(self._ended))]
        return StoreChange(key, old, None)

    def _place(self, key: Key, old: Object | None, new: Object | None) -> None:
        for name, index in self._indexes.items():
            if old is not None:
                self._leave(name, index, key, old)
            if new is not None:
                self._enter(name, index, key, new)
        for summed in self._summed.values():
            summed.move(old, new)
        if new is None:
            del self._objects[key]
        else:
            self._objects[key] = new

    def _enter(self, name: str, index: Index, key: Key, obj: Object) -> None:
        for value in index(obj):
            self._found[name].setdefault(value, set()).add(key)

    def _leave(self, name: str, index: Index, key: Key, obj: Object) -> None:
        for value in index(obj):
            keys = self._found[name].get(value, set())
            keys.discard(key)
            if not keys:
                self._found[name].pop(value, None)


def _as_first_asked(obj: Object, kept: Object | None) -> Object:
    """Return the object with the time at which its deletion was asked for first.

    The last deletion, with which a kubelet confirms that a pod is gone, sets the time to now: the
    containers then seem to have ended before somebody asked.
    """
    if kept is None or _uid(kept) != _uid(obj) or "deletionTimestamp" not in kept["metadata"]:
        return obj
    first = {name: kept["metadata"][name] for name in _ASKED if name in kept["metadata"]}
    return {**obj, "metadata": {**obj["metadata"], **first}}


def _newer(obj: Object, known: Object) -> bool:
    """True if ``obj`` is newer than the stored version."""
    version, before = version_of(obj), version_of(known)
    return _later(version, before) and (version != before or not version)


def _later(version: str, before: str) -> bool:
    """True if ``version`` is the later one.

    Versions rise; a version that is no number counts as later.
    """
    if version.isdecimal() and before.isdecimal():
        return int(version) > int(before)
    return True


def _uid(obj: Object) -> str:
    return str(obj["metadata"].get("uid", ""))
