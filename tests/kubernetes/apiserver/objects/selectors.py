"""Label and field selectors."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from tests.kubernetes.apiserver.objects.errors import bad_request

Labels = Mapping[str, str]
Matches = Callable[[Mapping[str, Any]], bool]

_SET = re.compile(r"^\s*(?P<key>[^\s!=<>,()]+)\s+(?P<word>in|notin)\s*\((?P<values>[^)]*)\)\s*$")
_COMPARED = re.compile(
    r"^\s*(?P<key>[^\s!=<>,()]+)\s*(?P<word>==|!=|=|<|>)\s*(?P<value>[^\s,()]*)\s*$"
)
_THERE = re.compile(r"^\s*(?P<no>!?)\s*(?P<key>[^\s!=<>,()]+)\s*$")


def _split(text: str) -> list[str]:
    """Return the requirements of ``text``; commas inside parentheses do not part them."""
    return [part for part in re.split(r",(?![^(]*\))", text) if part.strip()]


def _labels_requirement(text: str) -> Callable[[Labels], bool]:
    if match := _SET.match(text):
        key = match["key"]
        values = {value.strip() for value in match["values"].split(",")}
        if match["word"] == "in":
            return lambda labels: labels.get(key) in values if key in labels else False
        return lambda labels: labels.get(key) not in values
    if match := _COMPARED.match(text):
        key, value = match["key"], match["value"]
        match match["word"]:
            case "!=":
                return lambda labels: labels.get(key) != value
            case "<" | ">" as word:
                return lambda labels: _ordered(labels.get(key), word, value)
            case _:
                return lambda labels: labels.get(key) == value
    if match := _THERE.match(text):
        key = match["key"]
        if match["no"]:
            return lambda labels: key not in labels
        return lambda labels: key in labels
    raise bad_request(f'unable to parse requirement: found "{text}", expected: identifier')


def _ordered(label: str | None, word: str, value: str) -> bool:
    if label is None or not label.lstrip("-").isdigit():
        return False
    return int(label) < int(value) if word == "<" else int(label) > int(value)


def by_labels(text: str) -> Matches | None:
    """Return whether an object has the labels that ``text`` asks for; None: every object."""
    requirements = [_labels_requirement(part) for part in _split(text)]
    if not requirements:
        return None

    def matches(obj: Mapping[str, Any]) -> bool:
        labels = obj["metadata"].get("labels") or {}
        return all(requirement(labels) for requirement in requirements)

    return matches


def selected(selector: Mapping[str, Any], labels: Labels) -> bool:
    """Return whether a ``LabelSelector`` of an object's spec takes ``labels``."""
    equal = selector.get("matchLabels") or {}
    if any(labels.get(key) != value for key, value in equal.items()):
        return False
    for expression in selector.get("matchExpressions") or ():
        key, values = expression["key"], expression.get("values") or ()
        match expression["operator"]:
            case "In":
                held = labels.get(key) in values
            case "NotIn":
                held = labels.get(key) not in values
            case "Exists":
                held = key in labels
            case _:
                held = key not in labels
        if not held:
            return False
    return True


def value_at(obj: Mapping[str, Any], path: str) -> str:
    """Return the text of the field at a dotted path; absent is empty."""
    found: Any = obj
    for part in path.split("."):
        if not isinstance(found, Mapping) or part not in found:
            return ""
        found = found[part]
    if isinstance(found, bool):
        return "true" if found else "false"
    return "" if found is None else str(found)


def by_fields(text: str, known: Mapping[str, str]) -> Matches | None:
    """Return whether an object has the fields; ``known``: what a selector may name -> its path."""
    requirements: list[tuple[str, bool, str]] = []
    for part in _split(text):
        match = _COMPARED.match(part)
        if match is None or match["word"] in "<>":
            raise bad_request(f"invalid selector: '{part}'; can't understand '{part}'")
        if match["key"] not in known:
            raise bad_request(f"field label not supported: {match['key']}")
        requirements.append((known[match["key"]], match["word"] != "!=", match["value"]))
    if not requirements:
        return None
    return lambda obj: all(
        (value_at(obj, path) == value) is wanted for path, wanted, value in requirements
    )


def both(one: Matches | None, other: Matches | None) -> Matches | None:
    """Return what meets both; None: everything."""
    if one is None or other is None:
        return one or other
    return lambda obj: one(obj) and other(obj)
