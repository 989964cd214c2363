"""ResourceQuotas: what pods of a namespace may ask for together."""

from collections import defaultdict
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from tests.kubernetes.apiserver.core.kinds import Json
from tests.kubernetes.apiserver.core.store import Store
from tests.kubernetes.apiserver.objects.errors import Refused
from tests.kubernetes.apiserver.objects.quantities import parsed

_OVER = ("Succeeded", "Failed")
#: What every container must say where a quota counts it.
_SAID = frozenset(
    f"{part}{name}" for part in ("", "requests.", "limits.") for name in ("cpu", "memory")
)


def asked(pod: Mapping[str, Any]) -> dict[str, Decimal]:
    """Return what a pod counts for, as quotas spell it: ``pods``, ``requests.cpu``, ``cpu`` …"""
    found: dict[str, Decimal] = defaultdict(Decimal, {"pods": Decimal(1)})
    for container in pod["spec"].get("containers") or ():
        for name, amount in _counted(container).items():
            found[name] += amount
    return dict(found)


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
        told = _exceeded(quota.obj, pod, old, store) if counted else _unknown(quota.obj)
        if told:
            raise Refused(403, "Forbidden", f'pods "{name}" is forbidden: {told}')


def _unknown(quota: Json) -> str:
    resources = ",".join(sorted(quota["spec"].get("hard") or {}))
    return f"status unknown for quota: {quota['metadata']['name']}, resources: {resources}"


def _unsaid(resource: str, pod: Json) -> str:
    spec = pod["spec"]
    every = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    silent = sorted(each["name"] for each in every if resource not in _counted(each))
    return f"{resource} for: {','.join(silent)}" if silent else ""


def _exceeded(quota: Json, pod: Json, old: Json | None, store: Store) -> str:
    hard = {name: parsed(amount) for name, amount in (quota["spec"].get("hard") or {}).items()}
    name, held = quota["metadata"]["name"], asked(old) if old is not None else {}
    wanted = {each: amount - held.get(each, 0) for each, amount in asked(pod).items()}
    if missing := [told for each in sorted(hard.keys() & _SAID) if (told := _unsaid(each, pod))]:
        return f"failed quota: {name}: must specify {'; '.join(missing)}"
    used: dict[str, Decimal] = defaultdict(Decimal)
    for other in store.all_of(("", "pods"), pod["metadata"]["namespace"]):
        if (other.obj.get("status") or {}).get("phase") not in _OVER:
            for resource, amount in asked(other.obj).items():
                used[resource] += amount
    more = [each for each in hard if old is None or wanted.get(each, 0) > 0]
    over = sorted(each for each in more if used[each] + wanted.get(each, 0) > hard[each])
    if not over:
        return ""
    requested = ",".join(f"{each}={wanted.get(each, 0):f}" for each in over)
    spent = ",".join(f"{each}={used[each]:f}" for each in over)
    limited = ",".join(f"{each}={hard[each]:f}" for each in over)
    return f"exceeded quota: {name}, requested: {requested}, used: {spent}, limited: {limited}"
