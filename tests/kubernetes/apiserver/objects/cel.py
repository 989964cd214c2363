"""``x-kubernetes-validations``: which rules of a schema an object breaks."""

import json
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import celpy

from tests.kubernetes.apiserver.objects.errors import Cause

Schema = Mapping[str, Any]

_WORDS = {
    "FieldValueInvalid": "Invalid value",
    "FieldValueForbidden": "Forbidden",
    "FieldValueRequired": "Required value",
    "FieldValueDuplicate": "Duplicate value",
}
_environment = celpy.Environment()


@lru_cache(maxsize=1000)
def _program(rule: str) -> celpy.Runner:
    return _environment.program(_environment.compile(rule))


@lru_cache(maxsize=1000)
def _is_transition(rule: str) -> bool:
    return re.search(r"\boldSelf\b", rule) is not None


def has_rules(schema: Schema) -> bool:
    """Return whether there is a rule anywhere below."""
    below = [*(schema.get("properties") or {}).values(), schema.get("items")]
    below.append(schema.get("additionalProperties"))
    return "x-kubernetes-validations" in schema or any(
        has_rules(one) for one in below if isinstance(one, dict)
    )


def broken_rules(
    new: Mapping[str, Any], old: Mapping[str, Any] | None, schema: Schema
) -> Iterator[Cause]:
    """Yield the rules that ``new`` breaks; transition rules hold where there is an old value."""
    yield from _walk(_root(new), None if old is None else _root(old), schema, "")


def _root(obj: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an object as rules at its root see it: of its metadata they see the names."""
    metadata = {k: v for k, v in obj["metadata"].items() if k in ("name", "generateName")}
    return {**obj, "metadata": metadata}


def _walk(value: Any, old: Any, schema: Schema, path: str) -> Iterator[Cause]:
    for rule in schema.get("x-kubernetes-validations") or ():
        yield from _judged(value, old, rule, schema, path)
    if isinstance(value, dict):
        properties = schema.get("properties") or {}
        more = schema.get("additionalProperties")
        before = old if isinstance(old, dict) else {}
        for key, below in value.items():
            known = properties.get(key, more)
            if isinstance(known, dict) and below is not None:
                where = f"{path}.{key}".lstrip(".") if key in properties else f"{path}[{key}]"
                yield from _walk(below, before.get(key), known, where)
    elif isinstance(value, list) and isinstance(schema.get("items"), Mapping):
        keys = schema.get("x-kubernetes-list-map-keys")
        for i, below in enumerate(value):
            before_item = _matching(below, old, keys) if keys else None
            yield from _walk(below, before_item, schema["items"], f"{path}[{i}]")


def _matching(item: Mapping[str, Any], old: Any, keys: list[str]) -> Any:
    for one in old if isinstance(old, list) else ():
        if all(one.get(key) == item.get(key) for key in keys):
            return one
    return None


def _judged(
    value: Any, old: Any, rule: Mapping[str, Any], schema: Schema, path: str
) -> Iterator[Cause]:
    text = rule["rule"]
    if old is not None and old == value:
        # A transition to the same value holds; an old violation is let through (ratcheting).
        return
    if _is_transition(text) and old is None:
        return
    try:
        holds = text.strip() != "self == oldSelf" and bool(_evaluated(text, value, old))
        told = rule.get("message") or f"failed rule: {text}"
    except celpy.CELEvalError as error:
        holds, told = False, f"rule evaluation error: {error.args[0]}"
    if holds:
        return
    if rule.get("messageExpression"):
        told = str(_evaluated(rule["messageExpression"], value, old))
    reason = rule.get("reason") or "FieldValueInvalid"
    words = _WORDS[reason]
    if words == "Invalid value" and schema.get("type") not in ("object", "array"):
        words += ": " + json.dumps(value, ensure_ascii=False)
    yield Cause(reason, f"{words}: {told}", path + rule.get("fieldPath", "") or "<nil>")


def _evaluated(rule: str, value: Any, old: Any) -> Any:
    return evaluated(rule, {"self": value} | ({} if old is None else {"oldSelf": old}))


def evaluated(expression: str, names: Mapping[str, Any]) -> Any:
    """Return what an expression comes to where ``names`` stand for these values."""
    return _program(expression).evaluate({k: celpy.json_to_cel(v) for k, v in names.items()})
