"""Objects with one counter of versions over all of them, and the history that watches replay."""

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from tests.kubernetes.apiserver.objects.errors import Refused, expired

#: (group, plural)
Resource = tuple[str, str]
#: (namespace, name); the namespace is empty for what has none.
Key = tuple[str, str]
Json = dict[str, Any]

_encode = msgspec.json.Encoder().encode


class Stored:
    """One version of one object. Nobody may change ``obj``."""

    __slots__ = ("_raw", "key", "obj", "version")

    def __init__(self, obj: Json, key: Key, version: int) -> None:
        self.obj = obj
        self.key = key
        self.version = version
        self._raw: bytes | None = None

    @property
    def raw(self) -> bytes:
        """Return it as JSON, made once."""
        if self._raw is None:
            self._raw = _encode(self.obj)
        return self._raw

    @property
    def uid(self) -> str:
        """Return its identity."""
        uid: str = self.obj["metadata"]["uid"]
        return uid


class Change:
    """One write: what was there before, and what came of it."""

    __slots__ = ("_line", "new", "old", "resource", "type", "version")

    def __init__(
        self, type: str, resource: Resource, old: Stored | None, new: Stored, version: int
    ) -> None:
        self.type = type
        self.resource = resource
        self.old = old
        self.new = new
        self.version = version
        self._line: bytes | None = None

    @property
    def line(self) -> bytes:
        """Return the watch event as it goes over the wire, made once for all watchers."""
        if self._line is None:
            self._line = event_line(self.type, self.new.raw)
        return self._line


def event_line(type: str, raw: bytes) -> bytes:
    """Return one line of a watch."""
    return b'{"type":"' + type.encode() + b'","object":' + raw + b"}\n"


Listener = Callable[[Change], None]


class Store:
    """Everything that is kept. One thread at a time."""

    #: The first version; what is older never was, so that a watch from 1 is expired.
    FIRST = 100

    def __init__(self, history: int = 20_000) -> None:
        self.version = self.FIRST
        #: Versions at or below this cannot be watched from.
        self.compacted = self.FIRST
        self._history = history
        self._log: deque[Change] = deque()
        self._objects: dict[Resource, dict[Key, Stored]] = defaultdict(dict)
        self._sorted: dict[Resource, list[Key]] = {}
        self._dependents: dict[str, set[tuple[Resource, Key]]] = defaultdict(set)
        self._uids: dict[str, tuple[Resource, Key]] = {}
        self._listeners: list[Listener] = []

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Tell ``listener`` of every write from now on; returns what ends that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def find(self, resource: Resource, key: Key) -> Stored | None:
        """Return an object."""
        return self._objects[resource].get(key)

    def by_uid(self, uid: str) -> tuple[Resource, Stored] | None:
        """Return an object by its identity."""
        found = self._uids.get(uid)
        if found is None:
            return None
        resource, key = found
        return resource, self._objects[resource][key]

    def dependents(self, uid: str) -> list[tuple[Resource, Stored]]:
        """Return what names ``uid`` as an owner."""
        return [
            (resource, self._objects[resource][key])
            for resource, key in sorted(self._dependents.get(uid, ()))
        ]

    def all_of(self, resource: Resource, namespace: str = "") -> Iterator[Stored]:
        """Yield the objects of a resource by namespace and name."""
        objects = self._objects[resource]
        for key in self._keys(resource):
            if not namespace or key[0] == namespace:
                yield objects[key]

    def resources(self) -> list[Resource]:
        """Return every resource that has objects."""
        return [resource for resource, objects in self._objects.items() if objects]

    def _keys(self, resource: Resource) -> list[Key]:
        keys = self._sorted.get(resource)
        if keys is None:
            keys = self._sorted[resource] = sorted(self._objects[resource])
        return keys

    def as_of(self, resource: Resource, version: int) -> list[Stored]:
        """Return the objects as they were at ``version``; raises 410 if that is forgotten."""
        if version < self.compacted:
            raise Refused(
                410,
                "Expired",
                "The provided continue parameter is too old to display a consistent list result. "
                "You can start a new list without the continue parameter.",
            )
        if all(change.version <= version for change in self._tail(resource, version)):
            return list(self.all_of(resource))
        objects = dict(self._objects[resource])
        for change in reversed(list(self._tail(resource, version))):
            if change.old is None:
                objects.pop(change.new.key, None)
            else:
                objects[change.new.key] = change.old
        return [objects[key] for key in sorted(objects)]

    def _tail(self, resource: Resource, version: int) -> Iterable[Change]:
        tail: list[Change] = []
        for change in reversed(self._log):
            if change.version <= version:
                break
            if change.resource == resource:
                tail.append(change)
        tail.reverse()
        return tail

    def since(self, resource: Resource, version: int) -> Iterable[Change]:
        """Return what happened after ``version``; raises 410 if that is forgotten."""
        if version < self.compacted:
            raise expired(version, self.compacted)
        return self._tail(resource, version)

    def compact(self) -> None:
        """Forget all history."""
        self.version += 1
        self.compacted = self.version
        self._log.clear()

    def put(self, resource: Resource, key: Key, obj: Json) -> Stored:
        """Write an object, which gets the next version."""
        old = self._objects[resource].get(key)
        new = self._versioned(obj, key)
        self._objects[resource][key] = new
        if old is None:
            self._sorted.pop(resource, None)
            self._uids[new.uid] = (resource, key)
        self._index(resource, key, old, new)
        self._tell(Change("MODIFIED" if old else "ADDED", resource, old, new, new.version))
        return new

    def remove(self, resource: Resource, key: Key, obj: Json) -> Stored:
        """Remove an object; ``obj`` is what it was last."""
        old = self._objects[resource].pop(key)
        self._sorted.pop(resource, None)
        self._uids.pop(old.uid, None)
        gone = self._versioned(obj, key)
        self._index(resource, key, old, None)
        self._tell(Change("DELETED", resource, old, gone, gone.version))
        return gone

    def _versioned(self, obj: Json, key: Key) -> Stored:
        self.version += 1
        metadata = {**obj["metadata"], "resourceVersion": str(self.version)}
        return Stored({**obj, "metadata": metadata}, key, self.version)

    def _index(self, resource: Resource, key: Key, old: Stored | None, new: Stored | None) -> None:
        before, after = _owners(old), _owners(new)
        for uid in before - after:
            self._dependents[uid].discard((resource, key))
            if not self._dependents[uid]:
                del self._dependents[uid]
        for uid in after - before:
            self._dependents[uid].add((resource, key))

    def _tell(self, change: Change) -> None:
        self._log.append(change)
        if len(self._log) > self._history:
            self.compacted = self._log.popleft().version
        for listener in tuple(self._listeners):
            listener(change)


def _owners(stored: Stored | None) -> set[str]:
    if stored is None:
        return set()
    references: Iterable[Mapping[str, Any]] = stored.obj["metadata"].get("ownerReferences") or ()
    return {reference["uid"] for reference in references}
