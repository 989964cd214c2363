"""Amounts that a plan gives a replica's main container, and the amounts that its pod has.

A plan gives the amounts of a whole replica. The other containers of the replica's pod keep their
amounts, and the main container gets the rest. Only requests and limits that the main container has
are changed, each by the same factor, so a pod keeps its quality of service: Guaranteed stays
Guaranteed.
"""

from collections.abc import Mapping
from decimal import ROUND_CEILING, Decimal
from enum import StrEnum
from typing import Any

import msgspec

from brain.types.plan import PlanState, ScalePlan
from brain.types.resources import Resources
from brain.views import JobView
from scaler.kubernetes.kinds.documents.templates import (
    main_container,
    pod_requests,
    requests_of,
    reserved,
    spec_of,
)
from scaler.kubernetes.kinds.quantities import quantity
from scaler.kubernetes.pods import identity
from scaler.kubernetes.pods.fitting import said_bytes
from scaler.kubernetes.runtime.cluster.kind import Object

#: The amounts that a plan changes; accelerators stay those of the template.
NAMES = ("cpu", "memory")
#: Built at import: msgspec is not safe if threads use a class for the first time at once.
_RESOURCES = msgspec.json.Decoder(Resources)
#: Amounts of one container, under ``requests`` and ``limits``.
Amounts = Mapping[str, Mapping[str, Any]]


def wished(view: JobView, group: str = identity.WORKER) -> Resources:
    """Return the amounts of each replica of a group: the planned amounts while a plan that changes
    amounts is being applied, else the present amounts.
    """
    plan = changing(view)
    if plan is not None:
        return plan.target.of(group)
    return next((one.resources for one in view.groups if one.name == group), view.resources)


def changing(view: JobView) -> ScalePlan | None:
    """Return the plan being applied, if it changes the amounts of replicas."""
    plan = view.plan
    applying = plan is not None and plan.state is PlanState.APPLYING and plan.changes_resources
    return plan if applying else None


def amounts_alone(view: JobView) -> bool:
    """True if the plan being applied changes the amounts of replicas, but not their number."""
    plan = changing(view)
    return plan is not None and plan.target.replicas == plan.current.replicas


def without_restart(plan: ScalePlan) -> bool:
    """True if a plan must restart no pod, because Brain proposed it and it changes only amounts."""
    return plan.in_place and plan.proposed_by == "brain"


def of_main(template: Object, wished: Resources) -> dict[str, str]:
    """Return the requests that the main container needs so that a replica reserves ``wished``.

    A resource is missing in the result if the main container does not request it, if the pod
    reserves it as a whole, or if the other containers reserve all of it.

    Raises:
        BadInput: an amount of the template is no quantity.
    """
    spec, main = spec_of(template), requests_of(main_container(template))
    whole = {"cpu": Decimal(wished.cpu_millis) / 1000, "memory": Decimal(wished.memory_bytes)}
    names = [each for each in NAMES if each in main and whole[each]]
    names = [each for each in names if each not in requests_of(spec)]
    own = {name: quantity(main[name], f"resources.{name}") for name in names}
    before, running = pod_requests(spec), pod_requests({**spec, "initContainers": _beside(spec)})
    rest = {name: running[name] - own[name] for name in names}
    wanted = {
        name: own[name] if whole[name] == before[name] else whole[name] - rest[name]
        for name in names
    }
    return {name: said(name, amount) for name, amount in wanted.items() if amount > 0}


def _beside(spec: Mapping[str, Any]) -> list[Any]:
    """Return the init containers that keep running beside the main container."""
    inits = spec.get("initContainers") or ()
    return [each for each in inits if each.get("restartPolicy") == "Always"]


def resized(amounts: Amounts, requests: Mapping[str, str]) -> dict[str, Any]:
    """Return a container's amounts with these requests; each limit keeps its ratio to the request.

    >>> resized({"requests": {"memory": "2Gi"}, "limits": {"memory": "3Gi"}}, {"memory": "4Gi"})
    {'requests': {'memory': '4Gi'}, 'limits': {'memory': '6Gi'}}
    >>> resized({"limits": {"cpu": "1", "memory": "1Gi"}}, {"memory": "2Gi"})["limits"]
    {'cpu': '1', 'memory': '2Gi'}
    """
    before = {**(amounts.get("limits") or {}), **(amounts.get("requests") or {})}
    result: dict[str, Any] = {part: dict(given or {}) for part, given in amounts.items()}
    for name, request in requests.items():
        new = quantity(request, name)
        if name in result.get("requests", {}):
            result["requests"][name] = request
        if name in result.get("limits", {}):
            limit, old = (quantity(each[name], name) for each in (result["limits"], before))
            result["limits"][name] = said(name, new * limit / old if old else limit)
    return result


def said(name: str, amount: Decimal) -> str:
    """Format an amount for people: CPU in whole CPUs or thousandths, memory in the largest unit
    that divides it.

    >>> said("cpu", Decimal("1.5")), said("memory", Decimal(3 * 2**30))
    ('1500m', '3Gi')
    """
    if name == "memory":
        return said_bytes(int(amount.to_integral_value(ROUND_CEILING)))
    millis = int((amount * 1000).to_integral_value(ROUND_CEILING))
    return f"{millis // 1000}" if millis % 1000 == 0 else f"{millis}m"


