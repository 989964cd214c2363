"""The benchmark of cold starts: the second run of a script through the submit route."""

import numpy as np

from benchmarks.resources.beginning import Script, seconds_to_right

_FIRST = Script(1500.0, 2.0**30)


def test_a_second_run_like_the_first_begins_right():
    assert seconds_to_right(_FIRST, _FIRST, np.random.default_rng(1)) == 0


def test_a_second_run_that_needs_more_is_corrected_within_ten_minutes():
    more = Script(1.3 * _FIRST.millis, 1.3 * _FIRST.memory_bytes)
    assert 0 < seconds_to_right(_FIRST, more, np.random.default_rng(1)) <= 600
