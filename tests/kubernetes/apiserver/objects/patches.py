"""JSON merge patch (RFC 7396), JSON patch (RFC 6902), strategic merge patch."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from tests.kubernetes.apiserver.objects.errors import Refused, bad_request
from tests.kubernetes.apiserver.objects.shape import Shape

Json = Any


def merged(old: Json, patch: Json) -> Json:
    """Return ``old`` with a merge patch applied; shares what did not change with ``old``."""
    if not isinstance(patch, Mapping):
        return patch
    result = dict(old) if isinstance(old, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


def json_patched(old: Json, operations: Json) -> Json:
    """Return ``old`` after the operations in order; one that fails refuses all."""
    if not isinstance(operations, list):
        raise bad_request("json: cannot unmarshal object into Go value of type jsonpatch.Patch")
    result = copy.deepcopy(old)
    for operation in operations:
        try:
            result = _operated(result, operation)
        except (KeyError, IndexError, ValueError, TypeError) as error:
            raise Refused(
                422,
                "Invalid",
                "the server rejected our request due to an error in our request",
                {},
            ) from error
    return result


def _parts(pointer: str) -> list[str]:
    if pointer == "":
        return []
    if not pointer.startswith("/"):
        raise ValueError(pointer)
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer[1:].split("/")]


def _looked_up(root: Json, parts: Sequence[str]) -> Json:
    for part in parts:
        root = root[int(part)] if isinstance(root, list) else root[part]
    return root


def _put(root: Json, parts: Sequence[str], value: Json) -> Json:
    if not parts:
        return value
    place, last = _looked_up(root, parts[:-1]), parts[-1]
    if not isinstance(place, list):
        place[last] = value
    elif last == "-":
        place.append(value)
    elif int(last) > len(place):
        raise IndexError(last)
    else:
        place.insert(int(last), value)
    return root


def _taken(root: Json, parts: Sequence[str]) -> Json:
    place, last = _looked_up(root, parts[:-1]), parts[-1]
    return place.pop(int(last)) if isinstance(place, list) else place.pop(last)


def _operated(root: Json, operation: Mapping[str, Json]) -> Json:
    parts = _parts(operation["path"])
    match operation["op"]:
        case "test":
            if _looked_up(root, parts) != operation.get("value"):
                raise ValueError(operation)
            return root
        case "add":
            return _put(root, parts, copy.deepcopy(operation["value"]))
        case "replace":
            if parts:
                _taken(root, parts)
            return _put(root, parts, copy.deepcopy(operation["value"]))
        case "remove":
            _taken(root, parts)
            return root
        case "move":
            return _put(root, parts, _taken(root, _parts(operation["from"])))
        case "copy":
            return _put(root, parts, copy.deepcopy(_looked_up(root, _parts(operation["from"]))))
        case other:
            raise ValueError(other)


def strategic(old: Json, patch: Json, shape: Shape) -> Json:
    """Return ``old`` with a strategic merge patch applied: lists with a merge key merge by it."""
    if not isinstance(patch, Mapping):
        return patch
    if patch.get("$patch") == "replace":
        return {key: value for key, value in patch.items() if key != "$patch"}
    result = dict(old) if isinstance(old, Mapping) else {}
    if "$retainKeys" in patch:
        result = {key: value for key, value in result.items() if key in patch["$retainKeys"]}
    for key, value in patch.items():
        if key in ("$patch", "$retainKeys") or key.startswith("$setElementOrder/"):
            continue
        if key.startswith("$deleteFromPrimitiveList/"):
            field = key.partition("/")[2]
            result[field] = [kept for kept in result.get(field) or () if kept not in value]
        elif value is None:
            result.pop(key, None)
        elif isinstance(value, list):
            ordered = f"$setElementOrder/{key}" in patch
            result[key] = _list(result.get(key), value, shape.child(key), ordered)
        else:
            result[key] = strategic(result.get(key), value, shape.child(key))
    return result


def _list(old: Json, patch: list[Json], shape: Shape, ordered: bool) -> list[Json]:
    """Merge lists; new items come first unless their order is told (recorded of 1.36)."""
    key = shape.merge_key
    if key is None:
        if shape.is_set:
            return [*(old or ()), *(value for value in patch if value not in (old or ()))]
        return patch
    if any(item.get("$patch") == "replace" for item in patch):
        return [item for item in patch if item.get("$patch") != "replace"]
    result, new = list(old or ()), list[Json]()
    for item in patch:
        at = next((i for i, one in enumerate(result) if one.get(key) == item.get(key)), None)
        if item.get("$patch") == "delete":
            if at is not None:
                del result[at]
        elif at is None:
            new.append(strategic({}, item, shape.item))
        else:
            result[at] = strategic(result[at], item, shape.item)
    return [*result, *new] if ordered else [*new, *result]