def shown(amount: Resources) -> dict[str, str]:
    """Format a replica's reserved amounts as in API objects, without accelerators.

    >>> shown(Resources(cpu_millis=1500, memory_bytes=3 * 2**30))
    {'cpu': '1500m', 'memory': '3Gi'}
    """
    whole = {"cpu": Decimal(amount.cpu_millis) / 1000, "memory": Decimal(amount.memory_bytes)}
    return {name: said(name, each) for name, each in whole.items() if each}


def asked(pod: Object) -> Resources | None:
    """Return the amounts that were recorded for a pod's replica at its start or last resize.

    None if the pod has no record, or somebody edited it into something unreadable.
    """
    text = (pod["metadata"].get("annotations") or {}).get(identity.RESERVES)
    try:
        return _RESOURCES.decode(text) if text else None
    except (msgspec.DecodeError, RecursionError):
        return None


def written(wished: Resources) -> str:
    """Return the text that records the amounts that a replica reserves; ``asked`` reads it."""
    return msgspec.json.encode(wished).decode()


def reserved_by(pod: Object) -> Resources:
    """Return the amounts that a replica reserves: the recorded amounts, once the replica's pod has
    them.

    Amounts that the cluster adds to a pod (a sidecar, say) do not count as the replica's.
    """
    known = asked(pod)
    return (
        known if known is not None and held(pod)[0] is AmountsHeld.HELD else reserved(_as_held(pod))
    )


def unserved(template: Object, before: Resources, wished: Resources) -> str:
    """Return why a replica cannot change from ``before`` to ``wished``; empty if it can."""
    if wished.gpus != before.gpus:
        return "plans cannot change accelerators; edit the template"
    changed = {"cpu": wished.cpu_millis, "memory": wished.memory_bytes}
    same = {"cpu": before.cpu_millis, "memory": before.memory_bytes}
    known = of_main(template, wished)
    for name in NAMES:
        if changed[name] != same[name] and name not in known:
            return (
                f"Brain cannot change {name} of its main container: the template requests none "
                "for it, or other containers reserve more; edit the template"
            )
    return ""


def resized_pod(pod: Object, requests: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return a pod's containers, in which the main container has these requests."""
    main = main_container(pod).get("name")
    return [
        {**each, "resources": resized(each.get("resources") or {}, requests)}
        if each.get("name") == main
        else dict(each)
        for each in pod["spec"]["containers"]
    ]


class AmountsHeld(StrEnum):
    """The states of a pod's amounts, compared with the amounts in the pod's spec."""

    #: The pod holds the amounts, or will from its start.
    HELD = "held"
    #: The kubelet is changing them, or has not looked yet.
    COMING = "coming"
    #: The node has no capacity for them now.
    DEFERRED = "deferred"
    #: The node never has capacity for them, or cannot change them while the pod runs.
    INFEASIBLE = "infeasible"


def held(pod: Object) -> tuple[AmountsHeld, str]:
    """Return the state of a pod's amounts, and the kubelet's message about them."""
    for each in (pod.get("status") or {}).get("conditions") or ():
        if (each.get("type"), each.get("status")) == ("PodResizePending", "True"):
            state = (
                AmountsHeld.INFEASIBLE
                if each.get("reason") == "Infeasible"
                else AmountsHeld.DEFERRED
            )
            return state, str(each.get("message") or each.get("reason") or "")
        if (each.get("type"), each.get("status")) == ("PodResizeInProgress", "True"):
            return AmountsHeld.COMING, str(each.get("message") or "")
    main = main_container(pod)
    actual = _told(pod, str(main.get("name", "")))
    if actual is not None and not _same(actual, main.get("resources") or {}):
        return AmountsHeld.COMING, ""
    return AmountsHeld.HELD, ""


def _as_held(pod: Object) -> Object:
    """Return a pod whose main container has the amounts that its kubelet reports."""
    main = main_container(pod)
    actual = _told(pod, str(main.get("name", "")))
    if actual is None:
        return pod
    mine = {**main, "resources": {**(main.get("resources") or {}), **actual}}
    others = (mine if each is main else each for each in pod["spec"]["containers"])
    return {**pod, "spec": {**pod["spec"], "containers": list(others)}}


def _told(pod: Object, container: str) -> Amounts | None:
    """Return the amounts of a container as its kubelet reports them; None if not reported."""
    for each in (pod.get("status") or {}).get("containerStatuses") or ():
        if each.get("name") == container and each.get("resources"):
            found: Amounts = each["resources"]
            return found
    return None


def _same(one: Amounts, other: Amounts) -> bool:
    return all(
        quantity(given[name], name) == quantity((other.get(part) or {}).get(name, "0"), name)
        for part, given in one.items()
        if part in ("requests", "limits")
        for name in NAMES
        if name in given
    )
