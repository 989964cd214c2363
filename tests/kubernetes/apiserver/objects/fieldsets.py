"""Sets of field paths, as tries in the keys of ``FieldsV1``: ``f:name``, ``k:{"a":1}``, ``v:"x"``.

Inside, a member carries the key ``"."``; ``FieldsV1`` writes a member without children as ``{}``.
"""

import json
from collections.abc import Mapping
from typing import Any

from tests.kubernetes.apiserver.objects.shape import Shape

Fields = dict[str, Any]
#: A member of a set.
HERE = "."


def leaf() -> Fields:
    """Return a member without children."""
    return {HERE: {}}


def decoded(wire: Mapping[str, Any]) -> Fields:
    """Return the set that ``FieldsV1`` spells."""
    return {key: {} if key == HERE else decoded(below) or leaf() for key, below in wire.items()}


def encoded(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``FieldsV1``."""
    return {
        key: {} if key == HERE or below.keys() == {HERE} else encoded(below)
        for key, below in fields.items()
    }


def union(one: Fields, other: Fields) -> Fields:
    """Return what is in either."""
    result = dict(one)
    for key, below in other.items():
        result[key] = union(result[key], below) if key in result else below
    return result


def minus(one: Fields, other: Fields) -> Fields:
    """Return the members of ``one`` that ``other`` has not."""
    result: Fields = {}
    for key, below in one.items():
        if key not in other:
            result[key] = below
        elif key != HERE and (left := minus(below, other[key])):
            result[key] = left
    return result


def meet(one: Fields, other: Fields) -> Fields:
    """Return what is in both."""
    result: Fields = {}
    for key, below in one.items():
        if key in other:
            if key == HERE:
                result[key] = {}
            elif common := meet(below, other[key]):
                result[key] = common
    return result


def key_text(shape: Shape, item: Mapping[str, Any]) -> str:
    """Return the key of one item of a list that merges by key."""
    key = dict(sorted(shape.key_of(item).items()))
    return "k:" + json.dumps(key, separators=(",", ":"), ensure_ascii=False)


def value_text(value: Any) -> str:
    """Return the key of one value of a set."""
    return "v:" + json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def of_all(value: Any, shape: Shape) -> Fields:
    """Return every path of something that was added: containers and what they hold."""
    fields = _below(value, shape, of_all)
    if not shape.always_there:
        fields[HERE] = {}
    return fields


def of_leaves(value: Any, shape: Shape) -> Fields:
    """Return the paths that an applied configuration claims: leaves, and items by key."""
    return _below(value, shape, _claimed) or leaf()


def _claimed(value: Any, shape: Shape) -> Fields:
    return of_leaves(value, shape)


def _below(value: Any, shape: Shape, of: Any) -> Fields:
    if isinstance(value, dict) and not shape.is_atomic_map:
        return {f"f:{key}": of(below, shape.child(key)) for key, below in value.items()}
    if isinstance(value, list) and shape.keys:
        return {key_text(shape, item): {**of(item, shape.item), HERE: {}} for item in value}
    if isinstance(value, list) and shape.is_set:
        return {value_text(one): leaf() for one in value}
    return {}


class Changes:
    """What differs between two objects, as three sets of paths."""

    __slots__ = ("added", "modified", "removed")

    def __init__(self, added: Fields, modified: Fields, removed: Fields) -> None:
        self.added = added
        self.modified = modified
        self.removed = removed

    @property
    def taken(self) -> Fields:
        """Return what the writer owns from now on."""
        return union(self.added, self.modified)


def _nested(key: str, below: Changes, into: Changes) -> None:
    if below.added:
        into.added[key] = below.added
    if below.modified:
        into.modified[key] = below.modified
    if below.removed:
        into.removed[key] = below.removed


def compared(old: Any, new: Any, shape: Shape) -> Changes:
    """Return what changed between two values that are both there."""
    changes = Changes({}, {}, {})
    if isinstance(old, dict) and isinstance(new, dict) and not shape.is_atomic_map:
        _compare_maps(old, new, shape, changes)
    elif isinstance(old, list) and isinstance(new, list) and shape.keys:
        before = {key_text(shape, item): item for item in old}
        after = {key_text(shape, item): item for item in new}
        _compare_keyed(before, after, shape.item, changes)
    elif isinstance(old, list) and isinstance(new, list) and shape.is_set:
        before_set, after_set = ({value_text(one): one for one in side} for side in (old, new))
        changes.added = {key: leaf() for key in after_set if key not in before_set}
        changes.removed = {key: leaf() for key in before_set if key not in after_set}
    else:
        changes.modified = leaf()
    return changes


def _compare_maps(
    old: Mapping[str, Any], new: Mapping[str, Any], shape: Shape, changes: Changes
) -> None:
    for key, value in new.items():
        if key not in old:
            if below := of_all(value, shape.child(key)):
                changes.added[f"f:{key}"] = below
        elif old[key] is not value and old[key] != value:
            _nested(f"f:{key}", compared(old[key], value, shape.child(key)), changes)
    for key, value in old.items():
        if key not in new:
            changes.removed[f"f:{key}"] = of_all(value, shape.child(key))


def _compare_keyed(
    old: Mapping[str, Any], new: Mapping[str, Any], item: Shape, changes: Changes
) -> None:
    for key, value in new.items():
        if key not in old:
            changes.added[key] = of_all(value, item)
        elif old[key] != value:
            _nested(key, compared(old[key], value, item), changes)
    for key, value in old.items():
        if key not in new:
            changes.removed[key] = of_all(value, item)


def paths(fields: Fields, prefix: str = "") -> list[str]:
    """Return every member as people read it: ``.spec.ports[name="p1"].port``."""
    found: list[str] = []
    for key, below in fields.items():
        if key == HERE:
            found.append(prefix)
            continue
        kind, _, rest = key.partition(":")
        if kind == "f":
            told = f".{rest}"
        elif kind == "k":
            pairs = (f"{name}={json.dumps(value)}" for name, value in json.loads(rest).items())
            told = f"[{','.join(pairs)}]"
        else:
            told = f"[={rest}]"
        found += paths(below, prefix + told)
    return found
