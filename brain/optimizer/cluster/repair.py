"""From prices to a division that fits: whole configurations, within every capacity and quota."""

import numpy as np

from brain.optimizer.cluster.columns import Ints
from brain.optimizer.cluster.prices import Market, Problem, taken
from brain.optimizer.cluster.views import Floats

#: Times that what is left over is offered around.
PASSES = 6
_SLACK = 1e-9


class Stock:
    """What is left while jobs are being accepted."""

    def __init__(self, problem: Problem, choice: Ints) -> None:
        self.problem = problem
        #: The column of each job; -1: none.
        self.choice = choice
        types, tenants = taken(problem, choice)
        #: Accelerators of each type; and what tenants may still have, inf for those without quota.
        self.free = problem.capacity - types
        self.room = np.append(problem.limit - tenants, np.inf)

    def take(self, job: int, column: int) -> bool:
        """Give ``job`` this column instead of what it has, if there is room."""
        columns, tenant = self.problem.columns, self.problem.tenant[job]
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
        """Take what ``job`` has."""
        had = self.choice[job]
        if had >= 0:
            size = self.problem.columns.size[job, had]
            self.free[self.problem.columns.accelerator[job, had]] += size
            self.room[self.problem.tenant[job]] += size
            self.choice[job] = -1


def settle(problem: Problem, market: Market) -> Ints:
    """A column for each job, or -1: those first to whom accelerators are worth most."""
    stock = Stock(problem, np.full(len(problem.tenant), -1))
    for job in _order(problem, market):
        stock.take(int(job), int(market.choice[job]))
    fill(stock)
    return stock.choice


def fill(stock: Stock, banned: frozenset[int] = frozenset()) -> None:
    """Offer what is left to whoever gains most by it per accelerator, a few times over."""
    for _ in range(PASSES):
        gain, extra = upgrades(stock)
        rate = np.where(extra > 0, gain / np.maximum(extra, 1), np.where(gain > 0, np.inf, 0))
        best = rate.argmax(axis=1)
        most = rate[np.arange(len(best)), best]
        wanting = np.flatnonzero(most > _SLACK)
        taken_any = False
        for job in wanting[np.argsort(-most[wanting], kind="stable")]:
            if int(job) not in banned:
                taken_any |= stock.take(int(job), int(best[job]))
        if not taken_any:
            return


def upgrades(stock: Stock) -> tuple[Floats, Floats]:
    """Utility and accelerators that each column has more than what its job has; -inf: no room."""
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


def _order(problem: Problem, market: Market) -> Ints:
    """Jobs that want something: those of tenants below their guarantee, then the most eager."""
    jobs = np.flatnonzero(market.surplus >= -_SLACK)
    size = problem.columns.size[jobs, market.choice[jobs]]
    kind = problem.columns.accelerator[jobs, market.choice[jobs]]
    eager = market.surplus[jobs] / np.maximum(market.accelerators[kind] * size, 1e-300)
    rank = jobs[np.argsort(-eager, kind="stable")]
    owed = np.append(problem.guaranteed, 0.0)
    if not owed.any():
        return rank
    first, rest = [], []
    for job in rank:
        tenant = problem.tenant[job]
        (first if owed[tenant] > 0 else rest).append(job)
        owed[tenant] -= problem.columns.size[job, market.choice[job]]
    return np.array(first + rest, dtype=np.int64)
