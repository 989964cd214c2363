"""Measurements of earlier runs of a script, used while the present run has few of its own.

The speed of a run differs from the speed of other runs of its script by one factor, which depends
on machines, data and sequence lengths. So the points of other runs are scaled to this run's level
before this run's model is fitted to them. The error of a scaled point is the usual difference
between runs of the script. If an earlier run differs by more than this error, it is treated as a
run of another script, whatever its name, and its points are not used.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from brain.models.efficiency import efficiency
from brain.models.fitting import Point, made
from brain.models.step_time import accelerators
from brain.models.step_time.accelerators import Accelerators
from brain.models.step_time.columns import Configuration, Observation, rows
from brain.models.terms import SpeedTerms, configuration, observation, unusable
from brain.typeset import count

#: Standard deviation of the log step time of one configuration between runs of a script, and the
#: number of observations for which this prior counts.
_APART, _BELIEVED = 0.15, 2.0
#: Deviations above which a run belongs to another script.
_ANOTHER = 3.0
#: The most points that a run takes from others, each of another configuration.
_MOST = 16
#: The most points, and the most values of noise, that a run hands on.
_HANDED_ON = 12
#: Growth of a job's work after which its noise is measured again.
_OUTDATED = 2.0
#: Deviation of log work within which two measurements of noise count as simultaneous; deviation of
#: the difference left between those; prior deviations of the powers of work and of batch.
_AS_LATE, _NOISE_SPREAD, _SLOPES = 2.0, 0.5, (1.0, 0.5)
#: Fits of single runs, six for each job of a large pool, and of several together, one for each job.
#: A fit on one kind of accelerator takes about 10 KiB with its points, at most 16; that of six runs
#: at most 28.
_ALONE, _TOGETHER = 15_000, 2500


class NoiseSeen(NamedTuple):
    """The gradient noise scale at one moment of a run."""

    #: Work done by then, as ``work_done`` counts it.
    work: float
    log_noise: float
    #: Batch at that moment, in examples per step.
    log_batch: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EarlierRun:
    """The measurements of an earlier run of the same script."""

    job: str
    name: str
    #: Newest points of the run, oldest first.
    points: tuple[Point, ...]
    noises: tuple[NoiseSeen, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Inherited:
    """The points of earlier runs that a run uses."""

    observations: Mapping[str, tuple[Observation, ...]]
    #: Most replicas of the earlier runs.
    reach: int = 0
    #: Phrase that names what was taken and the runs it came from, or the reason why nothing was.
    basis: str = ""
    #: The reason why nothing was taken; empty if something was.
    refused: tuple[str, ...] = ()
    #: The runs that it came from; the others belong to another script.
    runs: tuple[EarlierRun, ...] = ()

    def heard(self, runs: Sequence[EarlierRun]) -> Sequence[EarlierRun]:
        """Return those of ``runs`` whose measurements are consistent with this run, so that they
        count as the same script.
        """
        return () if self.refused else self.runs or runs


NOTHING = Inherited(observations={})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Known:
    """Earlier runs of one script, combined."""

    observations: Mapping[str, tuple[Observation, ...]]
    times: Accelerators
    #: Standard deviation of log step times between runs.
    apart: float
    #: Most replicas that were measured.
    reach: int


def inherited(
    runs: Sequence[EarlierRun], own: Mapping[str, Sequence[Observation]], terms: SpeedTerms
) -> Inherited:
    """Return the points of ``runs`` that the present run uses.

    ``own`` has the present run's own observations, by kind of accelerator.
    """
    told = [_compared(_known((run,), terms), own) for run in runs]
    alike = tuple(run for run, found in zip(runs, told, strict=True) if not found.why)
    if not any(found.compared for found in told):
        return NOTHING
    if not alike:
        return _refused(f"{_names(runs)}: {told[0].why}")
    known = _known(alike, terms)
    found = _compared(known, own)
    if known is None or found.why or not found.compared:
        return _refused(f"{_names(alike)}: {found.why}") if found.why else NOTHING
    moved = {
        kind: _moved(seen, found.level, known.apart) for kind, seen in known.observations.items()
    }
    others = [run for run in runs if run not in alike]
    return Inherited(
        observations=moved,
        reach=known.reach,
        basis=f"; {count(sum(map(len, moved.values())), 'configuration')} measured by "
        f"{_names(alike)}"
        + (f", but not {_names(others)}, because their speed differs" if others else ""),
        runs=alike,
    )


class _Compared(NamedTuple):
    """The difference of a run from earlier runs of its script."""

    #: True if any measurement could be compared.
    compared: bool
    #: Log of this run's step time over theirs, as far as that is certain.
    level: float = 0.0
    #: The reason why they belong to another script; empty if they do not.
    why: str = ""


def _compared(known: _Known | None, own: Mapping[str, Sequence[Observation]]) -> _Compared:
    misses = [] if known is None else _misses(known, own)
    if known is None or not misses:
        return _Compared(False)
    weights = np.array([1 / spread**2 for _, spread in misses])
    away = float(weights @ [miss for miss, _ in misses] / weights.sum())
    if abs(away) > _ANOTHER * math.hypot(known.apart, weights.sum() ** -0.5):
        pace = f"{math.exp(away):.2g} times" if away > 0 else f"1/{math.exp(-away):.2g} of"
        return _Compared(True, why=f"a step takes {pace} the time of their steps")
    worst, spread = max(misses, key=lambda pair: abs(pair[0] - away) / pair[1])
    if abs(worst - away) > _ANOTHER * math.hypot(known.apart, spread):
        return _Compared(True, why="this run scales differently")
    return _Compared(True, level=away * weights.sum() / (weights.sum() + known.apart**-2))


def _names(runs: Sequence[EarlierRun]) -> str:
    names = ", ".join(dict.fromkeys(run.name for run in runs))
    return f"{count(len(runs), 'earlier run')} ({names})"


def tells_noise(point: Point) -> bool:
    """Return True if a world could measure gradient noise, that is, if all its ranks together
    processed more than one micro-batch per step.
    """
    return point.processes * point.accumulation > 1


def earlier_run(job: str, name: str, points: Sequence[Point], first: float | None) -> EarlierRun:
    """Return the newest points of a run, and the noise of its gradients over time.

    Args:
        job: The id of the run.
        name: The name of the run.
        points: Points of all its worlds, oldest first; not empty.
        first: First batch size in examples; work at another batch size is converted to this one.
    """
    noises = noises_of(points, first)
    return EarlierRun(
        job=job,
        name=name,
        points=tuple(points[-_HANDED_ON:]),
        noises=tuple(noises[:: 1 + len(noises) // _HANDED_ON]),
    )


def noises_of(points: Sequence[Point], first: float | None) -> list[NoiseSeen]:
    """Return the noise scales of a run's gradients over time, from worlds that could measure
    them.
    """
    return [
        NoiseSeen(
            work_done(points[: at + 1], first),
            math.log(point.noise_scale),
            math.log(point.noise_batch),
        )
        for at, point in enumerate(points)
        if point.noise_scale
        and point.noise_batch
        and point.noise_batch == point.examples_per_step
        and tells_noise(point)
    ]


def noise_exponent(seen: Sequence[NoiseSeen]) -> float:
    """Return the power, from 0 to 1, with which the gradient noise scale grows with the batch.

        log noise = a + p log work + q log batch        (q is returned)

    McCandlish et al. (2018) find that the noise scale depends on the temperature of training, which
    a larger batch lowers. In the published traces of Pollux q is 0 to 0.9. The power q is fitted to
    differences between measurements, mainly those at about the same work; with few measurements q
    stays near 0.
    """
    if len(seen) < 2:
        return 0.0
    work, noise, batch = np.array(seen).T
    work = np.log(np.maximum(work, 1.0))
    one, other = np.triu_indices(len(seen), 1)
    steps = np.stack([work[one] - work[other], batch[one] - batch[other]])
    trust = np.exp(-((steps[0] / _AS_LATE) ** 2) / 2) / len(seen) / _NOISE_SPREAD**2
    found = np.linalg.solve(
        (steps * trust) @ steps.T + np.diag(1 / np.array(_SLOPES) ** 2),
        (steps * trust) @ (noise[one] - noise[other]),
    )
    return float(np.clip(found[1], 0.0, 1.0))


def work_done(points: Sequence[Point], first: float | None) -> float:
    """Return the examples that a job trained on, counted in examples of its ``first`` batch size if
    that is known.
    """
    done = 0.0
    for steps, point in made(points):
        batch = point.examples_per_step or 1.0
        worth = 1.0
        if first is not None and point.noise_scale is not None:
            worth = float(efficiency(batch, first_batch=first, noise=point.noise_scale))
        done += steps * batch * worth
    return done


def noise_at(runs: Sequence[EarlierRun], done: float, batch: float | None) -> float | None:
    """Return the gradient noise that earlier runs had after the same work, converted to ``batch``.

    The noise is interpolated in logarithms between the points of a run, and averaged over the runs
    that did that much work. The result is None if no run did that much work: noise grows as a job
    trains, so measurements after less work do not show it.
    """
    paths = [np.array(run.noises).T for run in runs if run.noises and run.noises[-1].work >= done]
    if not paths:
        return None
    power = noise_exponent([one for run in runs for one in run.noises])
    here = math.log(batch or 1.0)
    said = [np.interp(done, work, noise + power * (here - at)) for work, noise, at in paths]
    return math.exp(float(np.mean(said)))


def outdated(points: Sequence[Point], first: float | None) -> bool:
    """Return True if a job did half of its work after its noise was last measured; noise grows with
    work.
    """
    told = [at for at, p in enumerate(points) if tells_noise(p) and p.noise_scale is not None]
    return not told or outgrew(points, points[: told[-1] + 1], first)


def outgrew(points: Sequence[Point], then: Sequence[Point], first: float | None) -> bool:
    """Return True if the work in ``points`` is more than twice the work in ``then``, the job's
    earlier points.
    """
    return work_done(points, first) > _OUTDATED * work_done(then, first)


def _misses(known: _Known, own: Mapping[str, Sequence[Observation]]) -> list[tuple[float, float]]:
    """Return the differences of own log step times from those of earlier runs, with deviations."""
    found: list[tuple[float, float]] = []
    for kind, seen in own.items():
        if kind not in known.times.models:
            continue
        asked = rows([one.configuration for one in seen])
        mean, spread = known.times.on(kind).predict(asked, return_std=True)
        missed = np.log([one.step_seconds for one in seen]) - mean
        errors = np.hypot(spread, [one.relative_error for one in seen])
        found += zip(map(float, missed), map(float, errors), strict=True)
    return found


def _refused(why: str) -> Inherited:
    return Inherited(observations={}, basis=f"; not on {why}", refused=(why,))


def _moved(seen: Sequence[Observation], level: float, apart: float) -> tuple[Observation, ...]:
    """Return observations moved to another level, with the error by which runs differ."""
    scale = math.exp(level)
    return tuple(
        replace(
            one,
            step_seconds=one.step_seconds * scale,
            compute_seconds=one.compute_seconds and one.compute_seconds * scale,
            relative_error=math.hypot(one.relative_error, apart),
        )
        for one in seen
    )


def _known(runs: tuple[EarlierRun, ...], terms: SpeedTerms) -> _Known | None:
    """Return runs combined; None if no point is usable.

    Equal runs are fitted once, because every job reads copies of its own. Single runs and
    combinations do not take the room of each other.
    """
    points = tuple(run.points for run in runs)
    return _alone(points[0], terms) if len(points) == 1 else _together(points, terms)


@lru_cache(maxsize=_ALONE)
def _alone(points: tuple[Point, ...], terms: SpeedTerms) -> _Known | None:
    return _combined((points,), terms)


@lru_cache(maxsize=_TOGETHER)
def _together(runs: tuple[tuple[Point, ...], ...], terms: SpeedTerms) -> _Known | None:
    return _combined(runs, terms)


def _combined(runs: tuple[tuple[Point, ...], ...], terms: SpeedTerms) -> _Known | None:
    newest_first = [point for points in runs for point in reversed(points)]
    usable = [point for point in newest_first if unusable(point, point, terms) is None]
    if not usable:
        return None
    found: dict[str, dict[Configuration, list[Observation]]] = defaultdict(dict)
    for point in usable:
        seen = observation(point, point, terms)
        found[point.accelerator].setdefault(configuration(point, terms), []).append(seen)
    first = {
        kind: tuple(of[0] for of in list(seen.values())[:_MOST]) for kind, seen in found.items()
    }
    again = [
        np.log([one.step_seconds for one in of]) for seen in found.values() for of in seen.values()
    ]
    scatter = sum(float(((logs - logs.mean()) ** 2).sum()) for logs in again)
    repeats = sum(len(logs) - 1 for logs in again)
    apart = math.sqrt((_BELIEVED * _APART**2 + scatter) / (_BELIEVED + repeats))
    reach = max(point.replicas for point in usable)
    return _Known(observations=first, times=accelerators.fit(first), apart=apart, reach=reach)
