"""Placement of a division on nodes: jobs that stay, jobs that move, and sizes for which no node has
room.
"""

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from brain.pool.allocator.columns import Ints
from brain.pool.allocator.packing import Stock
from brain.pool.allocator.placement import FreeAccelerators, Need
from brain.pool.allocator.prices import DivisionProblem, PriceSystem
from brain.pool.allocator.seating import Seating, rearrange
from brain.pool.allocator.views import Floats, JobPlacement, PoolJob

#: Configurations of one job that are tried if there is no room for its first one.
_TRIES = 8
#: Number of waiting jobs in a row that fit nowhere, after which the others are not tried.
_MISSES = 20
#: Most pairs that one round tries, about 40 µs each, and most pairs for one job.
BUDGET, _RIVALS = 1500, 60
#: Most passes over all jobs, and the least utility that counts as a gain.
_ROUNDS, _LEAST = 3, 1e-12
#: Share of its utility that a job must miss before it seeks better nodes.
_CONTENT = 0.005


def seat(
    jobs: Sequence[PoolJob],
    types: Sequence[str],
    problem: DivisionProblem,
    market: PriceSystem,
    choice: Ints,
    floor: FreeAccelerators,
    movable: float,
) -> Seating:
    """Place the configurations of ``choice`` on the nodes of ``floor``.

    A job that keeps its configuration keeps its nodes. The other jobs are placed in descending
    order of replicas per node, then of size. If there is no room for the best shape of a size, the
    job gets the next best shape. A job that could stay is moved to make room if the gain exceeds
    its loss.
    """
    capacity = zip(types, problem.capacity.tolist(), strict=True)
    seating = Seating(
        jobs=jobs,
        types=types,
        problem=problem,
        market=market,
        stock=Stock(problem, choice),
        floor=floor,
        movable={kind: movable * accelerators for kind, accelerators in capacity},
        shaped=[max(spreads) > 0 for spreads in problem.columns.nodes.tolist()],
    )
    chosen = np.flatnonzero(choice >= 0)
    staying = problem.columns.current[chosen, choice[chosen]]
    for job in chosen[staying].tolist():
        column = int(choice[job])
        seating.keep(job, column, float(problem.columns.utility[job, column]))
    for job in _largest_first(seating, chosen[~staying]):
        _seat_one(seating, job)
    _offer_rest(seating)
    return seating


def _largest_first(seating: Seating, jobs: Ints) -> list[int]:
    columns, choice = seating.problem.columns, seating.stock.choice[jobs]
    size, spread = columns.size[jobs, choice], columns.nodes[jobs, choice]
    largest = np.array([seating.floor.largest[kind] for kind in seating.types], dtype=np.float64)
    fewest = np.ceil(size / np.maximum(largest[columns.accelerator[jobs, choice]], 1))
    on_one = size / np.maximum(spread, fewest)
    order: list[int] = jobs[np.lexsort((jobs, -size, -on_one))].tolist()
    return order


def _seat_one(seating: Seating, job: int) -> None:
    column = int(seating.stock.choice[job])
    wished = float(seating.problem.columns.utility[job, column])
    if not seating.place(job, column):
        _take_less(seating, job, column)
    found = seating.worth.get(job, 0.0)
    if found < wished and _make_room(seating, job, column, wished - found):
        return
    _rather_stay(seating, job)


def _take_less(seating: Seating, job: int, column: int) -> None:
    """Give a job the best other size that fits."""
    need = seating.need(job, column)
    seating.squeezed[job] = f"no free nodes hold {need.replicas} replicas on {need.accelerator}"
    seating.stock.drop(job)
    for other in _ranked(seating, job):
        if other != column and seating.seat(job, other):
            return


def _ranked(seating: Seating, job: int) -> list[int]:
    """Return configurations with utility above 0, the best at the prices of the round first."""
    left = _reduced(seating.problem, seating.market, job)
    utility = seating.problem.columns.utility[job]
    order: list[int] = np.argsort(-left, kind="stable").tolist()
    return [column for column in order if utility[column] > 0][:_TRIES]


def _reduced(problem: DivisionProblem, market: PriceSystem, job: int) -> Floats:
    columns = problem.columns
    price = market.accelerators[columns.accelerator[job]] + market.tenants[problem.tenant[job]]
    left: Floats = columns.utility[job] - price * columns.size[job]
    return left


def _rather_stay(seating: Seating, job: int) -> None:
    """Let a job keep its present placement, if that is free and worth at least as much."""
    at = seating.jobs[job].current
    had = None if at is None else seating.now(job)
    if had is None or at is None or had[1] < seating.worth.get(job, 0.0):
        return
    placed, paid = seating.placed.get(job), seating.worth.get(job, 0.0)
    before = int(seating.stock.choice[job])
    if placed is not None:
        seating.unplace(job)
    if _is_free(seating, job, at) and seating.stock.take(job, had[0]):
        seating.keep(job, *had)
    elif placed is not None:
        seating.floor.occupy(placed, seating.jobs[job].gpus_per_replica)
        seating.settle(job, before, placed, paid)


def _is_free(seating: Seating, job: int, placement: JobPlacement) -> bool:
    each = seating.jobs[job].gpus_per_replica
    free = seating.floor.free
    names = set(placement.nodes)
    return all(name in free and free[name] >= each * placement.nodes.count(name) for name in names)


