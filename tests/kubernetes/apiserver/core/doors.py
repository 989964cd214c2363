"""Subresources that are not the object itself: scale, binding, eviction."""

from collections.abc import Mapping
from typing import Any

from tests.kubernetes.apiserver.core.api import Api, Ask
from tests.kubernetes.apiserver.core.kinds import Json, Kind
from tests.kubernetes.apiserver.core.removal import Deletion, delete
from tests.kubernetes.apiserver.core.store import Stored
from tests.kubernetes.apiserver.objects.errors import Refused, bad_request, conflict
from tests.kubernetes.apiserver.objects.fieldsets import Fields, leaf, minus, union
from tests.kubernetes.apiserver.objects.ownership import Entry, Manager, entries_of
from tests.kubernetes.apiserver.objects.selectors import selected


def _at(obj: Mapping[str, Any], path: str) -> Any:
    found: Any = obj
    for part in path.strip(".").split("."):
        if not isinstance(found, Mapping):
            return None
        found = found.get(part)
    return found


def _with(obj: Mapping[str, Any], parts: list[str], value: Any) -> Json:
    """Return ``obj`` with the value at a path."""
    below = value if len(parts) == 1 else _with(obj.get(parts[0]) or {}, parts[1:], value)
    return {**obj, parts[0]: below}


def scale_of(kind: Kind, stored: Stored, *, missing: int | None = None) -> Json:
    """Return an object's ``autoscaling/v1 Scale``; ``missing``: of one that says no replicas."""
    assert kind.scale is not None
    metadata = stored.obj["metadata"]
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    wanted = _at(stored.obj, kind.scale["specReplicasPath"])
    wanted = missing if wanted is None else wanted
    if wanted is None:
        path = kind.scale["specReplicasPath"]
        told = f'the spec replicas field "{path}" does not exist'
        message = f"Internal error occurred: {told}"
        raise Refused(500, "InternalError", message, {"causes": [{"message": told}]})
    status: Json = {"replicas": _at(stored.obj, kind.scale["statusReplicasPath"]) or 0}
    selector = _at(stored.obj, kind.scale.get("labelSelectorPath") or ".status.nothing")
    if selector:
        status["selector"] = selector
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {name: metadata[name] for name in kept if name in metadata},
        "spec": {"replicas": wanted},
        "status": status,
    }


def write_scale(api: Api, kind: Kind, stored: Stored, scale: Mapping[str, Any], ask: Ask) -> Stored:
    """Write an object's replicas; returns the object."""
    assert kind.scale is not None
    version = (scale.get("metadata") or {}).get("resourceVersion")
    if version and version != str(stored.version):
        raise conflict(kind.plural, kind.group, stored.key[1])
    replicas = (scale.get("spec") or {}).get("replicas", 0)
    if not isinstance(replicas, int):
        raise bad_request(f"Scale.spec.replicas: Invalid value: {replicas}")
    parts = kind.scale["specReplicasPath"].strip(".").split(".")
    if _at(stored.obj, ".".join(parts)) == replicas:
        return stored
    manager = Manager(
        name=ask.manager, operation="Update", api_version=kind.api_version, subresource="scale"
    )
    path: Fields = leaf()
    for part in reversed(parts):
        path = {f"f:{part}": path}
    entries = {
        other: Entry(minus(entry.fields, path), entry.time)
        for other, entry in entries_of(stored.obj["metadata"].get("managedFields")).items()
    }
    mine = entries[manager].fields if manager in entries else {}
    entries[manager] = Entry(union(mine, path))
    return api.write(kind, stored, _with(stored.obj, parts, replicas), ask, "", entries)


