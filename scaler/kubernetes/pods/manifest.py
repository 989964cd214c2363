"""Builds the pod of one replica from the job's template."""

import json
import math
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from brain.types.grace import leave_seconds
from brain.types.resources import Resources
from scaler.kubernetes.kinds.documents.templates import MAIN, main_container
from scaler.kubernetes.kinds.fields import QUEUE
from scaler.kubernetes.kinds.quantities import quantity
from scaler.kubernetes.pods import gang, identity, ports
from scaler.kubernetes.pods.amounts import resized, written
from scaler.kubernetes.pods.command import ContainerCommand, ContainerEntry, read_command
from scaler.kubernetes.pods.environment import Crowd, merged, variables
from scaler.kubernetes.pods.fitting import said_bytes
from scaler.kubernetes.pods.sight import RESTART
from scaler.kubernetes.runtime.cluster.kind import Object

#: Paths in the container: the agent's own files, its token and its place.
HOME, FILES = "/brain", "/var/run/brain"
#: Port of the agent, unless the pod has its host's network.
AGENT_PORT = 29399
#: Words that ``launcher.pod`` takes in front of a command.
_RUN = "--run"
_GRACE = "terminationGracePeriodSeconds"
_LOG_PATH, _LOG = "terminationMessagePath", "/dev/termination-log"
_VOLUME, _FILES_VOLUME = "brain", "brain-files"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentInjection:
    """How the agent gets into a container."""

    #: Image whose ``/opt/brain`` is copied; None if the job's own image has the agent.
    image: str | None
    #: Interpreter of the agent, as seen in the container.
    python: str = f"{HOME}/bin/python3"
    pull_policy: str = "IfNotPresent"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodOrder:
    """All inputs for the pod of one replica."""

    namespace: str
    #: The pods get the labels and annotations of their job, except the label of its queue.
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    crowd: Crowd
    #: The group of the replica; ``worker`` for none.
    group: str = identity.WORKER
    unit: int = 1
    generation: int = 0
    relaunches: int = 0
    #: The job's pod template.
    template: Object
    priority: str | None = None
    #: ``spec.envs`` of the job; a variable of the template takes precedence.
    envs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    #: Names of variables whose values are in the job's Secret.
    secrets: tuple[str, ...] = ()
    injection: AgentInjection | None = None
    #: True if our launcher also replaces ``torchrun``.
    torchrun_ours: bool = False
    #: How the pod waits until its gang can begin; ``volcano`` if Volcano admits the gang.
    gate: bool = False
    volcano: bool = False
    brain_url: str | None = None
    accelerator: str = "cpu"
    checkpoint: Mapping[str, Any] | None = None
    #: Epoch that worlds of the job have reached.
    epoch: int = 0
    #: The places of the others, as far as they are known.
    place: Mapping[str, Any] | None = None
    agent_port: int = AGENT_PORT
    #: Ports of the host for the pod, with hostNetwork.
    host_ports: tuple[int, ...] = ()
    #: Port of rank 0 for a job on shared hosts.
    master_port: int | None = None
    #: Amounts of the whole replica; None if not counted.
    reserves: Resources | None = None
    #: Requests of the main container that give those amounts; empty for the template's.
    requests: Mapping[str, str] = field(default_factory=dict)
    #: Memory after OOM kills; None for the template's.
    memory_bytes: int | None = None
    #: Nodes whose hardware failed replicas of this job.
    avoid: frozenset[str] = frozenset()
    #: The node that the plan names for the replica; None for any node.
    nearest: str | None = None
    #: The replica moves to that node: it goes to no other.
    only_there: bool = False
    #: True if plans change the number of replicas of its role.
    scaled: bool = True
    #: Surplus replicas are kept warm.
    spares: bool = False
    written_at: datetime


