"""The environment variables of a container, which depend on the program that its command starts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scaler.kubernetes.pods.command import ContainerEntry

#: Port at which rank 0 meets the others, unless the pod has its host's network.
MASTER_PORT = 29500
RENDEZVOUS_PORT = 29400


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowd:
    """The position of a pod among the pods of its type."""

    job: str
    uid: str
    type: str
    id: int
    rank: int
    #: Desired replicas of its type, and the bounds within which their number may change.
    size: int
    least: int
    most: int
    processes: int
    restarts: int
    #: DNS name of rank 0.
    master: str
    master_port: int = MASTER_PORT


def variables(entry: ContainerEntry, crowd: Crowd) -> list[dict[str, Any]]:
    """Return the variables that a pod gets in addition to those of its template.

    They depend on ``entry``, but every pod gets the variables that DLRover sets.
    """
    return [*_fields(), *_named(_identity(crowd)), *_named(_launch(entry, crowd))]


def merged(ours: Sequence[Mapping[str, Any]], theirs: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Return both sets of variables; the template takes precedence.

    The operator's variables come first, because the template's variables may refer to them.
    """
    said = {each["name"] for each in theirs}
    return [*(each for each in ours if each["name"] not in said), *theirs]


def _fields() -> list[dict[str, Any]]:
    paths = {
        "POD_IP": "status.podIP",
        "NODE_IP": "status.hostIP",
        "NODE_NAME": "spec.nodeName",
        "POD_NAME": "metadata.name",
    }
    return [
        {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
        for name, path in paths.items()
    ]


def _identity(crowd: Crowd) -> dict[str, str]:
    return {
        "ELASTIC_JOB_NAME": crowd.job,
        "JOB_UID": crowd.uid,
        "GRPC_ENABLE_FORK_SUPPORT": "false",
        "NODE_TYPE": crowd.type,
        "NODE_ID": str(crowd.id),
        "NODE_NUM": str(crowd.size),
        "NODE_RANK": str(crowd.rank),
        "WORKER_TYPE": crowd.type,
        "WORKER_ID": str(crowd.id),
        "WORKER_NUM": str(crowd.size),
        "WORKER_RANK": str(crowd.rank),
    }


def _launch(entry: ContainerEntry, crowd: Crowd) -> dict[str, str]:
    match entry:
        case ContainerEntry.OURS:
            return _rendezvous(crowd)
        case ContainerEntry.TORCHRUN:
            # The agents would share a store that ends with one of them.
            return _rendezvous(crowd) | {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
        case ContainerEntry.LAUNCH:
            return _master(crowd) | {
                "PET_NNODES": str(crowd.size),
                "PET_NODE_RANK": str(crowd.rank),
                "PET_NPROC_PER_NODE": str(crowd.processes),
                "PET_MASTER_ADDR": crowd.master,
                "PET_MASTER_PORT": str(crowd.master_port),
            }
        case ContainerEntry.PYTHON:
            return _process(crowd)
        case ContainerEntry.OPAQUE:
            # Any program of the image finds its variables; torchrun prefers PET_*.
            return _rendezvous(crowd) | _process(crowd)


def _rendezvous(crowd: Crowd) -> dict[str, str]:
    return {
        "PET_NNODES": f"{crowd.least}:{crowd.most}",
        "PET_NPROC_PER_NODE": str(crowd.processes),
        "PET_RDZV_BACKEND": "c10d",
        "PET_RDZV_ENDPOINT": f"{crowd.master}:{RENDEZVOUS_PORT}",
        "PET_RDZV_ID": crowd.uid,
        "PET_MAX_RESTARTS": str(crowd.restarts),
    }


def _master(crowd: Crowd) -> dict[str, str]:
    return {"MASTER_ADDR": crowd.master, "MASTER_PORT": str(crowd.master_port)}


def _process(crowd: Crowd) -> dict[str, str]:
    return _master(crowd) | {
        "RANK": str(crowd.rank),
        "WORLD_SIZE": str(crowd.size),
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
    }


def _named(values: Mapping[str, str]) -> list[dict[str, Any]]:
    return [{"name": name, "value": value} for name, value in values.items()]
