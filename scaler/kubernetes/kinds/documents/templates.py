"""What a pod template says of the pods made from it."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from brain.types.accelerators import product_in
from brain.types.grace import leave_seconds
from brain.types.resources import Resources
from scaler.kubernetes.kinds.documents.commands import Launch, launch_of
from scaler.kubernetes.kinds.quantities import resources


def spec_of(template: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """The pod's spec; empty where there is none."""
    spec = (template or {}).get("spec")
    return spec if isinstance(spec, Mapping) else {}


def main_container(template: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """The container that trains: the one called ``main``, else the first."""
    containers: Sequence[Mapping[str, Any]] = spec_of(template).get("containers") or ({},)
    return next((each for each in containers if each.get("name") == "main"), containers[0])


def command_of(template: Mapping[str, Any] | None) -> tuple[str, ...]:
    """What the main container runs; empty: what its image says."""
    container = main_container(template)
    return (*(container.get("command") or ()), *(container.get("args") or ()))


def launch_in(template: Mapping[str, Any] | None) -> Launch:
    """What the main container starts."""
    container = main_container(template)
    literals = {
        each["name"]: str(each["value"])
        for each in container.get("env") or ()
        if "name" in each and each.get("value") is not None
    }
    return launch_of(container.get("command") or (), container.get("args") or (), literals)


def grace_seconds(template: Mapping[str, Any] | None) -> float | None:
    """What the script has to save and end, by the command, its environment or the pod's own time;
    None: nobody says more than the default."""
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
    """What a pod reserves: the sum of its containers, or what an init container needs alone."""
    spec = spec_of(template)
    total = Resources()
    for container in (*(spec.get("containers") or ()), *_sidecars(spec)):
        total = total + _requests(container)
    for container in spec.get("initContainers") or ():
        alone = _requests(container)
        total = Resources(
            cpu_millis=max(total.cpu_millis, alone.cpu_millis),
            memory_bytes=max(total.memory_bytes, alone.memory_bytes),
            gpus=max(total.gpus, alone.gpus),
        )
    return total


def requests_of(container: Mapping[str, Any]) -> Mapping[str, object]:
    """A container's requests; a limit without one is one, as the API server has it."""
    given = container.get("resources") or {}
    return {**(given.get("limits") or {}), **(given.get("requests") or {})}


def accelerator(template: Mapping[str, Any] | None) -> str | None:
    """The kind of accelerator that the pod selects its node by, if it does."""
    selected = spec_of(template).get("nodeSelector") or {}
    return product_in({name: str(value) for name, value in selected.items()})


def _requests(container: Mapping[str, Any]) -> Resources:
    return resources(requests_of(container), f"containers.{container.get('name', '')}.resources")


def _sidecars(spec: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    inits = spec.get("initContainers") or ()
    return (each for each in inits if each.get("restartPolicy") == "Always")
