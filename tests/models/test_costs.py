"""What a change costs, and how much is left to pay it back."""

import math

import pytest

from brain.models.remaining import LONGEST_SECONDS, as_usual, remaining, usual
from brain.models.restart import restart_cost


def test_a_first_change_costs_what_is_assumed():
    found = restart_cost([], assumed_seconds=15)

    assert (found.seconds, found.measured) == (pytest.approx(15), 0)


def test_own_downtimes_soon_outweigh_the_assumption():
    assert restart_cost([2.0, 2.1, 1.9]).median_seconds == pytest.approx(2.0, rel=0.3)
    assert restart_cost([2.0] * 10).median_seconds == pytest.approx(2.0, rel=0.15)


def test_newer_downtimes_weigh_more():
    grown, shrunk = restart_cost([2.0] * 5 + [20.0] * 5), restart_cost([20.0] * 5 + [2.0] * 5)

    assert grown.median_seconds > 1.5 * shrunk.median_seconds


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.nan, math.inf])
def test_what_is_no_downtime_is_left_out(seconds: float):
    assert restart_cost([seconds, 4.0]) == restart_cost([4.0])


def left(**given: float | None):
    facts = {"done": 20.0, "declared": 100.0, "work_per_second": 0.1, "elapsed_seconds": 200.0}
    return facts | given


def test_a_declaration_that_was_never_tested_does_not_count():
    found = remaining(**left())

    assert (found.known, found.seconds) == (False, 200.0)


def test_one_that_the_owner_vouches_for_does():
    assert remaining(**left(), trusted=True).seconds == pytest.approx(800.0)


def test_so_does_one_after_true_ones():
    found = remaining(**left(), ratios=[1.0, 1.2, 0.9])

    assert (found.known, found.seconds) == (True, pytest.approx(800.0))
    assert found.low_seconds < 800 < found.high_seconds


def test_true_declarations_narrow_the_band():
    few, many = (remaining(**left(), ratios=[1.0] * n) for n in (1, 5))

    assert many.high_seconds < few.high_seconds


def test_what_runs_usually_come_to_outlives_one_that_was_another_in_five():
    assert usual([100.0, 900.0, 110.0, 90.0, 105.0]) == (105.0, pytest.approx(0.24, abs=0.02))
    assert usual([100.0, 900.0, 110.0, 20.0, 105.0]) is None


def test_a_run_beyond_what_others_came_to_is_expected_to_go_on_as_long_as_it_did():
    found = as_usual(done=120.0, works=[100.0, 100.0], work_per_second=0.1, elapsed_seconds=1200.0)

    assert (found.known, found.seconds) == (False, 1200.0)


def test_one_that_was_off_by_more_than_twice_disproves_them():
    assert not remaining(**left(), ratios=[1.0, 2.5]).known


@pytest.mark.parametrize(
    "given",
    [{"declared": None}, {"done": 100.0}, {"work_per_second": 0.0}, {"work_per_second": math.nan}],
)
def test_without_a_usable_one_a_job_trains_as_long_again(given: dict[str, float | None]):
    assert remaining(**left(**given), trusted=True).seconds == 200.0


def test_age_promises_no_more_than_six_hours():
    found = remaining(**left(declared=None, elapsed_seconds=1e6))

    assert found.seconds == LONGEST_SECONDS
