"""What finished jobs teach, as it is stored."""

import math

import pytest

from brain import wire
from brain.models.job import fit
from brain.models.lessons import Learned, Taught, history_of, learned, taught
from tests.models.test_job import KEEPS, point, truth


def alike(number: int) -> Taught:
    """What a job teaches that is like all others, but for its speed."""
    faster = 1 + number / 10
    points = [point(n, faster * truth(n)) for n in (1, 2, 4, 8)]
    found = taught(f"app-{number}", points, KEEPS)
    assert found is not None
    return found


def test_a_job_of_two_configurations_teaches_nothing_about_shapes():
    assert taught("app", [point(1, 320.0), point(2, 500.0), point(2, 510.0)], KEEPS) is None
    assert taught("app", [], KEEPS) is None


def test_points_that_cannot_be_fitted_teach_nothing():
    broken = [point(n, 320.0, step_seconds=math.nan) for n in (1, 2, 4)]

    assert taught("app", broken, KEEPS) is None


def test_nineteen_applications_are_no_history():
    assert learned(tuple(alike(number) for number in range(19))) is None


def test_twenty_that_are_alike_predict_the_next_one_better():
    priors = learned(tuple(alike(number) for number in range(20)))
    assert priors is not None
    first = point(1, 7 * truth(1))

    alone, guided = fit(first, terms=KEEPS), fit(first, terms=KEEPS, history=history_of(priors))

    def miss(found: float) -> float:
        return abs(math.log(found / (7 * truth(2))))

    better, worse = (found.predict(2).examples_per_second for found in (guided, alone))
    assert miss(better) < miss(worse)
    assert guided.report.fits["cpu"].members[2:] == ("physical, learned", "log-linear, learned")


def test_what_is_stored_comes_back_to_the_last_digit():
    lesson = alike(3)
    priors = learned(tuple(alike(number) for number in range(20)))
    assert priors is not None

    assert wire.decode(wire.encode(lesson), Taught) == lesson
    again = wire.decode(wire.encode(priors), Learned)
    assert again == priors
    assert history_of(again) is history_of(priors)
    assert history_of(priors).applications == pytest.approx(20)
