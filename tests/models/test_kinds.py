"""A job's hopes of a kind of accelerator that it never had, by the jobs that had several."""

import math
import time

import numpy as np
import pytest

from brain.models.step_time.kinds import SpeedRatio, learn

#: Log step times of a job on two kinds, of which one takes three times as long.
SLOWER = {"A100": 0.0, "T4": math.log(3.0)}


def test_a_kind_that_nobody_tried_is_worth_a_trial():
    found = learn(()).ratio("T4", "A100")

    assert found.log_mean == 0
    assert found.log_hoped > math.log(1.5)


def test_a_kind_that_slowed_others_down_is_not_tried():
    known = learn([SLOWER] * 3)

    assert known.ratio("T4", "A100").log_hoped < math.log(0.5)
    assert known.ratio("A100", "T4").log_hoped > math.log(2.0)


def test_each_job_makes_the_next_surer_but_jobs_stay_different():
    doubts = [learn([SLOWER] * jobs).ratio("T4", "A100").deviation for jobs in (0, 1, 5, 1000)]

    assert doubts == sorted(doubts, reverse=True)
    assert doubts[-1] == pytest.approx(0.45 * math.sqrt(2), abs=0.01)


def test_two_kinds_are_compared_through_a_third():
    jobs = [{"A": 0.0, "B": 1.0}, {"B": 0.0, "C": 1.0}] * 20

    assert learn(jobs).ratio("C", "A").log_mean == pytest.approx(-2.0, abs=0.1)


def test_the_level_of_a_job_and_a_job_on_one_kind_tell_nothing():
    one = learn([SLOWER, {"T4": 7.0}])
    other = learn([{kind: seconds + 5.0 for kind, seconds in SLOWER.items()}])

    assert one.ratio("T4", "A100").log_mean == pytest.approx(other.ratio("T4", "A100").log_mean)


def test_jobs_count_each_whatever_the_order_of_their_kinds():
    known = learn([{"A": 0.0, "B": 1.0}, {"B": 4.0, "A": 0.0}, {"A": 0.0, "B": 1.0, "C": 1.0}])

    precision = np.eye(3) / 0.7**2
    told = np.zeros(3)
    for at, seconds in (([0, 1], [0.0, 1.0]), ([0, 1], [0.0, 4.0]), ([0, 1, 2], [0.0, 1.0, 1.0])):
        centred = (np.eye(len(at)) - 1 / len(at)) / 0.45**2
        precision[np.ix_(at, at)] += centred
        told[at] -= centred @ seconds
    assert known.mean == pytest.approx(np.linalg.solve(precision, told))
    assert known.covariance == pytest.approx(np.linalg.inv(precision))


def test_a_look_does_not_take_long_where_many_jobs_had_several_kinds():
    """Every look at such a job learns anew from up to 200 jobs."""

    def seconds(jobs: int) -> float:
        took = []
        for _ in range(20):
            began = time.perf_counter()
            learn([SLOWER] * jobs)
            took.append(time.perf_counter() - began)
        return min(took)

    assert seconds(200) < 15 * seconds(1)


@pytest.mark.parametrize("mean", [-1.0, -0.2, 0.0, 0.3, 2.0])
def test_a_trial_is_worth_what_the_better_kind_is_above_the_better_guess(mean: float):
    ratio = SpeedRatio(log_mean=mean, deviation=0.6)
    drawn = np.random.default_rng(1).normal(mean, 0.6, 400_000)

    worth = float(np.maximum(drawn, 0.0).mean()) - max(mean, 0.0)
    assert ratio.log_hoped - mean == pytest.approx(worth, abs=0.005)
