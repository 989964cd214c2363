"""The ``resize`` subresource of pods (on by default from 1.33): what it takes, what it refuses.

Words and rules are those of 1.36 as its source and its end-to-end tests have them; they were not
recorded here.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from tests.kubernetes.apiserver.core import pods
from tests.kubernetes.apiserver.core.kinds import Json
from tests.kubernetes.apiserver.objects.errors import Cause
from tests.kubernetes.apiserver.objects.quantities import parsed

_GROUPS = ("containers", "initContainers")
_MUTABLE = ("cpu", "memory")


def narrowed(old: Json, new: Mapping[str, Any]) -> Json:
    """Return ``old`` with what this subresource takes of ``new``: amounts, and ways to resize."""
    spec, asked = dict(old["spec"]), new.get("spec") or {}
    for group in _GROUPS:
        before, after = spec.get(group) or [], asked.get(group) or []
        if [one["name"] for one in before] != [one.get("name") for one in after]:
            # That is refused, and by its own words.
            return {**old, "spec": {**spec, group: after}}
        if before:
            spec[group] = [_taken(*pair) for pair in zip(before, after, strict=True)]
    return {**old, "spec": spec}


def _taken(old: Json, new: Mapping[str, Any]) -> Json:
    kept = {name: value for name, value in old.items() if name not in ("resources", "resizePolicy")}
    return kept | {name: new[name] for name in ("resources", "resizePolicy") if name in new}


def causes(old: Json, new: Json) -> Iterator[Cause]:
    """Yield what a resize may not do to a pod."""
    for group in _GROUPS:
        names = [[one.get("name") for one in pod["spec"].get(group) or ()] for pod in (old, new)]
        if names[0] != names[1]:
            message = "Forbidden: containers may not be renamed or reordered on resize"
            yield Cause("FieldValueForbidden", message, "spec")
            return
    for i, (before, after) in enumerate(_pairs(old, new, "containers")):
        yield from _removed(before, after, f"spec.containers[{i}].resources")
        yield from pods.request_causes(after.get("resources") or {}, f"spec.containers[{i}]")
    if any(_others(*pair) for pair in _pairs(old, new, "containers")):
        message = "Forbidden: only cpu and memory resources are mutable"
        yield Cause("FieldValueForbidden", message, "spec")
    for i, (before, after) in enumerate(_pairs(old, new, "initContainers")):
        if before.get("resources") != after.get("resources"):
            message = "Forbidden: resources for non-sidecar init containers are immutable"
            yield Cause("FieldValueForbidden", message, f"spec.initContainers[{i}].resources")
    if pods.quality(new["spec"]) != old["status"]["qosClass"]:
        message = (
            f'Invalid value: "{old["status"]["qosClass"]}": Pod QOS Class may not change as a '
            "result of resizing"
        )
        yield Cause("FieldValueInvalid", message, "spec")


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


def _others(old: Json, new: Json) -> bool:
    """Whether more than CPU and memory of a container would change."""
    return _without(old) != _without(new)


def _without(container: Json) -> Json:
    resources = container.get("resources") or {}
    kept = {
        part: {name: value for name, value in amounts.items() if name not in _MUTABLE}
        for part, amounts in resources.items()
        if part in ("requests", "limits")
    }
    claims = resources.get("claims")
    return {part: each for part, each in kept.items() if each} | ({"c": claims} if claims else {})
