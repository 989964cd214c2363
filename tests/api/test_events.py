"""The event stream: resumed by id, in bunches, alive while silent, gone when told."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

from brain import calls, wire
from brain.api import events
from brain.api.lists import ListMarks
from brain.api.rows import JobRows
from brain.api.views import Sparklines
from brain.client import Call
from brain.db import SqlStores
from brain.errors import BadInput, Unavailable
from brain.ports import Stores, Transaction
from brain.types.job import JobState
from brain.types.record import Role
from brain.views import JobView
from tests.api.app import Api, digits, run_for_a_minute
from tests.api.served import served
from tests.builders import NOW, at, event, job, throughput, world
from tests.database_faults import HARMS, driven
from tests.postgresql import Server
from tests.statements import statements


def _stream(api: Api, after: int | None = None, heartbeat: float = 30) -> AsyncIterator[bytes]:
    bell, feed = api.context.bell, api.context.feed
    after = feed.start() if after is None else after
    return events.stream(bell, feed, after=after, heartbeat_seconds=heartbeat, ended=_never)


async def _never() -> bool:
    return False


def _add(api: Api, *kinds: str) -> list[int]:
    with api.stores.transaction() as tx:
        return [tx.events.add(event(kind)).id for kind in kinds]


def _data(chunk: bytes) -> list[dict[str, Any]]:
    """The data of all frames but those that tell of rows and lists."""
    told = ("event: jobs", "event: changed")
    blocks = [block for block in chunk.decode().split("\n\n") if not block.startswith(told)]
    lines = "\n".join(blocks).split("\n")
    return [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data:")]


def _lists(api: Api) -> ListMarks:
    return ListMarks(lambda: api.now, api.context.condition.degraded)


def _rows(chunk: bytes) -> list[dict[str, Any]]:
    """The changes of rows in a chunk."""
    head = "event: jobs\ndata: "
    blocks = [block for block in chunk.decode().split("\n\n") if block.startswith(head)]
    return [row for block in blocks for row in json.loads(block.removeprefix(head))["jobs"]]


async def _told(stream: AsyncIterator[bytes]) -> list[dict[str, Any]]:
    """The next changes of rows."""
    async with asyncio.timeout(60):
        while not (rows := _rows(await anext(stream))):
            pass
    return rows


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


def test_a_row_is_told_whole_at_first_and_then_by_its_changes(api: Api) -> None:
    async def told() -> tuple[dict[str, Any], ...]:
        stream = _stream(api)
        await anext(stream)
        async with api.aclient() as admin:
            await admin.send(calls.submit(digits()))
            (first,) = await _told(stream)
            await admin.send(calls.suspend("digits"))
            (second,) = await _told(stream)
            listed = await admin.send(calls.jobs())
        return first, second, wire.plain(listed.items[0])

    first, second, row = asyncio.run(told())
    assert first.keys() == row.keys()
    assert json.loads(json.dumps({**first, **second})) == json.loads(wire.encode(row))
    assert {"state", "intent"} <= second.keys()
    assert not {"name", "owner", "sparkline", "losses"} & second.keys()


def test_a_field_that_changed_and_changed_back_is_told(api: Api) -> None:
    rows = JobRows(api.settings, lambda: api.now, Sparklines())

    def told() -> dict[str, Any]:
        with api.stores.transaction(read_only=True) as tx:
            (row,) = _rows(rows.changes(tx, (), unfinished=True))
        return row

    with api.client() as admin:
        admin.send(calls.submit(digits()))
        told()
        admin.send(calls.suspend("digits"))
        (read_meanwhile,) = admin.send(calls.jobs()).items
        admin.send(calls.resume("digits"))
        kept = {**json.loads(wire.encode(read_meanwhile)), **told()}
        (now,) = admin.send(calls.jobs()).items
    assert kept == json.loads(wire.encode(now))


def test_a_row_whose_samples_stop_is_told_by_time_alone(api: Api) -> None:
    with api.stores.transaction() as tx:
        tx.jobs.add(job(state=JobState.RUNNING))
        tx.worlds.put(world(stepping_at=NOW))
    rows = JobRows(api.settings, lambda: api.now, Sparklines())
    feed = events.Feed(api.context.bell, api.stores, rows, _lists(api), sweep_seconds=0.1)

    async def told(stream: AsyncIterator[bytes], field: str) -> dict[str, Any]:
        while field not in (row := (await _told(stream))[0]) or row[field] is None:
            pass
        return row

    async def heard() -> list[dict[str, Any]]:
        stream = events.stream(api.context.bell, feed, after=0, heartbeat_seconds=30, ended=_never)
        await anext(stream)
        async with api.aclient() as admin:
            samples = [throughput(n) for n in range(10)]
            api.now = at(10)
            await admin.send(calls.telemetry(samples, sent_at=api.now))
        await told(stream, "throughput")
        api.pass_time(minutes=5)
        return await _told(stream)

    (row,) = asyncio.run(heard())
    assert row["throughput"] is None
    assert "StaleTelemetry" in [one["kind"] for one in row["conditions"]]


def test_a_job_that_ends_is_told_though_all_others_are_looked_at(api: Api) -> None:
    rows = JobRows(api.settings, lambda: api.now, Sparklines())
    feed = events.Feed(api.context.bell, api.stores, rows, _lists(api), sweep_seconds=0)

    async def heard() -> list[dict[str, Any]]:
        stream = events.stream(api.context.bell, feed, after=0, heartbeat_seconds=30, ended=_never)
        await anext(stream)
        async with api.aclient() as admin:
            await admin.send(calls.submit(digits()))
            await _told(stream)
            await admin.send(calls.cancel("digits"))
        return await _told(stream)

    (row,) = asyncio.run(heard())
    assert row["state"] == "Cancelled"


def test_rows_are_read_once_for_all_streams(tmp_path: Path, sqlite_url: str) -> None:
    async def listened(api: Api, asked: list[str]) -> int:
        streams = [_stream(api) for _ in range(20)]
        for stream in streams:
            await anext(stream)
        async with api.aclient() as admin:
            await admin.send(calls.submit(digits()))
            await asyncio.gather(*map(_told, streams))
            asked.clear()
            await admin.send(calls.suspend("digits"))
        await asyncio.gather(*map(_told, streams))
        return len([each for each in asked if "FROM decisions" in each])

    with closing(SqlStores(sqlite_url)) as stores, statements() as asked:
        # The request that suspends reads, and one task for 20 streams.
        assert asyncio.run(listened(Api(tmp_path, stores=stores), asked)) < 10


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


@dataclass
class _AwayFor:
    """Stores of which some transactions, counted from now on, find no database."""

    inner: Stores
    away: frozenset[int] = frozenset()
    begun: int = 0

    @contextmanager
    def transaction(self, *, read_only: bool = False) -> Iterator[Transaction]:
        self.begun += 1
        if self.begun in self.away:
            raise Unavailable("it is away")
        with self.inner.transaction(read_only=read_only) as tx:
            yield tx


def test_events_are_told_and_samples_kept_though_rows_cannot_be_read(api: Api) -> None:
    stores = _AwayFor(api.stores)
    rows = JobRows(api.settings, lambda: api.now, Sparklines())
    bell = api.context.bell
    feed = events.Feed(bell, stores, rows, _lists(api))  # type: ignore[arg-type]

    async def heard() -> bool:
        feed.start()
        (id,) = _add(api, "job.Running")
        bell.ring()
        bell.ring(measured=frozenset({"j1"}))
        stores.away, stores.begun = frozenset({2}), 0
        following = asyncio.Event()
        with bell.following(following.set):
            feed.catch_up()
            await asyncio.sleep(0)
            assert [each for each, _ in feed.after(0) or ()] == [id]
            return following.is_set()

    assert asyncio.run(heard())
    assert feed.passing(0) == []
    feed.catch_up()
    assert b'event: measured\ndata: {"jobs":["j1"]}' in b"".join(
        frame for _, frame in feed.passing(0) or ()
    )


def test_samples_that_come_while_others_are_told_are_told_next(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    bell, feed, monotonic = api.context.bell, api.context.feed, time.monotonic
    feed.start()

    def interrupted() -> float:
        monkeypatch.setattr(time, "monotonic", monotonic)
        instant = monotonic()
        feed.catch_up()
        return instant

    monkeypatch.setattr(time, "monotonic", interrupted)
    bell.ring(measured=frozenset({"j1"}))
    monkeypatch.setattr(time, "monotonic", monotonic)
    feed.catch_up()
    feed.catch_up()
    assert [frame.count(b"j1") for _, frame in feed.passing(0) or ()] == [1]


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


@pytest.mark.parametrize("call", [calls.suspend, calls.cancel])
def test_a_request_to_stop_a_running_job_is_an_event_for_other_processes(
    api: Api, call: Callable[[str], Call[JobView]]
) -> None:
    id = run_for_a_minute(api)
    with api.client() as admin:
        before = admin.send(calls.job_events(id)).items
        admin.send(call(id))
        (asked,) = admin.send(calls.job_events(id)).items[len(before) :]
    assert asked.kind == f"job.asked-to-{call.__name__}"


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
        with pytest.raises(BadInput, match=f"after {beyond} is not the id") as refused:
            admin.send(calls.job_events("digits", after=beyond))
    assert refused.value.field == "after"


def test_events_of_a_job_go_on_from_an_id(api: Api) -> None:
    with api.client() as admin:
        id = admin.send(calls.submit(digits())).id
        admin.send(calls.cancel(id))
        first, second = admin.send(calls.job_events(id)).items
        assert admin.send(calls.job_events(id, after=first.id)).items == (second,)


def _of_events(asked: list[str]) -> int:
    return len([each for each in asked if "FROM events" in each])


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
            id = (await admin.send(calls.submit(digits()))).id
            await asyncio.gather(*(_until(each, "job.Queued") for each in streams))
            reads = [_of_events(asked)]
            await admin.send(calls.telemetry([throughput(job=id)], sent_at=NOW))
            await asyncio.gather(*(_until(each, "event: measured") for each in streams))
            return [*reads, _of_events(asked)]

    with closing(SqlStores(database_url)) as stores, statements() as asked:
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