def agent_runs(command: ContainerCommand, order_torchrun: bool, injected: bool) -> bool:
    """True if Brain's agent starts the container's command, and does not merely run beside it."""
    if not injected:
        return False
    ours = {ContainerEntry.OURS, ContainerEntry.PYTHON} | (
        {ContainerEntry.TORCHRUN} if order_torchrun else set()
    )
    return command.entry in ours


def command_of(template: Object) -> ContainerCommand:
    """Return the command of a template's main container."""
    container = main_container(template)
    return read_command(container.get("command") or (), container.get("args") or ())


def manifest(order: PodOrder) -> dict[str, Any]:
    """Build the pod as the object that is sent to the API server.

    ``kinds.checks`` has checked the template already.

    Raises:
        BadInput: a quantity is malformed.
    """
    crowd, command = order.crowd, command_of(order.template)
    spec: dict[str, Any] = deepcopy(dict(order.template.get("spec") or {}))
    main = next(each for each in spec["containers"] if _same(each, main_container(order.template)))
    # kubectl shows the first container unless another is named.
    spec["containers"] = [main, *(each for each in spec["containers"] if each is not main)]
    main["env"] = merged(_asked(order), main.get("env") or ())
    main["env"] = merged(variables(command.entry, crowd), main["env"])
    if order.requests:
        main["resources"] = resized(main.get("resources") or {}, order.requests)
    if agent_runs(command, order.torchrun_ours, order.injection is not None):
        _inject(spec, main, order, command)
    if order.memory_bytes is not None:
        _raise_memory(main, order.memory_bytes)
    _place(spec, main, order)
    # Services of the namespace would give the script variables of their own: BRAIN_PORT, say.
    spec.setdefault("enableServiceLinks", False)
    restart = spec.get("restartPolicy") or "Always"
    spec["restartPolicy"] = "Never"
    for each in spec["containers"]:
        # The server refuses RestartContainer in pods whose containers never restart.
        each.pop("resizePolicy", None)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": _metadata(order, restart, str(main.get("name", ""))),
        "spec": spec,
    }


def _asked(order: PodOrder) -> list[dict[str, Any]]:
    """Return variables that the job's object and its document give to every container."""
    named = [{**each, "name": name} for name, each in order.envs.items()]
    if order.master_port is not None:
        named.append({"name": ports.MASTER, "value": str(order.master_port)})
    secret = identity.secret_name(order.crowd.job)
    return named + [
        {"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": f"env.{name}"}}}
        for name in order.secrets
    ]


def _metadata(order: PodOrder, restart: str, main: str) -> dict[str, Any]:
    crowd = order.crowd
    own: Mapping[str, Any] = order.template.get("metadata") or {}
    ours = identity.labels(
        crowd.job,
        crowd.uid if order.scaled else None,
        crowd.type,
        crowd.id,
        rank=crowd.rank,
        relaunches=order.relaunches,
    )
    ours[identity.OBJECT] = crowd.uid
    if order.group != identity.WORKER:
        ours[identity.GROUP] = order.group
    annotations = {
        identity.GENERATION: str(order.generation),
        identity.WRITTEN: order.written_at.isoformat(),
        identity.PLACE: json.dumps(order.place) if order.place else "",
        RESTART: restart,
        MAIN: main,
    }
    if order.reserves is not None:
        annotations[identity.RESERVES] = written(order.reserves)
    if order.nearest is not None and order.only_there:
        annotations[identity.MOVES_TO] = order.nearest
    if order.volcano:
        annotations[gang.GROUP] = identity.service_name(crowd.job, identity.WORKER)
    theirs = {k: v for k, v in order.annotations.items() if not k.startswith("kubectl.")}
    # Kueue may queue each pod that names a queue; the job's Workloads have the quota of its pods.
    labels = {k: v for k, v in order.labels.items() if k != QUEUE}
    return {
        "name": identity.pod_name(crowd.job, crowd.type, crowd.id),
        "namespace": order.namespace,
        "labels": labels | dict(own.get("labels") or {}) | ours,
        "annotations": theirs | dict(own.get("annotations") or {}) | annotations,
        "ownerReferences": [identity.owner(crowd.job, crowd.uid)],
    }


