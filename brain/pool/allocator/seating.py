"""A partial placement of a division: jobs on nodes, their shapes, and their utility."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from brain.pool.allocator.packing import Stock
from brain.pool.allocator.placement import FreeAccelerators, Need
from brain.pool.allocator.prices import DivisionProblem, PriceSystem
from brain.pool.allocator.views import JobPlacement, PoolJob


@dataclass(frozen=True, slots=True)
class Form:
    """One way to spread a size over nodes."""

    column: int
    #: Nodes to spread over; 0 means as few as possible.
    spread: int
    #: Utility of the form to a job that has to move to it.
    utility: float


@dataclass(slots=True, kw_only=True, eq=False)
class Seating:
    """A partial assignment of jobs to nodes; ``placed`` and ``stock.choice`` are the result."""

    jobs: Sequence[PoolJob]
    types: Sequence[str]
    problem: DivisionProblem
    market: PriceSystem
    stock: Stock
    floor: FreeAccelerators
    placed: dict[int, JobPlacement] = field(default_factory=dict)
    #: Utility of each placement.
    worth: dict[int, float] = field(default_factory=dict)
    #: Jobs that did not get the configuration that prices allowed, with the reason.
    squeezed: dict[int, str] = field(default_factory=dict)
    #: Accelerators that stay with their jobs but may still be moved, by type.
    movable: dict[str, float]
    #: True for each job whose curves have rows for numbers of nodes.
    shaped: Sequence[bool]
    _forms: dict[tuple[int, int, int], list[Form]] = field(default_factory=dict)

    def forms(self, job: int, column: int) -> list[Form]:
        """Return the shapes that a job may have in the configuration ``column``, the best first."""
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
        """Return the nodes and accelerators that a configuration needs."""
        columns = self.problem.columns
        return Need(
            self.types[columns.accelerator[job, column]],
            int(columns.replicas[job, column]),
            self.jobs[job].gpus_per_replica,
            int(columns.nodes[job, column]),
        )

    def now(self, job: int) -> tuple[int, float] | None:
        """Return the column and the utility of the job's present configuration in ``Columns``; None
        if the job has no present configuration.
        """
        columns = self.problem.columns
        found = np.flatnonzero(columns.current[job] & np.isfinite(columns.utility[job]))
        return (int(found[0]), float(columns.utility[job, found[0]])) if len(found) else None

    def stays(self, job: int) -> bool:
        """Return True if the job's placement equals its placement before the round."""
        return self.placed.get(job) == self.jobs[job].current

    def size(self, job: int) -> float:
        """Return the number of accelerators of a job's chosen configuration."""
        return float(self.problem.columns.size[job, self.stock.choice[job]])

    def settle(self, job: int, column: int, placement: JobPlacement, worth: float) -> None:
        """Record the nodes that were taken for a job."""
        self.placed[job], self.worth[job] = placement, worth
        self.stock.choice[job] = column

    def keep(self, job: int, column: int, worth: float) -> None:
        """Leave a job on its present nodes."""
        at = self.jobs[job].current
        assert at is not None, "only a job that runs can stay"
        self.floor.occupy(at, self.jobs[job].gpus_per_replica)
        self.settle(job, column, at, worth)

    def unplace(self, job: int) -> None:
        """Release the nodes of a job, but keep its share."""
        self.floor.release(self.placed.pop(job), self.jobs[job].gpus_per_replica)
        del self.worth[job]

    def seat(self, job: int, column: int) -> bool:
        """Give an unplaced job a share and nodes; change nothing if it cannot have both."""
        if not self.stock.take(job, column):
            return False
        if not self.place(job, column):
            self.stock.drop(job)
            return False
        return True

    def place(self, job: int, column: int) -> bool:
        """Find nodes for a size of a job: in the best shape that has room, else in any shape;
        return False if there is no room.
        """
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

    def _note(self, job: int, form: Form, found: JobPlacement) -> None:
        """Record the placement that was found, which may equal the job's present placement."""
        at = self.jobs[job].current
        if at is not None and sorted(at.nodes) == sorted(found.nodes) and (now := self.now(job)):
            self.settle(job, now[0], at, now[1])
        else:
            self.settle(job, form.column, found, form.utility)


def rearrange(
    seating: Seating, jobs: Sequence[int], columns: Sequence[int], *, least: float = 1e-12
) -> float:
    """Place ``jobs`` again, in this order, if the total gain exceeds ``least``; else undo the
    change.

    Returns the gain in utility, even if the change was undone; -inf if a job cannot be placed.
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
    """The configuration and placement of a job before it was removed."""

    column: int
    placement: JobPlacement | None
    worth: float


def _lift(seating: Seating, job: int) -> _Held:
    held = _Held(
        int(seating.stock.choice[job]), seating.placed.get(job), seating.worth.get(job, 0.0)
    )
    if held.placement is not None:
        seating.unplace(job)
    seating.stock.drop(job)
    return held
