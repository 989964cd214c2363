"""Computes finish-time fairness: a job's completion time divided by the time that it would take
alone on an equal share.

    rho = completion / (seconds alone on a share of the cluster + a restart)

The share of a job is the cluster divided by the mean number of jobs that were present with it
(Mahajan et al., NSDI 2020, as in Pollux's evaluation). Alone, the job runs at the best size within
this share, in each epoch with the best batch size, on as few nodes as possible. If rho is below 1,
the job ran faster in the shared cluster than it would have on a share of its own.
"""

import math
from collections.abc import Sequence
from functools import cache

import numpy as np

from benchmarks.jct.applications import Application
from benchmarks.jct.pollux import Job, Outcome, Rules, share
from brain.errors import BadInput

#: Sizes and batches that are tried: of the latter so many, evenly in logarithms.
_SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
_BATCHES = 24


def rhos(jobs: Sequence[Job], outcome: Outcome, rules: Rules) -> list[float]:
    """Return the finish-time fairness of every job of a workload, in the order of the workload."""
    accelerators = rules.nodes * rules.gpus_per_node
    took = outcome.completion_seconds
    began = np.array([job.submitted for job in jobs], dtype=np.float64)
    ended = began + np.array([took[job.name] for job in jobs])
    company = _company(began, ended)
    return [
        took[job.name]
        / (_alone(job, accelerators / present, rules.gpus_per_node) + rules.restart_seconds)
        for job, present in zip(jobs, company.tolist(), strict=True)
    ]


def _company(began: np.ndarray, ended: np.ndarray) -> np.ndarray:
    """Return the mean number of jobs that were present with each job, itself included; arrays of
    shape (jobs,).
    """
    first = np.maximum(began[:, None], began[None, :])
    last = np.minimum(ended[:, None], ended[None, :])
    return np.asarray(np.maximum(last - first, 0).sum(axis=1) / (ended - began))


def _alone(job: Job, most: float, per_node: int) -> float:
    """Return the seconds with at most this number of accelerators (a fraction is allowed), at least
    one.
    """
    table = job.application
    sizes = (1,) if table.fixed else [size for size in _SIZES if size <= max(most, 1)]
    return job.slowdown * min(_seconds(_Key(table), size, per_node) for size in sizes)


class _Key:
    """An application as a cache key that is compared by identity."""

    def __init__(self, table: Application) -> None:
        self.table = table

    def __hash__(self) -> int:
        return id(self.table)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and self.table is other.table


@cache
def _seconds(key: _Key, size: int, per_node: int) -> float:
    """Return the seconds of a whole run at a size; infinite if no batch can be divided among its
    replicas.
    """
    table = key.table
    whole, rest = divmod(size, per_node)
    where = (per_node,) * whole + ((rest,) if rest else ())
    first = table.largest_batch if table.fixed else table.first_batch
    tried = np.geomspace(first, table.largest_batch, _BATCHES if first < table.largest_batch else 1)
    rates = [_rates(table, where, round(float(batch))) for batch in tried]
    possible = [one for one in rates if one is not None]
    if not possible:
        return math.inf
    return float((np.diff(table.progress) / np.max(possible, axis=0)).sum())


def _rates(table: Application, where: tuple[int, ...], batch: int) -> np.ndarray | None:
    """Return the progress per second in each epoch, shape (epochs,); None if the batch cannot be
    divided in this way.
    """
    size = sum(where)
    local, accumulation = share(table, batch, size)
    local = min(local, table.largest_batch // (size * accumulation))
    if local < table.smallest_local:
        return None
    try:
        step, sync = table.seconds(where, local)
    except BadInput:  # never measured
        return None
    batch = size * local * accumulation
    if batch < table.first_batch:
        return None
    found = [table.gradients(batch, epoch) for epoch in range(table.epochs)]
    square, variance = np.array(found).T
    gain = (variance + square) / (variance / (batch / table.first_batch) + square)
    return np.asarray(gain / (step + (accumulation - 1) * (step - sync)))
