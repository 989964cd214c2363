"""The API server's clock, as its answers show it: pure, on clocks of the test."""

from datetime import timedelta
from email.utils import format_datetime
from math import floor

import pytest

from scaler.kubernetes.runtime.cluster import ClientLimits, Cluster, Unreachable
from scaler.kubernetes.runtime.cluster.servertime import ServerClock
from scaler.kubernetes.runtime.cluster.transport import TransportAnswer
from tests.kubernetes.shelf import NOON, Shelf, VirtualClock


def date(seconds: float) -> str:
    """The header of an answer that was written so many seconds after noon."""
    return format_datetime(NOON + timedelta(seconds=floor(seconds)), usegmt=True)


def off(clock: ServerClock, own: VirtualClock) -> float:
    """The seconds by which the clock differs from this machine's."""
    return (clock.now() - own.now()).total_seconds()


@pytest.mark.parametrize("seconds", [600.0, -600.0])
def test_the_servers_time_counts_within_a_second_and_a_request(seconds: float) -> None:
    own = VirtualClock()
    clock = ServerClock(own)
    asked_at = own.elapsed()
    own.sleep(0.2)

    clock.heard(date(own.elapsed() + seconds), asked_at)

    assert abs(off(clock, own) - seconds) <= 1.2


def test_a_clock_that_agrees_with_an_answer_stays_as_it_is() -> None:
    own = VirtualClock()
    clock = ServerClock(own)
    for _ in range(50):
        own.sleep(0.37)
        clock.heard(date(own.elapsed()), own.elapsed())

    assert off(clock, own) == 0.0


def test_many_answers_show_the_time_better_than_one() -> None:
    own = VirtualClock()
    clock = ServerClock(own)
    for _ in range(50):
        own.sleep(0.37)
        clock.heard(date(own.elapsed() + 60.5), own.elapsed())

    assert abs(off(clock, own) - 60.5) < 0.1


@pytest.mark.parametrize("header", [None, "", "yesterday", "Fri, 27 Nov 2026 12:00:00 -0000"])
def test_an_answer_without_a_date_changes_nothing(header: str | None) -> None:
    own = VirtualClock()
    clock = ServerClock(own)

    clock.heard(header, own.elapsed())

    assert off(clock, own) == 0.0


def test_only_an_answer_of_the_server_itself_shows_its_time() -> None:
    own, shelf = VirtualClock(), Shelf()
    cluster = Cluster(shelf, ClientLimits(attempts=1), clock=own)
    shelf.faults += [
        TransportAnswer(code=code, body=b"{}", headers={"Date": date(seconds)})
        for code, seconds in ((502, 900.0), (200, 600.0))
    ]
    with pytest.raises(Unreachable):
        cluster.read("/version")
    assert off(cluster.clock, own) == 0.0

    cluster.read("/version")
    assert off(cluster.clock, own) == 600.0
