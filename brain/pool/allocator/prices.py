"""Dual prices: costs of accelerators at which the separate choices of all jobs together fill the
cluster.

    maximise    sum_j U_j,k(j)                one configuration, or none, for each job
    such that   sum of sizes on a type   <= its capacity
                sum of sizes of a tenant <= its limit, >= its guarantee (or pay for the lack)

Every vector of prices gives an upper bound on the best division (its Lagrangian dual):

    D = sum_j max(0, max_c U_jc - price_jc size_jc) + sum_rows price_r allowance_r

A round reports the best bound that it found (models.md section 4.3).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from brain.pool.allocator.columns import Columns, Ints
from brain.pool.allocator.views import Floats

#: Most iterations without and with an earlier round's prices, and the step below which they stop.
COLD, WARM, STILL = 80, 30, 2e-4
#: First and largest step, in logarithms of prices; and the factors of a step when its row goes on
#: in the same direction, or turns.
_FIRST, _LARGEST, _FASTER, _SLOWER = 0.5, 1.0, 1.3, 0.5
#: The smallest price, and the price below which an earlier round's price is ignored; both in usual
#: prices.
_LEAST, _LOST = 1e-6, 1e-3
#: Largest excess, after ``WARM`` iterations, at which prices that began from an earlier round are
#: kept.
_NEAR = 0.05
#: Where limits are divided exactly afterwards, the search for prices ends once this many iterations
#: lower the bound by less than this share of it.
_IDLE, _PROGRESS = 10, 1e-5


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DivisionProblem:
    """The input of one division: J jobs, T types, Q tenants with a quota."""

    columns: Columns
    #: Shape (T,): accelerators of each type, all above 0.
    capacity: Floats
    #: Shape (J,): index of the job's tenant, Q for jobs without a quota.
    tenant: Ints
    #: Shape (Q,): limit of each tenant, inf for none; and its guarantee, 0 for none.
    limit: Floats
    guaranteed: Floats
    #: Penalty, in utility, for each accelerator that a guarantee lacks.
    shortfall: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PriceSystem:
    """The prices of one division, with the choices of jobs and the bound that follow from the
    prices.
    """

    #: Shape (T,): price of each type.
    accelerators: Floats
    #: Shape (Q,) each, at least 0: price that a limit adds, and discount that a guarantee gives.
    limits: Floats
    guarantees: Floats
    #: The upper bound D.
    bound: float
    #: Shape (J,): the column that each job prefers, and its surplus; a surplus below 0 means that
    #: the job prefers nothing.
    choice: Ints
    surplus: Floats

    @property
    def tenants(self) -> Floats:
        """Return the tenants' surcharges on each accelerator's price, shape (Q + 1,); 0 for jobs
        without a quota.
        """
        return np.append(self.limits - self.guarantees, 0.0)

    def price(self, problem: "DivisionProblem") -> Floats:
        """Return the cost of one accelerator in each configuration, shape (J, C)."""
        tenants: Floats = self.tenants[problem.tenant, None]
        return self.accelerators[problem.columns.accelerator] + tenants


def offer(
    problem: DivisionProblem, accelerators: Floats, limits: Floats, guarantees: Floats
) -> PriceSystem:
    """Return the result of given prices: each job's choice and net utility, and the bound."""
    columns = problem.columns
    tenants = np.append(limits - guarantees, 0.0)[problem.tenant, None]
    left = columns.utility - (accelerators[columns.accelerator] + tenants) * columns.size
    choice = left.argmax(axis=1)
    surplus = left[np.arange(len(choice)), choice]
    limited = np.isfinite(problem.limit)
    bound = surplus[surplus > 0].sum() + accelerators @ problem.capacity
    bound += limits[limited] @ problem.limit[limited] - guarantees @ problem.guaranteed
    return PriceSystem(
        accelerators=accelerators,
        limits=limits,
        guarantees=guarantees,
        bound=float(bound),
        choice=choice,
        surplus=surplus,
    )


def clear(problem: DivisionProblem, start: Sequence[Floats] | None = None) -> PriceSystem:
    """Find the prices with the lowest bound; start from an earlier round's prices if they are
    given.

    All prices are 0 if accelerators suffice for all jobs.
    """
    usual, edges = _usual(problem), np.cumsum([len(problem.capacity), len(problem.limit)])
    best = market = offer(problem, *np.split(np.zeros(len(usual)), edges))
    before = excess = _excess(problem, market)
    if (excess <= 0).all():
        return market
    ceiling = np.where(np.arange(len(usual)) < edges[1], np.inf, problem.shortfall)
    prices = usual
    if start is not None:
        known = np.concatenate(start)
        prices = np.where(known > _LOST * usual, known, usual)
    step = np.full(len(usual), _FIRST if start is None else _FIRST / 4)
    limited, progress, goal = bool(np.isfinite(problem.limit).any()), 0, np.inf
    for iteration in range(COLD):
        market = offer(problem, *np.split(prices, edges))
        best = min(best, market, key=lambda market: market.bound)
        if best.bound < goal:
            progress, goal = iteration, best.bound - _PROGRESS * abs(best.bound)
        excess = _excess(problem, market)
        near = start is not None and iteration >= WARM and excess.max() < _NEAR
        idle = limited and iteration >= progress + _IDLE
        if near or idle or step.max() < STILL:
            break
        if iteration:
            step *= np.where(np.sign(excess) == np.sign(before), _FASTER, _SLOWER)
            np.minimum(step, _LARGEST, out=step)
        before = excess
        prices = prices * np.exp(np.clip(4 * excess, -1, 1) * step)
        prices = np.clip(prices, _LEAST * usual, ceiling)
    return best


def _usual(problem: DivisionProblem) -> Floats:
    """Return the prices to begin with; 0 for rows of absent quotas."""
    most = np.maximum(problem.columns.utility.max(axis=1), 0).sum()
    price = max(0.5 * float(most) / max(float(problem.capacity.sum()), 1.0), 1e-12)
    quotas = np.concatenate([np.isfinite(problem.limit), 0.01 * (problem.guaranteed > 0)])
    return np.concatenate([np.full(len(problem.capacity), price), price * quotas])


def _excess(problem: DivisionProblem, market: PriceSystem) -> Floats:
    """Return how far each row is over (above 0) or under its allowance, as a share of the
    allowance.
    """
    types, tenants = taken(problem, np.where(market.surplus >= 0, market.choice, -1))
    limited, owed = np.isfinite(problem.limit), problem.guaranteed > 0
    over = tenants / np.where(limited, np.maximum(problem.limit, 1), 1) - 1
    lack = 1 - tenants / np.maximum(problem.guaranteed, 1)
    return np.concatenate(
        [
            types / np.maximum(problem.capacity, 1) - 1,
            np.where(limited, over, 0),
            np.where(owed, lack, 0),
        ]
    )


def taken(problem: DivisionProblem, choice: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """Return the accelerators of each type and of each tenant's quota that ``choice`` takes; -1
    chooses nothing.
    """
    jobs = np.flatnonzero(choice >= 0)
    columns, picked = problem.columns, choice[jobs]
    size = columns.size[jobs, picked]
    kind, tenant = columns.accelerator[jobs, picked], problem.tenant[jobs]
    types: Floats = np.bincount(kind, size, minlength=len(problem.capacity)).astype(np.float64)
    tenants: Floats = np.bincount(tenant, size, minlength=len(problem.limit) + 1).astype(np.float64)
    return types, tenants[:-1]
