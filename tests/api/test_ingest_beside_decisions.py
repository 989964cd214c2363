"""On PostgreSQL a batch is acknowledged while somebody else decides, however long that takes."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import httpx2
import pytest

from brain import calls, wire
from brain.api import auth
from brain.api.app import _THREADS
from brain.db import SqlStores
from brain.types.job import JobId
from brain.types.record import Role
from tests.api.app import Api, digits
from tests.api.served import served
from tests.builders import NOW, event, node, throughput
from tests.patience import Patience
from tests.postgresql import Server

#: Requests that wait for a decision, more than the service has threads for them.
_WAITING = _THREADS + 5
_SECONDS = 60


@pytest.fixture
def api(tmp_path: Path, postgresql_url: str) -> Iterator[Api]:
    """An app over PostgreSQL whose locks are waited for longer than any test lasts."""
    with closing(SqlStores(postgresql_url, patience_seconds=_SECONDS)) as stores:
        yield Api(tmp_path, stores=stores)


@pytest.fixture
def job(api: Api) -> JobId:
    """A job that is measured."""
    with api.client() as admin:
        return admin.send(calls.submit(digits())).id


@contextmanager
def deciding(url: str) -> Iterator[None]:
    """Another Brain is within a decision, which ends with the block."""
    with closing(SqlStores(url)) as another, another.transaction() as tx:
        tx.events.add(event())
        yield


def _batch(job: JobId) -> bytes:
    return wire.encode_batch([throughput(job=job)], sent_at=NOW)


def test_a_batch_is_acknowledged_while_a_decision_is_open(
    api: Api, job: JobId, postgresql_url: str
) -> None:
    secret = api.token(Role.AGENT, job=job)
    with deciding(postgresql_url), api.http(secret) as agent, ThreadPoolExecutor(1) as beside:
        sent = beside.submit(agent.post, "/api/v1/telemetry", content=_batch(job))
        assert sent.result(timeout=_SECONDS / 2).json()["stored"] == 1
        with api.stores.transaction(read_only=True) as tx:
            token = tx.access.token(auth.sha256(secret))
    assert token is not None
    assert token.last_used_at == api.now


def test_a_batch_is_acknowledged_while_its_own_token_is_being_revoked(
    api: Api, job: JobId, postgresql_url: str
) -> None:
    secret = api.token(Role.AGENT, job=job)
    with closing(SqlStores(postgresql_url)) as another, another.transaction() as tx:
        token = tx.access.token(auth.sha256(secret))
        assert token is not None
        tx.access.put_token(token)
        with api.http(secret) as agent, ThreadPoolExecutor(1) as beside:
            sent = beside.submit(agent.post, "/api/v1/telemetry", content=_batch(job))
            assert sent.result(timeout=_SECONDS / 2).json()["stored"] == 1


def test_a_batch_is_acknowledged_while_requests_that_wait_fill_the_service(
    api: Api, job: JobId, postgresql: Server, postgresql_url: str
) -> None:
    agent, scaler = api.token(Role.AGENT, job=job), api.token(Role.SCALER)
    with (
        served(api.app, lifespan="on") as url,
        ThreadPoolExecutor(_WAITING) as beside,
        httpx2.Client(base_url=url, timeout=_SECONDS) as http,
    ):

        def put(number: int) -> int:
            call = calls.put_node(node(f"node-{number}"))
            headers = {"Authorization": f"Bearer {scaler}"}
            return http.put(call.path, content=call.body, headers=headers).status_code

        with deciding(postgresql_url):
            waiting = [beside.submit(put, number) for number in range(_WAITING)]
            _until_waiting(postgresql, _THREADS)
            headers = {"Authorization": f"Bearer {agent}"}
            with httpx2.Client(base_url=url, timeout=_SECONDS / 2, headers=headers) as sender:
                answer = sender.post("/api/v1/telemetry", content=_batch(job))
            assert answer.json()["stored"] == 1
        assert {each.result(timeout=_SECONDS) for each in waiting} == {204}


def test_reads_are_answered_while_a_stranger_guesses_codes_beside_a_decision(
    api: Api, postgresql: Server, postgresql_url: str
) -> None:
    secret = api.token(Role.VIEWER)
    with (
        served(api.app, lifespan="on") as url,
        ThreadPoolExecutor(_THREADS + 1) as beside,
        httpx2.Client(base_url=url, timeout=_SECONDS) as http,
    ):

        def guess(number: int) -> int:
            return http.post("/api/v1/sign-in", json={"code": f"brn_{number}.ada"}).status_code

        with deciding(postgresql_url):
            guessing = [beside.submit(guess, number) for number in range(_THREADS + 1)]
            _until_waiting(postgresql, 2)
            headers = {"Authorization": f"Bearer {secret}"}
            with httpx2.Client(base_url=url, timeout=_SECONDS / 4, headers=headers) as viewer:
                for _ in range(10):
                    assert viewer.get("/api/v1/jobs").status_code == 200
        assert {each.result(timeout=_SECONDS) for each in guessing} == {401}


def _until_waiting(server: Server, count: int) -> None:
    """Wait until so many threads of the service are within a wait for the decision."""
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'advisory'"
    patience = Patience(_SECONDS / 2)
    with server.connected("postgres") as admin:
        while (row := admin.execute(waiting).fetchone()) is None or row[0] < count:
            assert not patience.over, f"{row} of {count} threads wait for the decision"
            time.sleep(0.05)
