"""Batches that wait together are committed together, and none harms another."""

import asyncio
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AsyncExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest
import sqlalchemy as sa

from brain import calls, wire
from brain.api import auth
from brain.api.known_heads import Sender
from brain.api.routes import telemetry
from brain.client import AsyncBrainClient
from brain.db import SqlStores, prepare
from brain.errors import Overloaded, Unavailable
from brain.ports import SampleBatch, Transaction
from brain.types.job import JobId
from brain.types.record import Principal, Role
from brain.types.telemetry import Receipt
from tests.api.app import URL, Api, digits
from tests.builders import NOW, at, throughput
from tests.postgresql import Server
from tests.serving import eventually


class GatedStores:
    """Stores whose writers wait at a gate, and are counted; the test's own come in by ``inner``."""

    def __init__(self, inner: SqlStores) -> None:
        self.inner, self.begun = inner, 0
        self.gate = threading.Event()

    @contextmanager
    def transaction(self, *, read_only: bool = False) -> Iterator[Transaction]:
        """A transaction of the stores behind the gate."""
        if not read_only:
            self.begun += 1
            self.gate.wait(60)
        with self.inner.transaction(read_only=read_only) as tx:
            yield tx

    def size_bytes(self) -> int:
        """As the stores behind say."""
        return self.inner.size_bytes()


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[GatedStores]:
    """SQLite behind a gate that is open."""
    url = f"sqlite:///{tmp_path}/brain.db"
    prepare(url)
    with closing(SqlStores(url)) as inner:
        gated = GatedStores(inner)
        gated.gate.set()
        yield gated


@pytest.fixture
def api(tmp_path: Path, stores: GatedStores) -> Api:
    """An app over SQLite."""
    return Api(tmp_path, stores=stores)  # type: ignore[arg-type]


def _agents(api: Api, count: int) -> list[tuple[str, str]]:
    """The jobs and tokens of so many agents, each of which sent a sample."""
    agents = []
    with api.client() as admin:
        for number in range(count):
            job = admin.send(calls.submit(digits(name=f"digits-{number}"))).id
            agents.append((str(job), api.token(Role.AGENT, job=job)))
    for job, token in agents:
        assert _post(api, token, job, 0).json()["stored"] == 1
    return agents


def _post(api: Api, token: str, job: str, *numbers: int) -> Any:
    samples = [throughput(n, job=job, source=f"of-{job}") for n in numbers]
    with api.http(token) as http:
        return http.post(
            "/api/v1/telemetry", content=wire.encode_batch(samples, sent_at=at(max(numbers)))
        )


def test_batches_that_come_while_one_commits_are_committed_together(
    api: Api, stores: GatedStores
) -> None:
    agents = _agents(api, 10)
    before = stores.begun
    with ThreadPoolExecutor(len(agents)) as beside:
        sent = _held(api, stores, beside, [(agent, [1]) for agent in agents])
        assert not any(each.done() for each in sent), "nothing is acknowledged before its commit"
        stores.gate.set()
        assert [each.result(60).json()["stored"] for each in sent] == [1] * len(agents)
    assert stores.begun == before + 2


def test_a_batch_that_is_repeated_while_it_waits_is_stored_once(
    api: Api, stores: GatedStores
) -> None:
    (agent,) = _agents(api, 1)
    with ThreadPoolExecutor(4) as beside:
        sent = _held(api, stores, beside, [(agent, [1, 2])] * 4)
        stores.gate.set()
        answers = [each.result(60).json() for each in sent]
    assert sorted((each["stored"], each["duplicates"]) for each in answers) == [
        (0, 2),
        (0, 2),
        (0, 2),
        (2, 0),
    ]


def test_a_batch_that_cannot_be_stored_harms_none_that_waits_with_it(
    api: Api, stores: GatedStores, tmp_path: Path
) -> None:
    agents = _agents(api, 8)
    mine = f"SELECT id FROM throughput_contexts WHERE job = '{agents[3][0]}'"
    _die(f"sqlite:///{tmp_path}/brain.db", f"NEW.context IN ({mine})")
    with ThreadPoolExecutor(len(agents)) as beside:
        sent = _held(api, stores, beside, [(agent, [1]) for agent in agents])
        stores.gate.set()
        statuses = [each.result(60).status_code for each in sent]
    assert statuses == [500 if index == 3 else 200 for index in range(len(agents))]


