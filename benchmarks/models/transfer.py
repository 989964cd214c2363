"""Measures predictions for a job that was measured on one kind of accelerator, and tried once on
another.

Brain scales the curve of the first kind by the measured ratio; Sia (SOSP 2023) does the same with
its fits of Pollux's form.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from benchmarks.models.data import Task, trajectory
from benchmarks.models.peers import Pollux
from benchmarks.report import Row
from brain.models.step_time.accelerators import fit
from brain.models.step_time.columns import Configuration, Floats, Observation
from brain.typeset import count

#: Points on the known kind.
KNOWN = 5
_Z90 = 1.6449


@dataclass(slots=True)
class Outcome:
    """Errors on the new kind, a value per walk, and the share of values inside the bands."""

    brain: list[float] = field(default_factory=list)
    sia: list[float] = field(default_factory=list)
    inside: list[float] = field(default_factory=list)


def rows(found: Sequence[Task], points: Sequence[int] = (1, 3), seeds: int = 2) -> list[Row]:
    """Return rows with the error on every other kind, after several numbers of points at the
    smallest size.
    """
    table = []
    for number in points:
        outcome = Outcome()
        for known in found:
            for new in found:
                if known.application == new.application and known is not new:
                    for seed in range(seeds):
                        _score(outcome, known, new, number, np.random.default_rng(seed))
        inside = 100 * float(np.mean(outcome.inside))
        table.append(
            Row(
                metric=f"error on a new accelerator after {count(number, 'point')}",
                value=100 * float(np.mean(outcome.brain)),
                unit="%",
                peer="ratio of Pollux's fits",
                peer_value=100 * float(np.mean(outcome.sia)),
                note=f"90 % bands hold {inside:.1f} %",
            )
        )
    return table


def _score(
    outcome: Outcome, known: Task, new: Task, number: int, random: np.random.Generator
) -> None:
    walk = trajectory(known, KNOWN, random)
    tried = _smallest(new, number, known.X[walk[0], 2])
    model = fit(
        {known.accelerator: _observed(known, walk), new.accelerator: _observed(new, tried)}
    ).on(new.accelerator)
    rest = np.setdiff1d(np.arange(len(new.X)), tried)
    mean, spread = model.predict(new.X[rest], return_std=True)
    truth = np.log(new.step_seconds[rest])
    outcome.brain.append(float(np.abs(np.expm1(mean - truth)).mean()))
    outcome.inside.append(float((np.abs(mean - truth) <= _Z90 * spread).mean()))
    scaled = _sia(known, walk, new, tried, rest)
    outcome.sia.append(float(np.abs(np.expm1(scaled - truth)).mean()))


def _smallest(task: Task, number: int, batch: float) -> list[int]:
    """Return the rows with the fewest replicas, those nearest to ``batch`` first."""
    far = np.abs(np.log(task.X[:, 2] / batch))
    return [int(row) for row in np.lexsort((far, task.X[:, 1]))[:number]]


def _observed(task: Task, chosen: Sequence[int]) -> list[Observation]:
    return [
        Observation(
            configuration=Configuration(
                nodes=int(task.X[row, 0]),
                replicas=int(task.X[row, 1]),
                local_batch=float(task.X[row, 2]),
            ),
            step_seconds=float(task.step_seconds[row]),
            compute_seconds=float(task.compute_seconds[row]),
        )
        for row in chosen
    ]


def _sia(
    known: Task, walk: Sequence[int], new: Task, tried: Sequence[int], rest: NDArray[np.int64]
) -> Floats:
    fitted = Pollux()
    seen = list(walk)
    fitted.fit(known.X[seen], known.step_seconds[seen], known.compute_seconds[seen])
    at = list(tried)
    ratio = np.median(np.log(new.step_seconds[at]) - np.log(fitted.predict(new.X[at])))
    return np.log(fitted.predict(new.X[rest])) + ratio
