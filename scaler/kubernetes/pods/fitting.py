"""What fits where: whether a job ever can, and which of its waiting pods may begin together."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from brain.types.accelerators import devices
from scaler.kubernetes.kinds.documents.templates import requests_of
from scaler.kubernetes.kinds.quantities import quantity
from scaler.kubernetes.machinery.cluster.kind import Object
from scaler.kubernetes.machinery.store import Store
from scaler.kubernetes.pods import identity
from scaler.kubernetes.pods.failures import unschedulable
from scaler.kubernetes.pods.places import usable

#: Amounts by resource name.
Amounts = Mapping[str, Decimal]
_OVER = ("Succeeded", "Failed")
_NONE = Decimal(0)


def needs(spec: Mapping[str, Any]) -> dict[str, Decimal]:
    """What a pod of this spec reserves on its node, one pod of the node's included."""
    total: dict[str, Decimal] = {"pods": Decimal(1)}
    for container in spec.get("containers") or ():
        for name, said in requests_of(container).items():
            total[name] = total.get(name, Decimal(0)) + quantity(said, f"resources.{name}")
    return total


class Tally(dict[str, Decimal]):
    """Amounts that can be summed."""

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(
            {name: self.get(name, _NONE) + other.get(name, _NONE) for name in self | other}
        )

    def __sub__(self, other: "Tally") -> "Tally":
        return Tally(
            {name: self.get(name, _NONE) - other.get(name, _NONE) for name in self | other}
        )


class Room:
    """What is free on each node, from sums that stores keep: no look goes through all pods."""

    def __init__(self, nodes: Store, pods: Store) -> None:
        self._nodes, self._pods = nodes, pods
        self._held = pods.sums("held", _held, _place)
        pods.index("coming", lambda pod: ("",) if _comes(pod) else ())

    def free(self) -> dict[str, dict[str, Decimal]]:
        """By node, of those that pods may come to.

        Pods of ours that may begin and that the scheduler has not looked at yet have their room,
        too: else two gangs would be let in to the same, and each could hold a part of it.
        """
        found = {node["metadata"]["name"]: _offers(node) for node in self._nodes if usable(node)}
        for name, left in found.items():
            _take(left, self._held.get(name, Tally()))
        _settle([needs(pod["spec"]) for pod in self._pods.by("coming", "")], found)
        return found


def _held(pod: Object) -> Tally:
    over = (pod.get("status") or {}).get("phase") in _OVER
    return Tally() if over or not _place(pod) else Tally(needs(pod["spec"]))


def _place(pod: Object) -> str:
    return str((pod.get("spec") or {}).get("nodeName") or "")


def _comes(pod: Object) -> bool:
    """Whether a pod of ours is on its way to a node: no gate holds it, no verdict is known."""
    metadata, spec = pod["metadata"], pod.get("spec") or {}
    if _place(pod) or (pod.get("status") or {}).get("phase") in _OVER:
        return False
    ours = (metadata.get("labels") or {}).get(identity.MANAGED_BY) == identity.MANAGER
    leaves = "deletionTimestamp" in metadata
    return ours and not leaves and not spec.get("schedulingGates") and not unschedulable(pod)


def placed(wanted: Sequence[Amounts], free: Mapping[str, Amounts]) -> int:
    """How many of ``wanted``, from the first on, find room together; the fullest node first."""
    return _settle(wanted, {name: dict(amounts) for name, amounts in free.items()})


def _settle(wanted: Sequence[Amounts], left: Mapping[str, dict[str, Decimal]]) -> int:
    """Take the room of ``wanted`` from ``left`` until one finds none; how many found some."""
    for count, each in enumerate(wanted):
        fits = [name for name, amounts in left.items() if _covers(amounts, each)]
        if not fits:
            return count
        _take(left[min(fits, key=lambda name: (_spare(left[name], each), name))], each)
    return len(wanted)


def _take(left: dict[str, Decimal], amounts: Amounts) -> None:
    for name, amount in amounts.items():
        if name in left:
            left[name] -= amount


