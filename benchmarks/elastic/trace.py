"""Reads the traces of the training script, and computes from them the cost of a change of the
world. Pure.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median

#: What a worker does between its process's start and its first step, in order.
MILESTONES = ("began", "imported", "grouped", "built", "loaded", "wrapped", "step")
#: Steps after which a world of processes that stayed has surely taken in who came.
_SETTLED_STEPS = 10
#: The phases of a gap, as the tables name them.
PHASES = (
    "save",
    "detect+stop",
    "decide+fork",
    "boot",
    "imports",
    "group",
    "model",
    "load",
    "DDP",
    "first step",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """One line of a script's trace. Instants are CLOCK_MONOTONIC seconds."""

    at: float
    what: str
    world: int
    rank: int
    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """One process of the script."""

    pid: int
    marks: tuple[Mark, ...]

    @property
    def steps(self) -> list[Mark]:
        """Return the steps that the process completed."""
        return [mark for mark in self.marks if mark.what == "step"]

    def first(self, what: str) -> float | None:
        """Return the first instant at which an event happened."""
        return next((mark.at for mark in self.marks if mark.what == what), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The cost of one change of the world."""

    #: Last completed step of the old world to the first one of the new.
    gap_seconds: float
    #: The gap less one step of the old world.
    idle_seconds: float
    #: Last step of the old world until the new one is further than that.
    effective_seconds: float
    steps_lost: int
    #: Asked for until the new world's first step; training goes on for a part of it.
    asked_seconds: float
    #: Seconds of each of PHASES, by rank 0 of the new world; none where processes stay.
    phases: Mapping[str, float] = field(default_factory=dict)


def read(place: Path) -> list[Worker]:
    """Read all traces of a directory; a line that is still being written is left out."""
    return [
        Worker(pid=int(file.stem), marks=tuple(_marks(file.read_text())))
        for file in sorted(place.glob("*.csv"))
    ]


def _marks(text: str) -> Iterable[Mark]:
    for line in text.rpartition("\n")[0].splitlines():
        at, what, world, rank, step = line.split(",")
        yield Mark(at=float(at), what=what, world=int(world), rank=int(rank), step=int(step))


def stepping(workers: Iterable[Worker], size: int, steps: int) -> list[Worker]:
    """Return the processes, by rank, of a world of ``size`` whose ranks have all made ``steps``
    steps; empty if there is no such world yet.
    """
    able = [w for w in workers if [m.world for m in w.steps[-steps:]] == [size] * steps]
    newest = {w.steps[-1].rank: w for w in sorted(able, key=lambda each: each.steps[0].at)}
    return [newest[rank] for rank in sorted(newest)] if len(newest) == size else []


def change(
    workers: Sequence[Worker],
    old: Sequence[int],
    size: int,
    *,
    asked_at: float,
    ended: Mapping[int, float],
    started: Mapping[int, float],
) -> Change | None:
    """Return the cost of the change from the world of the processes ``old`` to a new world of
    ``size``.

    The old world's last step is the last step of its rank 0, whose state is saved. ``ended`` and
    ``started`` are the instants at which processes ended and started, as far as they are known.
    None until the new world has made more steps than the old one.
    """
    before = [worker for worker in workers if worker.pid in old and worker.steps]
    later = [w for w in workers if w.pid not in old and w.steps and w.steps[0].at > asked_at]
    after = [worker for worker in later if worker.steps[0].world == size]
    if not before or not after:
        return None
    last = next((w.steps[-1] for w in before if w.steps[-1].rank == 0), before[0].steps[-1])
    first = min((worker.steps[0] for worker in after), key=lambda mark: mark.at)
    further = [mark.at for worker in after for mark in worker.steps if mark.step > last.step]
    if not further:
        return None
    rank0 = next((worker for worker in after if worker.steps[0].rank == 0), after[0])
    saved = max((mark.at for w in before for mark in w.marks if mark.what == "saved"), default=0.0)
    stopped = max((ended[pid] for pid in old if pid in ended), default=last.at)
    known = (max(saved, last.at), stopped, started.get(rank0.pid))
    return Change(
        gap_seconds=first.at - last.at,
        idle_seconds=first.at - last.at - _step_seconds(before),
        effective_seconds=min(further) - last.at,
        steps_lost=max(0, last.step - (first.step - 1)),
        asked_seconds=first.at - asked_at,
        phases=_phases(rank0, last.at, known),
    )


def reshaped(
    workers: Iterable[Worker], old: Sequence[int], size: int, *, asked_at: float
) -> Change | None:
    """Return the cost of a change in which processes stay: the longest pause of such a process,
    from the request until it has made some steps in the new world, because a newcomer may delay it
    before the world counts.
    """
    for worker in workers:
        later = [mark for mark in worker.steps if mark.at > asked_at]
        reached = [mark.at for mark in later if mark.world == size]
        if worker.pid not in old or len(reached) < _SETTLED_STEPS:
            continue
        before = [mark for mark in worker.steps if mark.at <= asked_at]
        seen = [*before[-1:], *(m for m in later if m.at <= reached[_SETTLED_STEPS - 1])]
        last, first = max(pairwise(seen), key=lambda pair: pair[1].at - pair[0].at)
        gap = first.at - last.at
        return Change(
            gap_seconds=gap,
            idle_seconds=gap - _step_seconds([worker]),
            effective_seconds=gap,
            steps_lost=max(0, last.step - (first.step - 1)),
            asked_seconds=reached[0] - asked_at,
        )
    return None


def switched(
    workers: Iterable[Worker], old: Sequence[int], size: int, *, asked_at: float
) -> Change | None:
    """Return the cost of a change of the world around processes that stay: the longest time of such
    a process from its last step in the old world to its first step in the new world, which has
    ``size``.

    None until all processes of ``old`` that stay have made a step in the new world.
    """
    stayed = [(w, found) for w in workers if w.pid in old and (found := _turn(w, size, asked_at))]
    if len(stayed) < min(size, len(old)):
        return None
    _, (last, first) = max(stayed, key=lambda pair: pair[1][1].at - pair[1][0].at)
    came_at = min(found[1].at for _, found in stayed)
    furthest = max(found[0].step for _, found in stayed)
    gap = first.at - last.at
    return Change(
        gap_seconds=gap,
        idle_seconds=gap - _step_seconds([worker for worker, _ in stayed]),
        effective_seconds=gap,
        steps_lost=max(0, furthest - (min(found[1].step for _, found in stayed) - 1)),
        asked_seconds=came_at - asked_at,
    )


def both(shrunk: Change, grown: Change) -> Change:
    """Return the sum of two changes that follow from one event."""
    return Change(
        gap_seconds=shrunk.gap_seconds + grown.gap_seconds,
        idle_seconds=shrunk.idle_seconds + grown.idle_seconds,
        effective_seconds=shrunk.effective_seconds + grown.effective_seconds,
        steps_lost=shrunk.steps_lost + grown.steps_lost,
        asked_seconds=shrunk.asked_seconds + grown.asked_seconds,
    )


def _turn(worker: Worker, size: int, since: float) -> tuple[Mark, Mark] | None:
    """Return a process's last step before, and its first step in, a world of ``size`` after
    ``since``.
    """
    for last, first in pairwise(worker.steps):
        if first.at > since and first.world == size != last.world:
            return last, first
    return None


def _step_seconds(workers: Iterable[Worker]) -> float:
    spans = [b.at - a.at for worker in workers for a, b in pairwise(worker.steps)]
    return median(spans) if spans else 0.0


def _phases(
    worker: Worker, stood_at: float, known: tuple[float, float, float | None]
) -> dict[str, float]:
    """Return the duration of each phase since the old world's last step.

    Work of a new worker while the old world still trained takes no time. ``known`` has the instants
    at which the old world had saved and had ended, and at which the worker was started.
    """
    instants = [*known, *(worker.first(what) for what in MILESTONES)]
    phases, reached = {}, stood_at
    for name, at in zip(PHASES, instants, strict=True):
        until = reached if at is None else max(reached, at)
        phases[name] = until - reached
        reached = until
    return phases
