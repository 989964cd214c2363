"""The event stream: resumed by id, in bunches, alive while silent, gone when told."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, closing, contextmanager
from pathlib import Path

import httpx2
import pytest
import sqlalchemy as sa

from brain import calls
from brain.api import events
from brain.db import SqlStores
from brain.errors import BadInput
from brain.types.record import Role
from tests.api.app import Api, digits
from tests.api.served import served
from tests.builders import NOW, event, throughput
from tests.database_faults import HARMS, driven
from tests.postgresql import Server


def _stream(api: Api, after: int | None = None, heartbeat: float = 30) -> AsyncIterator[bytes]:
    bell, feed = api.context.bell, api.context.feed
    after = feed.start() if after is None else after
    return events.stream(bell, feed, after=after, heartbeat_seconds=heartbeat, ended=_never)


async def _never() -> bool:
    return False


def _add(api: Api, *kinds: str) -> list[int]:
    with api.stores.transaction() as tx:
        return [tx.events.add(event(kind)).id for kind in kinds]


def _data(chunk: bytes) -> list[dict[str, object]]:
    lines = chunk.decode().split("\n")
    return [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data:")]


def test_a_stream_goes_on_after_the_last_id_that_was_seen(api: Api) -> None:
    first, _, last = _add(api, "job.Queued", "job.Starting", "job.Running")

    async def resumed() -> bytes:
        stream = _stream(api, after=first)
        await anext(stream)
        return await anext(stream)

    chunk = asyncio.run(resumed())
    assert [one["kind"] for one in _data(chunk)] == ["job.Starting", "job.Running"]
    assert f"id: {last}\n".encode() in chunk


def test_a_stream_begins_now_and_hears_what_is_committed(api: Api) -> None:
    _add(api, "job.Queued")

    async def heard() -> bytes:
        stream = _stream(api)
        await anext(stream)
        following = asyncio.ensure_future(anext(stream))
        async with api.aclient() as admin:
            await admin.send(calls.submit(digits()))
        return await asyncio.wait_for(following, 60)

    assert [one["kind"] for one in _data(asyncio.run(heard()))] == ["job.Queued"]


def test_new_samples_are_told_by_job(api: Api) -> None:
    async def heard() -> bytes:
        stream = _stream(api)
        await anext(stream)
        following = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        api.context.bell.ring(measured=frozenset({"j1"}))
        return await asyncio.wait_for(following, 60)

    chunk = asyncio.run(heard())
    assert chunk.startswith(b"event: measured")
    assert _data(chunk) == [{"jobs": ["j1"]}]


def test_a_silent_stream_beats(api: Api) -> None:
    async def silent() -> bytes:
        stream = _stream(api, heartbeat=0.02)
        await anext(stream)
        return await asyncio.wait_for(anext(stream), 60)

    assert asyncio.run(silent()) == b": heartbeat\n\n"


def test_a_stream_ends_when_the_service_stops(api: Api) -> None:
    async def ended() -> list[bytes]:
        chunks = []
        async for chunk in _stream(api):
            chunks.append(chunk)
            api.context.bell.close()
        return chunks

    assert len(asyncio.run(asyncio.wait_for(ended(), 60))) == 1


def test_what_another_process_commits_rings_here(api: Api) -> None:
    bell = api.context.bell

    async def watched() -> bool:
        watching = asyncio.create_task(events.watch(bell, api.stores))
        with bell.listening() as heard:
            async with asyncio.timeout(60):
                while not heard.is_set():  # what comes before its first look is no news
                    _add(api, "job.Running")
                    await asyncio.sleep(0.1)
            heard_it = heard.is_set()
        bell.close()
        await asyncio.wait_for(watching, 60)
        return heard_it

    assert asyncio.run(watched())


@pytest.mark.parametrize("id", ["last", str(2**63), "9" * 5000])
def test_a_last_event_id_that_no_event_has_is_refused_by_name_and_value(api: Api, id: str) -> None:
    with api.http(api.token(Role.VIEWER)) as http:
        answer = http.get("/api/v1/events", headers={"Last-Event-ID": id})
    assert (answer.status_code, answer.json()["field"]) == (422, "Last-Event-ID")
    assert id[:40] in answer.json()["detail"]


def test_events_of_a_job_after_an_id_that_no_event_has_are_refused(api: Api) -> None:
    beyond = 2**63
    with api.client() as admin:
        admin.send(calls.submit(digits()))
        with pytest.raises(BadInput, match=f"after {beyond} is no id") as refused:
            admin.send(calls.job_events("digits", after=beyond))
    assert refused.value.field == "after"


def test_events_of_a_job_go_on_from_an_id(api: Api) -> None:
    with api.client() as admin:
        job = admin.send(calls.submit(digits())).id
        admin.send(calls.cancel(job))
        first, second = admin.send(calls.job_events(job)).items
        assert admin.send(calls.job_events(job, after=first.id)).items == (second,)


@contextmanager
def _reads_of_events() -> Iterator[list[str]]:
    """Statements that read events, of every engine."""
    asked: list[str] = []

    def note(_: object, __: object, statement: str, *___: object) -> None:
        if "FROM events" in statement:
            asked.append(statement)

    sa.event.listen(sa.Engine, "before_cursor_execute", note)
    try:
        yield asked
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", note)


async def _until(lines: AsyncIterator[str], word: str) -> None:
    async for line in lines:
        if word in line:
            return
    raise AssertionError(f"the stream ended before {word}")


def test_what_happens_is_read_once_for_all_streams(tmp_path: Path, database_url: str) -> None:
    async def listened(api: Api, url: str, asked: list[str]) -> list[int]:
        bearer = {"Authorization": f"Bearer {api.token(Role.VIEWER)}"}
        limits = httpx2.Limits(max_connections=None)
        async with (
            httpx2.AsyncClient(base_url=url, headers=bearer, limits=limits, timeout=60) as http,
            AsyncExitStack() as opened,
            api.aclient() as admin,
        ):
            streams = []
            for _ in range(30):
                answer = await opened.enter_async_context(http.stream("GET", "/api/v1/events"))
                streams.append(answer.aiter_lines())
                await _until(streams[-1], ": hello")
            asked.clear()
            job = (await admin.send(calls.submit(digits()))).id
            await asyncio.gather(*(_until(each, "job.Queued") for each in streams))
            reads = [len(asked)]
            await admin.send(calls.telemetry([throughput(job=job)], sent_at=NOW))
            await asyncio.gather(*(_until(each, "event: measured") for each in streams))
            return [*reads, len(asked)]

    with closing(SqlStores(database_url)) as stores, _reads_of_events() as asked:
        api = Api(tmp_path, stores=stores)
        with served(api.app) as url:
            try:
                assert asyncio.run(listened(api, url, asked)) == [1, 1]
            finally:
                api.context.bell.close()


def test_a_stream_that_is_far_behind_hears_everything_once(tmp_path: Path, sqlite_url: str) -> None:
    with closing(SqlStores(sqlite_url)) as stores:
        api = Api(tmp_path, stores=stores)
        api.context.feed.start()
        ids = _add(api, *["job.Running"] * 2600)
        api.context.bell.ring()
        feed, heard, after = api.context.feed, [], 0
        while after < ids[-1]:
            feed.catch_up()
            found = feed.after(after)
            frames = feed.read(after) if found is None else found
            heard += [id for id, _ in frames]
            after = heard[-1]
        assert heard == ids
        more = _add(api, "job.Running", "job.Running")
        api.context.bell.ring()
        feed.catch_up()
        assert [id for id, _ in feed.after(after) or ()] == more


def test_a_stream_outlives_a_database_that_was_away(
    tmp_path: Path, postgresql: Server, postgresql_url: str
) -> None:
    async def heard(api: Api) -> bytes:
        stream = _stream(api)
        await anext(stream)
        following = asyncio.ensure_future(anext(stream))
        _add(api, "job.Running")
        driver.arm(HARMS["killed"], at=0)
        api.context.bell.ring()
        while not driver.struck:
            await asyncio.sleep(0)
        driver.arm()
        api.context.bell.ring()
        return await asyncio.wait_for(following, 60)

    with closing(SqlStores(postgresql_url)) as stores, driven(postgresql) as driver:
        chunk = asyncio.run(heard(Api(tmp_path, stores=stores)))
    assert [one["kind"] for one in _data(chunk)] == ["job.Running"]


def test_a_stream_that_cannot_begin_is_told(
    tmp_path: Path, postgresql: Server, postgresql_url: str
) -> None:
    with closing(SqlStores(postgresql_url)) as stores, driven(postgresql) as driver:
        api = Api(tmp_path, stores=stores)
        with api.http(api.token()) as admin:
            admin.get("/api/v1/health")  # the token's use is noted
            driver.arm(HARMS["cancelled"], at=1)
            assert admin.get("/api/v1/events").status_code == 503
            assert "FROM events" in driver.sent[1]


def test_samples_wake_no_long_poll(api: Api) -> None:
    reads: list[int] = []

    async def polled() -> None:
        poll = events.poll(api.context.bell, lambda: reads.append(1), lambda _: False, 0.3)
        waiting = asyncio.ensure_future(poll)
        while not waiting.done():
            api.context.bell.ring(measured=frozenset({"j1"}))
            await asyncio.sleep(0.01)

    asyncio.run(polled())
    assert len(reads) == 2, "at the beginning and at the end of the wait"
