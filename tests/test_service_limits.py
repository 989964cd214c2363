"""What the service takes of strangers and friends: bytes, time, connections, requests."""

import re
import select
import socket
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from brain import calls
from brain.api.routes.ui import directory
from brain.client import BrainClient
from brain.errors import Overloaded
from tests.api.app import digits
from tests.builders import throughput
from tests.serving import (
    Service,
    Wire,
    eventually,
    memory_mib,
    metric,
    refusals,
    service,
    wires,
)

MIB = 1024 * 1024
SIGN_IN = "POST /api/v1/sign-in"
WRONG_CODE = b'{"code": "brn_wrong.ada"}'


def agent_of(running: Service) -> tuple[BrainClient, str]:
    """A client as a new job's agents have it, and the job."""
    with running.client() as admin:
        job = admin.send(calls.submit(digits())).id
    with running.client("scaler") as scaler:
        secret = scaler.send(calls.mint_agent_token(job)).secret
    return BrainClient(running.url, secret), job


def ingest(agent: BrainClient, job: str, number: int = 0) -> int:
    """Send one sample; return how many were stored."""
    at = datetime.now(UTC)
    sample = throughput(number, job=job, measured_at=at)
    return agent.send(calls.telemetry([sample], sent_at=at)).stored


def ask_and_never_read(sender: Wire, path: str = "/livez", *, times: int = 20_000) -> None:
    """Ask for far more than what lies between sender and service has room for."""
    sender.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sender.send(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode() * times)


def unsent(running: Service) -> list[str]:
    """What the kernel holds of the service's answers, by connection."""
    port = f":{int(running.url.rpartition(':')[2]):04X}"
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return [row[4].partition(":")[0] for row in rows if row[1].endswith(port)]


def until_stuck(running: Service, count: int) -> None:
    """Wait until so many connections have answers that nobody takes, and get no more of them."""

    def stuck() -> bool:
        before = unsent(running)
        time.sleep(0.5)
        return before == unsent(running) and sum(int(each, 16) > 0 for each in before) == count

    eventually(stuck)


def sockets(running: Service) -> int:
    """Connections that the service has, those included that it does not count any more."""
    found = Path(f"/proc/{running.process.pid}/fd").iterdir()
    return sum(target(each).startswith("socket:") for each in found)


def target(descriptor: Path) -> str:
    """Name what a descriptor is open on; empty if it was closed since it was listed."""
    try:
        return str(descriptor.readlink())
    except FileNotFoundError:
        return ""


@pytest.mark.parametrize("length", [MIB, None])
def test_unfinished_bodies_on_an_open_route_are_refused_after_4_kib(
    tmp_path: Path, length: int | None
) -> None:
    with service(tmp_path, "--open-requests-per-second=100") as running:
        before = memory_mib(running)
        with wires(running, 60) as senders:
            for sender in senders:
                sender.head(SIGN_IN, length=length)
                sender.send((b"" if length else b"%x\r\n" % MIB) + b" " * (MIB - 1))
            answers = [sender.answer() for sender in senders]
            grown = memory_mib(running) - before
        assert {status for status, _, _ in answers} == {413}
        assert "open_body_bytes 4096" in answers[0][2]["detail"]
        assert refusals(running, "open_body_bytes") == 60
    assert grown < 40  # of the 60 MiB that were sent


def test_unfinished_bodies_take_no_more_than_the_budget_and_ingest_goes_on(tmp_path: Path) -> None:
    with service(tmp_path, f"--body-budget-bytes={4 * MIB}") as running:
        agent, job = agent_of(running)
        before = memory_mib(running)
        with agent, wires(running, 30) as senders:
            for sender in senders:
                sender.head(
                    "POST /api/v1/jobs",
                    length=MIB,
                    Authorization=f"Bearer {running.token('admin')}",
                )
                sender.send(b" " * (MIB - 1))
            # Two MiB are for everything but telemetry, so one or two bodies wait for their end.
            eventually(lambda: refusals(running, "body_budget_bytes") >= 28)
            stored = ingest(agent, job)
            held = metric(running, "brain_body_bytes")
            grown = memory_mib(running) - before
            told, _, _ = select.select([each.socket for each in senders], [], [], 60)
            status, headers, document = Wire(told[0]).answer()
        assert stored == 1
        assert held <= 2 * MIB
    assert grown < 25
    assert status == 429
    assert int(headers["retry-after"]) >= 1
    assert "body_budget_bytes" in document["detail"]