def test_an_answer_that_fails_leaves_the_others_theirs(api: Api) -> None:
    ((_, token),) = _agents(api, 1)
    with api.context.stores.transaction(read_only=True) as tx:
        known = tx.access.token(auth.sha256(token))
    assert known is not None
    nothing = SampleBatch(samples=(), received_at=NOW)

    async def told() -> object:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda *_: None)
        answer: asyncio.Future[object] = loop.create_future()

        def stored(outcome: object) -> None:
            api.context.writer.put(nothing, known, lambda _: 1 / 0)
            api.context.writer.put(nothing, known, answer.set_result)

        api.context.writer.put(nothing, known, stored)
        return await asyncio.wait_for(answer, 60)

    assert asyncio.run(told()) == Receipt(stored=0, duplicates=0)


_REFUSE = """
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.sequence = 5 THEN RAISE SQLSTATE '22003' USING MESSAGE = 'it is too large'; END IF;
    RETURN NEW;
END;
$$;
CREATE TRIGGER refuse BEFORE INSERT ON throughput_rows FOR EACH ROW EXECUTE FUNCTION refuse();
"""


def test_a_value_that_postgresql_cannot_hold_is_rejected_and_its_neighbours_are_stored(
    tmp_path: Path, postgresql: Server, postgresql_url: str
) -> None:
    database = postgresql_url.partition("@/")[2].partition("?")[0]
    with closing(SqlStores(postgresql_url)) as stores, postgresql.connected(database) as other:
        api = Api(tmp_path, stores=stores)
        ((job, token),) = _agents(api, 1)
        other.execute(_REFUSE)
        try:
            answer = _post(api, token, job, *range(1, 11)).json()
        finally:
            other.execute("DROP FUNCTION refuse CASCADE")
    assert (answer["stored"], [bad["index"] for bad in answer["rejected"]]) == (9, [4])
    assert "a value cannot be stored" in answer["rejected"][0]["reason"]


def test_a_flood_is_told_to_come_back(api: Api, stores: GatedStores) -> None:
    agents = _agents(api, 4)
    with ThreadPoolExecutor(3) as beside:
        sent = _held(api, stores, beside, [(agent, range(1, 10_001)) for agent in agents[:3]])
        job, token = agents[3]
        refused = _post(api, token, job, 1)
        stores.gate.set()
        assert [each.result(60).json()["stored"] for each in sent] == [10_000] * 3
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
    assert refused.json()["type"].endswith(Overloaded.__name__)
    assert _post(api, token, job, 1).status_code == 200


def test_the_service_stops_although_a_commit_hangs(api: Api, stores: GatedStores) -> None:
    agents = _agents(api, 3)

    async def stopped() -> list[Receipt | BaseException]:
        async with api.app.router.lifespan_context(api.app), AsyncExitStack() as clients:
            stores.gate.clear()
            sent = []
            for job, token in agents:
                client = AsyncBrainClient(URL, token, transport=httpx2.ASGITransport(api.app))
                await clients.enter_async_context(client)
                batch = calls.telemetry([throughput(1, job=job, source=f"of-{job}")], sent_at=at(1))
                sent.append(asyncio.create_task(client.send(batch)))
                while not stores.begun or api.context.writer.waiting < len(sent) - 1:
                    await asyncio.sleep(0.01)
            leaving = clients.pop_all()
        assert not stores.gate.is_set(), "it stopped meanwhile"
        refused = await asyncio.gather(*sent[1:], return_exceptions=True)
        assert not sent[0].done(), "what may yet be committed is not refused"
        stores.gate.set()
        async with leaving:
            return [*refused, await sent[0]]

    stores.begun = 0
    *refused, stored = asyncio.run(stopped())
    assert all(isinstance(each, Unavailable) for each in refused)
    assert "the service is stopping; send this batch again" in str(refused[0])
    assert stored == Receipt(stored=1, duplicates=0)


def test_a_token_that_another_process_revokes_is_refused_at_once(
    api: Api, stores: GatedStores
) -> None:
    (job, token), (other_job, other) = _agents(api, 2)
    with stores.inner.transaction() as tx:
        known = tx.access.token(auth.sha256(token))
        assert known is not None
        tx.access.put_token(replace(known, revoked_at=NOW))
    assert _post(api, token, job, 1).status_code == 401
    assert _post(api, other, other_job, 1).json()["stored"] == 1
    with stores.inner.transaction(read_only=True) as tx:
        assert len(tx.telemetry.throughput(wire.convert(job, str), since=NOW)) == 1  # type: ignore[arg-type]


def test_samples_are_taken_for_some_minutes_after_their_job_ended_by_itself(
    api: Api, stores: GatedStores
) -> None:
    ((job, token),) = _agents(api, 1)
    with stores.inner.transaction() as tx:
        known = tx.jobs.get(wire.convert(job, str))
        tx.jobs.put(replace(known, finished_at=api.now))
    assert _post(api, token, job, 1).json()["stored"] == 1
    api.pass_time(minutes=11)
    assert _post(api, token, job, 2).status_code == 401