def _place(spec: dict[str, Any], main: dict[str, Any], order: PodOrder) -> None:
    """Fill in the pod's placement: priority, scheduler, gate, host ports and affinity."""
    crowd = order.crowd
    if order.priority and "priorityClassName" not in spec:
        spec["priorityClassName"] = order.priority
    if order.volcano:
        spec.setdefault("schedulerName", "volcano")
    if order.gate:
        spec["schedulingGates"] = [*(spec.get("schedulingGates") or ()), {"name": gang.GATE}]
    if order.host_ports:
        spec.setdefault("dnsPolicy", "ClusterFirstWithHostNet")
        ports = [*(main.get("ports") or ())]
        ports += [{"containerPort": port, "hostPort": port} for port in order.host_ports]
        main["ports"] = ports
    elif not spec.get("hostNetwork"):
        spec.setdefault("subdomain", identity.service_name(crowd.job, crowd.type))
    if order.avoid:
        _require(spec, [_named("NotIn", node) for node in sorted(order.avoid)])
    if order.nearest is not None and order.only_there:
        _require(spec, [_named("In", order.nearest)])
    elif order.nearest is not None:
        _prefer(spec, _named("In", order.nearest))


def _named(operator: str, node: str) -> dict[str, Any]:
    """Return a requirement on a node's name; the label ``kubernetes.io/hostname`` may differ from
    the name.
    """
    return {"key": "metadata.name", "operator": operator, "values": [node]}


def _require(spec: dict[str, Any], names: Sequence[dict[str, Any]]) -> None:
    """Add requirements to each term of the template's own node affinity."""
    required = _inner(spec, "requiredDuringSchedulingIgnoredDuringExecution", {})
    required["nodeSelectorTerms"] = required.get("nodeSelectorTerms") or [{}]
    for each in required["nodeSelectorTerms"]:
        each["matchFields"] = [*(each.get("matchFields") or ()), *names]


def _prefer(spec: dict[str, Any], name: dict[str, Any]) -> None:
    """Add a preference to those of the template."""
    preferred = _inner(spec, "preferredDuringSchedulingIgnoredDuringExecution", [])
    preferred.append({"weight": 100, "preference": {"matchFields": [name]}})


def _inner(spec: dict[str, Any], name: str, empty: Any) -> Any:
    """Return a part of the node affinity, which is created if absent; a null counts as absent."""
    for outer in ("affinity", "nodeAffinity"):
        spec[outer] = spec.get(outer) or {}
        spec = spec[outer]
    spec[name] = spec.get(name) or empty
    return spec[name]


def _raise_memory(main: dict[str, Any], memory_bytes: int) -> None:
    for part in ("requests", "limits"):
        given = (main.get("resources") or {}).get(part) or {}
        if "memory" in given and quantity(given["memory"], "resources.memory") < memory_bytes:
            given["memory"] = said_bytes(memory_bytes)


