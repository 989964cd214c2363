"""Variants of the given workloads, so that no constant fits only the given ones.

If names are permuted, applications have each other's names, and so have their jobs. If runs differ,
each run trains for 70 to 130 % of its epochs, at 85 to 115 % of its seconds per step, and one run
in ten trains another job's model without notice. Arrivals stay the same. Nobody has published
results for variants, so the peers are simulated, too.
"""

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.jct.applications import Application, Floats, Validation
from benchmarks.jct.pollux import Job
from benchmarks.jct.sia.cluster import Arrival

#: Shares of the usual epochs, and of the usual seconds of a step, between which is drawn.
_EPOCHS, _SECONDS = (0.7, 1.3), (0.85, 1.15)
#: Share of the runs that train the model of another.
_CHANGED = 0.1


@dataclass(frozen=True, slots=True)
class Variant:
    """The changes that one seed makes to workloads."""

    seed: int
    renamed: bool = True
    differing: bool = True

    def jobs(self, jobs: Sequence[Job]) -> list[Job]:
        """Change jobs of Pollux's workloads; return the same objects."""
        random = np.random.default_rng(self.seed)
        if self.renamed:
            _rename(jobs, random)
        if self.differing:
            _differ(jobs, random)
        return list(jobs)

    def arrivals(self, arrivals: Sequence[Arrival]) -> list[Arrival]:
        """Lengthen jobs of Sia's workloads; their names stay, because the simulator looks restarts
        up by name.
        """
        random = np.random.default_rng(self.seed)
        shares = random.uniform(*_EPOCHS, len(arrivals)).tolist()
        return [replace(one, length=share) for one, share in zip(arrivals, shares, strict=True)]


def _rename(jobs: Sequence[Job], random: np.random.Generator) -> None:
    names = sorted({job.script for job in jobs})
    called = dict(zip(names, random.permutation(names).tolist(), strict=True))
    for index, job in enumerate(jobs):
        job.script = called[job.script]
        job.name = f"{job.script}-{index}"


def _differ(jobs: Sequence[Job], random: np.random.Generator) -> None:
    before = [(job.application, job.wished_replicas, job.wished_batch) for job in jobs]
    shares = random.uniform(*_EPOCHS, len(jobs)).tolist()
    seconds = random.uniform(*_SECONDS, len(jobs)).tolist()
    changed = random.random(len(jobs)) < _CHANGED
    others = random.integers(len(jobs), size=len(jobs))
    made: dict[tuple[str, int], Application] = {}
    for index, job in enumerate(jobs):
        if changed[index]:
            job.application, job.wished_replicas, job.wished_batch = before[others[index]]
        key = job.application.name, epochs(job.application, shares[index])
        if key not in made:
            made[key] = lasting(job.application, key[1])
        job.application, job.slowdown = made[key], seconds[index]


def epochs(application: Application, share: float) -> int:
    """Return a share of the usual epochs, at least one."""
    return max(1, round(share * application.epochs))


def lasting(application: Application, count: int) -> Application:
    """Return the application with training of ``count`` epochs; epochs beyond its tables are like
    the last one.
    """
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
