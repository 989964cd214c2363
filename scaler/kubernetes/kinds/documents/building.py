"""Converts a job document to an ElasticJob in the form that a user writes; ``mapping`` has the
table.
"""

import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from decimal import Decimal
from typing import Any

from brain.errors import BadInput
from brain.types.accelerators import Device, device_of
from brain.types.job import JobDocument, ResourceLimits, Secret
from brain.types.resources import Resources
from brain.types.roles import is_group, ordered
from brain.wire import document_plain
from scaler.kubernetes.kinds.elasticjob import ReplicaType, Strategy
from scaler.kubernetes.kinds.fields import API_VERSION
from scaler.kubernetes.kinds.quantities import quantity

_LABEL_VALUE = r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
#: Labels and allocatable amounts of each node.
Nodes = Sequence[tuple[Mapping[str, str], Mapping[str, Decimal]]]


def elastic_job(document: JobDocument, nodes: Nodes = ()) -> dict[str, Any]:
    """Build the ElasticJob of a document, in the form that a user writes.

    ``nodes`` are the cluster's nodes; their labels and resources show how the cluster names an
    accelerator. A Secret has the values of the job's environment.

    Raises:
        BadInput: a cluster cannot run the document: no image, a value from a file of another
            machine, or an accelerator that no node label can name.
    """
    if not document.image:
        raise BadInput("image is missing; pods run containers, so name an image", field="image")
    if document.preemptible:
        raise BadInput(
            "an ElasticJob has no field preemptible; leave it out, and set priority",
            field="preemptible",
        )
    container: dict[str, Any] = {"name": "main", "image": document.image}
    if document.command:
        container["command"] = list(document.command)
    if document.environment:
        secret = environment_secret(document.name)
        container["env"] = [_variable(secret, *each) for each in document.environment.items()]
    if document.directory:
        container["workingDir"] = document.directory
    worker: dict[str, Any] = {
        "replicas": document.replicas.first,
        "minReplicas": document.replicas.min,
        "maxReplicas": document.replicas.max,
        "unit": document.replicas.unit,
        "processesPerReplica": document.processes_per_replica,
        "template": _template(container, document.resources, document.accelerator, nodes),
    }
    if different := ordered({**document.roles, **document.groups}):
        worker["groups"] = {
            name: {
                "replicas": size.replicas,
                "processesPerReplica": document.allocation.processes_of(name),
                "template": _template(
                    container,
                    document.allocation.of(name),
                    document.accelerator_of(name),
                    nodes,
                    f"groups.{name}.accelerator" if is_group(name) else "accelerator",
                ),
            }
            for name, size in different
        }
    strategy = Strategy.PARAMETER_SERVER if document.roles else Strategy.ALLREDUCE
    spec: dict[str, Any] = {
        "distributionStrategy": str(strategy),
        "optimizeMode": str(document.optimize_mode),
        "replicaSpecs": {str(ReplicaType.WORKER): worker},
        **_limits(document.resource_limits),
        **_declared(document),
    }
    return {
        "apiVersion": API_VERSION,
        "kind": "ElasticJob",
        "metadata": {"name": document.name, "namespace": document.project},
        "spec": spec,
    }


def _template(
    container: dict[str, Any],
    reserved: Resources,
    product: str | None,
    nodes: Nodes,
    field: str = "accelerator",
) -> dict[str, Any]:
    """Build the template of pods whose container reserves these amounts, on nodes of a product."""
    if product is not None and not re.fullmatch(_LABEL_VALUE, product):
        raise BadInput(
            f"{field} {product!r} cannot be the value of a node label; give the product as the "
            "label of its nodes names it, for example NVIDIA-A100-SXM4-80GB",
            field=field,
        )
    device = device_of(product, nodes)
    own, amounts = deepcopy(container), _amounts(reserved, device)
    if amounts:
        own["resources"] = {"requests": amounts, "limits": dict(amounts)}
    where = {} if device.label is None else {"nodeSelector": {device.label: product}}
    return {"spec": {**where, "containers": [own]}}


def _declared(document: JobDocument) -> dict[str, Any]:
    plain, default = document_plain(document), document_plain(JobDocument(name=document.name))
    same = "parallelism batch checkpoint epochs steps budget deadline restarts priority policy"
    return {
        name: _without_nothing(plain[name])
        for name in (*same.split(), "accelerator", "independent")
        if plain.get(name) != default.get(name)
    }


def _limits(limits: ResourceLimits) -> dict[str, Any]:
    """Return ``resourceLimits``, whose `gpu` stands for accelerators of any kind."""
    given = {
        "cpu": None if limits.cpu_millis is None else f"{limits.cpu_millis}m",
        "memory": limits.memory_bytes,
        "gpu": limits.gpus,
    }
    made = {name: str(amount) for name, amount in given.items() if amount is not None}
    return {"resourceLimits": made} if made else {}


def _without_nothing(value: object) -> object:
    if isinstance(value, Mapping):
        return {key: inner for key, inner in value.items() if inner is not None}
    return value


def environment_secret(job: str) -> str:
    """Return the name of the Secret with the values of a submitted job's environment."""
    return f"{job}-environment"


def environment_of(document: JobDocument) -> dict[str, str]:
    """Return the literal values in the document's environment, by name, for the Secret."""
    return {name: value for name, value in document.environment.items() if isinstance(value, str)}


def _variable(own: str, name: str, value: str | Secret) -> dict[str, Any]:
    if isinstance(value, str):
        return {"name": name, "valueFrom": {"secretKeyRef": {"name": own, "key": name}}}
    secret, _, key = (value.from_secret or "").partition("/")
    if not secret:
        raise BadInput(
            f"environment.{name} comes from a file, which a pod does not have; use fromSecret "
            "SECRET/KEY",
            field=f"environment.{name}",
        )
    return {"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": key or name}}}


def _amounts(amount: Resources, device: Device) -> dict[str, str]:
    amounts = {
        "cpu": f"{amount.cpu_millis}m" if amount.cpu_millis else "",
        "memory": str(amount.memory_bytes or ""),
        device.resource: str(amount.gpus * device.amount or ""),
    }
    return {name: text for name, text in amounts.items() if text and quantity(text, name)}
