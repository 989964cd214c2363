"""Requests of agents whose heads came before: they are answered as if they were parsed."""

import re
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from brain import calls
from brain.api.known_heads import KnownHeads, Sender, begun
from brain.types.job import JobId
from brain.types.record import Principal, Role
from tests.agents import agent, without_id
from tests.serving import eventually, metric, refusals, wires


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'{"v": 9, "sent_at": "2026-01-01T00:00:00Z", "samples": []}',
        b'{"v": 1, "sent_at": "2026-01-01T00:00:00", "samples": []}',
        b'{"v": 1, "sent_at": "2026-01-01T00:00:00Z", "samples": [{}, 7, {"kind": "loss"}]}',
        b'{"v": 1, "sent_at": "2026-01-01T00:00:00Z", "samples": [' + b"{}," * 20_000 + b"{}]}",
    ],
)
def test_a_bad_body_is_refused_in_the_same_words(tmp_path: Path, body: bytes) -> None:
    with agent(tmp_path) as (_, known):
        parsed = without_id(known.send(body, X_Other="1"))
        assert without_id(known.send(body)) == parsed
        assert known.send(known.batch())[2]["stored"] == 1


def test_each_sample_is_stored_once_and_another_jobs_not_at_all(tmp_path: Path) -> None:
    with agent(tmp_path) as (running, known):
        body, foreign = known.batch(3), known.batch(job="01234567-89ab-7def-8123-456789abcdef")
        first = known.send(body)
        assert without_id(first)[0] == 200
        assert first[2] == {"stored": 3, "duplicates": 0, "rejected": []}
        assert known.send(body)[2] == {"stored": 0, "duplicates": 3, "rejected": []}
        (rejected,) = known.send(foreign)[2]["rejected"]
        assert "is not the job of this token" in rejected["reason"]
        assert without_id(known.send(body)) == without_id(known.send(body, X_Other="1"))
        assert metric(running, "brain_samples_total", outcome="stored") == 4


