"""A division brought to nodes: who stays, who goes where, and what to do where nothing fits."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from brain.optimizer.cluster.columns import Ints
from brain.optimizer.cluster.division import Stock
from brain.optimizer.cluster.placement import Floor, Need
from brain.optimizer.cluster.prices import Market, Problem
from brain.optimizer.cluster.views import Floats, JobView, Placement

#: Configurations of one job that are tried after its first one found no room.
_TRIES = 8
#: Waiting jobs in a row that fit nowhere before the rest is not asked.
_MISSES = 20


@dataclass(frozen=True, slots=True)
class Form:
    """One way to spread a size over nodes."""

    column: int
    #: 0: as few nodes as possible.
    spread: int
    #: What it is worth to a job that has to go there.
    utility: float


@dataclass(slots=True, kw_only=True, eq=False)
class Seating:
    """Nodes being given out. ``placed`` and ``stock.choice`` are the result."""

    jobs: Sequence[JobView]
    types: Sequence[str]
    problem: Problem
    market: Market
    stock: Stock
    floor: Floor
    placed: dict[int, Placement] = field(default_factory=dict)
    #: What each placement is worth.
    worth: dict[int, float] = field(default_factory=dict)
    #: Jobs that did not get the configuration that prices allowed, and why.
    squeezed: dict[int, str] = field(default_factory=dict)
    #: Accelerators that stay with their jobs but may still be moved, by type.
    movable: dict[str, float]
    #: Whether a job's curves know shapes.
    shaped: Sequence[bool]
    _forms: dict[tuple[int, int, int], list[Form]] = field(default_factory=dict)

    def forms(self, job: int, column: int) -> list[Form]:
        """The shapes in which a job may have the size of ``column``, the best first."""
        columns = self.problem.columns
        if not self.shaped[job]:
            return [Form(column, 0, float(columns.moved[job, column]))]
        kind, replicas = int(columns.accelerator[job, column]), int(columns.replicas[job, column])
        found = self._forms.get((job, kind, replicas))
        if found is None:
            found = self._forms[job, kind, replicas] = self._shapes(job, kind, replicas)
        return found

    def _shapes(self, job: int, kind: int, replicas: int) -> list[Form]:
        columns = self.problem.columns
        rows = zip(
            columns.accelerator[job].tolist(),
            columns.replicas[job].tolist(),
            columns.nodes[job].tolist(),
            columns.moved[job].tolist(),
            strict=True,
        )
        found = [
            Form(column, spread, utility)
            for column, (of, size, spread, utility) in enumerate(rows)
            if of == kind and size == replicas and utility > -math.inf
        ]
        return sorted(found, key=lambda form: (-form.utility, form.spread))

    def need(self, job: int, column: int) -> Need:
        """What a configuration asks of nodes."""
        columns = self.problem.columns
        return Need(
            self.types[columns.accelerator[job, column]],
            int(columns.replicas[job, column]),
            self.jobs[job].gpus_per_replica,
            int(columns.nodes[job, column]),
        )

    def now(self, job: int) -> tuple[int, float] | None:
        """The column of what the job has, and its worth; None where it has nothing."""
        columns = self.problem.columns
        found = np.flatnonzero(columns.current[job] & np.isfinite(columns.utility[job]))
        return (int(found[0]), float(columns.utility[job, found[0]])) if len(found) else None

    def stays(self, job: int) -> bool:
        """Whether the job is where it was."""
        return self.placed.get(job) == self.jobs[job].current

    def size(self, job: int) -> float:
        """Accelerators that a job has been given."""
        return float(self.problem.columns.size[job, self.stock.choice[job]])

    def settle(self, job: int, column: int, placement: Placement, worth: float) -> None:
        """Note nodes that were taken for a job."""
        self.placed[job], self.worth[job] = placement, worth
        self.stock.choice[job] = column

    def keep(self, job: int, column: int, worth: float) -> None:
        """Leave a job where it is."""
        at = self.jobs[job].current
        assert at is not None, "only a job that runs can stay"
        self.floor.occupy(at, self.jobs[job].gpus_per_replica)
        self.settle(job, column, at, worth)

    def unplace(self, job: int) -> None:
        """Give back the nodes of a job, not its share."""
        self.floor.release(self.placed.pop(job), self.jobs[job].gpus_per_replica)
        del self.worth[job]

    def seat(self, job: int, column: int) -> bool:
        """Give a job that has nothing a share and nodes, or neither."""
        if not self.stock.take(job, column):
            return False
        if not self.place(job, column):
            self.stock.drop(job)
            return False
        return True

    def place(self, job: int, column: int) -> bool:
        """Find nodes for a size of a job: in its best shape that there is room for."""
        at, forms = self.jobs[job].current, self.forms(job, column)
        own = at.nodes if at else ()
        for form in forms:
            need = self.need(job, form.column)
            found = self.floor.place(need, own) or self.floor.squeeze(need)
            if found is not None:
                self._note(job, form, found)
                return True
        found = self.floor.scatter(self.need(job, column), own)
        if found is not None:
            spread = len(set(found.nodes))
            near = min(forms, key=lambda form: (abs(form.spread - spread), form.spread))
            self._note(job, near, found)
        return found is not None

    def _note(self, job: int, form: Form, found: Placement) -> None:
        """Note what was found, which may be just what the job has."""
        at = self.jobs[job].current
        if at is not None and sorted(at.nodes) == sorted(found.nodes) and (now := self.now(job)):
            self.settle(job, now[0], at, now[1])
        else:
            self.settle(job, form.column, found, form.utility)


def seat(
    jobs: Sequence[JobView],
    types: Sequence[str],
    problem: Problem,
    market: Market,
    choice: Ints,
    floor: Floor,
    movable: float,
) -> Seating:
    """Bring ``choice`` to the nodes of ``floor``.

    Who keeps its configuration keeps its nodes. The others are placed, those with most replicas
    on a node first, then the largest. Where the best shape of a size finds no room the next best
    is taken, and jobs that would stay are moved if together that pays.
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
    """Give a job the best other size that there is room for."""
    need = seating.need(job, column)
    seating.squeezed[job] = f"{need.replicas} on {need.accelerator} fit on no nodes that are free"
    seating.stock.drop(job)
    for other in _ranked(seating, job):
        if other != column and seating.seat(job, other):
            return


