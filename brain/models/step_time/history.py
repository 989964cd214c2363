"""What the jobs of an installation taught about jobs: priors learned from many fits.

A finished job leaves a ``Lesson``: how much its measurements said about each parameter, as the
precision and the shift of a Gaussian likelihood. ``learn`` turns lessons into priors by
expectation maximisation (Dempster, Laird and Rubin, 1977) of a Gaussian population, and returns
None until there are lessons of enough applications and they predict each other better than the
generic prior does: from five published applications they do not (models.md section 2.3).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from brain.models.step_time import linear, physics
from brain.models.step_time.columns import Floats, design, micro_step, seconds
from brain.models.step_time.linear import features
from brain.models.step_time.physics import Physical, inverse

#: Applications below which a history says more about itself than about the next job.
APPLICATIONS = 20
_ROUNDS = 12
#: Jobs that the generic prior counts as, in the mean and in the spread.
_MEAN_JOBS, _SPREAD_JOBS = 2.0, 6.0
#: Rows of one job that count as independent: neighbours on a grid repeat each other.
_ROWS = 25.0
#: Deviation of measured log step times from the log-linear form.
_MISFIT = 0.15

#: Precision and shift of a Gaussian likelihood of parameters: exp(-z'Hz / 2 + b'z).
Likelihood = tuple[Floats, Floats]
#: Mean and covariance.
Prior = tuple[Floats, Floats]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """What one job taught. ``learn`` weighs applications, not jobs."""

    application: str
    physical: Likelihood
    linear: Likelihood


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class History:
    """Priors learned from jobs, in the places of the generic ones; the level is left open."""

    physical: Prior
    linear: Prior
    #: Applications that they rest on.
    applications: int


def lesson(application: str, X: ArrayLike, y: ArrayLike) -> Lesson:
    """Summarise the rows ``X`` with log seconds ``y`` of one job."""
    rows = design(X)
    target = seconds(y, len(rows))
    fitted = Physical().fit(rows, target)
    share = min(1.0, _ROWS / len(rows))
    columns = features(rows, fitted.reference_) / _MISFIT
    micro = micro_step(target, rows[:, 3], fitted.predict_compute(rows))
    precision, shift = fitted.likelihood()
    return Lesson(
        application=application,
        physical=(share * precision, share * shift),
        linear=(
            share * columns.T @ columns,
            share * columns.T @ (micro - fitted.origin_) / _MISFIT,
        ),
    )


def learn(lessons: Sequence[Lesson]) -> History | None:
    """Return priors learned from ``lessons``; None where they would not help.

    They would not where fewer than ``APPLICATIONS`` applications taught, or where an application
    that is left out is explained better by the generic prior than by what the others taught.
    """
    names = sorted({one.application for one in lessons})
    if len(names) < APPLICATIONS:
        return None
    gain = sum(_gain(lessons, name) for name in names)
    return priors(lessons) if gain > 0 else None


def priors(lessons: Sequence[Lesson]) -> History:
    """Return what ``lessons`` teach, however little it is; ``learn`` judges it."""
    generic = _generic()
    weights = _weights(lessons)
    physical = _population([one.physical for one in lessons], weights, generic.physical)
    line = _population([one.linear for one in lessons], weights, generic.linear)
    return History(
        physical=_open(physical, generic.physical),
        linear=_open(line, generic.linear),
        applications=len({one.application for one in lessons}),
    )


def _generic() -> History:
    return History(
        physical=(physics.PRIOR_MEAN, np.diag(physics.PRIOR_DEVIATION**2)),
        linear=(linear.PRIOR_MEAN, np.diag(linear.PRIOR_DEVIATION**2)),
        applications=0,
    )


def _weights(lessons: Sequence[Lesson]) -> Floats:
    """Every application weighs the same, however many jobs it ran; they sum to applications."""
    names = [one.application for one in lessons]
    return np.array([1 / names.count(name) for name in names])


def _population(likelihoods: Sequence[Likelihood], weights: Floats, generic: Prior) -> Prior:
    """Mean and covariance of the population that the likelihoods were drawn from."""
    mean, covariance = generic
    total = weights.sum()
    known = np.array([precision for precision, _ in likelihoods])
    shifts = np.array([shift for _, shift in likelihoods])
    for _ in range(_ROUNDS):
        precision = inverse(covariance)
        posterior = inverse(known + precision)
        centers = np.einsum("ijk,ik->ij", posterior, shifts + precision @ mean)
        mean = (weights @ centers + _MEAN_JOBS * generic[0]) / (total + _MEAN_JOBS)
        away = centers - mean
        scatter = np.einsum("i,ij,ik->jk", weights, away, away)
        scatter += np.einsum("i,ijk->jk", weights, posterior)
        covariance = (scatter + _SPREAD_JOBS * generic[1]) / (total + _SPREAD_JOBS)
    return mean, covariance


def _open(prior: Prior, generic: Prior) -> Prior:
    """Leave the level to the job: seconds are its own, shapes are shared."""
    mean, covariance = prior[0].copy(), prior[1].copy()
    mean[0] = generic[0][0]
    covariance[0, :] = covariance[:, 0] = 0
    covariance[0, 0] = generic[1][0, 0]
    return mean, covariance


def _gain(lessons: Sequence[Lesson], application: str) -> float:
    """Log evidence that the others' prior gains over the generic one on this application."""
    others = priors([one for one in lessons if one.application != application])
    own = [one for one in lessons if one.application == application]
    generic = _generic()
    gains = [
        _evidence(one.physical, others.physical) - _evidence(one.physical, generic.physical)
        for one in own
    ]
    return float(np.mean(gains))


def _evidence(likelihood: Likelihood, prior: Prior) -> float:
    """Log of the likelihood's mean under the prior, up to what all priors share."""
    (known, shift), (mean, covariance) = likelihood, prior
    precision = inverse(covariance)
    both, pull = known + precision, shift + precision @ mean
    quadratic = pull @ np.linalg.solve(both, pull) - mean @ precision @ mean
    return float(quadratic + np.linalg.slogdet(precision)[1] - np.linalg.slogdet(both)[1]) / 2
