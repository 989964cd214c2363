"""Who owns which field: ``managedFields`` and server-side apply.

Follows structured-merge-diff: a writer owns what it changed; an applier owns what it sent, gives
up what it no longer sends, and conflicts over what it would change of others.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tests.kubernetes.apiserver.objects.errors import Refused, bad_request
from tests.kubernetes.apiserver.objects.fieldsets import (
    HERE,
    Fields,
    compared,
    decoded,
    encoded,
    key_text,
    meet,
    minus,
    of_leaves,
    paths,
    union,
    value_text,
)
from tests.kubernetes.apiserver.objects.shape import Shape

#: Fields of metadata that the server writes: nobody owns them.
_SERVERS = frozenset(
    {
        "name",
        "namespace",
        "creationTimestamp",
        "selfLink",
        "uid",
        "clusterName",
        "generation",
        "managedFields",
        "resourceVersion",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Manager:
    """Who writes, how, and through which door."""

    name: str
    operation: str
    api_version: str
    subresource: str = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """What one manager owns, and since when (RFC 3339; empty: the entry tells no time)."""

    fields: Fields
    time: str = field(default="")


Entries = dict[Manager, Entry]


def entries_of(managed: Sequence[Mapping[str, Any]] | None) -> Entries:
    """Return what ``metadata.managedFields`` says."""
    return {
        Manager(
            name=entry.get("manager", ""),
            operation=entry.get("operation", ""),
            api_version=entry.get("apiVersion", ""),
            subresource=entry.get("subresource", ""),
        ): Entry(decoded(entry.get("fieldsV1") or {}), entry.get("time", ""))
        for entry in managed or ()
    }


def written(entries: Entries) -> list[dict[str, Any]]:
    """Return ``metadata.managedFields`` in the real server's order."""

    def order(item: tuple[Manager, Entry]) -> tuple[str, ...]:
        manager, entry = item
        return (
            manager.operation,
            entry.time,
            manager.name,
            manager.api_version,
            manager.subresource,
        )

    return [
        {
            "manager": manager.name,
            "operation": manager.operation,
            "apiVersion": manager.api_version,
            **({"time": entry.time} if entry.time else {}),
            "fieldsType": "FieldsV1",
            "fieldsV1": encoded(entry.fields),
            **({"subresource": manager.subresource} if manager.subresource else {}),
        }
        for manager, entry in sorted(entries.items(), key=order)
        if entry.fields
    ]


