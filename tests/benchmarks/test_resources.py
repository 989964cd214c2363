"""The benchmark of advice on resources asks the service, and its traces are what they say."""

import numpy as np
import pytest

from benchmarks.resources import warnings
from benchmarks.resources.leaks import LIMIT_BYTES, traces
from benchmarks.resources.requests import OURS, judge, rules


def test_traces_follow_from_their_seed():
    one, again, other = (traces(seed, 3, leaks=True)[0].minutes for seed in (1, 1, 2))
    assert np.array_equal(one, again)
    assert not np.array_equal(one[:30], other[:30])


@pytest.mark.parametrize("seed", [1, 7])
def test_only_traces_that_leak_reach_the_limit(seed: int):
    assert all(trace.minutes[-1] >= LIMIT_BYTES for trace in traces(seed, 20, leaks=True))
    assert all(trace.minutes.max() < LIMIT_BYTES for trace in traces(seed, 20, leaks=False))


def test_a_leak_is_warned_of_by_the_service():
    short = min(traces(1, 20, leaks=True), key=lambda trace: len(trace.minutes))
    assert warnings.judge(short).warned is not None


def test_a_steady_series_is_given_what_it_uses_with_a_margin():
    hours = [(3600.0 * hour, 1000.0) for hour in range(60)]
    found = judge(rules()[OURS], hours)
    assert found.over == 0
    assert found.slack == pytest.approx(1 - 1 / 1.15, abs=0.05)
    assert found.changes_a_day == 0