def test_a_flood_of_half_open_connections_keeps_nobody_out(tmp_path: Path) -> None:
    with service(tmp_path, descriptors=300) as running, wires(running, 1030) as flood:
        for each in flood:
            each.send(b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n")
        with running.client() as admin:
            assert admin.send(calls.health()).role == "admin"
        assert metric(running, "brain_connections") <= 300 - 256
        assert refusals(running, "connections") >= 1030 - (300 - 256)
        assert refusals(running, "connections_per_address") == 0
        status, _, document = flood[0].answer()
    assert status == 408
    assert "the service reached connections and closed this connection" in document["detail"]


@pytest.mark.slow
def test_a_flood_that_never_reads_its_answers_keeps_nobody_out(tmp_path: Path) -> None:
    with service(tmp_path, "--connections-per-address=5") as running, wires(running, 5) as flood:
        for each in flood:
            ask_and_never_read(each)
        until_stuck(running, 5)
        with running.client() as admin:
            assert admin.send(calls.health()).role == "admin"


def test_answers_that_nobody_reads_hold_no_connection_that_is_not_counted(tmp_path: Path) -> None:
    with service(tmp_path, "--connections-per-address=74") as running:
        before = sockets(running)
        root = directory()
        assert root is not None
        # Nearly all of such an answer is one write of its body: nothing of the next one was sent.
        (font, *_) = root.rglob("*.woff2")
        with wires(running, 70), wires(running, 4) as unread:
            for each in unread:
                ask_and_never_read(each, f"/{font.relative_to(root)}", times=200)
            until_stuck(running, 4)
            # Each takes another's place: the silent go first, and are more than may linger.
            with wires(running, 74):
                eventually(lambda: refusals(running, "connections_per_address") >= 74)
                eventually(lambda: sockets(running) <= before + 74, seconds=15)


def test_an_address_has_no_more_connections_than_its_limit(tmp_path: Path) -> None:
    with service(tmp_path, "--connections-per-address=10") as running:
        with wires(running, 10) as kept:
            token = running.token("admin")
            for each in kept:
                each.head("GET /api/v1/health", length=0, Authorization=f"Bearer {token}")
                assert each.answer()[0] == 200
            held = sockets(running)
            with wires(running, 1) as (one_more,):
                status, headers, document = one_more.answer()
        # Those that were there are gone, once the service has heard of it, and there is room again.
        eventually(lambda: sockets(running) <= held - 10)
        assert refusals(running, "connections_per_address") == 1
    assert status == 429
    assert int(headers["retry-after"]) >= 1
    assert "127.0.0.1 reached connections_per_address 10; close a connection" in document["detail"]


@pytest.mark.parametrize(
    ("limit", "route", "length"),
    [("head_seconds", None, 0), ("body_seconds", SIGN_IN, 100)],
)
def test_a_request_that_does_not_come_whole_is_ended(
    tmp_path: Path, limit: str, route: str | None, length: int
) -> None:
    with service(tmp_path, f"--{limit.replace('_', '-')}=0.5") as running:
        with wires(running, 2) as (slow, silent):
            if route is None:
                slow.send(b"GET /livez HTTP/1.1\r\n")
                assert silent.answer()[0] == 408
            else:
                slow.head(route, length=length)
                slow.send(b" ")
            status, _, document = slow.answer()
        assert refusals(running, limit) == (2 if route is None else 1)
    assert status == 408
    assert f"did not arrive within {limit} 0.5; send it again" in document["detail"]


def test_a_head_without_end_is_refused_after_64_kib(tmp_path: Path) -> None:
    with service(tmp_path) as running, wires(running, 1) as (endless,):
        endless.send(b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n")
        endless.send((b"X-A: " + b"b" * 1_000 + b"\r\n") * 400)
        status, _, document = endless.answer()
    assert status == 422
    assert "the request head is larger than 65536 bytes" in document["detail"]


def test_requests_that_are_sent_ahead_are_answered_in_their_order(tmp_path: Path) -> None:
    with service(tmp_path) as running, wires(running, 1) as (eager,):
        routes = ["/livez", "/nowhere", "/api/v1/health"] * 200
        ask = "GET {} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: application/json\r\n\r\n"
        eager.send("".join(map(ask.format, routes)).encode())
        said, found = b"", list[bytes]()
        while len(found) < len(routes):
            said += eager.socket.recv(65536)
            found = re.findall(rb"HTTP/1\.1 (\d{3}) ", said)
    assert found == [b"200", b"404", b"401"] * 200


def test_a_slow_head_after_an_answer_is_told(tmp_path: Path) -> None:
    with service(tmp_path, "--head-seconds=0.5") as running, wires(running, 1) as (kept,):
        kept.head("GET /api/v1/health", length=0)
        assert kept.answer()[0] == 401
        kept.send(b"GET /livez HTTP/1.1\r\n")
        status, _, document = kept.answer()
    assert status == 408
    assert "did not arrive within head_seconds 0.5" in document["detail"]


def test_a_token_that_asks_too_often_is_told_when_to_come_back_and_ingest_goes_on(
    tmp_path: Path,
) -> None:
    with service(tmp_path, "--requests-per-second=0.5") as running:
        agent, job = agent_of(running)
        with running.client() as admin:
            viewer = admin.send(calls.mint_token("eager", "viewer")).secret
        with agent, BrainClient(running.url, viewer) as eager:
            refused: list[Overloaded] = []
            stored = 0
            for number in range(60):
                try:
                    eager.send(calls.jobs())
                except Overloaded as why:
                    refused.append(why)
                stored += ingest(agent, job, number)
        assert stored == 60
        assert refused
        assert refused[-1].retry_after_seconds >= 1
        assert "this token sent more than requests_per_second 0.5 allows; wait" in str(refused[0])
        assert refusals(running, "requests_per_second") == len(refused)


def test_a_token_over_its_rate_still_delivers_telemetry(tmp_path: Path) -> None:
    with service(tmp_path, "--program-requests-per-second=0.5") as running:
        agent, job = agent_of(running)
        with agent:
            # Its burst is 2.5 requests.
            with pytest.raises(Overloaded, match="program_requests_per_second"):
                _ = [agent.send(calls.job(job)) for _ in range(60)]
            assert ingest(agent, job) == 1


def test_guessing_codes_is_slowed_and_harms_nobody_who_has_a_token(tmp_path: Path) -> None:
    with service(tmp_path, "--open-requests-per-second=0.1") as running:
        said = []
        with wires(running, 3) as guessers:
            for guesser in guessers:
                guesser.head(SIGN_IN, length=len(WRONG_CODE))
                guesser.send(WRONG_CODE)
                said.append(guesser.answer())
        with running.client() as admin:
            assert admin.send(calls.health()).role == "admin"
        assert refusals(running, "open_requests_per_second") == 2
    assert [status for status, _, _ in said] == [401, 429, 429]
    assert "open_requests_per_second 0.1" in said[-1][2]["detail"]


def test_a_service_that_stops_waits_for_the_rest_of_no_body(tmp_path: Path) -> None:
    with service(tmp_path) as running, wires(running, 1) as (slow,):
        token = running.token("admin")
        slow.head("POST /api/v1/jobs", length=100, Authorization=f"Bearer {token}")
        slow.send(b" ")
        eventually(lambda: metric(running, "brain_body_bytes") == 1)
        running.stop()
        status, _, document = slow.answer()
    assert status == 503
    assert "the service is stopping; send the request again" in document["detail"]
