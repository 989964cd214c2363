"""Reads the topology of nodes, and chooses the nodes that a job may use."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from brain.types.accelerators import product_in
from brain.types.resources import Node, NodeName, PoolName, Resources
from scaler.kubernetes.kinds.quantities import is_accelerator, resources
from scaler.kubernetes.pods.predicates import KEEP_OFF, tolerated
from scaler.kubernetes.runtime.cluster.kind import Object
from scaler.kubernetes.runtime.cluster.nesting import MOST_LEVELS, deeper
from scaler.ports import ReplicaSeen

#: The tolerations of one pod template.
Tolerations = Sequence[Mapping[str, Any]]

#: Taints for short shortages on a node, which jobs may cause themselves: the node stays theirs.
_PRESSURE = tuple(f"node.kubernetes.io/{each}-pressure" for each in ("memory", "disk", "pid"))

#: Labels of each level, outermost first; the first label that a node has counts.
LEVELS: tuple[tuple[str, ...], ...] = (
    ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"),
    (
        "network.topology.nvidia.com/spine",
        "topology.kubernetes.io/spine",
        "cloud.google.com/gce-topology-block",
        "network.topology.kubernetes.io/datacenter",
    ),
    (
        "network.topology.nvidia.com/block",
        "topology.kubernetes.io/rack",
        "cloud.google.com/gce-topology-subblock",
        "network.topology.kubernetes.io/block",
    ),
    (
        "network.topology.nvidia.com/leaf",
        "topology.kubernetes.io/switch",
        "network.topology.kubernetes.io/accelerator",
    ),
)


def topology(labels: Mapping[str, str]) -> tuple[str, ...]:
    """Return a node's location, outermost level first: zone, spine, rack, switch; empty if unknown.

    >>> topology({"topology.kubernetes.io/zone": "z1", "topology.kubernetes.io/switch": "s4"})
    ('z1', '', '', 's4')
    """
    path = tuple(next((labels[one] for one in names if one in labels), "") for names in LEVELS)
    return path if any(path) else ()


def told(labels: Mapping[str, str]) -> str:
    """Return a node's location in the form of ``BRAIN_TOPOLOGY``; an unknown level is ``-``.

    >>> told({"topology.kubernetes.io/zone": "z1", "topology.kubernetes.io/switch": "s4"})
    'z1/-/-/s4'
    """
    return "/".join(re.sub(r"[^A-Za-z0-9._-]", "_", part) or "-" for part in topology(labels))


def usable(node: Object, borne: Iterable[Tolerations] = ()) -> bool:
    """True if pods may be placed on a node: the node is ready, not cordoned, and has no taint that
    repels them.

    ``borne`` has the tolerations of each pod template of the pool's jobs. A node that is tainted
    for its own accelerators is usable, because pods that request these tolerate the taint.
    """
    if (node.get("spec") or {}).get("unschedulable"):
        return False
    conditions = (node.get("status") or {}).get("conditions") or ()
    ready = [each.get("status") for each in conditions if each.get("type") == "Ready"]
    well = not ready or ready[0] == "True"
    taints = list(_repelling(node)) if well else []
    return well and (not taints or any(_bears(taints, each) for each in borne))


def _repelling(node: Object) -> Iterator[Mapping[str, Any]]:
    """Return the taints that keep off pods without their tolerations."""
    accelerated = bool(offers(node).gpus)
    for taint in (node.get("spec") or {}).get("taints") or ():
        key = str(taint.get("key"))
        borne = key in _PRESSURE or (accelerated and is_accelerator(key))
        if taint.get("effect") in KEEP_OFF and not borne:
            yield taint


def _bears(taints: Iterable[Mapping[str, Any]], tolerations: Tolerations) -> bool:
    return all(tolerated(taint, {"tolerations": tolerations}) for taint in taints)


def tolerations_in(job: Object) -> tuple[str, ...]:
    """Return the tolerations of each pod template in a job's object, as JSON, for an index; none of
    a job that has ended, or whose template is nested too deeply and therefore refused.
    """
    status: Mapping[str, Any] = job.get("status") or {}
    spec = job.get("spec")
    if status.get("completionTime") is not None or deeper(spec, MOST_LEVELS):
        return ()
    return tuple({json.dumps(each, sort_keys=True) for each in _lists(spec)})


def _lists(part: Any) -> Iterator[Any]:
    """Return every list of tolerations in a part of an object."""
    if isinstance(part, Mapping):
        if isinstance(part.get("tolerations"), list):
            yield part["tolerations"]
        part = part.values()
    if not isinstance(part, str) and isinstance(part, Iterable):
        for each in part:
            yield from _lists(each)


def described(
    nodes: Iterable[Object], pool: PoolName, now: Any, borne: Iterable[str]
) -> list[Node]:
    """Describe nodes in Brain's types; ``borne`` is as ``tolerations_in`` returns it."""
    lists = [json.loads(each) for each in borne]
    return [_described(node, pool, now, lists) for node in nodes]


def _described(node: Object, pool: PoolName, now: Any, borne: Iterable[Tolerations]) -> Node:
    metadata = node["metadata"]
    labels: Mapping[str, str] = metadata.get("labels") or {}
    offered = offers(node)
    return Node(
        name=NodeName(metadata["name"]),
        pool=pool,
        capacity=offered,
        accelerator=(product_in(labels) or "gpu") if offered.gpus else "cpu",
        seen_at=now,
        schedulable=usable(node, borne),
    )


def offers(node: Object) -> Resources:
    """Return a node's resources for pods."""
    status: Mapping[str, Any] = node.get("status") or {}
    listed = status.get("allocatable") or status.get("capacity") or {}
    return resources(listed, "status.allocatable")


def nearest(chosen: Iterable[tuple[NodeName, int]], seen: Iterable[ReplicaSeen]) -> NodeName | None:
    """Return the node that a plan chose for a job's next replica; None means any node.

    ``chosen`` is the plan's number of replicas on each node, without replicas that leave. Living
    replicas without a node are assumed to go to the first nodes with too few replicas.
    """
    nodes = [one.node for one in seen if one.alive and not one.leaving]
    placed = Counter(node for node in nodes if node is not None)
    lacking = sorted((Counter(dict(chosen)) - placed).elements())
    return next(iter(lacking[nodes.count(None) :]), None)
