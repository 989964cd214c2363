"""Schemas of the built-in kinds, read from the models of the official Python client.

So a misspelt field or a number where a text belongs is refused or dropped as a real server does.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from tests.kubernetes.apiserver.core.kinds import METADATA, Json, Kind

_SCALARS: Mapping[str, Json] = {
    "str": {"type": "string"},
    "int": {"type": "integer"},
    "bool": {"type": "boolean"},
    "float": {"type": "number"},
    "datetime": {"type": "string"},
    "date": {"type": "string"},
    "bytearray": {"type": "string"},
}
#: Fields that hold quantities, which may be written as numbers.
_QUANTITIES = frozenset(
    {
        "limits", "requests", "capacity", "allocatable", "overhead", "hard", "used", "usage",
        "sizeLimit", "divisor", "max", "min", "default", "defaultRequest", "allocatedResources",
    }
)  # fmt: skip
_QUANTITY: Json = {"x-kubernetes-int-or-string": True}
_KEEP = "x-kubernetes-preserve-unknown-fields"
_FREE: Json = {_KEEP: True}
#: Kinds whose model is not called ``V1`` and their name; the empty name: kept as it is.
_NAMES: Mapping[tuple[str, str], str] = {
    ("", "Event"): "CoreV1Event",
    ("events.k8s.io", "Event"): "CoreV1Event",
    ("autoscaling", "HorizontalPodAutoscaler"): "V2HorizontalPodAutoscaler",
    ("apiextensions.k8s.io", "CustomResourceDefinition"): "",
}


@lru_cache(maxsize=1000)
def _schema(name: str) -> Json | None:
    """Return the schema of a model; None: there is no such model."""
    from kubernetes.client import models

    model = getattr(models, name, None)
    if model is None:
        return None
    if name == "V1ObjectMeta":
        return METADATA
    properties = {}
    for attribute, type_name in model.openapi_types.items():
        field = model.attribute_map[attribute]
        properties[field] = _quantity(type_name) if field in _QUANTITIES else _typed(type_name)
    return {"type": "object", "properties": properties}


def _typed(name: str) -> Json:
    if name in _SCALARS:
        return _SCALARS[name]
    if match := re.fullmatch(r"[Ll]ist\[(.*)\]", name):
        return {"type": "array", "items": _typed(match[1])}
    if match := re.fullmatch(r"[Dd]ict[\[(]str, (.*)[\])]", name):
        return {"type": "object", "additionalProperties": _typed(match[1])}
    return _schema(name) or _FREE


def _quantity(name: str) -> Json:
    if name == "str":
        return _QUANTITY
    if re.fullmatch(r"[Dd]ict[\[(]str, str[\])]", name):
        return {"type": "object", "additionalProperties": _QUANTITY}
    return _typed(name)


def _overlaid(schema: Json, overlay: Mapping[str, Any]) -> Json:
    """Return ``schema`` with what ``overlay`` says of merging, where it knows the field."""
    result = dict(schema)
    for key, value in overlay.items():
        if key == "properties":
            known = result.get("properties") or {}
            both = {k: _overlaid(known[k], v) for k, v in value.items() if k in known}
            result["properties"] = {**known, **both}
        elif key == "items" and "items" in result:
            result["items"] = _overlaid(result["items"], value)
        elif key == "default" or (key.startswith("x-") and key != _KEEP):
            result[key] = value
    return result


def modelled(kind: Kind) -> Kind:
    """Return a built-in kind with its full schema, if the client has a model of it."""
    name = _NAMES.get((kind.group, kind.kind), f"V1{kind.kind}")
    schema = _schema(name) if name else None
    if schema is None:
        return kind
    merged = _overlaid(schema, {k: v for k, v in kind.schema.items() if k != "type"})
    merged["properties"] = {**merged["properties"], "metadata": METADATA}
    return replace(kind, schema=merged)
