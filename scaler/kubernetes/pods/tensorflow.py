"""``TF_CONFIG``: how TensorFlow's processes find each other under ``ParameterServerStrategy``.

Roles are ``chief``, ``worker``, ``ps`` and ``evaluator``. An evaluator reads the checkpoints of the
other roles; no ``cluster`` lists the evaluator, and only its own ``task`` names it. Each rank of a
role has a Service. So a replacement, although its id is new, has the address of the lost process,
and no other process restarts. The ports are those that DLRover uses.
"""

import json
from collections.abc import Mapping
from typing import Any

from brain.errors import BadInput
from brain.types.roles import CHIEF, CLUSTER, EVALUATOR, PS, SINGLE, WORKER, Task, tf_config
from scaler.kubernetes.pods import identity
from scaler.kubernetes.runtime.cluster.kind import Object

_PORTS = {PS: 2222}
_PORT = 3333
VARIABLE = "TF_CONFIG"


def check(roles: Mapping[str, int]) -> None:
    """Refuse roles with which parameter-server training cannot begin.

    Raises:
        BadInput: the message names the role, the number of its replicas and the remedy.
    """
    for role in sorted(set(roles) - {*CLUSTER, EVALUATOR}):
        raise BadInput(
            f"replicaSpecs.{role} is not a role of ParameterServerStrategy; use one of "
            f"{', '.join((*CLUSTER, EVALUATOR))}",
            field=f"replicaSpecs.{role}",
        )
    for role in SINGLE:
        if roles.get(role, 0) > 1:
            raise BadInput(
                f"replicaSpecs.{role}.replicas is {roles[role]}, but a job has at most one {role}; "
                "lower replicas to 1",
                field=f"replicaSpecs.{role}.replicas",
            )
    if not roles.get(PS):
        raise BadInput(
            "replicaSpecs.ps is missing or empty, but ParameterServerStrategy keeps its "
            "variables there; add ps, or use AllreduceStrategy",
            field="replicaSpecs.ps",
        )
    if not roles.get(WORKER) and not roles.get(CHIEF):
        raise BadInput(
            "replicaSpecs has neither worker nor chief, so no replica would train; add worker",
            field="replicaSpecs.worker",
        )


def port(role: str) -> int:
    """Return the port of a process of the role."""
    return _PORTS.get(role, _PORT)


def service_name(job: str, task: Task) -> str:
    """Return the name of a rank's Service.

    >>> service_name("ads", Task("ps", 0))
    'ads-edljob-ps-0'
    """
    return f"{identity.service_name(job, task.role)}-{task.rank}"


def address(job: str, namespace: str, task: Task) -> str:
    """Return the address of a rank, which does not depend on the pod."""
    return f"{service_name(job, task)}.{namespace}.svc:{port(task.role)}"


def service(job: str, uid: str, namespace: str, task: Task) -> dict[str, Any]:
    """Build a rank's headless Service.

    The Service has an address even before the rank's pod is ready, because servers wait for the
    address.
    """
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": service_name(job, task),
            "namespace": namespace,
            "labels": {
                identity.NAME: job,
                identity.TYPE: task.role,
                identity.UID: uid,
                identity.MANAGED_BY: identity.MANAGER,
            },
            "ownerReferences": [identity.owner(job, uid)],
        },
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {
                identity.NAME: job,
                identity.TYPE: task.role,
                identity.RANK: str(task.rank),
                identity.MANAGED_BY: identity.MANAGER,
                identity.OBJECT: uid,
            },
            "ports": [{"name": "grpc", "port": port(task.role)}],
        },
    }


def tasks(roles: Mapping[str, int]) -> tuple[Task, ...]:
    """Return all processes, the evaluator last."""
    return tuple(
        Task(role, rank) for role in (*CLUSTER, EVALUATOR) for rank in range(roles.get(role, 0))
    )


def addresses(job: str, namespace: str, roles: Mapping[str, int]) -> dict[Task, str]:
    """Return the address of each process."""
    return {task: address(job, namespace, task) for task in tasks(roles)}


def config_of(
    job: str, namespace: str, roles: Mapping[str, int], task: Task, *, most: int | None = None
) -> str:
    """Return ``TF_CONFIG`` of a task.

    ``most`` is the greatest number of workers if it varies; None if it is fixed.
    """
    spare = None if most is None else addresses(job, namespace, {WORKER: most})
    return tf_config(addresses(job, namespace, roles), task, spare=spare)


def variable(
    job: str, namespace: str, roles: Mapping[str, int], task: Task, *, most: int | None = None
) -> dict[str, str]:
    """Return ``TF_CONFIG`` as a variable of the container."""
    return {"name": VARIABLE, "value": config_of(job, namespace, roles, task, most=most)}


def outdated(pod: Object, wanted: str) -> bool:
    """True if a pod's ``TF_CONFIG`` names servers or a chief other than the ``TF_CONFIG``
    ``wanted``.

    For a chief, this also compares the workers, because only a chief sends requests to workers.
    """
    for container in (pod.get("spec") or {}).get("containers") or ():
        for each in container.get("env") or ():
            if each.get("name") == VARIABLE and each.get("value"):
                return _servers(each["value"]) != _servers(wanted)
    return False


def _servers(config: str) -> list[Any]:
    try:
        read = json.loads(config)
        cluster, coordinates = read.get("cluster") or {}, read["task"]["type"] == CHIEF
    except (ValueError, AttributeError, KeyError, TypeError):
        # The variable is the template's own, which takes precedence.
        return [config]
    return [cluster.get(PS), cluster.get(CHIEF), cluster.get(WORKER) if coordinates else None]


def restarted(
    before: Mapping[str, int], after: Mapping[str, int], *, most: int | None = None
) -> frozenset[Task]:
    """Return processes that must restart because their ``TF_CONFIG`` changed.

    >>> restarted({"ps": 1, "worker": 2}, {"ps": 1, "worker": 3}, most=4)
    frozenset()
    """
    both = set(tasks(before)) & set(tasks(after))
    return frozenset(
        task
        for task in both
        if config_of("", "", before, task, most=most) != config_of("", "", after, task, most=most)
    )
