"""Fits the model of a job to its worlds, and to earlier runs of its script."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache

from brain.errors import Undetermined
from brain.models.calibration import scores, widening
from brain.models.earlier import EarlierRun, inherited, noise_exponent, noises_of
from brain.models.fitting import Point
from brain.models.job import JobModel
from brain.models.step_time import accelerators
from brain.models.step_time.columns import Observation
from brain.models.terms import SpeedTerms, observation, rule, unusable

#: The most points that are fitted, the newest first; a job may have a hundred worlds.
_NEWEST = 40
_REMEMBERED = 2500  # Fits, one per job of a large pool.


def fit(
    present: Point,
    earlier: Iterable[Point] = (),
    *,
    terms: SpeedTerms | None = None,
    runs: Sequence[EarlierRun] = (),
) -> JobModel:
    """Return the model of a job, fitted to its present and its earlier worlds.

    Args:
        present: The point of the world that runs now.
        earlier: Points of earlier worlds, oldest first, on any kind of accelerator and with any
            batch size.
        terms: The owner's declarations, from ``terms_of``.
        runs: Earlier runs of the same script, newest first.

    Raises:
        Undetermined: the present point is unusable (a step time of 0 or NaN, less than one copy).
    """
    return _fitted(present, tuple(earlier), terms or SpeedTerms(), tuple(runs))


@lru_cache(maxsize=_REMEMBERED)
def _fitted(
    present: Point, earlier: tuple[Point, ...], terms: SpeedTerms, runs: tuple[EarlierRun, ...]
) -> JobModel:
    why = unusable(present, present, terms)
    if why:
        raise Undetermined(f"the present world cannot be fitted: {why}", code="unusable")
    reasons = [(point, unusable(point, present, terms)) for point in earlier]
    used = [*[point for point, reason in reasons if not reason][-_NEWEST:], present]
    outcomes = tuple((p.foretold, p.rate) for p in used if p.foretold and p.foretold.low > 0)
    observations: dict[str, list[Observation]] = defaultdict(list)
    for point in used:
        observations[point.accelerator].append(observation(point, present, terms))
    others, wider = inherited(runs, observations, terms), widening(scores(outcomes))
    told = [one for run in others.heard(runs) for one in run.noises]
    seen = [*noises_of(used, terms.global_batch), *told]
    for kind, found in others.observations.items():
        observations[kind] += found
    return JobModel(
        points=tuple(used),
        left_out=(*(f"world {p.epoch}: {why}" for p, why in reasons if why), *others.refused),
        times=accelerators.fit(observations, widen=wider),
        batching=rule(used, terms),
        terms=terms,
        outcomes=outcomes,
        widening=wider,
        inherited=others,
        noise_exponent=noise_exponent(seen),
    )


def forget_every_fit() -> None:
    """Clear the cache of fits. Fitting the same points again gives equal models."""
    _fitted.cache_clear()
