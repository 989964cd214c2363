"""The event stream: resumed by id, in bunches, alive while silent, gone when told."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from brain import calls
from brain.api import events
from brain.errors import BadInput
from brain.types.record import Role
from tests.api.app import Api, digits
from tests.builders import event


def _stream(api: Api, after: int | None = None, heartbeat: float = 30) -> AsyncIterator[bytes]:
    return events.stream(
        api.context.bell,
        api.stores,
        after=after,
        heartbeat_seconds=heartbeat,
        ended=_never,
    )


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
