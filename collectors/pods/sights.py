"""The fields of a Node or Pod object that the collector needs, as frozen values.

Unknown and missing fields are accepted, because clusters have many versions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from math import ceil
from typing import Any

from brain.errors import BadInput
from brain.types.accelerators import devices, product_in
from brain.types.resources import Resources
from collectors.pods.quantities import millis, whole

Object = Mapping[str, Any]

#: Environment variable of containers with Brain's agent, which measures its own pod.
_AGENT = "BRAIN_POD"


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The controller of a pod."""

    kind: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PodEnd:
    """The end of a pod: reason, exit code and time."""

    #: ``Completed``, ``Error``, ``OOMKilled``, ``Evicted``, ``Preempted``, ``NodeLost`` …
    reason: str
    #: Exit code of the container that decided the end; None if none ran.
    code: int | None
    detail: str
    at: datetime | None

    @property
    def succeeded(self) -> bool:
        """True if all containers of the pod ended with exit code 0."""
        return self.reason == "Completed"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSight:
    uid: str
    namespace: str
    name: str
    #: Node of the pod; None until the pod is bound.
    node: str | None
    address: str | None
    owner: Owner | None
    labels: Mapping[str, str] = field(default_factory=dict)
    #: Pending, Running, Succeeded, Failed, Unknown.
    phase: str
    requests: Resources
    created_at: datetime
    started_at: datetime | None
    deleting: bool
    end: PodEnd | None
    #: Sentence with the reason why the pod does not run yet; None if it runs.
    waiting: str | None
    #: True if the pod contains Brain's agent.
    injected: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSight:
    name: str
    #: Resources of the node that pods may reserve.
    allocatable: Resources
    #: Product name of the node's accelerators; ``cpu`` if there are none.
    accelerator: str
    addresses: frozenset[str]
    schedulable: bool
    ready: bool


def instant(text: object) -> datetime | None:
    """Return an RFC 3339 time as a datetime; None if there is none."""
    if not isinstance(text, str) or not text:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo else None


def pod(obj: Object) -> PodSight:
    """Return the needed fields of a Pod object.

    Raises:
        BadInput: the pod has no identity, or a quantity is not valid.
    """
    meta, spec, status = (obj.get(part) or {} for part in ("metadata", "spec", "status"))
    created_at = instant(meta.get("creationTimestamp"))
    if not meta.get("uid") or created_at is None:
        raise BadInput(
            f"pod {meta.get('name')!r} has no uid or no creationTimestamp, so the API server's "
            "answer is damaged; try again",
            field="metadata.uid",
        )
    return PodSight(
        uid=meta["uid"],
        namespace=meta.get("namespace", "default"),
        name=meta.get("name", ""),
        node=spec.get("nodeName"),
        address=status.get("podIP"),
        owner=_owner(meta.get("ownerReferences") or ()),
        labels=meta.get("labels") or {},
        phase=status.get("phase", "Pending"),
        requests=requests(spec),
        created_at=created_at,
        started_at=instant(status.get("startTime")),
        deleting="deletionTimestamp" in meta,
        end=_end(status, created_at),
        waiting=_waiting(status),
        injected=any(_AGENT in _variables(each) for each in spec.get("containers") or ()),
    )


def node(obj: Object) -> NodeSight:
    """Return the needed fields of a Node object.

    Raises:
        BadInput: a quantity is not valid.
    """
    meta, spec, status = (obj.get(part) or {} for part in ("metadata", "spec", "status"))
    allocatable = _resources(status.get("allocatable") or status.get("capacity") or {})
    labels = meta.get("labels") or {}
    conditions = {each.get("type"): each.get("status") for each in status.get("conditions") or ()}
    addresses = [each.get("address", "") for each in status.get("addresses") or ()]
    return NodeSight(
        name=meta.get("name", ""),
        allocatable=allocatable,
        accelerator=(product_in(labels) or "gpu") if allocatable.gpus else "cpu",
        addresses=frozenset(addresses),
        schedulable=not spec.get("unschedulable", False),
        ready=conditions.get("Ready") == "True",
    )


def requests(spec: Object) -> Resources:
    """Return the resources that the scheduler reserves for a pod.

    They are the overhead plus the larger of two sums: the requests of all containers, or the
    requests of the largest init container and of the sidecars that run with it. If a container has
    no request, its limit counts instead.
    """
    running = sum((_wanted(each) for each in spec.get("containers") or ()), Resources())
    sidecars, most = Resources(), Resources()
    for each in spec.get("initContainers") or ():
        if each.get("restartPolicy") == "Always":
            sidecars += _wanted(each)
            most = _largest(most, sidecars)
        else:
            most = _largest(most, sidecars + _wanted(each))
    return _largest(running + sidecars, most) + _resources(spec.get("overhead") or {})


