"""Commands that follow a job while its service is restarted."""

import re
from collections.abc import Sequence

import httpx2
import pytest

from brain import errors
from brain.cli import output
from brain.cli.jobs import logs, wait
from brain.client import BrainClient
from tests.web import seed


class Restarted(httpx2.BaseTransport):
    """The way to a service that does not answer the requests of the numbers in ``silent``.

    Requests about digits from the number ``ends`` on are answered as if digits were a job that has
    succeeded, and logs end after their first line.
    """

    def __init__(self, *, silent: Sequence[int] = (), ends: int = 1000) -> None:
        self._way, self._silent, self._ends = httpx2.HTTPTransport(), silent, ends
        self.asked = 0

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Answer one request."""
        number, self.asked = self.asked, self.asked + 1
        if number in self._silent:
            raise httpx2.ConnectError("connection refused", request=request)
        if request.url.path.endswith("/logs"):
            return httpx2.Response(200, text="step 7\n")
        if number >= self._ends:
            path = re.sub(f"digits|{seed.DIGITS}", seed.OLD, request.url.path)
            request = httpx2.Request(
                "GET", request.url.copy_with(path=path), headers=request.headers
            )
        return self._way.handle_request(request)

    def close(self) -> None:
        """Close the connections."""
        self._way.close()


class Renamed(Restarted):
    """The way to a service where digits end after the first request, and a later job that runs has
    their name.
    """

    def __init__(self) -> None:
        super().__init__(ends=1)

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Answer one request."""
        self._ends = self.asked + 1 if request.url.path.endswith("/digits") else 1
        return super().handle_request(request)


def client(service: dict[str, str], transport: Restarted) -> BrainClient:
    return BrainClient(service["BRAIN_URL"], service["BRAIN_TOKEN"], transport=transport)


def test_a_wait_outlasts_a_restart_of_the_service(service: dict[str, str]) -> None:
    way = Restarted(silent=(1, 2), ends=3)
    with client(service, way) as brain:
        wait.callback.__wrapped__(brain, job="digits", goal="finished", timeout=None)  # type: ignore[union-attr]
    assert way.asked == 4


def test_a_wait_for_a_service_that_never_answered_ends_at_once(service: dict[str, str]) -> None:
    way = Restarted(silent=range(1000))
    with client(service, way) as brain, pytest.raises(errors.Unavailable, match="refused"):
        wait.callback.__wrapped__(brain, job="digits", goal="finished", timeout=None)  # type: ignore[union-attr]
    assert way.asked == 1


def follow(brain: BrainClient) -> None:
    logs.callback.__wrapped__(  # type: ignore[union-attr]
        brain, job="digits", replica=None, rank=None, previous=False, follow=True
    )


def test_output_that_ends_before_its_job_is_no_success(
    service: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    with (
        client(service, Restarted()) as brain,
        pytest.raises(errors.Unavailable, match="digits is Running; run the command again"),
    ):
        follow(brain)
    assert capsys.readouterr().out == "step 7\n"


def test_output_that_ends_with_its_job_is_a_success(service: dict[str, str]) -> None:
    with client(service, Restarted(ends=0)) as brain:
        follow(brain)


def test_output_that_ends_with_its_job_is_a_success_although_a_later_job_has_the_name(
    service: dict[str, str],
) -> None:
    with client(service, Renamed()) as brain:
        follow(brain)


def test_a_wait_ends_with_its_job_although_a_later_job_has_the_name(
    service: dict[str, str],
) -> None:
    way = Renamed()
    with client(service, way) as brain:
        wait.callback.__wrapped__(brain, job="digits", goal="finished", timeout=10)  # type: ignore[union-attr]
    assert way.asked == 2


class Interrupted(Exception):
    """A person has seen enough."""


class Service:
    """Answers with the states in turn; an error is raised, and after the last a person leaves."""

    def __init__(self, *states: str | Exception) -> None:
        self._left = list(states)

    def fetch(self) -> str:
        """Answer one request."""
        state = self._left.pop(0)
        if isinstance(state, Exception):
            raise state
        return state

    def sleep(self, seconds: float) -> None:
        """Wait for no time."""
        if not self._left:
            raise Interrupted

    def watched(self) -> list[str]:
        """Return the states that a watching command shows until it ends or is interrupted."""
        shown: list[str] = []
        with pytest.raises(Interrupted):
            output.watch(self.fetch, shown.append, sleep=self.sleep)
        return shown


def test_a_watch_outlasts_a_restart_of_the_service_and_tells_it_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    away = errors.Unavailable("Brain at http://brain cannot be reached: connection refused")

    shown = Service("Queued", away, away, "Running").watched()

    assert shown == ["Queued", "Running"]
    assert capsys.readouterr().err == f"brain: {away}. The command goes on, and asks again.\n"


def test_a_watch_of_a_service_that_never_answered_ends_at_once() -> None:
    with pytest.raises(errors.Unavailable, match="refused"):
        output.watch(Service(errors.Unavailable("connection refused")).fetch, print)


def test_a_watch_of_a_job_that_is_gone_ends_with_the_reason() -> None:
    service = Service("Running", errors.UnknownJob("no job digits"))
    with pytest.raises(errors.UnknownJob):
        output.watch(service.fetch, lambda state: None, sleep=service.sleep)