def _offer_rest(seating: Seating) -> None:
    """Offer accelerators that are left over to waiting jobs."""
    columns, stock = seating.problem.columns, seating.stock
    waiting = np.flatnonzero(stock.choice < 0)
    fits = columns.utility[waiting] > 0
    fits &= columns.size[waiting] <= stock.free[columns.accelerator[waiting]]
    density = np.where(fits, columns.utility[waiting] / columns.size[waiting], 0)
    most = density.max(axis=1, initial=0)
    misses = 0
    for index in np.argsort(-most, kind="stable").tolist():
        if most[index] <= 0 or misses > _MISSES:
            return
        job = int(waiting[index])
        misses = 0 if _serve(seating, job) else misses + 1


def _serve(seating: Seating, job: int) -> bool:
    """Give a waiting job the best configuration that fits."""
    return any(seating.seat(job, column) for column in _ranked(seating, job))


def _make_room(seating: Seating, job: int, column: int, gain: float) -> bool:
    """Move staying jobs for ``job`` if they lose less than ``gain`` in all; else change nothing."""
    need = seating.need(job, column)
    guests = _cheapest(seating, need)
    if not guests or job in guests:
        return False
    sizes = {guest: seating.size(guest) for guest in guests}
    moved = sum(sizes.values())
    if moved > seating.movable[need.accelerator]:
        return False
    if sum(_loss(seating, guest) for guest in guests) >= gain:
        return False
    order = [job, *sorted(guests, key=lambda guest: (-sizes[guest], guest))]
    columns = [column, *(int(seating.stock.choice[guest]) for guest in order[1:])]
    if rearrange(seating, order, columns) <= 0:
        return False
    seating.squeezed.pop(job, None)
    seating.movable[need.accelerator] -= moved
    return True


def _loss(seating: Seating, guest: int) -> float:
    """Return the utility that a job which stays would lose by a move."""
    column, columns = seating.stock.choice[guest], seating.problem.columns
    return float(columns.utility[guest, column] - columns.moved[guest, column])


def _cheapest(seating: Seating, need: Need) -> list[int] | None:
    """Return single-node jobs whose removal makes room for ``need`` at the least loss."""
    floor = seating.floor
    per_node = floor.largest[need.accelerator] // need.each
    if per_node == 0 or need.spread > -(-need.replicas // per_node):
        return None
    residents = _residents(seating, need.accelerator)
    whole, rest = divmod(need.replicas, per_node)
    chosen: list[int] = []
    used: set[str] = set()
    for room in [*[per_node * need.each] * whole, *([rest * need.each] if rest else [])]:
        offers = [
            (*offer, name)
            for name, guests in residents.items()
            if name not in used
            and (offer := _evict(seating, guests, room - floor.free[name])) is not None
        ]
        if not offers:
            return None
        _, guests, name = min(offers, key=lambda offer: (offer[0], floor.rank[offer[2]]))
        used.add(name)
        chosen += guests
    return chosen


def _residents(seating: Seating, kind: str) -> Mapping[str, list[int]]:
    """Return staying jobs that could be moved, by node: those on a single node."""
    found: dict[str, list[int]] = {
        name: [] for name, node in seating.floor.nodes.items() if node.accelerator == kind
    }
    for job, at in seating.placed.items():
        if at.accelerator == kind and seating.stays(job) and len(set(at.nodes)) == 1:
            found[at.nodes[0]].append(job)
    return found


def _evict(seating: Seating, guests: Iterable[int], lack: int) -> tuple[float, list[int]] | None:
    """Return the jobs that free ``lack`` accelerators at the least loss, and their loss."""
    going: list[int] = []
    loss = 0.0
    for guest in sorted(guests, key=lambda guest: (_loss(seating, guest), guest)):
        if lack <= 0:
            break
        going.append(guest)
        loss += _loss(seating, guest)
        lack -= int(seating.size(guest))
    return (loss, going) if lack <= 0 else None


def swap(seating: Seating, budget: int = BUDGET) -> None:
    """Move jobs with a poor shape, or let them exchange nodes with another job, while total utility
    increases.

    Jobs without their best shape are tried in the order of the utility that they lose, most first.
    """
    for _ in range(_ROUNDS):
        changed = False
        for job in _unhappy(seating):
            pairs = [[job], *([job, rival] for rival in _rivals(seating, job))]
            if len(pairs) > budget:
                return
            budget -= len(pairs)
            gains = [_swap(seating, pair, math.inf) for pair in pairs]
            best_gain = max(gains)
            if best_gain > _LEAST:
                _swap(seating, pairs[gains.index(best_gain)], _LEAST)
                changed = True
        if not changed:
            return


def _swap(seating: Seating, jobs: Sequence[int], least: float) -> float:
    columns = [int(seating.stock.choice[one]) for one in jobs]
    return rearrange(seating, jobs, columns, least=least)


def _unhappy(seating: Seating) -> list[int]:
    """Return jobs whose shape is not the best of their size, those that miss most first."""
    lacks = []
    for job in seating.placed:
        lack = best(seating, job) - seating.worth[job]
        if lack > _CONTENT * seating.worth[job]:
            lacks.append((-lack, job))
    return [job for _, job in sorted(lacks)]


def best(seating: Seating, job: int) -> float:
    """Return the utility of a job's size with its best shape."""
    forms = seating.forms(job, int(seating.stock.choice[job]))
    return max(form.utility for form in forms)


def _rivals(seating: Seating, job: int) -> list[int]:
    """Return other jobs on the same type, those of nearly equal size first."""
    kind, size = seating.placed[job].accelerator, seating.size(job)
    others = [
        (abs(seating.size(one) - size), one)
        for one, placement in seating.placed.items()
        if one != job and placement.accelerator == kind
    ]
    return [one for _, one in sorted(others)[:_RIVALS]]