def test_a_token_in_memory_costs_no_look_into_the_database(api: Api) -> None:
    ((job, token),) = _agents(api, 1)
    statements: list[str] = []

    def note(_: object, __: object, statement: str, *others: object) -> None:
        statements.append(statement)

    sa.event.listen(sa.Engine, "before_cursor_execute", note)
    try:
        assert _post(api, token, job, 1).status_code == 200
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", note)
    begun = [each for each in statements if each.startswith("BEGIN")]
    assert begun == ["BEGIN IMMEDIATE"], "one transaction, which stores the batch"


def test_the_route_is_described_although_it_is_answered_before_it(api: Api) -> None:
    with api.http(api.token()) as http:
        told = http.get("/api/v1/openapi.json").json()["paths"]["/api/v1/telemetry"]["post"]
    assert told["operationId"] == telemetry.take.__name__
    assert {"200", "401", "413", "422", "426", "429", "503"} <= set(told["responses"])


def _held(
    api: Api,
    stores: GatedStores,
    beside: ThreadPoolExecutor,
    batches: Sequence[tuple[tuple[str, str], Sequence[int]]],
) -> list[Future[Any]]:
    """Send batches: the first is within its transaction, the others wait, when it returns."""
    stores.gate.clear()
    begun, sent = stores.begun, []
    for number, ((job, token), numbers) in enumerate(batches):
        sent.append(beside.submit(_post, api, token, job, *numbers))
        if not number:
            eventually(lambda: stores.begun > begun)
    eventually(lambda: api.context.writer.waiting == sum(len(each) for _, each in batches[1:]))
    return sent


def _die(url: str, when: str) -> None:
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        connection.exec_driver_sql(
            f"CREATE TRIGGER die BEFORE INSERT ON throughput_rows WHEN {when} "
            "BEGIN SELECT RAISE(ABORT, 'a bug'); END"
        )
    engine.dispose()


def test_a_request_whose_head_is_known_is_taken_without_asgi(api: Api) -> None:
    ((job, token),) = _agents(api, 1)

    async def sent(count: int) -> tuple[int, bytes]:
        body = wire.encode_batch([throughput(n, job=job) for n in range(count)], sent_at=at(count))
        first, answer = _data(token, body), asyncio.get_running_loop().create_future()
        taken = telemetry.take_directly(api.context, first, _teller(answer))
        assert taken is (count > 1), "the head is known from the first request on"
        _know(api, job, token, first)
        head = first.removesuffix(body)
        assert telemetry.take_directly(api.context, head, _teller(answer)) is None
        if not taken:
            assert telemetry.take_directly(api.context, first, _teller(answer))
        return await answer

    assert asyncio.run(sent(1)) == (200, b'{"stored":1,"duplicates":0,"rejected":[]}')
    assert asyncio.run(sent(3)) == (200, b'{"stored":2,"duplicates":1,"rejected":[]}')


def test_reasons_of_many_bad_samples_are_found_beside_the_event_loop(api: Api) -> None:
    ((job, token),) = _agents(api, 1)
    threads = api.context.telemetry_threads

    def bad(count: int) -> bytes:
        samples = ",".join(["{}"] * count)
        return _data(
            token, f'{{"v":1,"sent_at":"{NOW.isoformat()}","samples":[{samples}]}}'.encode()
        )

    async def sent() -> None:
        _know(api, job, token, bad(1))
        for holder in range(int(threads.total_tokens)):
            threads.acquire_on_behalf_of_nowait(holder)
        many, few = (asyncio.get_running_loop().create_future() for _ in range(2))
        assert telemetry.take_directly(api.context, bad(257), _teller(many))
        assert telemetry.take_directly(api.context, bad(256), _teller(few))
        assert (await few)[1].count(b"reason") == 256
        assert not many.done(), "it waits for a thread"
        threads.release_on_behalf_of(0)
        assert (await many)[1].count(b"reason") == 257

    asyncio.run(sent())


def _data(token: str, body: bytes) -> bytes:
    """A request as it is on the wire."""
    head = (
        "POST /api/v1/telemetry HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        f"Authorization: Bearer {token}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def _know(api: Api, job: str, token: str, first: bytes) -> None:
    """Have the app know the head of a job's agent."""
    who = Principal(name="agent", role=Role.AGENT, job=JobId(job))
    hashed = auth.sha256(token)
    scope = {"query_string": b"", "http_version": "1.1", "headers": []}
    api.context.heads.keep(first, scope, {}, Sender(who, hashed, hashed, ""))


def _teller(answer: "asyncio.Future[tuple[int, bytes]]") -> telemetry.Tell:
    return lambda status, lines, body: answer.set_result((status, body))
