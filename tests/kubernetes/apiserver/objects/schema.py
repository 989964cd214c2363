"""Structural schemas: unknown fields, defaults and validation, as apiextensions-apiserver does."""

import copy
import json
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from tests.kubernetes.apiserver.objects.errors import Cause

Schema = Mapping[str, Any]

_TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}
_BOUNDS = {"int32": 2**31, "int64": 2**63}


def _below(schema: Schema, field: str) -> Schema | None:
    """Return the schema of a field; None: unknown."""
    found = (schema.get("properties") or {}).get(field)
    if found is not None:
        return found
    more = schema.get("additionalProperties")
    if more is True:
        return {"x-kubernetes-preserve-unknown-fields": True}
    return more if isinstance(more, dict) else None


def _free(schema: Schema) -> bool:
    return bool(schema.get("x-kubernetes-preserve-unknown-fields"))


def pruned(
    value: Any, schema: Schema, unknown: list[str], path: str = "", root: bool = False
) -> Any:
    """Return ``value`` without what ``schema`` does not know; its paths go to ``unknown``."""
    if isinstance(value, list):
        items = schema.get("items")
        if items is None:
            return value
        return [pruned(one, items, unknown, f"{path}[{i}]") for i, one in enumerate(value)]
    if not isinstance(value, dict):
        return value
    is_object = root or schema.get("x-kubernetes-embedded-resource")
    result = {}
    for key, below in value.items():
        if is_object and key in ("apiVersion", "kind", "metadata"):
            result[key] = below
            continue
        where = f"{path}.{key}" if path else key
        known = _below(schema, key)
        if known is not None:
            result[key] = pruned(below, known, unknown, where)
        elif _free(schema):
            result[key] = below
        else:
            unknown.append(where)
    return result


def without_nulls(value: Any) -> Any:
    """Return ``value`` without fields that are null: to Go they are absent."""
    if isinstance(value, dict):
        return {k: without_nulls(below) for k, below in value.items() if below is not None}
    return [without_nulls(one) for one in value] if isinstance(value, list) else value


def defaulted(value: Any, schema: Schema) -> Any:
    """Return ``value`` with the defaults of ``schema`` filled in."""
    if isinstance(value, list):
        items = schema.get("items")
        return value if items is None else [defaulted(one, items) for one in value]
    if not isinstance(value, dict):
        return value
    result = dict(value)
    for key, known in (schema.get("properties") or {}).items():
        empty = key not in result or (result[key] is None and not known.get("nullable"))
        if empty and "default" in known:
            result[key] = copy.deepcopy(known["default"])
        if key in result:
            result[key] = defaulted(result[key], known)
    more = schema.get("additionalProperties")
    if isinstance(more, dict):
        known_fields = schema.get("properties") or {}
        for key in result:
            if key not in known_fields:
                result[key] = defaulted(result[key], more)
    return result


def _told(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _go_type(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "number"
    if value is None:
        return "null"
    return {str: "string", list: "array", dict: "object"}[type(value)]


def _wrong(path: str, value: Any, why: str) -> Cause:
    return Cause("FieldValueInvalid", f"Invalid value: {_told(value)}: {path} in body {why}", path)


def _is_type(value: Any, wanted: str) -> bool:
    if isinstance(value, bool):
        return wanted == "boolean"
    if wanted == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES[wanted])


def _type_cause(value: Any, schema: Schema, path: str) -> Cause | None:
    if schema.get("x-kubernetes-int-or-string"):
        if isinstance(value, (int, str)) and not isinstance(value, bool):
            return None
        wanted = "integer,string"
    else:
        wanted = schema.get("type", "")
        if not wanted or _is_type(value, wanted):
            return None
    kind = _go_type(value)
    message = f'Invalid value: "{kind}": {path} in body must be of type {wanted}: "{kind}"'
    return Cause("FieldValueTypeInvalid", message, path)


def mistyped(value: Any, schema: Schema, path: str) -> Cause | None:
    """Return the first field of the wrong type."""
    if (cause := _type_cause(value, schema, path)) is not None:
        return cause
    if isinstance(value, list):
        items = schema.get("items")
        below = ((f"{path}[{i}]", one, items) for i, one in enumerate(value))
    elif isinstance(value, dict):
        below = ((f"{path}.{k}".lstrip("."), v, _below(schema, k)) for k, v in value.items())
    else:
        return None
    found = (mistyped(one, known, where) for where, one, known in below if known is not None)
    return next((cause for cause in found if cause is not None), None)


@lru_cache(maxsize=1000)
def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text)


def _scalars(value: Any, schema: Schema, path: str) -> Iterator[Cause]:
    """Yield what is wrong with a number or a text."""
    allowed = schema.get("enum")
    if allowed is not None and value not in allowed:
        supported = ", ".join(_told(one) for one in allowed)
        yield Cause(
            "FieldValueNotSupported",
            f"Unsupported value: {_told(value)}: supported values: {supported}",
            path,
        )
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        yield from _numbers(value, schema, path)
    elif isinstance(value, str):
        yield from _texts(value, schema, path)


