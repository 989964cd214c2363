"""Refusals of input that cannot be divided; each is one sentence with the reason."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from brain.errors import BadInput
from brain.pool.allocator.columns import Flags, Flat
from brain.pool.allocator.views import (
    DEVIATION,
    GOODPUT,
    NODES,
    REPLICAS,
    ClusterView,
    Floats,
    PoolJob,
    PoolNode,
    Quota,
)

_NUMBERS = ("attained_seconds", "waited_seconds", "age_seconds", "restart_seconds")


def check(jobs: Sequence[PoolJob], cluster: ClusterView) -> None:
    """Raise for input that no round can divide.

    Raises:
        BadInput: a name occurs twice, or a capacity or quota is below 0.
    """
    for what, names in (("job", [j.key for j in jobs]), ("node", [n.name for n in cluster.nodes])):
        twice = [name for name, times in Counter(names).items() if times > 1]
        if twice:
            raise BadInput(f"{what} {twice[0]!r} occurs twice: give each its own name", field=what)
    for node in cluster.nodes:
        if node.capacity < 0:
            message = f"node {node.name} has capacity {node.capacity}: it must be 0 or more"
            raise BadInput(message, field="capacity")
    for tenant, quota in cluster.quotas.items():
        _check_quota(tenant, quota)


def _check_quota(tenant: str, quota: Quota) -> None:
    limit = math.inf if quota.limit is None else quota.limit
    if not 0 <= quota.guaranteed <= limit:
        raise BadInput(
            f"tenant {tenant!r} is guaranteed {quota.guaranteed} of at most {limit} accelerators: "
            "a guarantee lies between 0 and the limit",
            field="quotas",
        )


def clean(flat: Flat) -> tuple[Flat, Flags]:
    """Return the rows with 1 in place of invalid values, and flags, shape (R,), of the valid
    rows.
    """
    rows = flat.rows
    replicas, nodes = rows[:, REPLICAS], rows[:, NODES]
    whole = (replicas == np.floor(replicas)) & (nodes == np.floor(nodes))
    good = np.isfinite(rows).all(axis=1) & whole & (replicas >= 1)
    good &= (rows[:, GOODPUT] > 0) & (rows[:, DEVIATION] >= 0)
    good &= (nodes >= 0) & (nodes <= replicas)
    return replace(flat, rows=np.where(good[:, None], rows, 1.0)), np.asarray(good, dtype=bool)


def rooms(nodes: Sequence[PoolNode], types: Sequence[str], sizes: Sequence[int]) -> Floats:
    """Return how many replicas the empty nodes of each type can hold, by accelerators per replica.

    ``sizes`` are the numbers of accelerators per replica; the result has shape (types, sizes).
    """
    room = np.zeros((len(types), len(sizes)))
    number = {name: index for index, name in enumerate(types)}
    for (kind, capacity), times in Counter((n.accelerator, n.capacity) for n in nodes).items():
        room[number[kind]] += [times * (capacity // size) for size in sizes]
    return room


def unusable(job: PoolJob) -> str | None:
    """Return why this job's numbers are all invalid; None if some can be used."""
    for name in _NUMBERS:
        value = getattr(job, name)
        if not (math.isfinite(value) and value >= 0):
            return f"{name} is {value}: it must be finite and not below 0"
    rest = job.remaining_seconds
    if rest is not None and not (math.isfinite(rest) and rest >= 0):
        return f"remaining_seconds is {rest}: use None if it is unknown"
    if job.gpus_per_replica < 1:
        return f"gpus_per_replica is {job.gpus_per_replica}: it must be at least 1"
    if not any(len(curve.rows) for curve in job.curves.values()):
        return "the job has no configuration: none was measured yet, or its bounds allow none"
    return None


def impossible(job: PoolJob, room: Mapping[str, int], quota: Quota | None) -> str:
    """Return why no valid configuration of ``job`` fits the empty cluster."""
    known = [name for name, curve in job.curves.items() if room.get(name) and len(curve.rows)]
    offered = sorted(name for name, accelerators in room.items() if accelerators)
    if not offered:
        return "the cluster has no healthy accelerator: bring back or add a node"
    if not known:
        wants = ", ".join(sorted(job.curves)) or "nothing"
        return f"the job can use {wants}; the cluster has {', '.join(offered)}"
    least = {name: int(job.curves[name].rows[:, REPLICAS].min()) for name in known}
    kind = min(least, key=lambda name: (least[name], name))
    needs = least[kind] * job.gpus_per_replica
    if quota and quota.limit is not None and needs > quota.limit:
        return (
            f"the job needs {needs} accelerators, but its tenant {job.tenant} may have "
            f"{quota.limit}"
        )
    return (
        f"the job is larger than the cluster: it needs at least {needs} accelerators of {kind}, "
        f"{job.gpus_per_replica} on one node, and the cluster has {room[kind]}"
    )
