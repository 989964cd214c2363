"""Reads fields of a pod template, from which pods are made."""

import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from brain.types.accelerators import product_in
from brain.types.grace import leave_seconds
from brain.types.resources import Resources
from scaler.kubernetes.kinds.documents.commands import Launch, launch_of
from scaler.kubernetes.kinds.fields import GROUP
from scaler.kubernetes.kinds.quantities import quantity, resources

#: Annotation of pods: the name of the container that trains.
MAIN = f"{GROUP}/main-container"


def spec_of(template: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return the pod's spec; empty if there is none."""
    spec = (template or {}).get("spec")
    return spec if isinstance(spec, Mapping) else {}


def main_container(template: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return the container that trains: the one that a pod's annotation names, else the one named
    ``main``, else the first.

    A pod has the annotation because admission may put other containers first.
    """
    containers: Sequence[Mapping[str, Any]] = spec_of(template).get("containers") or ({},)
    annotations = ((template or {}).get("metadata") or {}).get("annotations") or {}
    named = {each.get("name"): each for each in reversed(containers)}
    return named.get(annotations.get(MAIN, "main")) or containers[0]


def command_of(template: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Return the main container's command and arguments; empty if its image determines them."""
    container = main_container(template)
    return (*(container.get("command") or ()), *(container.get("args") or ()))


def launch_in(template: Mapping[str, Any] | None) -> Launch:
    """Return the launch of the main container."""
    container = main_container(template)
    literals = {
        each["name"]: str(each["value"])
        for each in container.get("env") or ()
        if "name" in each and each.get("value") is not None
    }
    return launch_of(container.get("command") or (), container.get("args") or (), literals)


def grace_seconds(template: Mapping[str, Any] | None) -> float | None:
    """Return the seconds that the script has to save and exit; None if the default applies.

    The command takes precedence over the environment. If neither has a value, and the pod's
    termination grace period is longer than a replica may take to end by default, the value is that
    period less 25 s.
    """
    launch, container = launch_in(template), main_container(template)
    if launch.shutdown_timeout is not None:
        return launch.shutdown_timeout
    given = {each.get("name"): each.get("value") for each in container.get("env") or ()}
    said = str(given.get("TORCH_ELASTIC_SHUTDOWN_TIMEOUT"))
    if re.fullmatch(r"\d+(\.\d+)?", said):
        return float(said)
    pod = spec_of(template).get("terminationGracePeriodSeconds")
    return pod - leave_seconds(0) if isinstance(pod, int) and pod > leave_seconds() else None


def reserved(template: Mapping[str, Any] | None) -> Resources:
    """Return the resources that a pod reserves, as Brain's ``Resources``."""
    return resources(pod_requests(spec_of(template)), "resources")


def pod_requests(spec: Mapping[str, Any]) -> dict[str, Decimal]:
    """Return how much of each resource a pod of this spec reserves, as kube-scheduler counts it.

    The amount is the sum over the pod's containers and sidecars, or the amount that the pod needs
    at its start, whichever is larger. The overhead of the pod's runtime class is added.
    ``resources`` of the whole pod takes precedence.

    Raises:
        BadInput: an amount is no quantity.
    """
    total = _summed(map(_requests, spec.get("containers") or ()))
    beside: dict[str, Decimal] = {}
    most: dict[str, Decimal] = {}
    for container in spec.get("initContainers") or ():
        starting = _summed((beside, _requests(container)))
        if container.get("restartPolicy") == "Always":
            total, beside = _summed((total, _requests(container))), starting
        most = _greatest(most, starting)
    whole = _quantities(requests_of(spec), "resources")
    overhead = _quantities(spec.get("overhead") or {}, "overhead")
    return _summed((_greatest(total, most) | whole, overhead))


def requests_of(container: Mapping[str, Any]) -> Mapping[str, object]:
    """Return the requests of a container or pod.

    A limit without a request counts as the request, because the API server counts it so.
    """
    given = container.get("resources") or {}
    return {**(given.get("limits") or {}), **(given.get("requests") or {})}


def accelerator(template: Mapping[str, Any] | None) -> str | None:
    """Return the kind of accelerator in the pod's node selector, if there is one."""
    selected = spec_of(template).get("nodeSelector") or {}
    return product_in({name: str(value) for name, value in selected.items()})


def _requests(container: Mapping[str, Any]) -> dict[str, Decimal]:
    return _quantities(requests_of(container), f"containers.{container.get('name', '')}.resources")


def _quantities(amounts: Mapping[str, object], field: str) -> dict[str, Decimal]:
    return {name: quantity(said, f"{field}.{name}") for name, said in amounts.items()}


def _summed(amounts: Iterable[Mapping[str, Decimal]]) -> dict[str, Decimal]:
    total: dict[str, Decimal] = {}
    for each in amounts:
        for name, amount in each.items():
            total[name] = total.get(name, Decimal(0)) + amount
    return total


def _greatest(one: Mapping[str, Decimal], other: Mapping[str, Decimal]) -> dict[str, Decimal]:
    names = dict.fromkeys((*one, *other))
    return {name: max(one.get(name, Decimal(0)), other.get(name, Decimal(0))) for name in names}
