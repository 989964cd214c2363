"""Feasible divisions: whole configurations within every capacity and quota.

``settle`` makes a division from prices, in time that grows with the number of jobs. Prices of
limits alone leave tenants with accelerators that no job can use. So ``by_tenant`` divides each
limit exactly, and ``exchange`` swaps configurations between jobs. ``exact`` finds the best division
for few jobs: by dynamic programming in a small cluster without quotas, else by HiGHS, which would
take minutes for thousands of jobs.
"""

from typing import TYPE_CHECKING

import numpy as np

from brain.pool.allocator.columns import Ints
from brain.pool.allocator.prices import DivisionProblem, PriceSystem, taken
from brain.pool.allocator.views import Floats

if TYPE_CHECKING:
    from scipy.optimize import OptimizeResult

#: Passes in which free accelerators are offered to all jobs.
PASSES = 6
_SLACK = 1e-9
#: Gap, as a share of the value, at which HiGHS may stop; and branches after which it gives up.
TOLERANCE, _NODES = 1e-5, 2000
#: The largest product of configurations and fillings of the types for which dynamic programming is
#: used.
_CELLS = 5_000_000
#: Cells of dynamic programming allowed for limits of tenants, for each job of the pool, some 10 µs;
#: and the cells that one call for a configuration costs beside its own.
_CELLS_A_JOB, _CALL = 2_500, 1_000


class Stock:
    """The accelerators that are still free while configurations are chosen."""

    def __init__(self, problem: DivisionProblem, choice: Ints) -> None:
        self.problem = problem
        #: The column of each job; -1: none.
        self.choice = choice
        types, tenants = taken(problem, choice)
        #: Free accelerators of each type; and accelerators that each tenant may still take, inf for
        #: tenants without a quota.
        self.free = problem.capacity - types
        self.room = np.append(problem.limit - tenants, np.inf)

    def take(self, job: int, column: int) -> bool:
        """Give ``job`` the configuration ``column`` instead of its present one; return False if
        there are too few free accelerators, or if the tenant's limit does not allow it.
        """
        columns, tenant = self.problem.columns, int(self.problem.tenant[job])
        kind, size = columns.accelerator[job, column], columns.size[job, column]
        had = self.choice[job]
        old = columns.size[job, had] if had >= 0 else 0.0
        own = old if had >= 0 and columns.accelerator[job, had] == kind else 0.0
        if size - own > self.free[kind] + _SLACK or size - old > self.room[tenant] + _SLACK:
            return False
        self.drop(job)
        self.choice[job] = column
        self.free[kind] -= size
        self.room[tenant] -= size
        return True

    def drop(self, job: int) -> None:
        """Take all accelerators from ``job``."""
        had = self.choice[job]
        if had >= 0:
            size = self.problem.columns.size[job, had]
            self.free[self.problem.columns.accelerator[job, had]] += size
            self.room[self.problem.tenant[job]] += size
            self.choice[job] = -1


def settle(problem: DivisionProblem, market: PriceSystem, wanted: Ints | None = None) -> Ints:
    """Return the column of a configuration for each job (-1: none); the jobs that gain most from
    accelerators choose first.

    A job gets its ``wanted`` configuration if that fits; ``wanted`` defaults to the configurations
    that jobs prefer at the prices. Then ``fill`` gives the remaining accelerators away.
    """
    if wanted is None:
        wanted = np.where(market.surplus >= -_SLACK, market.choice, -1)
    stock = Stock(problem, np.full(len(problem.tenant), -1))
    for job in _order(problem, market, wanted):
        stock.take(job, int(wanted[job]))
    fill(stock)
    return stock.choice


def fill(stock: Stock) -> None:
    """Give free accelerators to the jobs that gain most utility per accelerator, in several
    passes.
    """
    for _ in range(PASSES):
        gain, extra = upgrades(stock)
        rate = np.where(extra > 0, gain / np.maximum(extra, 1), np.where(gain > 0, np.inf, 0))
        best = rate.argmax(axis=1)
        most = rate[np.arange(len(best)), best]
        wanting = np.flatnonzero(most > _SLACK)
        order = wanting[np.argsort(-most[wanting], kind="stable")].tolist()
        if not any([stock.take(job, int(best[job])) for job in order]):
            return


