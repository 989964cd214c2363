"""The ``resize`` subresource of pods: what it takes, what it refuses, as 1.36 was recorded."""

from collections.abc import Iterator, Mapping
from typing import Any

from tests.kubernetes.apiserver.core import pods, quota
from tests.kubernetes.apiserver.core.kinds import Json
from tests.kubernetes.apiserver.core.store import Store
from tests.kubernetes.apiserver.objects.errors import Cause, disallowed
from tests.kubernetes.apiserver.objects.quantities import parsed

_GROUPS = ("containers", "initContainers")
_MUTABLE = ("cpu", "memory")
#: What a node must declare before init containers that end may be resized.
_INIT = "InPlacePodVerticalScalingInitContainers"


def narrowed(old: Json, new: Mapping[str, Any]) -> Json:
    """Return ``old`` with what this subresource takes of ``new``: amounts, and ways to resize."""
    spec, asked = dict(old["spec"]), new.get("spec") or {}
    told = new.get("metadata") or {}
    made = {name: told[name] for name in ("resourceVersion", "uid") if name in told}
    metadata = {**old["metadata"], **made}
    for group in _GROUPS:
        before, after = spec.get(group) or [], asked.get(group) or []
        if [one["name"] for one in before] != [one.get("name") for one in after]:
            # That is refused, and by its own words.
            return {**old, "metadata": metadata, "spec": {**spec, group: after}}
        if before:
            spec[group] = [_taken(*pair) for pair in zip(before, after, strict=True)]
    return {**old, "metadata": metadata, "spec": spec}


def _taken(old: Json, new: Mapping[str, Any]) -> Json:
    kept = {name: value for name, value in old.items() if name not in ("resources", "resizePolicy")}
    return kept | {name: new[name] for name in ("resources", "resizePolicy") if name in new}


def causes(old: Json, new: Json) -> Iterator[Cause]:
    """Yield what a resize may not do to a pod."""
    yield from pods.causes(new)
    if pods.quality(new["spec"]) != old["status"]["qosClass"]:
        message = (
            f'Invalid value: "{old["status"]["qosClass"]}": Pod QOS Class may not change as a '
            "result of resizing"
        )
        yield Cause("FieldValueInvalid", message, "spec")
    if not _supported(old):
        message = "Forbidden: Pod running on node without support for resize"
        yield Cause("FieldValueForbidden", message, "spec")
    if others := [cause for group in _GROUPS for cause in _renamed(old, new, group)]:
        yield from others
        return
    for group in reversed(_GROUPS):
        for i, (before, after) in enumerate(_pairs(old, new, group)):
            yield from _removed(before, after, f"spec.{group}[{i}].resources")
    if any(_without(one) != _without(other) for one, other in _pairs(old, new, "containers")):
        message = "Forbidden: only cpu and memory resources are mutable"
        yield Cause("FieldValueForbidden", message, "spec")
    for i, (before, after) in enumerate(_pairs(old, new, "initContainers")):
        if _without(before) != _without(after):
            message = (
                "Forbidden: only cpu and memory resources for init or sidecar containers are "
                "mutable"
            )
            yield Cause("FieldValueForbidden", message, f"spec.initContainers[{i}]")


def _supported(pod: Json) -> bool:
    """Whether the pod's kubelet says what it reserves, if anything runs."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    running = [one for one in statuses if (one.get("state") or {}).get("running")]
    return not running or running[0].get("resources") is not None


def _renamed(old: Json, new: Json, group: str) -> Iterator[Cause]:
    before, after = (pod["spec"].get(group) or () for pod in (old, new))
    if len(before) != len(after):
        message = f"Forbidden: {group} may not be added or removed on resize"
        yield Cause("FieldValueForbidden", message, f"spec.{group}")
        return
    for i, (one, other) in enumerate(zip(before, after, strict=True)):
        if one["name"] != other.get("name"):
            message = f"Forbidden: {group} may not be renamed or reordered on resize"
            yield Cause("FieldValueForbidden", message, f"spec.{group}[{i}].name")


def check(store: Store, old: Json, new: Json) -> None:
    """Refuse what the pod's node could never hold, or cannot do."""
    name, where = new["metadata"]["name"], new["spec"].get("nodeName")
    if not where or old["spec"] == new["spec"]:
        return
    node = store.find(("", "nodes"), ("", where))
    if node is None:
        raise disallowed("pods", name, f'node "{where}" not found')
    status = node.obj.get("status") or {}
    if _INIT not in (status.get("declaredFeatures") or ()) and _resizes_init(old, new):
        told = f'pod update requires features {_INIT} which are not available on node "{where}"'
        raise disallowed("pods", name, told)
    if told := "; ".join(_beyond(new, status.get("allocatable") or {})):
        words = f"node didn't have enough allocatable resources: {told}"
        raise disallowed("pods", name, words, [{"reason": "NodeCapacity"}])


def _resizes_init(old: Json, new: Json) -> bool:
    return any(
        before.get("restartPolicy") != "Always" and before["resources"] != after["resources"]
        for before, after in _pairs(old, new, "initContainers")
    )


def _beyond(pod: Json, allocatable: Mapping[str, str]) -> Iterator[str]:
    for name, unit in (("cpu", 1000), ("memory", 1)):
        asked = quota.asked(pod).get(f"requests.{name}", 0) * unit
        most = parsed(allocatable.get(name, "0")) * unit
        if asked > most:
            yield f"{name}, requested: {int(asked)}, allocatable: {int(most)}"


def lowered(old: Json, new: Json) -> Iterator[Cause]:
    """Yield what 1.33 refuses beside that: less of a memory limit, unless a restart is allowed."""
    for i, pair in enumerate(_pairs(old, new, "containers")):
        before, after = (((one.get("resources") or {}).get("limits") or {}) for one in pair)
        policies = [
            each for each in pair[1].get("resizePolicy") or () if _restarts_for_memory(each)
        ]
        less = parsed(after.get("memory", "0")) < parsed(before.get("memory", "0"))
        if less and not policies:
            message = (
                "Forbidden: memory limits cannot be decreased unless resizePolicy is "
                "RestartContainer"
            )
            yield Cause("FieldValueForbidden", message, f"spec.containers[{i}].resources.limits")


def _restarts_for_memory(policy: Mapping[str, str]) -> bool:
    return (policy.get("resourceName"), policy.get("restartPolicy")) == (
        "memory",
        "RestartContainer",
    )


def _pairs(old: Json, new: Json, group: str) -> Iterator[tuple[Json, Json]]:
    yield from zip(old["spec"].get(group) or (), new["spec"].get(group) or (), strict=True)


def _removed(old: Json, new: Json, where: str) -> Iterator[Cause]:
    for part in ("requests", "limits"):
        before, after = ((one.get("resources") or {}).get(part) or {} for one in (old, new))
        if any(name in before and name not in after for name in _MUTABLE):
            message = f"Forbidden: resource {part} cannot be removed"
            yield Cause("FieldValueForbidden", message, f"{where}.{part}")


def _without(container: Json) -> Json:
    """Return a container without its amounts of CPU and memory."""
    resources = container.get("resources") or {}
    kept = {
        part: {name: value for name, value in amounts.items() if name not in _MUTABLE}
        for part, amounts in resources.items()
        if part in ("requests", "limits")
    }
    rest = {part: each for part, each in kept.items() if each}
    return {**container, "resources": rest, "claims": resources.get("claims")}
