"""ResourceQuotas: what pods of a namespace may ask for together."""

from collections import defaultdict
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from tests.kubernetes.apiserver.core.kinds import Json
from tests.kubernetes.apiserver.core.store import Store
from tests.kubernetes.apiserver.objects.errors import disallowed
from tests.kubernetes.apiserver.objects.quantities import canonical, parsed

_OVER = ("Succeeded", "Failed")
#: What every container must say where a quota counts it.
_SAID = frozenset(
    f"{part}{name}" for part in ("", "requests.", "limits.") for name in ("cpu", "memory")
)


def asked(pod: Mapping[str, Any]) -> dict[str, Decimal]:
    """Return what a pod counts for, as quotas spell it: ``pods``, ``requests.cpu``, ``cpu`` …"""
    found: dict[str, Decimal] = defaultdict(Decimal, {"pods": Decimal(1)})
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    held = {one["name"]: _held(one) for one in statuses}
    for container in pod["spec"].get("containers") or ():
        holds = held.get(container["name"], {})
        for name, amount in _counted(container).items():
            found[name] += max(amount, holds.get(name, amount))
    return dict(found)


def _held(status: Json) -> dict[str, Decimal]:
    """Return what a container counts for while a kubelet is about to resize it."""
    allocated = status.get("allocatedResources") or {}
    requests = {**((status.get("resources") or {}).get("requests") or {}), **allocated}
    return _counted({"resources": {**(status.get("resources") or {}), "requests": requests}})


def _counted(container: Mapping[str, Any]) -> dict[str, Decimal]:
    found: dict[str, Decimal] = {}
    resources = container.get("resources") or {}
    limits = resources.get("limits") or {}
    for name, amount in {**limits, **(resources.get("requests") or {})}.items():
        found[f"requests.{name}"] = found[name] = parsed(amount)
    return found | {f"limits.{name}": parsed(amount) for name, amount in limits.items()}


def check(store: Store, pod: Json, old: Json | None = None, *, counted: bool = True) -> None:
    """Refuse a pod that its namespace's quotas have no room for; ``old``: as it was before.

    ``counted``: a controller tells how much of them is used.
    """
    namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
    for quota in store.all_of(("", "resourcequotas"), namespace):
        told = "" if counted else _unknown(quota.obj)
        used = _used(store, namespace) if counted else _counted_by_others(quota.obj)
        if told := told or _exceeded(quota.obj, pod, old, used):
            raise disallowed("pods", name, told)


def _used(store: Store, namespace: str) -> dict[str, Decimal]:
    used: dict[str, Decimal] = defaultdict(Decimal)
    for other in store.all_of(("", "pods"), namespace):
        if (other.obj.get("status") or {}).get("phase") not in _OVER:
            for resource, amount in asked(other.obj).items():
                used[resource] += amount
    return used


def _counted_by_others(quota: Json) -> dict[str, Decimal]:
    used = (quota.get("status") or {}).get("used") or {}
    return defaultdict(Decimal, {name: parsed(amount) for name, amount in used.items()})


def _unknown(quota: Json) -> str:
    hard = quota["spec"].get("hard") or {}
    if hard.keys() <= ((quota.get("status") or {}).get("used") or {}).keys():
        return ""
    resources = ",".join(sorted(hard))
    return f"status unknown for quota: {quota['metadata']['name']}, resources: {resources}"


def _unsaid(resource: str, pod: Json) -> str:
    spec = pod["spec"]
    every = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    silent = sorted(each["name"] for each in every if resource not in _counted(each))
    return f"{resource} for: {','.join(silent)}" if silent else ""


def _exceeded(quota: Json, pod: Json, old: Json | None, used: Mapping[str, Decimal]) -> str:
    hard = {name: parsed(amount) for name, amount in (quota["spec"].get("hard") or {}).items()}
    name, held = quota["metadata"]["name"], asked(old) if old is not None else {}
    wanted = {each: amount - held.get(each, 0) for each, amount in asked(pod).items()}
    if missing := [told for each in sorted(hard.keys() & _SAID) if (told := _unsaid(each, pod))]:
        return f"failed quota: {name}: must specify {'; '.join(missing)}"
    more = [each for each in hard if old is None or wanted.get(each, 0) > 0]
    over = sorted(each for each in more if used[each] + wanted.get(each, 0) > hard[each])
    if not over:
        return ""
    requested = ",".join(f"{each}={_said(each, wanted.get(each, Decimal(0)))}" for each in over)
    spent = ",".join(f"{each}={_said(each, used[each])}" for each in over)
    limited = ",".join(f"{each}={_said(each, hard[each])}" for each in over)
    return f"exceeded quota: {name}, requested: {requested}, used: {spent}, limited: {limited}"


def _said(resource: str, amount: Decimal) -> str:
    """Return an amount as people write it: bytes in powers of 1024."""
    if resource.endswith(("memory", "storage")) and amount % 1024 == 0:
        return canonical(f"{amount / 1024:f}Ki")
    return canonical(f"{amount:f}")