def _wanted(container: Object) -> Resources:
    given = container.get("resources") or {}
    return _resources({**(given.get("limits") or {}), **(given.get("requests") or {})})


def _largest(one: Resources, other: Resources) -> Resources:
    return Resources(
        cpu_millis=max(one.cpu_millis, other.cpu_millis),
        memory_bytes=max(one.memory_bytes, other.memory_bytes),
        gpus=max(one.gpus, other.gpus),
    )


def _resources(amounts: Object) -> Resources:
    return Resources(
        cpu_millis=millis(amounts.get("cpu", 0)),
        memory_bytes=whole(amounts.get("memory", 0)),
        gpus=sum(_devices(name, amount) for name, amount in amounts.items()),
    )


def _devices(name: str, amount: object) -> int:
    each = devices(name, Decimal(1))
    return ceil(whole(amount, field=name) * each) if each else 0


def _owner(references: Sequence[Object]) -> Owner | None:
    if not references:
        return None
    # DLRover's references say no controller; the first is its job.
    chosen = next((each for each in references if each.get("controller")), references[0])
    return Owner(
        kind=chosen.get("kind", ""), name=chosen.get("name", ""), uid=chosen.get("uid", "")
    )


def _end(status: Object, created_at: datetime) -> PodEnd | None:
    phase = status.get("phase")
    if phase not in ("Succeeded", "Failed"):
        return None
    ended = [
        (each.get("name", ""), each["state"]["terminated"])
        for each in status.get("containerStatuses") or ()
        if (each.get("state") or {}).get("terminated")
    ]
    at = max((t for _, each in ended if (t := instant(each.get("finishedAt")))), default=None)
    if phase == "Succeeded":
        return PodEnd(reason="Completed", code=0, detail="", at=at or created_at)
    why = _disruption(status)
    nothing: tuple[str, Object] = ("", {})
    name, failed = next(((n, e) for n, e in ended if e.get("exitCode")), nothing)
    code = failed.get("exitCode")
    reason = why[0] or failed.get("reason") or status.get("reason") or "Error"
    detail = why[1] or failed.get("message") or status.get("message") or ""
    if name and code is not None:
        said = f"container {name} exited with code {code} ({reason})"
        detail = f"{said}: {detail}" if detail else said
    return PodEnd(reason=reason, code=code, detail=str(detail)[:500], at=at)


def _disruption(status: Object) -> tuple[str, str]:
    """Return why the cluster ended a pod: the condition DisruptionTarget, or the pod's reason."""
    target: Object = next(
        (
            each
            for each in status.get("conditions") or ()
            if each.get("type") == "DisruptionTarget" and each.get("status") == "True"
        ),
        {},
    )
    names = {
        "PreemptionByScheduler": "Preempted",
        "PreemptionByKubeScheduler": "Preempted",
        "EvictionByEvictionAPI": "Evicted",
        "TerminationByKubelet": "Evicted",
        "DeletionByTaintManager": "NodeLost",
        "DeletionByPodGC": "NodeLost",
    }
    own = status.get("reason") or ""
    reason = names.get(target.get("reason", ""), "") or (own if own in _OWN_REASONS else "")
    return reason, (target.get("message") or status.get("message") or "") if reason else ""


_OWN_REASONS = ("Evicted", "Preempting", "Preempted", "NodeLost", "NodeShutdown", "Terminated")


def _waiting(status: Object) -> str | None:
    """Return a sentence with the reason why a pod waits: its image is missing, or it does not
    fit.
    """
    if status.get("phase", "Pending") != "Pending":
        return None
    for each in (*(status.get("initContainerStatuses") or ()), *_containers(status)):
        held = (each.get("state") or {}).get("waiting") or {}
        if held.get("reason") not in (None, "ContainerCreating", "PodInitializing"):
            return f"container {each.get('name')}: {held['reason']}: {held.get('message', '')}"
    for each in status.get("conditions") or ():
        if each.get("type") == "PodScheduled" and each.get("status") == "False":
            return f"{each.get('reason', 'Unschedulable')}: {each.get('message', '')}"
    return "its containers are being created"


def _variables(container: Object) -> list[object]:
    return [each.get("name") for each in container.get("env") or ()]


def _containers(status: Object) -> Sequence[Object]:
    return status.get("containerStatuses") or ()