def _ranked(seating: Seating, job: int) -> list[int]:
    """Configurations worth something, the best at the prices of the round first."""
    left = _reduced(seating.problem, seating.market, job)
    utility = seating.problem.columns.utility[job]
    order: list[int] = np.argsort(-left, kind="stable").tolist()
    return [column for column in order if utility[column] > 0][:_TRIES]


def _reduced(problem: Problem, market: Market, job: int) -> Floats:
    columns = problem.columns
    price = market.accelerators[columns.accelerator[job]] + market.tenants[problem.tenant[job]]
    left: Floats = columns.utility[job] - price * columns.size[job]
    return left


def _rather_stay(seating: Seating, job: int) -> None:
    """Where what was found is worth no more than what the job has: it keeps that, if it is free."""
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


def _is_free(seating: Seating, job: int, placement: Placement) -> bool:
    each = seating.jobs[job].gpus_per_replica
    free = seating.floor.free
    names = set(placement.nodes)
    return all(name in free and free[name] >= each * placement.nodes.count(name) for name in names)


def _offer_rest(seating: Seating) -> None:
    """What fragments left over goes to those who wait."""
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
    """Give a waiting job the best that there is room for."""
    return any(seating.seat(job, column) for column in _ranked(seating, job))


def _make_room(seating: Seating, job: int, column: int, gain: float) -> bool:
    """Move jobs that would stay, if together they lose less than ``gain``; undo it if it fails."""
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


def rearrange(
    seating: Seating, jobs: Sequence[int], columns: Sequence[int], *, least: float = 1e-12
) -> float:
    """Place ``jobs`` anew, in this order, if together they gain more than ``least``; else undo it.

    Returns what they gained, done or not; -inf where they cannot be placed.
    """
    held = [_lift(seating, job) for job in jobs]
    done = 0
    for job, column in zip(jobs, columns, strict=True):
        if not seating.seat(job, column):
            break
        done += 1
    gain = -math.inf
    if done == len(jobs):
        gain = sum(seating.worth[job] for job in jobs) - sum(one.worth for one in held)
    if gain > least:
        return gain
    for job in jobs[:done]:
        seating.unplace(job)
        seating.stock.drop(job)
    for job, one in zip(jobs, held, strict=True):
        if one.placement is not None:
            seating.stock.take(job, one.column)
            seating.floor.occupy(one.placement, seating.jobs[job].gpus_per_replica)
            seating.settle(job, one.column, one.placement, one.worth)
    return gain


@dataclass(frozen=True, slots=True)
class _Held:
    """What a job had before it was lifted."""

    column: int
    placement: Placement | None
    worth: float


def _lift(seating: Seating, job: int) -> _Held:
    held = _Held(
        int(seating.stock.choice[job]), seating.placed.get(job), seating.worth.get(job, 0.0)
    )
    if held.placement is not None:
        seating.unplace(job)
    seating.stock.drop(job)
    return held


def _loss(seating: Seating, guest: int) -> float:
    """What moving a job that stays costs it."""
    column, columns = seating.stock.choice[guest], seating.problem.columns
    return float(columns.utility[guest, column] - columns.moved[guest, column])


def _cheapest(seating: Seating, need: Need) -> list[int] | None:
    """Jobs on one node each whose going makes room for ``need`` at the least loss."""
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
    """Jobs that stay and could be moved, by node: those that are on this node alone."""
    found: dict[str, list[int]] = {
        name: [] for name, node in seating.floor.nodes.items() if node.accelerator == kind
    }
    for job, at in seating.placed.items():
        if at.accelerator == kind and seating.stays(job) and len(set(at.nodes)) == 1:
            found[at.nodes[0]].append(job)
    return found


def _evict(seating: Seating, guests: Iterable[int], lack: int) -> tuple[float, list[int]] | None:
    """The cheapest guests that hold ``lack`` accelerators, and what they lose."""
    going: list[int] = []
    loss = 0.0
    for guest in sorted(guests, key=lambda guest: (_loss(seating, guest), guest)):
        if lack <= 0:
            break
        going.append(guest)
        loss += _loss(seating, guest)
        lack -= int(seating.size(guest))
    return (loss, going) if lack <= 0 else None
