"""Other ways to solve the same problem: the linear relaxation and the branch and bound of HiGHS,
and a greedy heap that gives the next accelerators to the job that gains most from them.
"""

import heapq
from dataclasses import dataclass

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, linprog, milp
from scipy.sparse import csr_array, vstack

from brain.pool.allocator.prices import DivisionProblem


@dataclass(frozen=True, slots=True)
class Rules:
    """The problem as a matrix: maximise ``gain`` x subject to ``matrix`` x <= ``most``."""

    gain: np.ndarray
    matrix: csr_array
    most: np.ndarray


def rules(problem: DivisionProblem) -> Rules:
    """Return the problem with a row for each job, type and tenant, and a column for each
    configuration.
    """
    columns = problem.columns
    job, column = np.nonzero(np.isfinite(columns.utility))
    size, index = columns.size[job, column], np.arange(len(job))
    one = csr_array((np.ones(len(job)), (job, index)), shape=(len(problem.tenant), len(job)))
    kinds = columns.accelerator[job, column]
    kind = csr_array((size, (kinds, index)), shape=(len(problem.capacity), len(job)))
    limited = np.flatnonzero(problem.tenant[job] < len(problem.limit))
    tenant = csr_array(
        (size[limited], (problem.tenant[job][limited], limited)),
        shape=(len(problem.limit), len(job)),
    )
    most = np.r_[np.ones(len(problem.tenant)), problem.capacity, problem.limit]
    return Rules(columns.utility[job, column], csr_array(vstack([one, kind, tenant])), most)


def relaxation(rows: Rules) -> float:
    """Return the value of the linear relaxation, which gives out parts of configurations, so no
    division exceeds this value.
    """
    found = linprog(-rows.gain, A_ub=rows.matrix, b_ub=rows.most, bounds=(0, 1), method="highs")
    return -float(found.fun)


def branch_and_bound(rows: Rules, seconds: float) -> float | None:
    """Return the value of the best division to within 0.1 %; None if none was found in time."""
    found = milp(
        -rows.gain,
        integrality=np.ones(len(rows.gain)),
        bounds=Bounds(0, 1),
        constraints=[LinearConstraint(rows.matrix, -np.inf, rows.most)],
        options={"mip_rel_gap": 1e-3, "time_limit": seconds},
    )
    return None if found.x is None else -float(found.fun)


def greedy(problem: DivisionProblem) -> float:
    """Return the value that the heap reaches: the job that gains most per accelerator takes its
    next size.

    A job begins with the configuration that is best per accelerator and still fits, and grows on
    that type of accelerator.
    """
    columns = problem.columns
    free, room = problem.capacity.copy(), np.append(problem.limit, np.inf)
    had: dict[int, int] = {}

    def step(job: int) -> tuple[float, int, int] | None:
        """Return the configuration that the job would take next from the free accelerators."""
        column = had.get(job)
        size = 0.0 if column is None else columns.size[job, column]
        utility = 0.0 if column is None else columns.utility[job, column]
        more, gain = columns.size[job] - size, columns.utility[job] - utility
        can = (more > 0) & (gain > 0) & (more <= free[columns.accelerator[job]])
        can &= more <= room[problem.tenant[job]]
        if column is not None:
            can &= columns.accelerator[job] == columns.accelerator[job, column]
        rate = np.where(can, gain / np.where(can, more, 1), 0)
        best = int(rate.argmax())
        return (-float(rate[best]), job, best) if rate[best] > 0 else None

    heap = [found for job in range(len(problem.tenant)) if (found := step(job))]
    heapq.heapify(heap)
    while heap:
        _, job, column = heapq.heappop(heap)
        now = step(job)
        if now is None or now[2] != column:
            if now is not None:
                heapq.heappush(heap, now)
            continue
        more = columns.size[job, column] - (columns.size[job, had[job]] if job in had else 0.0)
        free[columns.accelerator[job, column]] -= more
        room[problem.tenant[job]] -= more
        had[job] = column
        if (after := step(job)) is not None:
            heapq.heappush(heap, after)
    return float(sum(columns.utility[job, column] for job, column in had.items()))
