"""Reads the topology of nodes, and chooses the nodes that a job may use."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from brain.types.accelerators import product_in
from brain.types.resources import Node, NodeName, PoolName, Resources
from scaler.kubernetes.kinds.quantities import resources
from scaler.kubernetes.runtime.cluster.kind import Object
from scaler.ports import ReplicaSeen

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


def usable(node: Object) -> bool:
    """True if pods may be placed on a node: the node is ready and not cordoned."""
    if (node.get("spec") or {}).get("unschedulable"):
        return False
    conditions = (node.get("status") or {}).get("conditions") or ()
    ready = [each.get("status") for each in conditions if each.get("type") == "Ready"]
    return not ready or ready[0] == "True"


def described(node: Object, pool: PoolName, now: Any) -> Node:
    """Describe a node in Brain's types."""
    metadata = node["metadata"]
    labels: Mapping[str, str] = metadata.get("labels") or {}
    offered = offers(node)
    return Node(
        name=NodeName(metadata["name"]),
        pool=pool,
        capacity=offered,
        accelerator=(product_in(labels) or "gpu") if offered.gpus else "cpu",
        seen_at=now,
        schedulable=usable(node),
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