def _owned(obj: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``obj`` without what nobody owns."""
    rest = {key: value for key, value in obj.items() if key not in ("apiVersion", "kind")}
    metadata = {key: value for key, value in obj.get("metadata", {}).items() if key not in _SERVERS}
    rest.pop("metadata", None)
    return {**rest, "metadata": metadata} if metadata else rest


def updated(
    live: Mapping[str, Any],
    new: Mapping[str, Any],
    shape: Shape,
    manager: Manager,
    now: str,
    reset: Sequence[str] = (),
) -> Entries:
    """Return who owns what after ``manager`` wrote ``new`` over ``live``.

    ``reset``: top-level fields that this door does not write (``status``, or all but it).
    """
    before, after = _owned(live), _owned(new)
    for name in reset:
        after.pop(name, None)
        if name in before:
            after[name] = before[name]
    changes = compared({"metadata": {}, **before}, {"metadata": {}, **after}, shape)
    taken = changes.taken
    entries = entries_of(live.get("metadata", {}).get("managedFields"))
    result: Entries = {}
    for other, entry in entries.items():
        left = minus(entry.fields, changes.removed)
        result[other] = replace(entry, fields=left if other == manager else minus(left, taken))
    if taken:
        mine = result[manager].fields if manager in result else {}
        result[manager] = Entry(union(mine, taken), now)
    return {other: entry for other, entry in result.items() if entry.fields}


def _merge(live: Any, config: Any, shape: Shape) -> Any:
    """Return ``live`` with everything that ``config`` says."""
    if isinstance(live, dict) and isinstance(config, dict) and not shape.is_atomic_map:
        result = dict(live)
        for key, value in config.items():
            result[key] = _merge(live[key], value, shape.child(key)) if key in live else value
        return result
    if isinstance(live, list) and isinstance(config, list) and shape.keys:
        items = {key_text(shape, item): item for item in live}
        for item in config:
            key = key_text(shape, item)
            items[key] = _merge(items[key], item, shape.item) if key in items else item
        return list(items.values())
    if isinstance(live, list) and isinstance(config, list) and shape.is_set:
        return [*live, *(value for value in config if value not in live)]
    return config


def _without(value: Any, gone: Fields, shape: Shape) -> Any:
    """Return ``value`` without the members of ``gone``; a container that empties goes with them."""
    if isinstance(value, dict):
        result = {}
        for key, below in value.items():
            path = gone.get(f"f:{key}")
            left = below if path is None else _left(below, path, shape.child(key))
            if left is not None or (below is None and path is None):
                result[key] = left
        return result
    if isinstance(value, list) and shape.keys:
        kept = []
        for item in value:
            path = gone.get(key_text(shape, item))
            left = item if path is None else _left(item, path, shape.item, key=shape.keys)
            if left is not None:
                kept.append(left)
        return kept
    if isinstance(value, list) and shape.is_set:
        return [one for one in value if value_text(one) not in gone]
    return value


def _left(value: Any, gone: Fields, shape: Shape, key: tuple[str, ...] = ()) -> Any:
    below = {name: rest for name, rest in gone.items() if name != HERE}
    if not below:
        return None
    left = _without(value, below, shape)
    emptied = not left or (key and HERE in gone and set(left) <= set(key))
    return None if emptied else left


def applied(
    live: Mapping[str, Any] | None,
    config: Mapping[str, Any],
    shape: Shape,
    manager: Manager,
    force: bool,
    now: str,
) -> tuple[dict[str, Any], Entries]:
    """Return the object after ``manager`` applied ``config``, and who owns what.

    Raises ``Refused`` (409) where others own what would change and ``force`` is not given.
    """
    if (config.get("metadata") or {}).get("managedFields"):
        raise bad_request("metadata.managedFields must be nil")
    entries = entries_of((live or {}).get("metadata", {}).get("managedFields"))
    last = entries.get(manager, Entry({})).fields
    wanted = of_leaves(_owned(config), shape)
    wanted.pop(HERE, None)
    base = dict(live) if live is not None else {}
    result = _merge(base, config, shape)
    dropped = minus(last, wanted)
    for other, entry in entries.items():
        if other != manager:
            dropped = minus(dropped, entry.fields)
    if dropped:
        result = _without(result, dropped, shape)
    return result, _claimed(live, result, shape, manager, entries, wanted, force, now)


def _claimed(
    live: Mapping[str, Any] | None,
    result: Mapping[str, Any],
    shape: Shape,
    manager: Manager,
    entries: Entries,
    wanted: Fields,
    force: bool,
    now: str,
) -> Entries:
    changes = compared(
        {"metadata": {}, **_owned(live or {})}, {"metadata": {}, **_owned(result)}, shape
    )
    taken = changes.taken
    conflicts = {
        other: clash
        for other, entry in entries.items()
        if other != manager and (clash := meet(entry.fields, taken))
    }
    if conflicts and not force:
        raise _conflicts(conflicts, entries)
    claimed: Entries = {}
    for other, entry in entries.items():
        left = minus(entry.fields, changes.removed)
        claimed[other] = replace(entry, fields=minus(left, conflicts.get(other, {})))
    had = entries.get(manager)
    same = had is not None and had.fields == wanted and not taken and not changes.removed
    claimed[manager] = Entry(wanted, had.time if same and had is not None else now)
    return {other: entry for other, entry in claimed.items() if entry.fields}


def _named(manager: Manager, time: str) -> str:
    told = f'"{manager.name}"'
    if manager.subresource:
        told += f' with subresource "{manager.subresource}"'
    if manager.operation == "Update":
        told += f" using {manager.api_version}" + (f" at {time}" if time else "")
    return told


def _conflicts(conflicts: Mapping[Manager, Fields], entries: Entries) -> Refused:
    named = sorted((_named(other, entries[other].time), paths(f)) for other, f in conflicts.items())
    causes = [
        {"reason": "FieldManagerConflict", "message": f"conflict with {name}", "field": path}
        for name, fields in named
        for path in fields
    ]
    if len(causes) == 1:
        told = f"1 conflict: conflict with {named[0][0]}: {named[0][1][0]}"
    else:
        lines = [
            "\n".join([f"conflicts with {name}:", *(f"- {path}" for path in fields)])
            for name, fields in named
        ]
        told = f"{len(causes)} conflicts: " + "\n".join(lines)
    return Refused(409, "Conflict", f"Apply failed with {told}", {"causes": causes})