def test_a_body_may_come_after_its_head_in_pieces(tmp_path: Path) -> None:
    with agent(tmp_path, "--body-seconds=1") as (running, known):
        body = known.batch()
        for at in (0, 1, len(body) // 2):
            known.head(len(body))
            # What was sent is read before more comes.
            assert metric(running, "brain_connections")
            known.wire.send(body[:at])
            assert metric(running, "brain_connections")
            known.wire.send(body[at:])
            assert known.wire.answer()[0] == 200
        known.head(len(body))
        status, _, document = known.wire.answer()
        assert status == 408
        assert document["detail"].startswith("the request's body did not arrive within")


def test_requests_that_are_sent_ahead_are_answered_in_their_order(tmp_path: Path) -> None:
    with agent(tmp_path) as (_, known):
        for count in (1, 2, 3) * 20:
            body = known.batch(count)
            known.head(len(body))
            known.wire.send(body)
        said, found = b"", list[bytes]()
        while len(found) < 60:
            said += known.wire.socket.recv(65536)
            found = re.findall(rb'"stored":(\d)', said)
    assert found == [b"1", b"2", b"3"] * 20


def test_a_revoked_token_stores_nothing_more(tmp_path: Path) -> None:
    with agent(tmp_path) as (running, known):
        with running.client() as admin:
            (token,) = [each for each in admin.send(calls.tokens()).items if each.role == "agent"]
            admin.send(calls.revoke_token(token.id))
        status, headers, _ = known.send(known.batch())
        assert (status, headers["www-authenticate"]) == (401, "Bearer")
        assert known.send(known.batch())[0] == 401
        assert metric(running, "brain_samples_total", outcome="stored") == 1


def test_a_token_over_its_rate_is_told_when_to_come_back(tmp_path: Path) -> None:
    with agent(tmp_path, "--program-requests-per-second=0.5") as (running, known):
        answers = [known.send(known.batch()) for _ in range(20)]
        refused = [headers for status, headers, _ in answers if status == 429]
        assert refused
        assert int(refused[-1]["retry-after"]) >= 1
        assert refusals(running, "program_requests_per_second") == len(refused)


def test_a_service_that_stops_does_not_wait_for_a_body_whose_head_it_knows(tmp_path: Path) -> None:
    with agent(tmp_path) as (running, known):
        body = known.batch()
        known.head(len(body))
        eventually(lambda: metric(running, "brain_connections") == 2)
        running.stop()
        status, _, document = known.wire.answer()
    assert status == 503
    assert "the service is stopping" in document["detail"]


def test_a_head_is_kept_only_if_it_tells_everything() -> None:
    sender = Sender(
        Principal(name="agent-1", role=Role.AGENT, job=JobId("digits")), "hash", "key", "json"
    )
    first = b"POST /api/v1/telemetry HTTP/1.1\r\nHost: a\r\nContent-Length: 12\r\n\r\n"
    scope: dict[str, Any] = {"query_string": b"", "http_version": "1.1"}

    def known(
        scope: dict[str, Any], headers: dict[str, str], sender: Sender = sender, *, more: int = 0
    ) -> bool:
        heads, request = KnownHeads(), begun(first)
        came = scope | {"headers": [None] * (len(headers) + more)}
        heads.keep(first, came, headers, sender)
        assert request
        return heads.get(request.head) == sender

    assert known(scope, {})
    assert known(scope, {"connection": "Keep-Alive"})
    assert not known(scope, {"connection": "close"})
    assert not known(scope, {"connection": "keep-alive"}, more=1), "a second one may say close"
    assert not known(scope, {"content-encoding": "gzip"})
    assert not known(scope, {"expect": "100-continue"})
    assert not known(scope | {"http_version": "1.0"}, {})
    assert not known(scope | {"query_string": b"a=1"}, {})
    admin = sender._replace(principal=Principal(name="admin", role=Role.ADMIN, job=None))
    assert not known(scope, {}, admin)


@pytest.mark.parametrize(
    "data",
    [
        b"POST / HTTP/1.1\r\nContent-Length: 2\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: -2\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 123456789\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: \r\n\r\n",
        b"POST / HTTP/1.1\r\nX: " + b"a" * 1024 + b"\r\nContent-Length: 2\r\n\r\n",
    ],
)
def test_other_data_is_parsed(data: bytes) -> None:
    assert begun(data) is None


def test_the_head_of_one_token_is_never_that_of_another() -> None:
    one = begun(b"POST / HTTP/1.1\r\nContent-Length: 1\r\nAuthorization: Bearer a1\r\n\r\n{")
    two = begun(b"POST / HTTP/1.1\r\nContent-Length: 11\r\nAuthorization: Bearer a\r\n\r\n{")
    assert one
    assert two
    assert one.head != two.head


def test_bytes_behind_a_request_in_flight_harm_no_other(tmp_path: Path) -> None:
    ahead = b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\n\r\n"
    with agent(tmp_path) as (running, known), wires(running, 3) as connections:
        with closing(sqlite3.connect(tmp_path / "brain.db", isolation_level=None)) as holder:
            holder.execute("BEGIN IMMEDIATE")
            # The first batch occupies the writer; the next commit stores the others together.
            for known.wire, behind in zip(connections, (b"", ahead + b"no HTTP", b""), strict=True):
                body = known.batch()
                known.head(len(body))
                # What was sent is read before more comes.
                assert metric(running, "brain_connections")
                known.wire.send(body)
                assert metric(running, "brain_connections")
                known.wire.send(behind)
            eventually(lambda: metric(running, "brain_connections") == 4)
            holder.execute("ROLLBACK")
        assert [connections[each].answer()[0] for each in (0, 2)] == [200, 200]
        with suppress(ConnectionResetError):
            assert not connections[1].socket.recv(1), "no refusal is taken for an earlier answer"


def test_no_token_is_kept_in_clear() -> None:
    heads, first = KnownHeads(), b"POST / HTTP/1.1\r\nX: brn_secret\r\nContent-Length: 1\r\n\r\n{"
    who = Principal(name="agent-1", role=Role.AGENT, job=JobId("digits"))
    scope = {"query_string": b"", "http_version": "1.1", "headers": []}
    heads.keep(first, scope, {}, Sender(who, "hash", "key", "json"))
    request = begun(first)
    assert request
    assert heads.get(request.head)
    assert "brn_secret" not in repr(vars(heads))