def upgrades(stock: Stock) -> tuple[Floats, Floats]:
    """Return how much more utility and how many more accelerators each configuration has than its
    job's present one; the utility is -inf if the configuration does not fit.
    """
    problem, columns = stock.problem, stock.problem.columns
    jobs, had = np.arange(len(stock.choice)), stock.choice
    holds = had >= 0
    value = np.where(holds, columns.utility[jobs, had], 0.0)[:, None]
    size = np.where(holds, columns.size[jobs, had], 0.0)[:, None]
    same = columns.accelerator == np.where(holds, columns.accelerator[jobs, had], -1)[:, None]
    extra = columns.size - np.where(same, size, 0.0)
    fits = extra <= stock.free[columns.accelerator] + _SLACK
    fits &= columns.size - size <= stock.room[problem.tenant][:, None] + _SLACK
    return np.where(fits, columns.utility - value, -np.inf), extra


def _order(problem: DivisionProblem, market: PriceSystem, wanted: Ints) -> list[int]:
    """Return jobs that want a column: first those of tenants below their guarantee, then by
    surplus per cost.
    """
    jobs = np.flatnonzero(wanted >= 0)
    size = problem.columns.size[jobs, wanted[jobs]]
    kind = problem.columns.accelerator[jobs, wanted[jobs]]
    price = market.accelerators[kind] + market.tenants[problem.tenant[jobs]]
    surplus = problem.columns.utility[jobs, wanted[jobs]] - price * size
    eager = surplus / np.maximum(price * size, 1e-300)
    rank: list[int] = jobs[np.argsort(-eager, kind="stable")].tolist()
    owed = [*problem.guaranteed.tolist(), 0.0]
    if not any(owed):
        return rank
    first: list[int] = []
    rest: list[int] = []
    for job in rank:
        tenant = int(problem.tenant[job])
        (first if owed[tenant] > 0 else rest).append(job)
        owed[tenant] -= float(problem.columns.size[job, wanted[job]])
    return first + rest


def worth(problem: DivisionProblem, choice: Ints) -> float:
    """Return the utility of a division less the cost of unmet guarantees."""
    jobs = np.flatnonzero(choice >= 0)
    _, tenants = taken(problem, choice)
    lack = np.maximum(problem.guaranteed - tenants, 0).sum()
    return float(problem.columns.utility[jobs, choice[jobs]].sum() - problem.shortfall * lack)


def exact(problem: DivisionProblem, market: PriceSystem, value: float) -> tuple[Ints, float] | None:
    """Return the best division to within ``TOLERANCE``, and a bound on every division; None if no
    division is found.

    ``value`` is the value of a known division. A better division cannot use a configuration whose
    loss at the prices exceeds the bound less ``value``, so few configurations remain.
    """
    job, column = core(problem, market, value)
    if not len(job):
        return None
    kinds = np.unique(problem.columns.accelerator[job, column])
    cells = len(job) * np.prod(problem.capacity[kinds] + 1)
    if not len(problem.limit) and cells < _CELLS:
        choice = _knapsack(problem, job, column, kinds)
        return choice, max(value, worth(problem, choice))
    found = solve(problem, job, column)
    if found.x is None:
        return None
    choice = np.full(len(problem.tenant), -1)
    picked = np.flatnonzero(found.x[: len(job)] > 0.5)
    choice[job[picked]] = column[picked]
    return choice, max(value, -float(found.mip_dual_bound))


def core(problem: DivisionProblem, market: PriceSystem, value: float) -> tuple[Ints, Ints]:
    """Return the configurations, as jobs and columns, that a division better than ``value`` may
    contain.
    """
    columns = problem.columns
    left = columns.utility - market.price(problem) * columns.size
    lack = np.maximum(market.surplus, 0)[:, None] - left
    near = lack <= (market.bound - value) * (1 + 1e-6) + 1e-9 * abs(market.bound)
    job, column = np.nonzero(near & (columns.size <= problem.capacity[columns.accelerator]))
    return job, column


