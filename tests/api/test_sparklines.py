"""Sparklines in the list of jobs, over time."""

import pytest

from brain import calls, lifecycle
from brain.api.views import sparklines
from brain.types.job import JobId, JobState
from tests.api.app import Api, run_for_a_minute
from tests.builders import at, throughput

HOUR = 3600


def measure(api: Api, job: JobId, *seconds: int) -> None:
    """Store a sample of a job at each of these seconds."""
    with api.stores.transaction() as tx:
        samples = [throughput(second, job=job) for second in seconds]
        tx.telemetry.add(samples, received_at=api.now)


def _lines(api: Api) -> list[tuple[float | None, ...]]:
    """The sparklines of the list of jobs."""
    with api.client() as client:
        return [row.sparkline for row in client.send(calls.jobs()).items]


def test_a_list_of_more_jobs_than_sparklines_are_kept_has_them_all(
    api: Api, running: JobId, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.now = at(0)
    run_for_a_minute(api, "another")
    monkeypatch.setattr(sparklines, "_KEPT", 1)
    first = _lines(api)
    assert len(first) == 2
    assert all(any(line) for line in first)
    assert _lines(api) == first


def test_the_sparkline_of_a_job_that_ended_has_its_last_samples(api: Api, running: JobId) -> None:
    def of_last_points() -> list[bool]:
        return [point is not None for point in _lines(api)[0][-3:]]

    measure(api, running, HOUR - 250)
    api.now = at(HOUR)
    assert of_last_points() == [False, False, False]
    with api.stores.transaction() as tx:
        job = tx.jobs.get(running)
        lifecycle.end(tx, job, JobState.SUCCEEDED, "all done", at(HOUR + 10), exit_code=0)
    api.now = at(HOUR + 10)
    measure(api, running, HOUR + 5)
    assert of_last_points() == [False, False, True]
    api.now = at(HOUR + 400)
    measure(api, running, HOUR - 80)
    assert of_last_points() == [False, True, True]
    api.now = at(3 * HOUR)
    assert of_last_points() == [False, True, True]


def test_a_later_sparkline_continues_from_its_newest_measured_point(
    api: Api, running: JobId
) -> None:
    measure(api, running, 1_000)
    api.now = at(HOUR)
    (first,) = _lines(api)
    measure(api, running, 500, 2_000)
    api.now = at(HOUR + 100)
    (line,) = _lines(api)
    assert line[:14] == first[:14], "points of 75 s up to the newest measured one stay"
    assert [n for n, mean in enumerate(line) if mean is not None] == [0, 13, 26]
    assert (len(first), len(line)) == (48, 50)


def test_a_sparkline_that_has_grown_too_long_is_drawn_anew(api: Api, running: JobId) -> None:
    measure(api, running, 1_000)
    api.now = at(HOUR)
    _lines(api)
    api.now = at(HOUR + 12 * 75)
    (longest,) = _lines(api)
    measure(api, running, HOUR)
    api.now = at(HOUR + 13 * 75)
    (anew,) = _lines(api)
    assert (len(longest), len(anew)) == (60, 48)
    assert [n for n, mean in enumerate(anew) if mean is not None] == [0, 10, 37], (
        "points of 4,575 s / 48"
    )


def test_a_sparkline_of_three_hours_loses_a_point_at_its_beginning_for_each_new_one(
    api: Api, running: JobId
) -> None:
    measure(api, running, *range(60, 5 * HOUR, 225))
    api.now = at(4 * HOUR)
    (first,) = _lines(api)
    api.now = at(4 * HOUR + 2 * 225)
    (line,) = _lines(api)
    assert len(first) == len(line) == 48
    assert line[:-2] == first[2:]
    assert all(line)
