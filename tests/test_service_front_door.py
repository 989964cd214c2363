"""The front door under attack: heads of two meanings, trailers, empty lines, and a stop within."""

import signal
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from brain import calls
from tests.agents import agent
from tests.serving import Service, Wire, eventually, memory_mib, metric, refusals, service, wires

MIB = 1024 * 1024
HOST = b"Host: 127.0.0.1\r\n"
#: A request that answers at once, hidden where a proxy sees a body or nothing.
HIDDEN = b"GET /livez HTTP/1.1\r\n" + HOST + b"\r\n"
WRONG_CODE = b'{"code": "brn_wrong.ada"}'


def until_closed(sender: Wire) -> bytes:
    """All that the service sends until it closes."""
    said = b""
    with suppress(ConnectionError):
        while data := sender.socket.recv(65536):
            said += data
    return said


def sign_in(*lines: bytes) -> bytes:
    """The head of an attempt to sign in."""
    return b"\r\n".join([b"POST /api/v1/sign-in HTTP/1.1", HOST.rstrip(), *lines, b"", b""])


@contextmanager
def commits_held(home: Path) -> Iterator[None]:
    """Nothing is committed within the block."""
    with closing(sqlite3.connect(home / "brain.db", isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        yield
        holder.execute("ROLLBACK")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    flags = ("--head-seconds=2", "--open-requests-per-second=1000")
    with service(tmp_path_factory.mktemp("door"), *flags) as up:
        yield up


@pytest.mark.parametrize(
    "data",
    [
        sign_in(b"Content-Length: 0", b"Content-Length: %d" % len(HIDDEN)) + HIDDEN,
        sign_in(b"Content-Length: %d" % len(HIDDEN), b"Content-Length: 0") + HIDDEN,
        sign_in(b"Content-Length: 0, 0") + HIDDEN,
        sign_in(b"Content-Length: +0") + HIDDEN,
        sign_in(b"Content-Length: 0x0") + HIDDEN,
        sign_in(b"Content-Length: 99999999999999999999999") + HIDDEN,
        sign_in(b"Content-Length : 0") + HIDDEN,
        sign_in(b"Content-Length: 5", b"Transfer-Encoding: chunked") + b"0\r\n\r\n" + HIDDEN,
        sign_in(b"Transfer-Encoding: chunked", b"Content-Length: 5") + b"0\r\n\r\n" + HIDDEN,
        sign_in(b"Transfer-Encoding: xchunked") + b"0\r\n\r\n" + HIDDEN,
        sign_in(b"Transfer-Encoding: chunked, identity") + b"0\r\n\r\n" + HIDDEN,
        sign_in(b"Transfer-Encoding : chunked") + b"0\r\n\r\n" + HIDDEN,
        sign_in(b"Transfer-Encoding:\x0bchunked") + b"0\r\n\r\n" + HIDDEN,
        sign_in(b"Transfer-Encoding: chunked") + b"-1\r\n\r\n" + HIDDEN,
        sign_in(b"Transfer-Encoding: chunked") + b"ffffffffffffffffff\r\n" + HIDDEN,
        sign_in(b"X: a\nContent-Length: 0") + HIDDEN,
        sign_in(b"X: a\rContent-Length: 0") + HIDDEN,
        sign_in(b"X: a\x00b") + HIDDEN,
        b"\x00\x01\x02" + HIDDEN,
        b"GET /livez\r\n\r\n" + HIDDEN,
        b"GET /livez HTTP/9.9\r\n" + HOST + b"\r\n" + HIDDEN,
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + HIDDEN,
        b"CONNECT 127.0.0.1:80 HTTP/1.1\r\n" + HOST + b"\r\n" + HIDDEN,
        b"GET /\xff HTTP/1.1\r\n" + HOST + b"\r\n" + HIDDEN,
        b"GET http:// HTTP/1.1\r\n" + HOST + b"\r\n" + HIDDEN,
    ],
)
def test_a_head_with_two_meanings_ends_its_connection(running: Service, data: bytes) -> None:
    with wires(running, 1) as (sender,):
        sender.send(data)
        said = until_closed(sender)
    assert said.count(b"HTTP/1.1 ") <= 1, "what is hidden was taken for a request"
    assert not said or said.startswith(b"HTTP/1.1 4")


def test_what_follows_a_request_for_another_protocol_is_no_request(running: Service) -> None:
    with wires(running, 1) as (sender,):
        sender.send(
            b"GET /livez HTTP/1.1\r\n" + HOST + b"Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
        )
        sender.send(HIDDEN)
        said = until_closed(sender)
    assert said.startswith(b"HTTP/1.1 200 ")
    assert b"connection: close\r\n" in said
    assert said.count(b"HTTP/1.1 ") == 1


def test_a_trailer_passes_for_no_header(tmp_path: Path) -> None:
    flags = ("--trusted-proxies=127.0.0.0/8", "--open-requests-per-second=0.1")
    with service(tmp_path, *flags) as behind:
        said = []
        for number in range(3):
            with wires(behind, 1) as (proxy,):
                head = sign_in(b"X-Forwarded-For: 203.0.113.9", b"Transfer-Encoding: chunked")
                body = b"%x\r\n%s\r\n0\r\n" % (len(WRONG_CODE), WRONG_CODE)
                proxy.send(head + body + b"X-Forwarded-For: 203.0.113.%d\r\n\r\n" % (10 + number))
                said.append(proxy.answer()[0])
    assert said == [401, 429, 429], "each guess came from another address"


@pytest.mark.parametrize(
    "data",
    [
        # A trailer after the other, one without end, and a chunk's size with an endless extension.
        b"0\r\n" + b"A: b\r\n" * 2_000_000,
        b"0\r\nA: " + b"a" * 10 * MIB,
        b"1;" + b"a" * 10 * MIB,
    ],
)
def test_a_body_without_body_is_refused_after_64_kib(running: Service, data: bytes) -> None:
    before = memory_mib(running)
    with wires(running, 1) as (endless,):
        endless.send(sign_in(b"Transfer-Encoding: chunked") + data)
        status, _, document = endless.answer()
        grown = memory_mib(running) - before
    assert status == 422
    assert "65536 bytes of trailers or of extensions of a chunk" in document["detail"]
    assert grown < 5


def test_a_head_of_very_many_headers_is_refused(running: Service) -> None:
    with wires(running, 1) as (endless,):
        endless.send(b"GET /livez HTTP/1.1\r\n" + HOST + b"A:\r\n" * 2_000)
        status, _, document = endless.answer()
    assert status == 422
    assert "the request head has more than 200 headers; send fewer" in document["detail"]


def test_empty_lines_keep_no_connection_open(running: Service) -> None:
    with wires(running, 1) as (kept,):
        kept.head("GET /api/v1/health", length=0)
        assert kept.answer()[0] == 401
        before = refusals(running, "head_seconds")
        began = time.monotonic()
        while refusals(running, "head_seconds") == before:
            kept.send(b"\r\n")
            assert time.monotonic() - began < 60
            time.sleep(0.1)


def test_a_path_that_is_none_is_no_answer_to_the_request_before(tmp_path: Path) -> None:
    with (
        agent(tmp_path) as (running, known),
        commits_held(tmp_path),
        wires(running, 2) as connections,
    ):
        for known.wire, other in zip(connections, ({}, {"X_Other": "1"}), strict=True):
            body = known.batch()
            known.head(len(body), **other)
            known.wire.send(body)
            # What was sent is read before more comes.
            assert metric(running, "brain_connections")
            known.wire.send(b"GET http:// HTTP/1.1\r\n" + HOST + b"\r\n")
            assert until_closed(known.wire) == b""


def test_a_service_that_stops_answers_what_came_whole(tmp_path: Path) -> None:
    with agent(tmp_path) as (running, known):
        with commits_held(tmp_path):
            first, second = known.batch(), known.batch()
            known.head(len(first))
            known.wire.send(first)
            known.head(len(second))
            known.wire.send(second[:5])
            # Both are read before the service stops.
            eventually(lambda: metric(running, "brain_connections") == 2)
            running.process.send_signal(signal.SIGTERM)
            eventually(lambda: not accepts(running))
        said = until_closed(known.wire)
    assert said.startswith(b"HTTP/1.1 200 ")
    assert b'"stored":1' in said
    assert said.count(b"HTTP/1.1 503 ") == 1
    assert b"the service is stopping; send the request again" in said


def accepts(running: Service) -> bool:
    """True while the service takes new connections."""
    try:
        with wires(running, 1):
            return True
    except ConnectionError:
        return False


def test_an_ended_token_is_refused_although_its_head_is_known(tmp_path: Path) -> None:
    with agent(tmp_path) as (running, known):
        with running.client() as admin:
            admin.send(calls.cancel(known.job))
        for body in (known.batch(), b'{"v": 1, "sent_at": "2026-01-01T00:00:00Z", "samples": []}'):
            assert known.send(body)[0] == 401
