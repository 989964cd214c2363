"""Promised against measured."""

import math

import numpy as np
import pytest

from brain.errors import Undetermined
from brain.models.calibration import calibration, standardised, widening
from brain.types.recommendation import Prediction


def promised(deviation: float = 0.2) -> Prediction:
    half = 1.6449 * deviation
    return Prediction(examples_per_second=100, low=100 * math.exp(-half), high=100 * math.exp(half))


def outcomes(scale: float, count: int = 400) -> list[tuple[Prediction, float]]:
    """Measurements that scatter ``scale`` times as far as was promised."""
    drawn = np.random.default_rng(6).normal(0, 0.2 * scale, count)
    return [(promised(), 100 * math.exp(x)) for x in drawn]


def test_honest_bands_hold_nine_in_ten():
    found = calibration(outcomes(1.0))

    assert found.coverage_low <= 0.9 <= found.coverage_high
    assert found.widening == pytest.approx(1.0, abs=0.1)
    assert abs(found.bias) < 0.03


def test_bands_half_as_wide_as_they_should_be_are_doubled():
    found = calibration(outcomes(2.0))

    assert found.coverage < 0.7
    assert found.widening == pytest.approx(2.0, rel=0.15)


def test_bands_that_are_too_wide_are_not_narrowed():
    assert calibration(outcomes(0.3)).widening == 1.0


def test_a_single_surprise_widens_little():
    assert widening([3.0]) < 1.7


@pytest.mark.parametrize("measured", [0.0, -1.0, math.nan, math.inf])
def test_what_is_no_rate_cannot_be_judged(measured: float):
    with pytest.raises(Undetermined):
        standardised(promised(), measured)


def test_nothing_to_judge_is_undetermined():
    with pytest.raises(Undetermined, match="verified"):
        calibration([])
