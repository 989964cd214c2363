"""Ports of pods that share their host's network."""

import re

from brain.errors import BadInput
from scaler.kubernetes.runtime.cluster.kind import Object

#: Default range; Kubernetes' own node ports begin at 30000.
FIRST, LAST = 20000, 29999
#: Variable that gives pods of a shared host the port of rank 0.
MASTER = "BRAIN_MASTER_PORT"
_PORT = r"[0-9]{1,5}"


def of(pod: Object) -> list[str]:
    """Index a pod by its host ports: the declared ports, and the port of its job's rank 0."""
    if (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        return []
    containers = (pod.get("spec") or {}).get("containers") or ()
    listed = (port for each in containers for port in each.get("ports") or ())
    declared = [str(port["hostPort"]) for port in listed if port.get("hostPort")]
    met = master(pod)
    return declared if met is None else list(dict.fromkeys([*declared, str(met)]))


def master(pod: Object) -> int | None:
    """Return the port of the job's rank 0, from the pod's variables; it is the same for all pods of
    a job.

    None if the pod has no such variable, or if a template or another program gave it a value that
    is no port.
    """
    for container in (pod.get("spec") or {}).get("containers") or ():
        for variable in container.get("env") or ():
            said = str(variable.get("value") or "")
            if variable.get("name") == MASTER and re.fullmatch(_PORT, said):
                return int(said)
    return None


def choose(taken: set[int], first: int = FIRST, last: int = LAST) -> int:
    """Choose a port that no pod uses on any host, so that it is free wherever the pod runs.

    >>> choose({20000, 20001})
    20002

    Raises:
        BadInput: the range is used up.
    """
    for port in range(first, last + 1):
        if port not in taken:
            return port
    raise BadInput(
        f"every host port from {first} to {last} is in use; widen --host-ports, or end jobs "
        "that use hostNetwork",
        field="hostNetwork",
    )