def bind(api: Api, kind: Kind, stored: Stored, node: str) -> Stored:
    """Give a pod its node, as the scheduler does."""
    pod = stored.obj
    name = stored.key[1]
    if pod["spec"].get("nodeName"):
        why = f'pod {name} is already assigned to node "{pod["spec"]["nodeName"]}"'
        raise conflict("pods/binding", "", name, why)
    if pod["spec"].get("schedulingGates"):
        raise conflict("pods/binding", "", name, f"pod {name} has non-empty .spec.schedulingGates")
    if "deletionTimestamp" in pod["metadata"]:
        raise conflict(
            "pods/binding", "", name, f"pod {name} is being deleted, cannot be assigned to a host"
        )
    scheduled = {
        "type": "PodScheduled",
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": api.timestamp(),
    }
    status = pod.get("status") or {}
    others = [one for one in status.get("conditions") or () if one["type"] != "PodScheduled"]
    bound = {
        **pod,
        "spec": {**pod["spec"], "nodeName": node},
        "status": {**status, "conditions": [*others, scheduled]},
    }
    return api.store.put(kind.resource, stored.key, bound)


def evict(api: Api, kind: Kind, stored: Stored, options: Mapping[str, Any], dry_run: bool) -> None:
    """Delete a pod unless a disruption budget forbids it."""
    for budget in api.store.all_of(("policy", "poddisruptionbudgets"), stored.key[0]):
        selector = (budget.obj.get("spec") or {}).get("selector") or {}
        if selected(selector, stored.obj["metadata"].get("labels") or {}) and _ready(stored.obj):
            _allowed_by_others(budget.obj) if api.bare else _allow(api, budget.obj, stored)
    if not dry_run:
        stored = _targeted(api, kind, stored)
    preconditions = options.get("preconditions") or {}
    delete(
        api,
        kind,
        *stored.key,
        Deletion(
            grace_seconds=options.get("gracePeriodSeconds"),
            uid=preconditions.get("uid"),
            version=preconditions.get("resourceVersion"),
            dry_run=dry_run,
        ),
    )


def _allow(api: Api, budget: Json, pod: Stored) -> None:
    spec = budget.get("spec") or {}
    selector = spec.get("selector") or {}
    covered = [
        one
        for one in api.store.all_of(("", "pods"), pod.key[0])
        if selected(selector, one.obj["metadata"].get("labels") or {})
        and (one.obj.get("status") or {}).get("phase") not in ("Succeeded", "Failed")
    ]
    healthy = sum(_ready(one.obj) for one in covered)
    if "minAvailable" in spec:
        needed = _share(spec["minAvailable"], len(covered))
    else:
        needed = len(covered) - _share(spec.get("maxUnavailable", 0), len(covered))
    if healthy - 1 >= needed:
        return
    raise _kept(budget, f"needs {needed} healthy pods and has {healthy} currently")


def _allowed_by_others(budget: Json) -> None:
    """Believe what is written of a budget, where no controller of ours counts."""
    status, generation = budget.get("status") or {}, budget["metadata"].get("generation", 1)
    if status.get("observedGeneration", 0) < generation:
        raise _kept(budget, "is still being processed by the server.", retry_after_seconds=10)
    if not status.get("disruptionsAllowed"):
        needed, healthy = status.get("desiredHealthy", 0), status.get("currentHealthy", 0)
        raise _kept(budget, f"needs {needed} healthy pods and has {healthy} currently")


def _kept(budget: Json, why: str, retry_after_seconds: int | None = None) -> Refused:
    told = f"The disruption budget {budget['metadata']['name']} {why}"
    return Refused(
        429,
        "TooManyRequests",
        "Cannot evict pod as it would violate the pod's disruption budget.",
        {"causes": [{"reason": "DisruptionBudget", "message": told}]},
        retry_after_seconds,
    )


def _targeted(api: Api, kind: Kind, stored: Stored) -> Stored:
    """Say on a pod who ends it."""
    target = {
        "type": "DisruptionTarget",
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": api.timestamp(),
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
    }
    status = stored.obj.get("status") or {}
    told = {**status, "conditions": [*(status.get("conditions") or ()), target]}
    return api.store.put(kind.resource, stored.key, {**stored.obj, "status": told})


def _ready(pod: Json) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    ready = any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
    return ready and "deletionTimestamp" not in pod["metadata"]


def _share(value: int | str, whole: int) -> int:
    """Return a count, or a percentage of ``whole`` rounded up."""
    if isinstance(value, int):
        return value
    return -(-int(value.rstrip("%")) * whole // 100)
