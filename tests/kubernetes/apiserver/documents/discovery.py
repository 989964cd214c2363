"""Which groups, versions and resources are served."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from tests.kubernetes.apiserver.core.kinds import Json, Kind, Kinds
from tests.kubernetes.apiserver.documents.openapi import OpenApi
from tests.kubernetes.apiserver.objects.errors import UnknownPath

_AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


@dataclass(frozen=True, slots=True)
class Told:
    """A document."""

    body: bytes
    headers: Mapping[str, str]


def _told(document: Any, media: str = "application/json") -> Told:
    return Told(msgspec.json.encode(document), {"Content-Type": media})


class Discovery:
    """Answers what is not about objects."""

    def __init__(self, kinds: Kinds) -> None:
        self._kinds = kinds
        self._openapi = OpenApi(kinds)

    def answer(self, path: str, accept: str) -> Told | None:
        """Return the document at ``path``; None: it is about objects."""
        path = path.rstrip("/") or "/"
        aggregated = "apidiscovery.k8s.io" in accept and "v=v2;" in accept.replace(" ", "")
        match path:
            case "/livez" | "/readyz" | "/healthz":
                return Told(b"ok", {"Content-Type": "text/plain"})
            case "/version":
                return _told(_VERSION)
            case "/api":
                if aggregated:
                    return _told(self._aggregated(core=True), _AGGREGATED)
                return _told({"kind": "APIVersions", "versions": ["v1"]})
            case "/apis":
                if aggregated:
                    return _told(self._aggregated(core=False), _AGGREGATED)
                return _told(self._groups())
            case _:
                return self._deeper(path)

    def _deeper(self, path: str) -> Told | None:
        parts = path.strip("/").split("/")
        if parts[0] == "openapi":
            document = self._openapi.document(path)
            if document is None:
                raise UnknownPath(path)
            return _told(document)
        if parts[0] == "api" and len(parts) == 2:
            return _told(self._resources("", parts[1]))
        if parts[0] == "apis" and len(parts) == 2:
            return _told({"kind": "APIGroup", "apiVersion": "v1", **self._group(parts[1])})
        if parts[0] == "apis" and len(parts) == 3:
            return _told(self._resources(parts[1], parts[2]))
        return None

    def _versions(self, group: str) -> list[str]:
        return list(dict.fromkeys(k.version for k in self._kinds.all() if k.group == group))

    def _group(self, group: str) -> Json:
        versions = [
            {"groupVersion": f"{group}/{version}", "version": version}
            for version in self._versions(group)
        ]
        if not versions:
            raise UnknownPath(group)
        return {"name": group, "versions": versions, "preferredVersion": versions[0]}

    def _groups(self) -> Json:
        names = dict.fromkeys(kind.group for kind in self._kinds.all() if kind.group)
        groups = [self._group(name) for name in names]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}

    def _resources(self, group: str, version: str) -> Json:
        kinds = [k for k in self._kinds.all() if (k.group, k.version) == (group, version)]
        if not kinds:
            raise UnknownPath(group)
        return {
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": f"{group}/{version}" if group else version,
            "resources": [entry for kind in kinds for entry in _entries(kind)],
        }

    def _aggregated(self, *, core: bool) -> Json:
        groups = dict.fromkeys(k.group for k in self._kinds.all() if (not k.group) is core)
        return {
            "kind": "APIGroupDiscoveryList",
            "apiVersion": "apidiscovery.k8s.io/v2",
            "metadata": {},
            "items": [
                {
                    "metadata": {"name": group} if group else {"creationTimestamp": None},
                    "versions": [
                        {
                            "version": version,
                            "freshness": "Current",
                            "resources": [
                                _aggregated(kind)
                                for kind in self._kinds.all()
                                if (kind.group, kind.version) == (group, version)
                            ],
                        }
                        for version in self._versions(group)
                    ],
                }
                for group in groups
            ],
        }


def _door_verbs(door: str) -> list[str]:
    if door in ("status", "scale", "resize"):
        return ["get", "patch", "update"]
    return ["get"] if door == "log" else ["update"] if door == "finalize" else ["create"]


def _doors(kind: Kind) -> list[tuple[str, str, str, str]]:
    """Return (name, kind, group, version) of a kind's subresources."""
    found = []
    if kind.has_status:
        found.append(("status", kind.kind, kind.group, kind.version))
    if kind.scale:
        found.append(("scale", "Scale", "autoscaling", "v1"))
    return found + [(name, *what) for name, what in kind.doors.items()]


def _entries(kind: Kind) -> list[Json]:
    first: Json = {
        "name": kind.plural,
        "singularName": kind.singular,
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": list(kind.verbs),
    }
    if kind.short_names:
        first["shortNames"] = list(kind.short_names)
    if kind.categories:
        first["categories"] = list(kind.categories)
    if "get" in kind.verbs:
        first["storageVersionHash"] = kind.storage_hash
    entries = [first]
    for name, of, group, version in _doors(kind):
        entry: Json = {
            "name": f"{kind.plural}/{name}",
            "singularName": "",
            "namespaced": kind.namespaced,
            "kind": of,
            "verbs": _door_verbs(name),
        }
        if (group, version) != (kind.group, kind.version):
            entry |= {"group": group, "version": version}
        entries.append(entry)
    return entries


def _aggregated(kind: Kind) -> Json:
    scope = "Namespaced" if kind.namespaced else "Cluster"
    result: Json = {
        "resource": kind.plural,
        "responseKind": {"group": kind.group, "version": kind.version, "kind": kind.kind},
        "scope": scope,
        "singularResource": kind.singular,
        "verbs": list(kind.verbs),
    }
    if kind.short_names:
        result["shortNames"] = list(kind.short_names)
    if kind.categories:
        result["categories"] = list(kind.categories)
    if doors := _doors(kind):
        result["subresources"] = [
            {
                "subresource": name,
                "responseKind": {"group": group, "version": version, "kind": of},
                "verbs": _door_verbs(name),
            }
            for name, of, group, version in doors
        ]
    return result


_VERSION = {
    "major": "1",
    "minor": "36",
    "gitVersion": "v1.36.2",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "2026-06-18T00:00:00Z",
    "goVersion": "go1.26.0",
    "compiler": "gc",
    "platform": "linux/amd64",
}
