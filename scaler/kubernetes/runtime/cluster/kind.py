"""Kinds of objects, and their paths at the API server."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import quote

#: An object as the API server returns it. Objects from a store are shared: never change one.
Object = Mapping[str, Any]


class Key(NamedTuple):
    """Names one object of a kind."""

    #: Empty for kinds without namespaces.
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind at one version: ``Kind("apps", "v1", "deployments", "Deployment")``."""

    #: Empty for the core group.
    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """Return the API version in the form that objects have: ``v1``, ``apps/v1``."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def root(self) -> str:
        """Return the path of the group's version, at which discovery lists its kinds."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    def path(self, namespace: str = "", name: str = "", sub: str = "") -> str:
        """Return the path of a list of objects, of one object or of a part of it.

        >>> POD.path("team", "a-0", "status")
        '/api/v1/namespaces/team/pods/a-0/status'
        """
        parts = [self.root]
        if namespace and self.namespaced:
            parts.append(f"namespaces/{quote(namespace, safe='')}")
        parts.append(self.plural)
        parts.extend(quote(part, safe="") for part in (name, sub) if part)
        return "/".join(parts)

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural


NAMESPACE = Kind("", "v1", "namespaces", "Namespace", namespaced=False)
NODE = Kind("", "v1", "nodes", "Node", namespaced=False)
POD = Kind("", "v1", "pods", "Pod")
SERVICE = Kind("", "v1", "services", "Service")
SECRET = Kind("", "v1", "secrets", "Secret")
CONFIG_MAP = Kind("", "v1", "configmaps", "ConfigMap")
EVENT = Kind("", "v1", "events", "Event")
LEASE = Kind("coordination.k8s.io", "v1", "leases", "Lease")
QUOTA = Kind("", "v1", "resourcequotas", "ResourceQuota")
LIMIT_RANGE = Kind("", "v1", "limitranges", "LimitRange")
HPA = Kind("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler")
VPA = Kind("autoscaling.k8s.io", "v1", "verticalpodautoscalers", "VerticalPodAutoscaler")


def key_of(obj: Object) -> Key:
    metadata = obj["metadata"]
    return Key(metadata.get("namespace", ""), metadata["name"])


def version_of(obj: Object) -> str:
    """Return the object's resourceVersion, empty if it has none."""
    return str(obj["metadata"].get("resourceVersion", ""))


def controller_of(obj: Object, kind: Kind) -> Key | None:
    """Return the object of ``kind`` that controls this one by its owner references, if any."""
    for reference in obj["metadata"].get("ownerReferences") or ():
        group = str(reference.get("apiVersion", "")).rpartition("/")[0]
        same = (group, reference.get("kind")) == (kind.group, kind.kind)
        if same and reference.get("controller"):
            return Key(obj["metadata"].get("namespace", ""), reference["name"])
    return None
