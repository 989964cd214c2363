"""Generated truths: a seed decides them, each kind does what it is called, bands are judged."""

import math

import numpy as np
import pytest

from benchmarks.models import bands
from benchmarks.models.truths import KINDS, POINTS, Problem, plain_ring, problem, problems


def test_a_seed_decides_every_problem():
    assert problems(7, 2) == problems(7, 2)
    assert problems(7, 2) != problems(8, 2)
    assert {one.kind for one in problems(7, 1)} == set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_only_sizes_that_a_service_answers_for_are_asked(kind: str):
    one = problem(kind, np.random.default_rng(3))
    for points in POINTS:
        seen = [point["replicas"] for point in one.points[:points]]
        asked = [size for size, _ in one.asked[points]]
        assert max(asked) <= 2 * max(seen)
        assert not set(asked) & set(seen)
        assert all(math.isfinite(rate) and rate > 0 for rate in one.truths[points])


def test_who_is_fed_by_one_storage_waits_longer_with_each_replica():
    truth = KINDS["shared storage"](plain_ring(np.random.default_rng(2)), np.random.default_rng(1))
    assert truth.loading(8) == pytest.approx(truth.loading(1) * (1 if truth.keeps_global else 8))


def test_a_band_that_misses_costs_twenty_times_what_it_misses():
    one = Problem(kind="ring", points=(), global_batch=None, truths={1: [200.0]})
    (missed,) = bands.held(one, {"1": [(100.0, 50.0, 100.0)]}, 1)
    (held,) = bands.held(one, {"1": [(100.0, 50.0, 200.0)]}, 1)

    assert (missed.inside, held.inside) == (False, True)
    assert missed.score == pytest.approx(math.log(2) + 20 * math.log(2))
    assert held.score == pytest.approx(math.log(4))


def test_what_a_checkout_believes_comes_from_that_checkout():
    found = [problem("ring", np.random.default_rng(1))]
    (answers,) = bands.believed(found, bands.ROOT)

    assert {points: len(of) for points, of in answers.items()} == {
        str(points): len(of) for points, of in found[0].asked.items()
    }
