"""A division brought to nodes: who stays, who goes where, and what to do where nothing fits."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from brain.optimizer.cluster.columns import Ints
from brain.optimizer.cluster.division import Stock
from brain.optimizer.cluster.placement import Floor, Need
from brain.optimizer.cluster.prices import Market, Problem
from brain.optimizer.cluster.views import Floats, JobView, Placement

#: Share of a type's accelerators that may be moved in one round to make room for others.
MOVABLE = 0.1
#: Configurations of one job that are tried after the first one found no room.
_TRIES = 8
#: Waiting jobs in a row that fit nowhere before the rest is not asked.
_MISSES = 20


@dataclass(slots=True, kw_only=True, eq=False)
class Seating:
    """Nodes being given out. ``placed`` and ``stock.choice`` are the result."""

    jobs: Sequence[JobView]
    types: Sequence[str]
    problem: Problem
    market: Market
    stock: Stock
    floor: Floor
    placed: dict[int, Placement]
    #: Jobs whose first configuration found no room, and what was said about it.
    squeezed: dict[int, str]
    #: Accelerators that may still be moved, by type.
    movable: dict[str, float]

    def stays(self, job: int) -> bool:
        """Whether the job's choice is what it has."""
        return bool(self.problem.columns.current[job, self.stock.choice[job]])

    def need(self, job: int, column: int) -> Need:
        """What a configuration asks of nodes."""
        columns = self.problem.columns
        return Need(
            self.types[columns.accelerator[job, column]],
            int(columns.replicas[job, column]),
            self.jobs[job].gpus_per_replica,
            int(columns.nodes[job, column]),
        )

    def place(self, job: int, column: int) -> bool:
        """Find nodes for a configuration, those that the job has before others."""
        at = self.jobs[job].current
        found = self.floor.place(self.need(job, column), at.nodes if at else ())
        if found is not None:
            self.placed[job] = found
        return found is not None

    def unplace(self, job: int) -> None:
        """Give back the nodes of a job."""
        self.floor.release(self.placed.pop(job), self.jobs[job].gpus_per_replica)


def seat(
    jobs: Sequence[JobView],
    types: Sequence[str],
    problem: Problem,
    market: Market,
    choice: Ints,
    floor: Floor,
) -> Seating:
    """Bring ``choice`` to the nodes of ``floor``.

    Who keeps its configuration keeps its nodes. The others are placed largest first. Where one
    finds no room, jobs that stay are moved if that pays; else the configuration is out of question
    for it and the job takes its next best.
    """
    seating = Seating(
        jobs=jobs,
        types=types,
        problem=problem,
        market=market,
        stock=Stock(problem, choice),
        floor=floor,
        placed={},
        squeezed={},
        movable={
            kind: MOVABLE * capacity
            for kind, capacity in zip(types, problem.capacity.tolist(), strict=True)
        },
    )
    chosen: list[int] = np.flatnonzero(choice >= 0).tolist()
    for job in chosen:
        at = jobs[job].current
        if at is not None and seating.stays(job):
            floor.occupy(at, jobs[job].gpus_per_replica)
            seating.placed[job] = at
    rest = [job for job in chosen if job not in seating.placed]
    size = problem.columns.size[rest, choice[rest]]
    for index in np.argsort(-size, kind="stable").tolist():
        _seat_one(seating, rest[index])
    _offer_rest(seating)
    return seating


def _seat_one(seating: Seating, job: int) -> None:
    column = int(seating.stock.choice[job])
    if seating.place(job, column):
        return
    seating.stock.drop(job)
    others = _ranked(seating, job, but=column)
    second = next((other for other in others if _fits(seating, job, other)), None)
    utility = seating.problem.columns.utility[job]
    loss = float(utility[column] - (0.0 if second is None else utility[second]))
    seating.stock.take(job, column)
    if _make_room(seating, job, column, loss):
        return
    seating.stock.drop(job)
    need = seating.need(job, column)
    seating.squeezed[job] = f"{need.replicas} on {need.accelerator} fit on no nodes that are free"
    if second is not None and seating.stock.take(job, second):
        seating.place(job, second)


def _ranked(seating: Seating, job: int, but: int = -1) -> list[int]:
    """Configurations worth something, the best at the prices of the round first."""
    left = _reduced(seating.problem, seating.market, job)
    utility = seating.problem.columns.utility[job]
    order: list[int] = np.argsort(-left, kind="stable").tolist()
    return [column for column in order if utility[column] > 0 and column != but][:_TRIES]


