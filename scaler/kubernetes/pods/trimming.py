"""Trims pods for stores: Brain's pods stay complete, other pods keep only the fields that affect
capacity.

This saves memory, because most pods of a cluster are not Brain's.
"""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from scaler.kubernetes.pods import identity
from scaler.kubernetes.runtime.cluster.kind import Object

_METADATA = (
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "labels",
    "deletionTimestamp",
)
#: Fields by which kube-scheduler counts the resources that a pod takes from its node.
_SPEC = ("hostNetwork", "overhead", "resources", "schedulingGates")
_CONTAINER = ("resources", "restartPolicy")
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def trimmed(pod: Object) -> Object:
    """Return a pod in the form that stores keep.

    A pod that is not Brain's loses the fields that the operator does not read.
    """
    metadata: Mapping[str, Any] = pod["metadata"]
    if _ours(metadata):
        kept = {name: value for name, value in metadata.items() if name != "managedFields"}
        return {**pod, "metadata": kept}
    spec: Mapping[str, Any] = pod.get("spec") or {}
    containers = {
        name: [_container(each) for each in spec[name]]
        for name in ("containers", "initContainers")
        if spec.get(name)
    }
    kept = {name: metadata[name] for name in _METADATA if name in metadata}
    kept["namespace"] = sys.intern(str(kept.get("namespace", "")))
    kept["labels"] = _shared(kept.get("labels") or {})
    needs = {name: spec[name] for name in _SPEC if name in spec} | containers
    return {
        "metadata": kept,
        "spec": {name: sys.intern(spec[name]) for name in ("nodeName",) if spec.get(name)}
        | _shared(needs | _anti_affinity(spec)),
        "status": _shared({"phase": (pod.get("status") or {}).get("phase", "")}),
    }


#: Equal parts of pods are kept once: the pods of a controller differ only in their names.
_PARTS: dict[bytes, Any] = {}
_MOST_PARTS = 4096


def _shared(part: dict[str, Any]) -> dict[str, Any]:
    """Return the shared copy of a part that other pods have, too; callers must not change it."""
    key = msgspec.json.encode(part)
    if len(_PARTS) >= _MOST_PARTS:
        _PARTS.clear()
    found: dict[str, Any] = _PARTS.setdefault(key, part)
    return found


def _ours(metadata: Mapping[str, Any]) -> bool:
    """True if a pod is Brain's or DLRover's, whose end is read, too."""
    labels: Mapping[str, str] = metadata.get("labels") or {}
    named = identity.NAME in labels or identity.TYPE in labels
    return named or labels.get(identity.MANAGED_BY) == identity.MANAGER


def _container(container: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: container[name] for name in _CONTAINER if name in container}
    ports: Sequence[Mapping[str, Any]] = container.get("ports") or ()
    return kept | ({"ports": ports} if ports else {})


def _anti_affinity(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return a pod's anti-affinity; its affinity matters to its own placement alone."""
    anti = ((spec.get("affinity") or {}).get("podAntiAffinity") or {}).get(_REQUIRED)
    return {"affinity": {"podAntiAffinity": {_REQUIRED: anti}}} if anti else {}
