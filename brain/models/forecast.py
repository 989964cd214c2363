"""Forecasts of a world's throughput, made before the world is measured."""

from collections.abc import Sequence
from dataclasses import replace

from brain.errors import Undetermined
from brain.models.earlier import EarlierRun, noise_at
from brain.models.fitting import Point
from brain.models.goodput import rate
from brain.models.job import JobModel
from brain.models.job_fit import fit
from brain.models.terms import Batching, SpeedTerms, configuration
from brain.types.recommendation import Prediction

#: The most earlier runs among which the newest is believed, though it differs: no majority is.
_FEW = 2


def foretell(
    point: Point,
    earlier: Sequence[Point],
    *,
    terms: SpeedTerms | None = None,
    runs: Sequence[EarlierRun] = (),
) -> Prediction | None:
    """Predict the throughput of ``point`` from ``earlier`` worlds.

    The band is not yet widened by the errors of the job's earlier forecasts. None if the earlier
    worlds do not suffice.
    """
    known = [replace(one, foretold=None) for one in earlier]
    if not known:
        return None
    try:
        model = fit(known[-1], known[:-1], terms=terms, runs=runs)
        found = model.predict(point.replicas, nodes=point.nodes, accelerator=point.accelerator)
        if model.batching is not Batching.TOLD:
            return found
        # The forecast is for the batch that the world had, not for the best one.
        made = rate(model.times.on(point.accelerator), configuration(point, model.terms))
    except Undetermined:
        return None
    shared = model.terms.shared
    return Prediction(
        examples_per_second=made.examples_per_second * shared,
        low=made.low * shared,
        high=made.high * shared,
        exploring=found.exploring,
    )


def foresee(runs: Sequence[EarlierRun], terms: SpeedTerms | None = None) -> JobModel | None:
    """Fit a model of a run that has not begun, from earlier runs of its script, newest first.

    The model assumes that the run is like the newest of ``runs`` that resembles other runs; if none
    does, like the newest one. The gradient noise is the noise that earlier runs had at their
    beginning. The result is None if no run was measured.
    """
    found = [_as(run, [one for one in runs if one is not run], terms) for run in runs[:1]]
    if found and len(runs) > _FEW and (found[0] is None or found[0].inherited.refused):
        found += [_as(run, [one for one in runs if one is not run], terms) for run in runs[1:]]
    alike = [one for one in found if one is not None and not one.inherited.refused]
    return next(iter(alike), found[0] if found else None)


def _as(
    newest: EarlierRun, others: Sequence[EarlierRun], terms: SpeedTerms | None
) -> JobModel | None:
    """Return the model of a run like ``newest``; None if that cannot be fitted."""
    last = newest.points[-1]
    noise = noise_at([newest, *others], 0.0, last.examples_per_step)
    present = replace(last, noise_scale=noise, noise_batch=None, foretold=None)
    try:
        return fit(present, newest.points[:-1], terms=terms, runs=tuple(others))
    except Undetermined:
        return None
