"""Input that does not scale: predictions of jobs whose loaders, nodes or storage hold them up."""

from datetime import timedelta

import numpy as np
import pytest

from brain.models.fitting import measure
from brain.models.job_fit import fit
from brain.models.step_time.feeding import feed, longer
from tests.builders import NOW, throughput
from tests.models.test_job import KEEPS, point


def starved(replicas: int, rate: float, share: float = 0.6, **fields: object):
    found = point(replicas, rate, examples_per_step=64.0 * replicas, **fields)
    return point(
        replicas,
        rate,
        examples_per_step=64.0 * replicas,
        data_wait_seconds=share * found.step_seconds,
        **fields,
    )


def test_one_storage_for_all_gives_more_replicas_nothing():
    storage = fit(starved(2, 300.0, 0.7), [starved(1, 300.0, 0.4)])

    found = storage.predict(4)
    assert found.examples_per_second == pytest.approx(300.0, rel=0.1)
    assert found.low < 300.0 < found.high < 450.0


def test_loaders_of_their_own_scale_with_the_replicas():
    own = fit(starved(2, 600.0), [starved(1, 300.0)])

    assert own.predict(4).examples_per_second == pytest.approx(1200.0, rel=0.15)


def test_from_one_size_it_is_not_known_who_shares_what_feeds_a_job():
    fed, alone = fit(starved(1, 300.0, 0.0)), fit(starved(1, 300.0))

    found, certain = alone.predict(2), fed.predict(2)
    assert found.examples_per_second < certain.examples_per_second
    assert found.low < 310.0
    assert found.high > 550.0


def test_a_starved_job_loses_nothing_with_fewer_replicas():
    seen = fit(starved(4, 300.0, 0.75), [starved(8, 300.0, 0.87)])

    assert seen.predict(2).examples_per_second == pytest.approx(300.0, rel=0.15)


def test_the_wait_of_handing_a_batch_over_changes_no_prediction():
    waits = [point(n, rate, data_wait_seconds=0.05 * 64 / rate) for n, rate in ((1, 320), (2, 500))]
    plain = [point(n, rate) for n, rate in ((1, 320), (2, 500))]

    assert fit(waits[1], waits[:1], terms=KEEPS).predict(4) == fit(
        plain[1], plain[:1], terms=KEEPS
    ).predict(4)


def test_a_wait_comes_from_the_samples_of_the_rank_that_waits_longest():
    samples = [
        throughput(at, rank=rank, processes=2, replicas=2, step_seconds=0.1, data_wait_seconds=wait)
        for at in range(6)
        for rank, wait in ((0, 0.01), (1, 0.06))
    ]

    found = measure(samples, minimum_steps=30, spread_limit=0.05)
    assert found.data_wait_seconds == pytest.approx(0.06)
    assert found.data_wait_share == pytest.approx(0.6)


def test_waits_that_come_in_bursts_are_no_part_of_a_usual_step():
    # One step in ten begins an epoch and waits 1 s; the others take 0.1 s.
    samples = [
        throughput(at, step_seconds=0.1, step_seconds_mean=0.2, data_wait_seconds=0.1)
        for at in range(6)
    ]

    found = measure(samples, minimum_steps=30, spread_limit=0.05)
    assert found.data_wait_share == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("hours", [0.5, 24.0, 72.0])
def test_a_job_that_does_not_starve_any_more_is_not_held_to_its_old_storage(hours: float):
    before = [
        starved(replicas, 300.0, share, until=NOW - timedelta(hours=hours))
        for replicas, share in ((1, 0.5), (2, 0.75))
    ]
    seen = fit(starved(2, 1200.0, 0.0, epoch=9), before)

    assert seen.predict(4).examples_per_second > 1.4 * 1200


def test_a_storage_that_has_become_slow_is_believed():
    before = [
        starved(replicas, 600.0 * replicas, 0.0, until=NOW - timedelta(hours=24))
        for replicas in (1, 2)
    ]
    seen = fit(starved(2, 300.0, 0.75, epoch=9), before)

    assert seen.predict(4).examples_per_second < 600.0


def test_steps_that_do_not_wait_bound_what_loading_takes():
    # 8 replicas did not wait, so their batches came in time: no storage that serves 2 at 1 s.
    X = np.array([[1.0, 2.0, 64.0, 1.0], [1.0, 8.0, 64.0, 1.0]])
    found = feed(X, np.log([1.0, 1.0]), np.zeros(2), np.array([0.5, 0.0]))

    assert found is not None
    own, node, storage = found.weights
    assert own == pytest.approx(1.0, abs=1e-3)
    assert max(node, storage) < 1e-3


def test_the_longer_of_two_is_what_sampling_says():
    chance = np.random.default_rng(1)
    one, other = chance.normal(0.1, 0.3, 400_000), chance.normal(0.0, 0.2, 400_000)
    mean, variance = longer(np.array([0.1]), np.array([0.3]), np.array([0.0]), 0.2)

    sampled = np.maximum(one, other)
    assert mean[0] == pytest.approx(sampled.mean(), abs=0.002)
    assert variance[0] == pytest.approx(sampled.var(), abs=0.002)