def _inject(
    spec: dict[str, Any], main: dict[str, Any], order: PodOrder, command: ContainerCommand
) -> None:
    """Put Brain's agent in front of the command, with the volumes and variables that it needs."""
    injection = order.injection
    assert injection is not None
    main["command"] = [injection.python, "-E", "-P", "-m", "launcher.pod"]
    # Kubernetes expands $(NAME) in a container's words from all variables of the container.
    main["args"] = [_RUN, *command.argv]
    main["env"] = merged(
        [
            {"name": "BRAIN_POD", "value": json.dumps(intent(order, command, main))},
            {"name": "BRAIN_POD_HOME", "value": HOME},
            {"name": "BRAIN_POD_FILES", "value": FILES},
            {"name": "BRAIN_TERMINATION_LOG", "value": main.get(_LOG_PATH) or _LOG},
        ],
        main["env"],
    )
    main["volumeMounts"] = [
        *(main.get("volumeMounts") or ()),
        {"name": _VOLUME, "mountPath": HOME},
        {"name": _FILES_VOLUME, "mountPath": FILES, "readOnly": True},
    ]
    spec["volumes"] = [*(spec.get("volumes") or ()), *_volumes(order.crowd.job)]
    needed = math.ceil(leave_seconds((order.checkpoint or {}).get("grace_seconds")))
    # A longer time in the template stands: the kubelet must not shorten the grace.
    spec[_GRACE] = max(spec.get(_GRACE) or 0, needed)
    if injection.image is not None:
        copy = {
            "name": "brain-agent",
            "image": injection.image,
            "imagePullPolicy": injection.pull_policy,
            # The content is copied, not the folder: root owns the volume, and this container
            # seldom runs as root.
            "command": ["sh", "-c", f"cp -dR --preserve=mode,timestamps /opt/brain/* {HOME}"],
            "volumeMounts": [{"name": _VOLUME, "mountPath": HOME}],
            **_like(main),
        }
        spec["initContainers"] = [copy, *(spec.get("initContainers") or ())]


def _like(main: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that the agent's container copies from the container that it serves.

    These are its rights, which the namespace has accepted, and its reserved resources. So the pod
    requests no more, keeps its quality of service, and meets quotas and a LimitRange, whose
    defaults apply to both containers alike.
    """
    given = main.get("resources") or {}
    same = {
        part: {name: given[part][name] for name in ("cpu", "memory") if name in given[part]}
        for part in ("requests", "limits")
        if given.get(part)
    }
    rights = main.get("securityContext")
    return {
        "resources": {part: each for part, each in same.items() if each},
        **({"securityContext": deepcopy(rights)} if rights else {}),
    }


def _volumes(job: str) -> list[dict[str, Any]]:
    place = f"metadata.annotations['{identity.PLACE}']"
    sources = [
        {
            "secret": {
                "name": identity.secret_name(job),
                "items": [{"key": "token", "path": "token"}],
            }
        },
        {"downwardAPI": {"items": [{"path": "place", "fieldRef": {"fieldPath": place}}]}},
    ]
    return [
        {"name": _VOLUME, "emptyDir": {}},
        {"name": _FILES_VOLUME, "projected": {"sources": sources}},
    ]


def intent(order: PodOrder, command: ContainerCommand, main: Mapping[str, Any]) -> dict[str, Any]:
    """Build the intent that ``launcher.pod`` reads: a ``ReplicaIntent`` without the facts that are
    known only inside the pod.
    """
    crowd = order.crowd
    return {
        "v": 1,
        "job": crowd.uid,
        "name": crowd.job,
        "replica": crowd.id,
        "role": order.group,
        "generation": order.generation,
        "command": list(command.argv),
        "shell": command.shell,
        "exports": dict(command.exports),
        "directory": _directory(command, main),
        "processes": crowd.processes,
        "checkpoint": dict(order.checkpoint or {}),
        "unit": order.unit,
        # Without a Brain an agent asks nobody for another size.
        "minimum": crowd.least if order.brain_url else crowd.size,
        "restart_limit": crowd.restarts,
        "brain_url": order.brain_url,
        "accelerator": order.accelerator,
        "port": order.agent_port,
        "epoch": order.epoch,
        "spares": order.spares,
    }


def _directory(command: ContainerCommand, main: Mapping[str, Any]) -> str | None:
    """Return the directory of the command; None for the directory in which the container starts."""
    given: str | None = main.get("workingDir")
    if command.directory is None:
        return given
    if command.directory.startswith("/") or given is None:
        return command.directory
    return f"{given.rstrip('/')}/{command.directory}"


def _same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return one.get("name") == other.get("name")
