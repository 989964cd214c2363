"""Clusters and jobs of any size, made from the step times that Pollux and Sia measured.

There are four types of accelerator. Each job has the curves of one of six applications, with its
speed and its scaling perturbed. If Sia's tables are missing, the curves of Pollux's single type are
scaled to the other three types. 15 % of the jobs have a fixed size, 20 % can use only one type, and
bounds differ.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from benchmarks.models.data import Floats, Task
from brain.pool.allocator import ClusterView, Curve, PoolJob, PoolNode, Quota

#: Accelerators of a node.
TYPES = {"aws": 4, "azure": 8, "dgx-ext": 8, "rtx": 8}
SIZES = np.array([1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64])
#: How much faster than Pollux's type the others are taken to be, set by hand.
_FASTER = {"aws": 1.0, "azure": 2.0, "dgx-ext": 4.0, "rtx": 1.5}
_RIGID, _ONE_TYPE = 0.15, 0.20
#: Nodes of a rack.
_RACK = 16


def cluster(accelerators: int, tenants: int = 0) -> ClusterView:
    """Return a cluster with a quarter of its accelerators of each type; its ``tenants`` have equal
    shares of 80 % of the accelerators.
    """
    share = accelerators // len(TYPES)
    nodes = [
        PoolNode(
            name=f"{kind}-{index:05d}",
            accelerator=kind,
            capacity=size,
            path=(kind, f"rack-{index // _RACK:04d}"),
        )
        for kind, size in TYPES.items()
        for index in range(share // size)
    ]
    limit = round(0.8 * accelerators / max(tenants, 1))
    return ClusterView(
        nodes=nodes,
        quotas={f"tenant-{index}": Quota(limit=limit) for index in range(tenants)},
    )


def on_all_types(tasks: Sequence[Task]) -> list[Task]:
    """Return tasks of one type of accelerator as tasks of all four types."""
    return [
        replace(
            task,
            accelerator=kind,
            step_seconds=task.step_seconds / faster,
            compute_seconds=task.compute_seconds / faster,
        )
        for task in tasks
        for kind, faster in _FASTER.items()
    ]


def jobs(
    tasks: Sequence[Task], how_many: int, random: np.random.Generator, tenants: int = 0
) -> list[PoolJob]:
    """Return jobs that have arrived and hold no accelerators yet."""
    tables = {}
    for task in tasks:
        if task.accelerator in TYPES:
            tables.setdefault(task.application, {})[task.accelerator] = speeds(task)
    names = sorted(tables)
    return [
        _job(index, tables[names[int(random.integers(len(names)))]], random, tenants)
        for index in range(how_many)
    ]


def speeds(task: Task) -> Floats:
    """Return the goodput at each of ``SIZES`` with the best measured batch size, on the fewest
    nodes that were measured.
    """
    rate = task.goodput(np.log(task.step_seconds))
    replicas, nodes = task.X[:, 0 + 1], task.X[:, 0]
    best = {}
    for size in np.unique(replicas):
        packed = (replicas == size) & (nodes == nodes[replicas == size].min())
        best[size] = rate[packed].max()
    known = np.log(sorted(best))
    found: Floats = np.exp(np.interp(np.log(SIZES), known, np.log([best[s] for s in sorted(best)])))
    return found


def _job(
    index: int, tables: dict[str, Floats], random: np.random.Generator, tenants: int
) -> PoolJob:
    kinds = sorted(tables)
    if random.random() < _ONE_TYPE:
        kinds = [kinds[int(random.integers(len(kinds)))]]
    low = int(random.choice([1, 1, 1, 2, 4]))
    high = low if random.random() < _RIGID else int(random.choice([8, 16, 32, 64]))
    sizes = SIZES[(low <= SIZES) & (high >= SIZES)]
    bend = random.uniform(0.9, 1.1)
    curves = {}
    for kind in kinds:
        rate = tables[kind][np.searchsorted(SIZES, sizes)]
        rate = np.maximum.accumulate(rate[0] * (rate / rate[0]) ** bend)
        curves[kind] = Curve.of(sizes, rate * random.lognormal(0, 0.1))
    return PoolJob(
        key=f"job-{index:05d}",
        curves=curves,
        tenant=f"tenant-{int(random.integers(tenants))}" if tenants else "",
        priority=int(random.random() < 0.1),
        attained_seconds=float(random.lognormal(8, 1.6)),
        remaining_seconds=float(random.lognormal(9, 1.6)),
        waited_seconds=60.0,
        age_seconds=3600.0,
        restart_seconds=float(random.uniform(5, 120)),
    )
