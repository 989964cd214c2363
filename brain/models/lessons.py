"""What finished jobs hand to the models of those that come: lessons as they are stored.

A job that was measured in enough configurations leaves a ``Taught``; ``learned`` makes priors of
many, once they are of enough applications and predict each other better than the generic prior
does (``step_time.history``). Both are plain numbers, matrices row by row, so that stores keep them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from brain.models.fitting import Point
from brain.models.step_time import history
from brain.models.step_time.columns import rows
from brain.models.step_time.history import History, Lesson
from brain.models.terms import Terms, configuration, unusable

#: Configurations that a job must have been measured in: fewer say nothing about a shape.
CONFIGURATIONS = 3
#: Applications that are heard, the newest: learning takes time with their square.
MOST_APPLICATIONS = 40

#: A matrix row by row, and a vector.
Numbers = tuple[tuple[float, ...], tuple[float, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Taught:
    """What one finished job taught."""

    application: str
    physical: Numbers
    linear: Numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """Priors out of many lessons."""

    #: Covariance and mean of each.
    physical: Numbers
    linear: Numbers
    applications: int


def taught(application: str, points: Sequence[Point], terms: Terms) -> Taught | None:
    """What a finished job's points teach; None where they are too few, or say nothing.

    Of several kinds of accelerator the one with most points counts.
    """
    found = [point for point in points if unusable(point, points[-1], terms) is None]
    kinds = [point.accelerator for point in found]
    if not found:
        return None
    kind = max(sorted(set(kinds)), key=kinds.count)
    seen = [point for point in found if point.accelerator == kind]
    configurations = [configuration(point, terms) for point in seen]
    if len(set(configurations)) < CONFIGURATIONS:
        return None
    seconds = np.log([point.step_seconds for point in seen])
    lesson = history.lesson(application, rows(configurations), seconds)
    return Taught(
        application=application,
        physical=_flat(*lesson.physical),
        linear=_flat(*lesson.linear),
    )


@lru_cache(maxsize=4)
def learned(lessons: tuple[Taught, ...]) -> Learned | None:
    """Priors that ``lessons`` teach; None where they would not help."""
    priors = history.learn(
        [
            Lesson(
                application=one.application,
                physical=_likelihood(one.physical),
                linear=_likelihood(one.linear),
            )
            for one in lessons
        ]
    )
    if priors is None:
        return None
    (mean, covariance), (line_mean, line_covariance) = priors.physical, priors.linear
    return Learned(
        physical=_flat(covariance, mean),
        linear=_flat(line_covariance, line_mean),
        applications=priors.applications,
    )


@lru_cache(maxsize=64)
def history_of(learned: Learned) -> History:
    """The priors as the estimators take them; one object for equal numbers."""
    physical, line = _likelihood(learned.physical), _likelihood(learned.linear)
    return History(
        physical=(physical[1], physical[0]),
        linear=(line[1], line[0]),
        applications=learned.applications,
    )


def _flat(matrix: Any, vector: Any) -> Numbers:
    return tuple(map(float, np.ravel(matrix))), tuple(map(float, vector))


def _likelihood(numbers: Numbers) -> tuple[Any, Any]:
    matrix, vector = (np.array(part, dtype=np.float64) for part in numbers)
    return matrix.reshape(len(vector), len(vector)), vector
