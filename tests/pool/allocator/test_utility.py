"""What a configuration is worth: who is served first, and who is not starved."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from brain.pool.allocator.utility import UtilityInputs, Weights, ranked


def terms(left: Sequence[float], attained: float | Sequence[float] = 0.0) -> UtilityInputs:
    """Jobs that wait, with one configuration each; NaN is not known."""
    column = np.array(left)[:, None]
    ones = np.ones_like(column)
    return UtilityInputs(
        speedup=ones,
        deviation=0 * ones,
        replicas=ones,
        current=np.zeros_like(column, dtype=bool),
        runs=np.zeros_like(column, dtype=bool),
        attained_seconds=np.reshape(attained, (-1, 1)) * ones,
        remaining_seconds=column,
        waited_seconds=0 * ones,
        age_seconds=ones,
        restart_seconds=0 * ones,
        priority=ones,
        even=ones,
    )


def worth(left: Sequence[float], attained: float | Sequence[float] = 0.0) -> list[float]:
    """By ``ranked``, with a worth that grows as the rank itself."""
    return ranked(terms(left, attained), Weights(crowding=1.0, newcomers=0.0))[:, 0].tolist()


def test_a_job_counts_for_all_that_have_as_much_to_go_or_more() -> None:
    assert worth([500.0, 100.0, 2000.0]) == [2.0, 3.0, 1.0]


def test_jobs_of_equal_length_count_alike() -> None:
    assert worth([500.0, 500.0, 2000.0]) == [3.0, 3.0, 1.0]


def test_in_a_crowd_the_longest_job_counts_no_less_than_before() -> None:
    assert worth([60.0] * 50 + [1e6])[-1] == worth([1e5, 1e6])[-1]


def test_where_nobody_knows_the_oldest_job_counts_for_more_than_itself() -> None:
    unknown = worth([np.nan, np.nan], [0.0, 900.0])

    assert unknown == pytest.approx([2.0, 1.0 + (300 / 1200) ** Weights().looseness])


def test_jobs_of_which_nothing_is_known_count_alike() -> None:
    assert worth([np.nan, np.nan, np.nan]) == pytest.approx([3.0, 3.0, 3.0])


def test_whoever_is_yet_to_come_makes_few_jobs_share_more_evenly() -> None:
    asked = terms([100.0, 2000.0])

    short, long = ranked(asked, Weights(crowding=1.0, newcomers=4.0))[:, 0].tolist()

    assert short / long == pytest.approx(6 / 5)


def test_an_even_share_is_worth_as_much_to_a_job_that_scales_badly() -> None:
    speed = np.array([[1.5], [4.0]])
    asked = replace(terms([500.0, 500.0]), speedup=speed, even=speed)

    badly, well = ranked(asked, Weights())[:, 0].tolist()

    assert badly == pytest.approx(well)
