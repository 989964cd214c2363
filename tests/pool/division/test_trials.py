"""What is hoped of fewer replicas, and when nothing is."""

from typing import Any

import pytest

from brain.pool.division.trials import SizeTrial, trial
from tests.optimizer.test_policies import situation


def tried(rates: dict[int, float], size: int, *, at: int, **fields: Any) -> SizeTrial | None:
    return trial(situation(rates, at=at, **fields), size)


def hoped(rates: dict[int, float], size: int, *, at: int, **fields: Any) -> float:
    """Throughput that a size is hoped to make."""
    seen = situation(rates, at=at, **fields)
    found = trial(seen, size)
    assert found is not None
    return found.factor * seen.predict(size).examples_per_second


def test_half_of_those_that_wait_for_data_are_hoped_to_do_as_much():
    assert hoped({4: 100.0}, 2, at=4, data_wait_share=0.7) == pytest.approx(100, rel=0.02)


def test_fewer_than_the_waiting_leaves_idle_are_hoped_to_do_less():
    assert hoped({4: 100.0}, 2, at=4, data_wait_share=0.6) == pytest.approx(100, rel=0.02)
    assert tried({4: 100.0}, 2, at=4, data_wait_share=0.3) is None


def test_workers_that_did_less_with_fewer_of_them_are_not_tried_by_their_waiting_again():
    assert tried({4: 50.0, 8: 100.0}, 6, at=8, sizes=(4, 6, 8), data_wait_share=0.7) is None


def test_below_sizes_that_made_no_difference_another_is_hoped_to_make_none():
    assert hoped({2: 100.0, 4: 105.0}, 1, at=2) == pytest.approx(100, rel=0.02)
    found = tried({2: 100.0, 4: 105.0}, 1, at=2)
    assert found is not None
    assert found.why == "4 replicas had 1.05× of the throughput of 2"


def test_below_sizes_that_paid_for_their_replicas_nothing_is_hoped():
    assert tried({2: 100.0, 4: 160.0}, 1, at=2) is None


@pytest.mark.parametrize(
    ("rates", "size", "at"),
    [
        pytest.param({2: 100.0, 4: 105.0}, 2, 4, id="was measured"),
        pytest.param({4: 105.0}, 1, 4, id="less than half at once"),
        pytest.param({2: 100.0}, 4, 2, id="larger"),
        pytest.param({2: 100.0, 4: 105.0}, 3, 4, id="between"),
    ],
)
def test_nothing_is_hoped_of_a_size_that(rates: dict[int, float], size: int, at: int):
    assert tried(rates, size, at=at, data_wait_share=0.0) is None


def test_where_a_worker_does_nothing_but_wait_there_is_nothing_to_divide_by():
    assert hoped({4: 100.0}, 2, at=4, data_wait_share=1.0) == pytest.approx(100, rel=0.02)
