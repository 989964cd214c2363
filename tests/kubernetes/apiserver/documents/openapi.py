"""OpenAPI v3 and v2 of what is installed: what ``kubectl explain`` and ``kubectl apply`` read."""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

from tests.kubernetes.apiserver.core.kinds import APPLY, Json, Kind, Kinds

_METADATA: Json = {
    "description": "ObjectMeta is metadata that all persisted resources must have, which includes "
    "all objects users must create.",
    "type": "object",
    "properties": {
        "name": {"type": "string", "description": "Name must be unique within a namespace."},
        "namespace": {"type": "string"},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "annotations": {"type": "object", "additionalProperties": {"type": "string"}},
        "finalizers": {"type": "array", "items": {"type": "string"}},
        "generateName": {"type": "string"},
        "generation": {"type": "integer", "format": "int64"},
        "resourceVersion": {"type": "string"},
        "uid": {"type": "string"},
        "creationTimestamp": {"type": "string", "format": "date-time"},
        "deletionTimestamp": {"type": "string", "format": "date-time"},
        "ownerReferences": {"type": "array", "items": {"type": "object"}},
        "managedFields": {"type": "array", "items": {"type": "object"}},
    },
}
_META_NAME = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_COMMON: Json = {
    "apiVersion": {
        "type": "string",
        "description": "APIVersion defines the versioned schema of this representation of an "
        "object.",
    },
    "kind": {
        "type": "string",
        "description": "Kind is a string value representing the REST resource this object "
        "represents.",
    },
}


def _gvk(kind: Kind) -> Json:
    return {"group": kind.group, "version": kind.version, "kind": kind.kind}


def _name(kind: Kind) -> str:
    """Return the name of a kind's schema: the group backwards, version, kind."""
    backwards = ".".join(reversed(kind.group.split("."))) if kind.group else "io.k8s.api.core"
    return f"{backwards}.{kind.version}.{kind.kind}"


def _visible(schema: Any) -> Any:
    """Return a schema without what only this emulator knows."""
    if isinstance(schema, Mapping):
        return {k: _visible(v) for k, v in schema.items() if k != "x-always-there"}
    return [_visible(one) for one in schema] if isinstance(schema, list) else schema


def _schema(kind: Kind, prefix: str) -> Json:
    shown: Json = _visible(kind.schema)
    properties = {
        **(shown.get("properties") or {}),
        **_COMMON,
        "metadata": {
            "allOf": [{"$ref": f"{prefix}{_META_NAME}"}],
            "description": "Standard object's metadata.",
        },
    }
    return {
        **shown,
        "type": "object",
        "properties": properties,
        "x-kubernetes-group-version-kind": [_gvk(kind)],
    }


def _base(kind: Kind) -> str:
    root = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    return f"{root}/namespaces/{{namespace}}" if kind.namespaced else root


_VALIDATION = {"name": "fieldValidation", "in": "query"}
_DRY_RUN = {"name": "dryRun", "in": "query"}


def _operation(kind: Kind, action: str, parameters: list[Json]) -> Json:
    return {
        "operationId": f"{action}{kind.kind}",
        "parameters": parameters,
        "responses": {"200": {"description": "OK"}},
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": _gvk(kind),
    }


def _paths(kinds: Iterable[Kind], *, v3: bool) -> Json:
    typed: Json = {"schema": {"type": "string"}} if v3 else {"type": "string"}
    write = [{**name, **typed} for name in (_VALIDATION, _DRY_RUN)]
    paths: Json = {}
    for kind in kinds:
        if "get" not in kind.verbs:
            continue
        collection = f"{_base(kind)}/{kind.plural}"
        patch = _operation(kind, "patch", write)
        if v3:
            patch["requestBody"] = {"content": {media: {} for media in (*kind.patches, APPLY)}}
        paths[collection] = {
            "get": _operation(kind, "list", []),
            "post": _operation(kind, "post", write),
        }
        paths[f"{collection}/{{name}}"] = {
            "get": _operation(kind, "get", []),
            "put": _operation(kind, "put", write),
            "patch": patch,
        }
    return paths


class OpenApi:
    """Makes the documents of what is served, anew when that changes."""

    def __init__(self, kinds: Kinds) -> None:
        self._kinds = kinds
        self._made: dict[tuple[str, int], Json] = {}

    def document(self, path: str) -> Json | None:
        """Return the document at ``/openapi/…``; None: there is none."""
        key = (path, self._kinds.revision)
        if key not in self._made:
            document = self._make(path)
            if document is None:
                return None
            self._made[key] = document
        return self._made[key]

    def _make(self, path: str) -> Json | None:
        if path == "/openapi/v2":
            return self._v2()
        if path == "/openapi/v3":
            return {"paths": {group: self._link(group) for group in self._versions()}}
        kinds = self._versions().get(path.removeprefix("/openapi/v3/"))
        return self._v3(kinds) if kinds else None

    def _versions(self) -> dict[str, list[Kind]]:
        found: dict[str, list[Kind]] = {}
        for kind in self._kinds.all():
            where = f"apis/{kind.group}/{kind.version}" if kind.group else f"api/{kind.version}"
            found.setdefault(where, []).append(kind)
        return found

    def _link(self, where: str) -> Json:
        stamp = hashlib.sha256(f"{where} {self._kinds.revision}".encode()).hexdigest()[:16].upper()
        return {"serverRelativeURL": f"/openapi/v3/{where}?hash={stamp}"}

    def _v3(self, kinds: list[Kind]) -> Json:
        prefix = "#/components/schemas/"
        schemas = {_name(kind): _schema(kind, prefix) for kind in kinds}
        return {
            "openapi": "3.0.0",
            "info": {"title": "Kubernetes", "version": "v1.36.2"},
            "paths": _paths(kinds, v3=True),
            "components": {"schemas": {**schemas, _META_NAME: _METADATA}},
        }

    def _v2(self) -> Json:
        kinds = self._kinds.all()
        schemas = {_name(kind): _schema(kind, "#/definitions/") for kind in kinds}
        return {
            "swagger": "2.0",
            "info": {"title": "Kubernetes", "version": "v1.36.2"},
            "paths": _paths(kinds, v3=False),
            "definitions": {**schemas, _META_NAME: _METADATA},
        }