def _reduced(problem: Problem, market: Market, job: int) -> Floats:
    columns = problem.columns
    price = market.accelerators[columns.accelerator[job]] + market.tenants[problem.tenant[job]]
    left: Floats = columns.utility[job] - price * columns.size[job]
    return left


def _fits(seating: Seating, job: int, column: int) -> bool:
    """Whether a job that has nothing could have this, nodes included."""
    stock = seating.stock
    if not stock.take(job, column):
        return False
    stock.drop(job)
    if not seating.place(job, column):
        return False
    seating.unplace(job)
    return True


def _offer_rest(seating: Seating) -> None:
    """What fragments left over goes to those who wait."""
    columns, stock = seating.problem.columns, seating.stock
    waiting = np.flatnonzero(stock.choice < 0)
    fits = (columns.utility[waiting] > 0) & (
        columns.size[waiting] <= stock.free[columns.accelerator[waiting]]
    )
    density = np.where(fits, columns.utility[waiting] / columns.size[waiting], 0).max(
        axis=1, initial=0
    )
    misses = 0
    for index in np.argsort(-density, kind="stable").tolist():
        if density[index] <= 0 or misses > _MISSES:
            return
        job = int(waiting[index])
        misses += 1
        for column in _ranked(seating, job):
            if stock.take(job, column):
                if seating.place(job, column):
                    misses = 0
                    break
                stock.drop(job)


def _make_room(seating: Seating, job: int, column: int, gain: float) -> bool:
    """Move jobs that would stay, if together they lose less than ``gain``; undo it if it fails."""
    need = seating.need(job, column)
    guests = _cheapest(seating, need)
    if guests is None:
        return False
    columns, choice = seating.problem.columns, seating.stock.choice
    sizes = {guest: float(columns.size[guest, choice[guest]]) for guest in guests}
    if sum(sizes.values()) > seating.movable[need.accelerator]:
        return False
    if sum(_loss(seating, guest) for guest in guests) >= gain:
        return False
    before = {guest: seating.placed[guest] for guest in guests}
    for guest in guests:
        seating.unplace(guest)
    order = [job, *sorted(guests, key=lambda guest: (-sizes[guest], guest))]
    done: list[int] = []
    for one in order:
        if not seating.place(one, int(choice[one])):
            break
        done.append(one)
    if len(done) == len(order):
        seating.movable[need.accelerator] -= sum(sizes.values())
        return True
    for one in done:
        seating.unplace(one)
    for guest, placement in before.items():
        seating.floor.occupy(placement, seating.jobs[guest].gpus_per_replica)
        seating.placed[guest] = placement
    return False


def _loss(seating: Seating, guest: int) -> float:
    """What moving a job that stays costs it."""
    column = seating.stock.choice[guest]
    columns = seating.problem.columns
    return float(columns.utility[guest, column] - columns.moved[guest, column])


def _cheapest(seating: Seating, need: Need) -> list[int] | None:
    """Jobs on one node each whose going makes room for ``need`` at the least loss."""
    floor = seating.floor
    residents = _residents(seating, need.accelerator)
    per_node = floor.largest[need.accelerator] // need.each
    if per_node == 0 or need.spread > -(-need.replicas // per_node):
        return None
    whole, rest = divmod(need.replicas, per_node)
    chosen: list[int] = []
    used: set[str] = set()
    for room in [*[per_node * need.each] * whole, *([rest * need.each] if rest else [])]:
        offers = [
            (*offer, name)
            for name in residents
            if name not in used
            and (offer := _evict(seating, residents[name], room - floor.free[name])) is not None
        ]
        if not offers:
            return None
        _, guests, name = min(offers, key=lambda offer: (offer[0], floor.rank[offer[2]]))
        used.add(name)
        chosen += guests
    return chosen


def _residents(seating: Seating, kind: str) -> dict[str, list[int]]:
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
    columns, choice = seating.problem.columns, seating.stock.choice
    going: list[int] = []
    loss = 0.0
    for guest in sorted(guests, key=lambda guest: (_loss(seating, guest), guest)):
        if lack <= 0:
            break
        going.append(guest)
        loss += _loss(seating, guest)
        lack -= int(columns.size[guest, choice[guest]])
    return (loss, going) if lack <= 0 else None
