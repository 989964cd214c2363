"""From a path to what lives there."""

from dataclasses import dataclass

from tests.kubernetes.apiserver.core.kinds import Kind, Kinds
from tests.kubernetes.apiserver.objects.errors import UnknownPath


@dataclass(frozen=True, slots=True)
class Target:
    """What a request is about. Without a name: the collection."""

    kind: Kind
    namespace: str = ""
    name: str = ""
    #: The subresource.
    door: str = ""


@dataclass(frozen=True, slots=True)
class Version:
    """A group's version, for discovery."""

    group: str
    version: str


def routed(path: str, kinds: Kinds) -> Target | Version:
    """Return what ``/api/…`` or ``/apis/…`` names; raises ``UnknownPath``."""
    parts = path.strip("/").split("/")
    if parts[0] == "api" and len(parts) >= 2:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) >= 3:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        raise UnknownPath(path)
    if not rest:
        return Version(group, version)
    namespace = ""
    if rest[0] == "namespaces" and len(rest) >= 3 and rest[2] not in ("status", "finalize"):
        namespace, rest = rest[1], rest[2:]
    kind = kinds.find(group, version, rest[0])
    if kind is None or len(rest) > 3:
        raise UnknownPath(path)
    if kind.namespaced and len(rest) > 1 and not namespace:
        raise UnknownPath(path)
    name = rest[1] if len(rest) > 1 else ""
    door = rest[2] if len(rest) > 2 else ""
    known = {
        *kind.doors,
        *(["status"] if kind.has_status else []),
        *(["scale"] if kind.scale else []),
    }
    if door and door not in known:
        raise UnknownPath(path)
    return Target(kind, namespace, name, door)