def _knapsack(problem: DivisionProblem, job: Ints, column: Ints, kinds: Ints) -> Ints:
    """Return the best division of a cluster without quotas, by dynamic programming."""
    columns, room = problem.columns, problem.capacity[kinds].astype(np.int64)
    size = columns.size[job, column].astype(np.int64)
    axis = np.searchsorted(kinds, columns.accelerator[job, column])
    picked = pack(room, job, axis, size, columns.utility[job, column])
    choice = np.full(len(problem.tenant), -1)
    choice[job[picked]] = column[picked]
    return choice


def pack(room: Ints, job: Ints, axis: Ints, size: Ints, gain: Floats) -> Ints:
    """Return the set of configurations with the highest total value, at most one per job; jobs are
    given in order.

    This is dynamic programming over the jobs, for every amount up to ``room`` on every axis. An
    axis is a type of accelerator or a tenant's limit; a configuration takes ``size`` from one axis.
    The array ``room`` has the shape (axes,), and the other arrays have the shape (options,).
    """
    best, steps = np.zeros(room + 1), []
    axes, sizes, gains, left = axis.tolist(), size.tolist(), gain.tolist(), room.tolist()
    for options in np.split(np.arange(len(job)), np.flatnonzero(np.diff(job)) + 1):
        more, picked = best.copy(), np.zeros(best.shape, dtype=np.int16)
        for row, option in enumerate(options.tolist(), start=1):
            before: list[slice] = [slice(None)] * axes[option]
            with_it = (*before, slice(sizes[option], None))
            without = (*before, slice(None, left[axes[option]] + 1 - sizes[option]))
            worth_it = best[without] + gains[option]
            better = worth_it > more[with_it]
            np.copyto(more[with_it], worth_it, where=better)
            np.copyto(picked[with_it], row, where=better)
        best = more
        steps.append((options, picked))
    found = []
    for options, picked in reversed(steps):
        if row := int(picked[tuple(left)]):
            option = int(options[row - 1])
            found.append(option)
            left[axes[option]] -= sizes[option]
    return np.array(found, dtype=np.int64)


def solve(problem: DivisionProblem, job: Ints, column: Ints) -> "OptimizeResult":
    """Solve the integer program: a binary variable per configuration, and the shortfall of each
    guarantee.
    """
    from scipy import optimize, sparse

    columns, jobs = problem.columns, len(problem.tenant)
    quotas, types = len(problem.limit), len(problem.capacity)
    size, kind = columns.size[job, column], columns.accelerator[job, column]
    tenant, index, width = problem.tenant[job], np.arange(len(job)), len(job) + quotas
    owned, lacks = np.flatnonzero(tenant < quotas), np.arange(quotas)
    one = sparse.csr_array((np.ones(len(job)), (job, index)), shape=(jobs, width))
    by_type = sparse.csr_array((size, (kind, index)), shape=(types, width))
    by_tenant = sparse.csr_array((size[owned], (tenant[owned], owned)), shape=(quotas, width))
    lacking = sparse.csr_array((np.ones(quotas), (lacks, len(job) + lacks)), shape=(quotas, width))
    top = np.r_[np.ones(jobs), problem.capacity, problem.limit]
    rules = [optimize.LinearConstraint(sparse.vstack([one, by_type, by_tenant]), -np.inf, top)]
    if quotas:
        rules.append(optimize.LinearConstraint(by_tenant + lacking, problem.guaranteed, np.inf))
    return optimize.milp(
        -np.r_[columns.utility[job, column], np.full(quotas, -problem.shortfall)],
        integrality=np.r_[np.ones(len(job)), np.zeros(quotas)],
        bounds=optimize.Bounds(0, np.r_[np.ones(len(job)), np.full(quotas, np.inf)]),
        constraints=rules,
        options={"mip_rel_gap": TOLERANCE, "node_limit": _NODES},
    )