def _numbers(value: float, schema: Schema, path: str) -> Iterator[Cause]:
    low, high, step = schema.get("minimum"), schema.get("maximum"), schema.get("multipleOf")
    if low is not None and (value <= low if schema.get("exclusiveMinimum") else value < low):
        word = "greater than" if schema.get("exclusiveMinimum") else "greater than or equal to"
        yield _wrong(path, value, f"should be {word} {low}")
    if high is not None and (value >= high if schema.get("exclusiveMaximum") else value > high):
        word = "less than" if schema.get("exclusiveMaximum") else "less than or equal to"
        yield _wrong(path, value, f"should be {word} {high}")
    if step and value % step:
        yield _wrong(path, value, f"should be a multiple of {step}")
    bound = _BOUNDS.get(schema.get("format", ""))
    if bound is not None and not -bound <= value < bound:
        yield _wrong(path, value, f"must be of type {schema['format']}: {_told(value)}")


def _texts(value: str, schema: Schema, path: str) -> Iterator[Cause]:
    least, most, pattern = (schema.get(k) for k in ("minLength", "maxLength", "pattern"))
    if least is not None and len(value) < least:
        yield _wrong(path, value, f"should be at least {least} chars long")
    if most is not None and len(value) > most:
        yield Cause("FieldValueTooLong", f"Too long: may not be more than {most} bytes", path)
    if pattern is not None and not _pattern(pattern).search(value):
        yield _wrong(path, value, f"should match '{pattern}'")
    if schema.get("format") == "date-time" and not _DATE_TIME.fullmatch(value):
        yield _wrong(path, value, f"must be of type date-time: {_told(value)}")


_DATE_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)")


def _lists(value: list[Any], schema: Schema, path: str) -> Iterator[Cause]:
    least, most = schema.get("minItems"), schema.get("maxItems")
    if least is not None and len(value) < least:
        yield _wrong(path, len(value), f"should have at least {least} items")
    if most is not None and len(value) > most:
        message = f"Too many: {len(value)}: must have at most {most} items"
        yield Cause("FieldValueTooMany", message, path)
    keys = schema.get("x-kubernetes-list-map-keys")
    if schema.get("x-kubernetes-list-type") not in ("map", "set"):
        return
    seen = set()
    for i, item in enumerate(value):
        key = {k: item.get(k) for k in keys} if keys and isinstance(item, dict) else item
        text = _told(key)
        if text in seen:
            yield Cause("FieldValueDuplicate", f"Duplicate value: {text}", f"{path}[{i}]")
        seen.add(text)


def _choices(value: Any, schema: Schema, path: str) -> Iterator[Cause]:
    """Yield what ``allOf``, ``anyOf``, ``oneOf`` and ``not`` say."""

    def fits(other: Schema) -> bool:
        return not list(violations(value, None, other, path))

    for other in schema.get("allOf") or ():
        yield from violations(value, None, other, path)
    some, one = schema.get("anyOf"), schema.get("oneOf")
    if some and not any(fits(other) for other in some):
        yield _wrong(path, value, "must validate at least one schema (anyOf)")
    if one and sum(fits(other) for other in one) != 1:
        yield _wrong(path, value, "must validate one and only one schema (oneOf)")
    if schema.get("not") is not None and fits(schema["not"]):
        yield _wrong(path, value, "must not validate the schema (not)")


def violations(value: Any, old: Any, schema: Schema, path: str) -> Iterator[Cause]:
    """Yield what is wrong with ``value``; what an update left as it was is let through."""
    if old is not None and old == value:
        return
    if value is None and schema.get("nullable"):
        return
    if (cause := _type_cause(value, schema, path)) is not None:
        yield cause
        return
    yield from _scalars(value, schema, path)
    yield from _choices(value, schema, path)
    if isinstance(value, list):
        yield from _lists(value, schema, path)
        items = schema.get("items")
        for i, one in enumerate(value if items is not None else ()):
            yield from violations(one, None, items, f"{path}[{i}]")
    elif isinstance(value, dict):
        yield from _fields(value, old, schema, path)


def _fields(value: Mapping[str, Any], old: Any, schema: Schema, path: str) -> Iterator[Cause]:
    before = old if isinstance(old, dict) else {}
    for name in schema.get("required") or ():
        if name not in value:
            yield Cause("FieldValueRequired", "Required value", f"{path}.{name}".lstrip("."))
    least, most = schema.get("minProperties"), schema.get("maxProperties")
    if least is not None and len(value) < least:
        yield _wrong(path, len(value), f"should have at least {least} properties")
    if most is not None and len(value) > most:
        message = f"Too many: {len(value)}: must have at most {most} items"
        yield Cause("FieldValueTooMany", message, path)
    for key, below in value.items():
        known = _below(schema, key)
        if known is not None:
            yield from violations(below, before.get(key), known, f"{path}.{key}".lstrip("."))
