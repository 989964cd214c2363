"""A little of what ``make soak`` does at length."""

from pathlib import Path

import pytest

from tests.soak import changes, storm


@pytest.mark.timeout(240)
def test_a_storm_of_twenty_seconds(tmp_path: Path) -> None:
    storm.run(tmp_path, seed=1, seconds=20, count=4, say=print)


@pytest.mark.timeout(240)
def test_replicas_are_identical_to_the_bit_after_each_of_six_changes(tmp_path: Path) -> None:
    changes.run(tmp_path, seed=1, changes=6, say=print)
