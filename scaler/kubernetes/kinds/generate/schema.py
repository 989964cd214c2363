"""Generates structural OpenAPI schemas and CustomResourceDefinitions from the kinds."""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgspec

from scaler.kubernetes.kinds.elasticjob import ElasticJob
from scaler.kubernetes.kinds.fields import GROUP, VERSION, PrinterColumn, Rule
from scaler.kubernetes.kinds.generate.sources import field_texts, summary
from scaler.kubernetes.kinds.jobstatus import ElasticJobCondition, GroupStatus, RoleStatus
from scaler.kubernetes.kinds.scaleplan import ScalePlan

#: Lists of these types have one entry per key.
_KEYS: Mapping[type, str] = {
    ElasticJobCondition: "type",
    RoleStatus: "name",
    GroupStatus: "name",
}
_PLAIN: Mapping[Any, Mapping[str, Any]] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    float: {"type": "number"},
    datetime: {"type": "string", "format": "date-time"},
}

SCALE = {
    "specReplicasPath": ".spec.replicaSpecs.worker.replicas",
    "statusReplicasPath": ".status.replicas",
    "labelSelectorPath": ".status.selector",
}


def definition(kind: type[ElasticJob] | type[ScalePlan]) -> dict[str, Any]:
    name, plural = kind.__name__, kind.PLURAL
    subresources: dict[str, Any] = {"status": {}}
    if kind is ElasticJob:
        subresources["scale"] = dict(SCALE)
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.{GROUP}",
            "annotations": {"helm.sh/resource-policy": "keep"},
        },
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": name,
                "listKind": f"{name}List",
                "plural": plural,
                "singular": name.lower(),
                "shortNames": list(kind.SHORT_NAMES),
                "categories": ["brain"],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": _root(kind)},
                    "subresources": subresources,
                    "selectableFields": [{"jsonPath": path} for path in kind.SELECTABLE],
                    "additionalPrinterColumns": [_column(each) for each in kind.COLUMNS],
                }
            ],
        },
    }


def _root(kind: type[ElasticJob] | type[ScalePlan]) -> dict[str, Any]:
    hints = get_type_hints(kind, include_extras=True)
    root: dict[str, Any] = {
        "type": "object",
        "description": summary(kind),
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": schema(hints["spec"]),
            "status": _without_defaults(schema(hints["status"])),
        },
    }
    return root | _rules(getattr(kind, "RULES", ()))


def schema(kind: Any) -> dict[str, Any]:
    """Return the structural schema of a field's type."""
    if get_origin(kind) is Annotated:
        inner, *metas = get_args(kind)
        given = next((meta.extra_json_schema for meta in metas if meta.extra_json_schema), None)
        found = dict(given) if given else schema(inner)
        for meta in metas:
            found |= _bounds(meta, found.get("type", ""))
        return found
    if get_origin(kind) in (Union, UnionType):
        (inner,) = (each for each in get_args(kind) if each is not type(None))
        return schema(inner)
    if get_origin(kind) is tuple:
        return _list(get_args(kind)[0])
    if len(get_args(kind)) == 2:
        return {"type": "object", "additionalProperties": schema(get_args(kind)[1])}
    if issubclass(kind, msgspec.Struct):
        return _object(kind)
    if issubclass(kind, StrEnum):
        return {"type": "string", "enum": [str(word) for word in kind]}
    return {"type": "integer", "format": "int32"} if kind is int else dict(_PLAIN[kind])


def _object(kind: type[msgspec.Struct]) -> dict[str, Any]:
    hints, texts = get_type_hints(kind, include_extras=True), field_texts(kind)
    properties, required = {}, []
    for field in msgspec.structs.fields(kind):
        found = schema(hints[field.name])
        if field.name in texts:
            found = {"description": texts[field.name]} | found
        if isinstance(field.default, bool | int | str) and field.default != "":
            found["default"] = (
                str(field.default) if isinstance(field.default, str) else field.default
            )
        elif field.required:
            required.append(field.encode_name)
        properties[field.encode_name] = found
    result: dict[str, Any] = {"type": "object", "description": summary(kind)}
    if required:
        result["required"] = required
    return result | {"properties": properties} | _rules(getattr(kind, "RULES", ()))


def _list(kind: Any) -> dict[str, Any]:
    key = _KEYS.get(kind)
    found: dict[str, Any] = {"type": "array", "items": schema(kind)}
    if key:
        found |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]}
    return found


def _bounds(meta: msgspec.Meta, type: str) -> dict[str, Any]:
    sizes = {
        "string": ("minLength", "maxLength"),
        "array": ("minItems", "maxItems"),
        "object": ("minProperties", "maxProperties"),
    }
    least, most = sizes.get(type, ("", ""))
    told = {
        "minimum": meta.ge if meta.gt is None else meta.gt,
        "exclusiveMinimum": True if meta.gt is not None else None,
        "maximum": meta.le,
        "pattern": meta.pattern,
        "format": (meta.extra or {}).get("format"),
        least: meta.min_length,
        most: meta.max_length,
    }
    return {name: value for name, value in told.items() if value is not None}


def _rules(rules: tuple[Rule, ...]) -> dict[str, Any]:
    told = [{"rule": rule.cel, "message": rule.message} for rule in rules]
    return {"x-kubernetes-validations": told} if told else {}


def _column(column: PrinterColumn) -> dict[str, Any]:
    found = {"name": column.name, "type": column.type, "jsonPath": column.path}
    return found | ({"priority": 1} if column.wide else {})


def _without_defaults(found: Any) -> Any:
    """Remove defaults: a status holds only values that a controller wrote."""
    if isinstance(found, Mapping):
        return {
            key: _without_defaults(value)
            for key, value in found.items()
            if key != "default" or isinstance(value, Mapping)
        }
    return found