def infeasible(spec: Mapping[str, Any], least: int, nodes: Sequence[Object]) -> str | None:
    """Why a job whose least size is ``least`` such pods can never run here; None where it might.

    Nodes are taken as if nothing ran on them. Where there are none nothing can be said: some may
    be made when they are asked for.
    """
    if not nodes:
        return None
    each = needs(spec)
    empty = {node["metadata"]["name"]: _offers(node) for node in nodes}
    chosen = spec.get("nodeSelector") or {}
    named = {
        node["metadata"]["name"]
        for node in nodes
        if chosen.items() <= (node["metadata"].get("labels") or {}).items()
    }
    if not named:
        return (
            f"no node has the labels of nodeSelector {_said(chosen)}; label one, or change the "
            "selector"
        )
    empty = {name: amounts for name, amounts in empty.items() if name in named}
    for resource, amount in each.items():
        most = max(amounts.get(resource, Decimal(0)) for amounts in empty.values())
        if amount > most and resource != "pods":
            return (
                f"a replica needs {_shown(resource, amount)} and no node has more than "
                f"{_shown(resource, most)}; lower its request, or add a node that has it"
            )
    fits = sum(_copies(amounts, each) for amounts in empty.values())
    if fits < least:
        return (
            f"{least} replicas at least are needed and {fits} fit the {len(empty)} nodes, even "
            "when they are empty; lower minReplicas or what a replica requests, or add nodes"
        )
    return None


def excess(each: Amounts, replicas: int, limits: Mapping[str, Any]) -> str | None:
    """Why ``replicas`` such pods are more than ``resourceLimits`` of the job allows."""
    for name, said in limits.items():
        limit = quantity(said, f"resourceLimits.{name}")
        wanted = each.get(_alias(name, each), Decimal(0)) * replicas
        if wanted > limit:
            return (
                f"{replicas} replicas need {_shown(name, wanted)} and resourceLimits.{name} is "
                f"{_shown(name, limit)}; raise it, or ask for less"
            )
    return None


def allowed(each: Amounts, limits: Mapping[str, Any]) -> int | None:
    """How many such pods ``resourceLimits`` allows; None: as many as one likes."""
    most: list[int] = []
    for name, said in limits.items():
        one = each.get(_alias(name, each), Decimal(0))
        if one:
            most.append(int(quantity(said, f"resourceLimits.{name}") // one))
    return min(most, default=None)


def _alias(name: str, each: Amounts) -> str:
    """``gpu`` stands for whatever accelerator a replica asks for."""
    if name != "gpu":
        return name
    return next((one for one in each if _is_accelerator(one)), name)


def _offers(node: Object) -> dict[str, Decimal]:
    status: Mapping[str, Any] = node.get("status") or {}
    listed = status.get("allocatable") or status.get("capacity") or {}
    found = {name: quantity(said, f"allocatable.{name}") for name, said in listed.items()}
    return {"pods": Decimal(110)} | found


def _copies(free: Amounts, each: Amounts) -> int:
    """How many alike find room on one node; some ask for nothing but a pod's place."""
    return min(int(free.get(name, _NONE) // amount) for name, amount in each.items() if amount)


def _covers(free: Amounts, each: Amounts) -> bool:
    return all(free.get(name, Decimal(0)) >= amount for name, amount in each.items())


def _spare(free: Amounts, each: Amounts) -> Decimal:
    """What is left of the scarcest thing that is asked for: small nodes fill up first."""
    scarce = next((name for name in each if _is_accelerator(name)), "cpu")
    return free.get(scarce, Decimal(0)) - each.get(scarce, Decimal(0))


def _shown(name: str, amount: Decimal) -> str:
    if name in ("memory", "ephemeral-storage"):
        return f"{said_bytes(int(amount))} of {name}"
    return f"{amount.normalize():f} {name}"


def said_bytes(count: int) -> str:
    """Memory as people write it: in the largest binary unit that divides it.

    >>> said_bytes(3 * 2**30), said_bytes(1536 * 2**20)
    ('3Gi', '1536Mi')
    """
    for power, unit in ((30, "Gi"), (20, "Mi"), (10, "Ki")):
        if count % 2**power == 0:
            return f"{count >> power}{unit}"
    return str(count)


def _is_accelerator(name: str) -> bool:
    return devices(name, Decimal(1)) > 0


def _said(labels: Mapping[str, str]) -> str:
    return ", ".join(f"{key}={value}" for key, value in labels.items())
