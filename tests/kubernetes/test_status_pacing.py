"""When a job's status is written: pure, on a clock of the test."""

from datetime import UTC, datetime, timedelta
from typing import Any

from scaler.kubernetes.status.pacing import StatusPace

BORN = datetime(2026, 1, 1, tzinfo=UTC)


def obj(**status: Any) -> dict[str, Any]:
    return {
        "metadata": {"uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "status": status,
    }


def after(seconds: float) -> datetime:
    return BORN + timedelta(seconds=seconds)


def test_the_first_status_waits_for_the_first_pod_but_not_for_long():
    pace = StatusPace()

    assert pace.pause(obj(), {"replicas": 0}, after(1)) == 4
    assert pace.pause(obj(), {"replicas": 1}, after(1)) is None
    assert pace.pause(obj(), {"replicas": 0}, after(5)) is None


def test_the_first_status_does_not_wait_for_a_clock_that_is_behind():
    pace = StatusPace()

    assert pace.pause(obj(), {"replicas": 0}, after(-600)) == 5
    assert pace.pause(obj(), {"replicas": 0}, after(-595)) is None


def test_the_answer_to_an_edit_does_not_wait_for_the_first_pod():
    began, edited = {"generation": 0}, {"generation": 1}

    assert StatusPace().pause(obj(), {"replicas": 0, "request": began}, after(1)) == 4
    assert StatusPace().pause(obj(), {"replicas": 0, "request": edited}, after(1)) is None


def test_counts_wait_for_one_another_from_the_first_change_on():
    pace, known = StatusPace(), obj(replicas=1)

    assert pace.pause(known, {"replicas": 1}, after(10)) is None
    assert pace.pause(known, {"replicas": 2}, after(20)) == 2
    assert pace.pause(known, {"replicas": 3}, after(21)) == 1
    assert pace.pause(known, {"replicas": 3}, after(22)) is None
    pace.written(known["metadata"]["uid"])
    assert pace.pause(known, {"replicas": 4}, after(23)) == 2


def test_a_condition_that_lasts_is_written_at_once():
    running = {"replicas": 1, "conditions": [{"type": "Running", "status": "True"}]}

    assert StatusPace().pause(obj(replicas=1), running, after(10)) is None
