"""The table of configurations of all jobs, without those whose utility is unknown."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from brain.pool.allocator.utility import UtilityInputs, Weights
from brain.pool.allocator.views import DEVIATION, GOODPUT, NODES, REPLICAS, Floats, PoolJob

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Columns:
    """Configurations of J jobs, padded to the length C of the longest list; all arrays have shape
    (J, C).
    """

    #: Utility of each configuration; -inf for padding and for configurations that are not possible.
    utility: Floats
    #: Index of the configuration's type of accelerator.
    accelerator: Ints
    #: Accelerators that the configuration takes.
    size: Floats
    replicas: Ints
    #: Nodes over which the configuration is spread; 0 means as few as possible.
    nodes: Ints
    #: True for the configuration that the job has now.
    current: Flags
    #: Utility if the job had to move to the configuration; differs from ``utility`` only for the
    #: current configuration.
    moved: Floats


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Flat:
    """The curves of all jobs in one table of R rows; the rows of one job are adjacent, and among
    them the rows of one type.
    """

    rows: Floats
    #: Shape (R,): index of the job, of the type, and of the row among the job's.
    job: Ints
    kind: Ints
    column: Ints


def flatten(jobs: Sequence[PoolJob], types: Sequence[str]) -> Flat:
    """Return the rows of all curves on ``types``."""
    number = {name: index for index, name in enumerate(types)}
    parts, lengths, owners, kinds = [np.empty((0, 4))], [0], [0], [0]
    for index, job in enumerate(jobs):
        for name, curve in job.curves.items():
            kind = number.get(name)
            if kind is not None and len(curve.rows):
                parts.append(curve.rows)
                lengths.append(len(curve.rows))
                owners.append(index)
                kinds.append(kind)
    owner = np.repeat(np.array(owners), lengths)
    first = np.searchsorted(owner, owner, side="left")
    return Flat(
        rows=np.concatenate(parts),
        job=owner,
        kind=np.repeat(np.array(kinds), lengths),
        column=np.arange(len(owner)) - first,
    )


def tabulate(
    jobs: Sequence[PoolJob],
    flat: Flat,
    weights: Weights,
    *,
    possible: Flags,
    current: Flags,
    share: float,
) -> Columns:
    """Pad the ``possible`` rows of ``flat`` to one table, and compute the utility of each row.

    ``share`` is the pool's accelerators divided by the number of its jobs.
    """
    width = int(flat.column.max(initial=-1)) + 1
    shape = len(jobs), max(width, 1)

    def padded(values: NDArray[Any], empty: float = 0) -> NDArray[Any]:
        table = np.full(shape, empty, dtype=values.dtype)
        table[flat.job, flat.column] = values
        return table

    replicas = padded(flat.rows[:, REPLICAS], 1)
    each = np.array([job.gpus_per_replica for job in jobs], dtype=np.float64)[:, None]
    speedup = padded(flat.rows[:, GOODPUT] / base_rate(flat, len(jobs))[flat.job], 1)
    terms = UtilityInputs(
        speedup=speedup,
        deviation=padded(flat.rows[:, DEVIATION]),
        replicas=replicas,
        current=padded(current),
        runs=np.array([job.current is not None for job in jobs], dtype=bool)[:, None],
        even=np.where(replicas * each <= share, speedup, 1).max(axis=1, initial=1)[:, None],
        **_traits(jobs, weights),
    )
    allowed, elsewhere = padded(possible), replace(terms, current=np.zeros(shape, dtype=bool))
    return Columns(
        utility=np.where(allowed, weights.utility(terms, weights), -np.inf),
        moved=np.where(allowed, weights.utility(elsewhere, weights), -np.inf),
        accelerator=padded(flat.kind),
        size=replicas * each,
        replicas=replicas.astype(np.int64),
        nodes=padded(flat.rows[:, NODES]).astype(np.int64),
        current=terms.current,
    )


def base_rate(flat: Flat, jobs: int) -> Floats:
    """Return the goodput of each job's smallest configuration on its slowest type."""
    base = np.full(jobs, np.inf)
    if not len(flat.job):
        return base
    starts = np.flatnonzero(np.diff(flat.job, prepend=-1) | np.diff(flat.kind, prepend=-1))
    lengths = np.diff(starts, append=len(flat.job))
    replicas, rate = flat.rows[:, REPLICAS], flat.rows[:, GOODPUT]
    smallest = np.repeat(np.minimum.reduceat(replicas, starts), lengths)
    least = np.where(replicas == smallest, rate, np.inf)
    np.minimum.at(base, flat.job[starts], np.minimum.reduceat(least, starts))
    return base


def _traits(jobs: Sequence[PoolJob], weights: Weights) -> Mapping[str, Floats]:
    """Return the traits of each job that utilities depend on, shape (J, 1)."""
    rest = [np.nan if job.remaining_seconds is None else job.remaining_seconds for job in jobs]
    lists = {
        "attained_seconds": [job.attained_seconds for job in jobs],
        "remaining_seconds": rest,
        "waited_seconds": [job.waited_seconds for job in jobs],
        "age_seconds": [job.age_seconds for job in jobs],
        "restart_seconds": [job.restart_seconds for job in jobs],
        "priority": [weights.priority_base**job.priority for job in jobs],
    }
    return {name: np.array(values, dtype=np.float64)[:, None] for name, values in lists.items()}
