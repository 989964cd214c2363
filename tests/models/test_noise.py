"""The gradient noise scale of a job, from norms that its workers sampled."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain

import numpy as np
import pytest

from brain.errors import Undetermined
from brain.models.efficiency import GradientSums
from brain.types.telemetry import ThroughputSample
from tests.builders import at, throughput

DIMENSIONS = 64


def windows(
    count: int,
    *,
    scale: float = 100.0,
    ranks: int = 2,
    seed: int = 1,
    since: int = 0,
    loss: float = 1.0,
    **fields: int,
) -> list[ThroughputSample]:
    """Windows of one sampled step each: Gaussian gradients of a noise scale, batch 8 a rank."""
    drawn = np.random.default_rng(seed)
    mean = np.full(DIMENSIONS, 1 / np.sqrt(DIMENSIONS))
    spread = np.sqrt(scale / DIMENSIONS / 8)

    def step(number: int) -> Iterator[ThroughputSample]:
        gradients = loss * (mean + spread * drawn.normal(size=(ranks, DIMENSIONS)))
        for rank, gradient in enumerate(gradients):
            sample = throughput(
                number, rank=rank, processes=ranks, measured_at=at(number), **fields
            )
            yield replace(
                sample,
                gns_steps=1,
                gns_small_batch=8,
                gns_small_square=float((gradient**2).sum()),
                gns_big_batch=8 * ranks,
                gns_big_square=float((gradients.mean(axis=0) ** 2).sum()),
            )

    return list(chain.from_iterable(step(since + number) for number in range(count)))


def test_the_scale_is_found_within_its_band() -> None:
    covered = [
        found.low <= 100.0 <= found.high
        for seed in range(40)
        for found in [GradientSums().with_samples(windows(150, seed=seed)).scale]
    ]
    assert 32 <= sum(covered) <= 40, "of 40 bands of 90 %"


def test_many_steps_settle_it() -> None:
    found = GradientSums().with_samples(windows(1500, ranks=4)).scale
    assert found.examples == pytest.approx(100.0, rel=0.2)
    assert found.high / found.low < 1.6


def test_samples_are_counted_once() -> None:
    some = windows(100)
    sums = GradientSums().with_samples(some[:120])
    once, twice = GradientSums().with_samples(some), sums.with_samples(some)
    assert twice.scale.steps == pytest.approx(once.scale.steps)
    assert twice.scale.examples == pytest.approx(once.scale.examples)


def test_it_follows_training_whose_noise_grows() -> None:
    early = windows(1500, scale=50.0)
    late = windows(3000, scale=400.0, since=1500, seed=2, ranks=4)
    found = GradientSums().with_samples([*early, *late]).scale
    assert found.examples == pytest.approx(400.0, rel=0.35)


def test_what_the_first_minute_measured_does_not_outweigh_a_look_an_hour_later() -> None:
    early, later = windows(1000, scale=2.0), windows(300, scale=60.0, since=9000, seed=2)
    found = GradientSums().with_samples(early).with_samples(later).scale
    assert found.examples > 40.0, "by their steps alone the first ones would outweigh it"


def test_few_windows_settle_nothing() -> None:
    with pytest.raises(Undetermined, match="4 sampled steps are too few"):
        _ = GradientSums().with_samples(windows(4, scale=1.0)).scale


def test_more_workers_make_no_more_windows() -> None:
    with pytest.raises(Undetermined):
        _ = GradientSums().with_samples(windows(4, scale=1.0, ranks=16)).scale


def test_noise_without_signal_is_no_scale() -> None:
    with pytest.raises(Undetermined, match="cannot be distinguished from noise"):
        _ = GradientSums().with_samples(windows(60, scale=1e6, seed=3)).scale


def test_nothing_measured_is_no_scale() -> None:
    with pytest.raises(Undetermined, match="no gradient noise was measured"):
        _ = GradientSums().with_samples([throughput(0)]).scale


def test_another_accumulation_may_be_another_loss_and_begins_anew() -> None:
    before = windows(300)
    after = windows(300, since=300, seed=2, loss=0.25, accumulation=4)
    both = GradientSums().with_samples([*before, *after])
    alone = GradientSums().with_samples(after)
    assert both.scale.examples == pytest.approx(alone.scale.examples, rel=0.15)
    assert both.scale.steps < 200, "of 300 that are of this accumulation, older ones less"


def test_what_was_measured_at_another_batch_is_soon_forgotten() -> None:
    before = windows(300, scale=100.0)
    after = windows(100, scale=400.0, ranks=16, since=300, seed=2)
    sums = GradientSums().with_samples(before).with_samples(after)
    alone = GradientSums().with_samples(after)
    assert sums.scale.examples == pytest.approx(alone.scale.examples, rel=0.05)
    assert sums.batch == 128
