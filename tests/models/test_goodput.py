"""Efficiency, goodput and the best batch of a size."""

import math
from typing import Any

import numpy as np
import pytest

from brain.errors import Undetermined
from brain.models.efficiency import efficiency, gradient_statistics, noise_scale
from brain.models.goodput import Batches, best, candidates, curve, goodput, rate
from brain.models.step_time.columns import Configuration


class Launching:
    """A step of 0.1 s and 1 ms per example of a replica: large batches run fast."""

    def predict(self, X: Any, return_std: bool = False) -> Any:
        mean = np.log((0.1 + 0.001 * X[:, 2]) * X[:, 3])
        return (mean, np.full(len(mean), 0.1)) if return_std else mean


@pytest.mark.parametrize("noise", [10.0, 1000.0, 1e6])
def test_efficiency_is_one_at_the_first_batch_and_falls_after(noise: float):
    batches = np.array([64.0, 128.0, 256.0])
    found = efficiency(batches, first_batch=64, noise=noise)

    assert found[0] == 1.0
    assert (np.diff(found) < 0).all()
    assert (found * batches).argmax() == 2


def test_it_is_that_of_pollux():
    square, variance, first, batch = 3.0, 40.0, 64.0, 512.0
    scale = batch / first
    gain = (variance / scale + square) ** -1 * (variance + square)
    noise = noise_scale(square, variance, first)

    assert efficiency(batch, first_batch=first, noise=noise) == pytest.approx(gain / scale)


def test_norms_at_two_batches_tell_signal_from_noise():
    signal, noise = 2.0, 48.0
    found = gradient_statistics(8, signal + noise / 8, 64, signal + noise / 64)

    assert found == (pytest.approx(signal), pytest.approx(noise))


@pytest.mark.parametrize(
    ("square", "variance", "batch"),
    [(0.0, 1.0, 8), (-1.0, 1.0, 8), (1.0, -1.0, 8), (math.nan, 1.0, 8), (1.0, 1.0, 0)],
)
def test_no_signal_is_no_noise_scale(square: float, variance: float, batch: float):
    with pytest.raises(Undetermined):
        noise_scale(square, variance, batch)


def test_one_batch_size_tells_nothing():
    with pytest.raises(Undetermined, match="accumulate, or add a worker"):
        gradient_statistics(32, 1.0, 32, 1.0)


def test_wild_noise_scales_are_kept_within_reason():
    wild, none = (efficiency(64.0, first_batch=32, noise=noise) for noise in (1e12, 1e-9))

    assert (wild, none) == (pytest.approx(1, rel=1e-3), pytest.approx((3.2 + 32) / (3.2 + 64)))


def test_without_a_noise_scale_the_global_batch_stays():
    rows, allowed = candidates([(1, 4)], Batches(first=128, largest=4096))

    assert rows[allowed].tolist() == [[1.0, 4.0, 32.0, 1.0]]


def test_a_curve_is_the_best_of_each_size():
    batches = Batches(first=64, largest=4096, largest_local=256, noise=500.0)
    found = curve(Launching(), [(1, 1), (1, 4), (2, 16)], batches)

    assert found == [best(Launching(), n, r, batches) for n, r in ((1, 1), (1, 4), (2, 16))]


def test_a_curve_leaves_out_sizes_without_a_batch():
    assert curve(Launching(), [(1, 4), (2, 16)], Batches(first=8, largest=8))[1] is None


def test_with_one_the_batch_grows_as_far_as_it_pays():
    batches = Batches(first=128, largest=8192, noise=500.0)
    found = best(Launching(), 1, 1, batches)

    assert 128 < found.configuration.batch < 8192
    assert found.efficiency == pytest.approx(628 / (500 + found.configuration.batch))


def test_a_share_beyond_the_device_is_split_into_micro_batches():
    found = best(
        Launching(), 1, 1, Batches(first=256, largest=256, largest_local=100)
    ).configuration

    assert (found.local_batch, found.accumulation) == (86.0, 3)


def test_more_replicas_than_examples_is_undetermined():
    with pytest.raises(Undetermined, match="take fewer replicas"):
        best(Launching(), 2, 16, Batches(first=8, largest=8))


def test_the_band_of_goodput_is_that_of_step_times():
    one = Configuration(nodes=1, replicas=1, local_batch=100)
    found = goodput(Launching(), [one], Batches(first=100, largest=100))[0].prediction

    assert found.examples_per_second == pytest.approx(500.0)
    assert found.high / found.low == pytest.approx(math.exp(2 * 1.6449 * 0.1))
    assert rate(Launching(), one) == found
