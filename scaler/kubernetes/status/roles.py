"""Counts the replicas of a job's roles and groups by their pods."""

from collections.abc import Mapping, Sequence
from typing import Any

from brain.views import JobView
from scaler.kubernetes.kinds import ElasticJob, ReplicaType
from scaler.kubernetes.pods import identity
from scaler.kubernetes.pods.amounts import shown, wished
from scaler.kubernetes.pods.identity import WORKER, group_of
from scaler.kubernetes.runtime.cluster.kind import Object


def roles(
    job: ElasticJob, view: JobView | None, pods: Sequence[Object], known: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return the counted replicas of each role; ``known`` is the object's present status."""
    before = {each["name"]: each for each in known.get("roles") or ()}
    return [
        _role(job, name, view, [pod for pod in pods if role_of(pod) == name], before.get(name))
        for name in job.spec.replica_specs
        if name != ReplicaType.MASTER
    ]


def _role(
    job: ElasticJob,
    name: str,
    view: JobView | None,
    pods: Sequence[Object],
    before: Mapping[str, Any] | None,
) -> dict[str, Any]:
    living = [pod for pod in pods if alive(pod)]
    running = sum(phase(pod) == "Running" for pod in living)
    scaled = name == job.scaled and view is not None
    # Brain begins a scaled role without a number with at least one replica.
    own = job.spec.replica_specs[name].replicas or int(name == job.scaled)
    desired = view.replicas_wished if view and scaled else own
    counts = {
        **_counts(desired, pods),
        "spare": max(0, running - view.replicas) if view and scaled and view.replicas else 0,
    }
    if view is None and before is not None and name == job.scaled:
        # A Brain that lost its database learns the sizes of the running job from here.
        return {**before, **counts, "desired": before.get("desired", desired)}
    if view is None or not scaled:
        return {"name": name, **counts}
    groups = {"groups": _groups(job, view, pods)} if job.groups else {}
    return {"name": name, **counts, "resources": shown(wished(view)), **groups}


def _groups(job: ElasticJob, view: JobView, pods: Sequence[Object]) -> list[dict[str, Any]]:
    """Return the groups of the scaled role, counted; its other replicas come first."""
    wishes = {one.name: one.replicas_wished for one in view.groups}
    return [
        {
            "name": name,
            **_counts(wishes.get(name, 0), [pod for pod in pods if group_of(pod) == name]),
            "resources": shown(wished(view, name)),
        }
        for name in (WORKER, *sorted(job.groups))
    ]


def _counts(desired: int, pods: Sequence[Object]) -> dict[str, int]:
    living = [pod for pod in pods if alive(pod)]
    return {
        "desired": desired,
        "observed": len(living),
        "ready": sum(map(is_ready, pods)),
        "pending": sum(not (pod.get("spec") or {}).get("nodeName") for pod in living),
        "failed": sum(phase(pod) == "Failed" for pod in pods),
    }


def is_ready(pod: Object) -> bool:
    """True if a running pod's condition Ready is True or absent."""
    if not stays(pod) or phase(pod) != "Running":
        return False
    for each in (pod.get("status") or {}).get("conditions") or ():
        if each.get("type") == "Ready":
            return bool(each.get("status") == "True")
    return True


def stays(pod: Object) -> bool:
    """True if a pod has not ended and is not being deleted."""
    return alive(pod) and "deletionTimestamp" not in pod["metadata"]


def role_of(pod: Object) -> str:
    """Return the role of a job's pod; empty if it has none."""
    return (identity.replica_of(pod) or ("", 0))[0]


def alive(pod: Object) -> bool:
    """True if a pod has not ended."""
    return phase(pod) not in ("Succeeded", "Failed")


def phase(pod: Object) -> str:
    """Return a pod's phase; empty if it has none yet."""
    return str((pod.get("status") or {}).get("phase") or "")
