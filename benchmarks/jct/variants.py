"""Workloads like the given ones, so that nothing is chosen for these alone.

A variant calls applications by each other's names and lets every job train for 70 to 130 % of its
epochs; arrivals stay. What nobody published of it is simulated with the peers as well.
"""

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.jct.applications import Application, Floats, Validation
from benchmarks.jct.pollux import Job
from benchmarks.jct.sia.cluster import Arrival

#: Shares of the usual epochs between which lengths are drawn.
_SHORTEST, _LONGEST = 0.7, 1.3


@dataclass(frozen=True, slots=True)
class Variant:
    """What one seed makes of workloads."""

    seed: int

    def jobs(self, jobs: Sequence[Job]) -> list[Job]:
        """Rename and lengthen jobs of Pollux's; returns the same objects."""
        random = np.random.default_rng(self.seed)
        names = sorted({job.application.name for job in jobs})
        called = dict(zip(names, random.permutation(names).tolist(), strict=True))
        made: dict[tuple[str, int], Application] = {}
        for job, share in zip(jobs, _shares(random, len(jobs)), strict=True):
            usual = job.application
            key = usual.name, epochs(usual, share)
            if key not in made:
                made[key] = lasting(usual, key[1])
                made[key].name = called[usual.name]
            job.application = made[key]
        return list(jobs)

    def arrivals(self, arrivals: Sequence[Arrival]) -> list[Arrival]:
        """Lengthen arrivals of Sia's; the simulator knows restarts by their names, which stay."""
        shares = _shares(np.random.default_rng(self.seed), len(arrivals))
        return [replace(one, length=share) for one, share in zip(arrivals, shares, strict=True)]


def _shares(random: np.random.Generator, count: int) -> list[float]:
    drawn: list[float] = random.uniform(_SHORTEST, _LONGEST, count).tolist()
    return drawn


def epochs(application: Application, share: float) -> int:
    """A share of the usual epochs, at least one."""
    return max(1, round(share * application.epochs))


def lasting(application: Application, count: int) -> Application:
    """The application trained for ``count`` epochs; those beyond its tables are like the last."""
    application.surface  # noqa: B018  (built once for all lengths)
    found = copy(application)
    found.__dict__.pop("progress", None)
    found.epochs = count
    found.runs = {batch: _lasting(run, count) for batch, run in application.runs.items()}
    return found


def _lasting(run: Validation, count: int) -> Validation:
    return Validation(
        progress=_going_on(run.progress, count),
        iterations=_going_on(run.iterations, count),
        squares=_staying(run.squares, count),
        variances=_staying(run.variances, count),
    )


def _going_on(values: Floats, count: int) -> Floats:
    steps = np.diff(values, prepend=0.0)
    return np.asarray(np.cumsum(_staying(steps, count)))


def _staying(values: Floats, count: int) -> Floats:
    more = max(0, count - len(values))
    return np.concatenate([values, np.full(more, values[-1])])[:count]
