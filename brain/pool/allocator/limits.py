"""Exact divisions within tenants' limits, for pools in which prices alone leave many accelerators
unused.

At given prices of types, dividing one tenant's limit is a separate knapsack problem, which dynamic
programming solves. The resulting bound on the whole division is tighter than the bound that follows
from a price for the limit. If too many accelerators of a type are taken afterwards, ``settle`` and
``exchange`` repair the division.
"""

from collections.abc import Iterable

import numpy as np

from brain.pool.allocator.columns import Ints
from brain.pool.allocator.packing import PASSES, pack, settle, worth
from brain.pool.allocator.prices import DivisionProblem, PriceSystem, taken
from brain.pool.allocator.views import Floats

#: Cells of dynamic programming allowed for each job of the pool, some 10 µs; and the cells that one
#: call for a configuration costs beside its own.
_CELLS, _CALL = 2_500, 1_000
_SLACK = 1e-9


def refine(problem: DivisionProblem, market: PriceSystem, choice: Ints) -> tuple[Ints, float]:
    """Improve a division by dividing each tenant's limit exactly; return the division and a bound.

    The division is at least as good as ``choice``, and the bound is at least as low as the bound
    from prices alone.
    """
    wanted, bound = by_tenant(problem, market, choice)
    other = settle(problem, market, wanted)
    better = other if worth(problem, other) > worth(problem, choice) else choice
    return exchange(problem, market, better), bound


def by_tenant(problem: DivisionProblem, market: PriceSystem, choice: Ints) -> tuple[Ints, float]:
    """Divide every tenant's limit as well as possible at the prices of types; return this division,
    and an upper bound on every division.

    The division keeps every limit, but may need more accelerators of a type than exist. A
    configuration is left out if its loss at the prices exceeds the loss of the tenant's whole
    ``choice``, so few configurations remain. Tenants with the largest loss come first, until the
    time is used up.
    """
    lack = _lack(problem, market)
    _, used = taken(problem, choice)
    limits = np.flatnonzero(np.isfinite(problem.limit))
    total = np.zeros(len(problem.limit) + 1)
    np.add.at(total, problem.tenant, _had(lack, choice))
    total[limits] += market.limits[limits] * (problem.limit[limits] - used[limits])
    found, bound, cells = choice.copy(), market.bound, _CELLS * len(choice)
    for tenant in limits[np.argsort(-total[limits], kind="stable")].tolist():
        own = np.flatnonzero(problem.tenant == tenant)
        room = int(min(problem.limit[tenant], problem.capacity.sum()))
        near = lack[own, :-1] <= total[tenant] * (1 + 1e-6) + _SLACK
        row, column = np.nonzero(near & (problem.columns.size[own] <= room))
        cost = len(row) * (room + _CALL)
        if cost > cells:
            continue
        cells -= cost
        best, gain = _fill(problem, market, own[row], column, room)
        found[own] = best[own]
        priced = np.maximum(market.surplus[own], 0).sum()
        priced += market.limits[tenant] * problem.limit[tenant]
        bound -= max(0.0, float(priced) - gain)
    return found, bound


def _fill(
    problem: DivisionProblem, market: PriceSystem, job: Ints, column: Ints, room: int
) -> tuple[Ints, float]:
    """Return the best of some configurations of a tenant, and their gain at prices of types."""
    best, columns = np.full(len(problem.tenant), -1), problem.columns
    size, tenant = columns.size[job, column], problem.tenant[job]
    price = market.accelerators[columns.accelerator[job, column]] - market.guarantees[tenant]
    gain = columns.utility[job, column] - price * size
    axis = np.zeros(len(job), dtype=np.int64)
    picked = pack(np.array([room]), job, axis, size.astype(np.int64), gain)
    best[job[picked]] = column[picked]
    return best, float(gain[picked].sum())


def _lack(problem: DivisionProblem, market: PriceSystem) -> Floats:
    """Return by how much each configuration is worth less, at the prices, than the preferred one.

    Shape (J, C + 1); the last column, which is also -1, is for no configuration.
    """
    left = problem.columns.utility - market.price(problem) * problem.columns.size
    none = np.zeros((len(left), 1))
    found: Floats = np.maximum(market.surplus, 0)[:, None] - np.hstack([left, none])
    return found


def _had(lack: Floats, choice: Ints) -> Floats:
    found: Floats = lack[np.arange(len(choice)), choice]
    return found


def exchange(problem: DivisionProblem, market: PriceSystem, choice: Ints) -> Ints:
    """Exchange configurations between pairs of jobs if this increases utility, and the pair takes
    no more of any type and limit than before.
    """
    lack, choice = _lack(problem, market), choice.copy()
    for _ in range(PASSES):
        changed: set[int] = set()
        for one, its, other, others in _pairs(problem, lack, choice):
            if one not in changed and other not in changed:
                choice[one], choice[other] = its, others
                changed |= {one, other}
        if not changed:
            break
    return choice


def _pairs(
    problem: DivisionProblem, lack: Floats, choice: Ints
) -> Iterable[tuple[int, int, int, int]]:
    """Yield job and new column of both members of a pair: the second job takes the first one's
    accelerators, and the other way round.
    """
    now = _had(lack, choice)
    # A pair gains only if the new lack of each is below the present lacks of both together.
    near = lack < (now + now.max(initial=0))[:, None]
    near[np.arange(len(choice)), choice] = False
    job, column = np.nonzero(near)
    column[column == lack.shape[1] - 1] = -1
    has, had, before = _what(problem, job, choice[job])
    wants, wanted, after = _what(problem, job, column)
    # Tenants do not matter where both sizes stay the same.
    tenant = np.where(had == wanted, len(problem.limit), problem.tenant[job])
    most = int(max(has.max(initial=0), wants.max(initial=0))) + 1
    key = (has * most + wants) * (len(problem.limit) + 1) + tenant
    opposite = (wants * most + has) * (len(problem.limit) + 1) + tenant
    gain = after - before
    order = np.lexsort((-gain, key))
    keys, first = np.unique(key[order], return_index=True)
    best = order[first]
    at = np.minimum(np.searchsorted(keys, opposite[best]), len(keys) - 1)
    fits = np.flatnonzero((keys[at] == opposite[best]) & (has[best] < wants[best]))
    one, other = best[fits], best[at[fits]]
    together = gain[one] + gain[other]
    good = np.flatnonzero(together > _SLACK)
    good = good[np.argsort(-together[good], kind="stable")]
    one, other = one[good], other[good]
    parts = job[one], column[one], job[other], column[other]
    return zip(*(part.tolist() for part in parts), strict=True)


def _what(problem: DivisionProblem, job: Ints, column: Ints) -> tuple[Ints, Floats, Floats]:
    """Return type and size of a column as one number (0 for nothing), its size, and its utility."""
    columns, some = problem.columns, column >= 0
    size = np.where(some, columns.size[job, column], 0)
    kind = columns.accelerator[job, column] + len(problem.capacity) * size.astype(np.int64)
    return np.where(some, kind, 0), size, np.where(some, columns.utility[job, column], 0)
