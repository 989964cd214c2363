"""A little of what ``make soak`` does at length."""

from pathlib import Path

import pytest

from tests.soak import changes, starts, storm

pytestmark = pytest.mark.slow


@pytest.mark.timeout(240)
def test_a_storm_of_twenty_seconds(tmp_path: Path) -> None:
    storm.run(tmp_path, seed=1, seconds=20, count=4, say=print)


@pytest.mark.timeout(240)
def test_replicas_are_identical_to_the_bit_after_each_of_six_changes(tmp_path: Path) -> None:
    changes.run(tmp_path, seed=1, changes=6, say=print)


@pytest.mark.timeout(400)
def test_processes_that_stay_are_identical_after_a_join_a_crash_a_kill_and_a_leave(
    tmp_path: Path,
) -> None:
    changes.run(tmp_path, seed=42, changes=4, script=changes.IN_PROCESS, say=print)


@pytest.mark.timeout(240)
def test_two_fresh_starts_of_a_job_whose_processes_stay(tmp_path: Path) -> None:
    starts.run(tmp_path, starts=2, say=print)
