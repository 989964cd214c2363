"""What the server serves: each kind with its doors, its schema and its ways."""

import base64
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from tests.kubernetes.apiserver.objects.shape import Shape

Json = dict[str, Any]

ALL_VERBS = ("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch")
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"


@dataclass(frozen=True, slots=True)
class Column:
    """One column of ``kubectl get``."""

    name: str
    type: str = "string"
    path: str = ""
    description: str = ""
    priority: int = 0
    format: str = ""
    #: Computes the cell where a path does not say enough.
    cell: Callable[[Json], Any] | None = None


@dataclass(frozen=True)
class Kind:
    """One resource in one version."""

    group: str
    version: str
    plural: str
    kind: str
    singular: str = ""
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    #: The OpenAPI schema; for built-in kinds as much as merging and checking need.
    schema: Json = field(default_factory=dict)
    custom: bool = False
    has_status: bool = False
    #: ``{"specReplicasPath": …}``, or None.
    scale: Mapping[str, str] | None = None
    counts_generation: bool = False
    #: What a field selector may name -> its path.
    fields: Mapping[str, str] = field(default_factory=dict)
    columns: tuple[Column, ...] = ()
    #: Further subresources, by name -> (kind, its group, its version).
    doors: Mapping[str, tuple[str, str, str]] = field(default_factory=dict)
    verbs: tuple[str, ...] = ALL_VERBS
    #: A PUT creates what is not there.
    put_creates: bool = False
    #: A DELETE answers with the object even where it is gone.
    returns_deleted: bool = False
    #: The resource whose objects these are under other names of fields, own name -> its name.
    twin: tuple[str, str] | None = None
    renames: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def api_version(self) -> str:
        """``group/version``, or ``v1``."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @cached_property
    def resource(self) -> tuple[str, str]:
        """What stores and watches are told apart by: all versions of a kind are one."""
        return self.twin or (self.group, self.plural)

    def stored(self, obj: Mapping[str, Any]) -> Json:
        """Return ``obj`` with the names of fields under which it is kept."""
        return {self.renames.get(key, key): value for key, value in obj.items()}

    def shown(self, obj: Mapping[str, Any]) -> Json:
        """Return a kept object as this version of its kind shows it."""
        back = {kept: own for own, kept in self.renames.items()}
        named = {back.get(key, key): value for key, value in obj.items()}
        told = {"kind": self.kind, "apiVersion": self.api_version}
        return {**told, **named, **told}

    @cached_property
    def shape(self) -> Shape:
        """How its objects merge."""
        return Shape(self.schema)

    @cached_property
    def selectable(self) -> Mapping[str, str]:
        """What a field selector may name."""
        common = {"metadata.name": "metadata.name"}
        if self.namespaced:
            common["metadata.namespace"] = "metadata.namespace"
        return {**common, **self.fields}

    @cached_property
    def patches(self) -> tuple[str, ...]:
        """The media types of patches that it takes."""
        if self.custom:
            return (JSON_PATCH, MERGE, APPLY)
        return (JSON_PATCH, MERGE, STRATEGIC, APPLY)

    @cached_property
    def storage_hash(self) -> str:
        """The hash that discovery tells."""
        text = f"{self.group}/{self.version}/{self.kind}"
        return base64.b64encode(hashlib.sha256(text.encode()).digest()[:8]).decode()


def from_definition(definition: Mapping[str, Any]) -> list[Kind]:
    """Return the served versions of a CustomResourceDefinition."""
    spec = definition["spec"]
    names = spec["names"]
    return [
        Kind(
            group=spec["group"],
            version=version["name"],
            plural=names["plural"],
            kind=names["kind"],
            singular=names.get("singular") or names["kind"].lower(),
            namespaced=spec["scope"] == "Namespaced",
            short_names=tuple(names.get("shortNames") or ()),
            categories=tuple(names.get("categories") or ()),
            schema=_object_schema((version.get("schema") or {}).get("openAPIV3Schema") or {}),
            custom=True,
            has_status="status" in (version.get("subresources") or {}),
            scale=(version.get("subresources") or {}).get("scale"),
            counts_generation=True,
            fields={
                one["jsonPath"].lstrip("."): one["jsonPath"].lstrip(".")
                for one in version.get("selectableFields") or ()
            },
            columns=tuple(
                Column(
                    name=column["name"],
                    type=column["type"],
                    path=column["jsonPath"],
                    description=column.get("description")
                    or "Custom resource definition column (in JSONPath format): "
                    + column["jsonPath"],
                    priority=column.get("priority", 0),
                    format=column.get("format", ""),
                )
                for column in version.get("additionalPrinterColumns") or (_AGE,)
            ),
        )
        for version in spec["versions"]
        if version["served"]
    ]


_AGE = {
    "name": "Age",
    "type": "date",
    "jsonPath": ".metadata.creationTimestamp",
    "description": "CreationTimestamp is a timestamp representing the server time when this "
    "object was created.",
}

#: How the lists of every object's metadata merge.
METADATA: Json = {
    "type": "object",
    "x-always-there": True,
    "x-kubernetes-preserve-unknown-fields": True,
    "properties": {
        "finalizers": {
            "type": "array",
            "x-kubernetes-list-type": "set",
            "items": {"type": "string"},
        },
        "ownerReferences": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["uid"],
            "items": {
                "type": "object",
                "x-kubernetes-map-type": "atomic",
                "x-kubernetes-preserve-unknown-fields": True,
            },
        },
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "annotations": {"type": "object", "additionalProperties": {"type": "string"}},
    },
}


def _object_schema(schema: Json) -> Json:
    """Return a kind's schema with what every object has."""
    properties = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        **(schema.get("properties") or {}),
        "metadata": METADATA,
    }
    return {**schema, "type": "object", "properties": properties}


class Kinds:
    """The table of what is served, by group, version and plural."""

    def __init__(self) -> None:
        self._kinds: dict[tuple[str, str, str], Kind] = {}
        #: Counts changes, so that answers made from the table can be kept.
        self.revision = 0

    def add(self, kind: Kind) -> None:
        """Serve ``kind``, in place of an older one of the same name."""
        self._kinds[kind.group, kind.version, kind.plural] = kind
        self.revision += 1

    def remove(self, group: str, plural: str) -> None:
        """Serve it no more."""
        for key in [key for key in self._kinds if key[0] == group and key[2] == plural]:
            del self._kinds[key]
        self.revision += 1

    def find(self, group: str, version: str, plural: str) -> Kind | None:
        """Return what lives at a path."""
        return self._kinds.get((group, version, plural))

    def of_kind(self, api_version: str, kind: str) -> Kind | None:
        """Return what an object's ``apiVersion`` and ``kind`` name."""
        for known in self._kinds.values():
            if known.kind == kind and known.api_version == api_version:
                return known
        return None

    def all(self) -> list[Kind]:
        """Return everything that is served."""
        return list(self._kinds.values())
