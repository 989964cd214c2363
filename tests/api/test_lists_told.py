"""Lists of which no event tells a change are named by the stream, each when it changed and once."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import pytest

from brain import calls
from brain.api import events
from brain.api.lists import ListMarks
from brain.api.rows import JobRows
from brain.api.views import Sparklines
from brain.ports import Transaction
from brain.types.sharing import PoolRound, PoolShares, StoredPolicy
from tests.api.app import Api
from tests.builders import NOW, job, node


def named(api: Api, marks: ListMarks, *, all: bool = True) -> list[str]:
    """The lists that the next frame names."""
    with api.stores.transaction(read_only=True) as tx:
        frame = marks.changes(tx, all=all)
    return json.loads(frame.decode().split("data: ")[1])["lists"] if frame else []


def grows_silent(api: Api) -> None:
    api.pass_time(minutes=2)


def is_drained(api: Api) -> None:
    with api.stores.transaction() as tx:
        tx.nodes.put(replace(node(seen_at=api.now), schedulable=False))


def is_divided(api: Api) -> None:
    with api.stores.transaction() as tx:
        tx.pools.put_round(PoolRound(pool=node().pool, decided_at=api.now, value=0.0, bound=0.0))


def gets_a_policy(api: Api) -> None:
    with api.stores.transaction() as tx:
        policy = StoredPolicy(
            pool=node().pool, policy=PoolShares(), by="ada", updated_at=NOW, version=0
        )
        tx.pools.put_policy(policy)


def gets_a_job(api: Api) -> None:
    with api.stores.transaction() as tx:
        tx.jobs.add(job())


def makes_a_token(api: Api) -> None:
    with api.client() as admin:
        admin.send(calls.mint_token("ci", "viewer"))


def fails_in_part(api: Api) -> None:
    api.context.condition.worsen("disk", "The disk is full.")


@pytest.mark.parametrize(
    ("happens", "lists"),
    [
        (grows_silent, ["nodes"]),
        (is_drained, ["nodes"]),
        (is_divided, ["pools"]),
        (gets_a_policy, ["pools"]),
        (gets_a_job, ["pools"]),
        (makes_a_token, ["audit"]),
        (fails_in_part, ["health"]),
    ],
)
def test_a_list_is_named_when_it_changed_and_once(
    api: Api, happens: Callable[[Api], None], lists: list[str]
) -> None:
    api.add_node()
    marks = ListMarks(lambda: api.now, api.context.condition.degraded)
    assert named(api, marks) == []
    happens(api)
    assert named(api, marks) == lists
    assert named(api, marks) == []


def test_a_node_that_reports_again_is_no_news(api: Api) -> None:
    api.add_node()
    marks = ListMarks(lambda: api.now, api.context.condition.degraded)
    named(api, marks)
    api.pass_time(seconds=30)
    api.add_node()
    assert named(api, marks) == []


def test_between_sweeps_only_the_audit_log_is_looked_at(api: Api) -> None:
    api.add_node()
    marks = ListMarks(lambda: api.now, api.context.condition.degraded)
    named(api, marks)
    grows_silent(api)
    makes_a_token(api)
    assert named(api, marks, all=False) == ["audit"]
    assert named(api, marks) == ["nodes"]


def test_a_stream_tells_that_a_node_is_silent_though_nobody_wrote_anything(api: Api) -> None:
    api.add_node()
    marks = ListMarks(lambda: api.now, api.context.condition.degraded)
    rows = JobRows(api.settings, lambda: api.now, Sparklines())
    feed = events.Feed(api.context.bell, api.stores, rows, marks, sweep_seconds=0.1)

    async def heard() -> bytes:
        stream = events.stream(
            api.context.bell, feed, after=feed.start(), heartbeat_seconds=0.05, ended=_never
        )
        await anext(stream)
        assert await _next(stream) == b": heartbeat\n\n"
        grows_silent(api)
        while (told := await _next(stream)) == b": heartbeat\n\n":
            pass
        return told

    assert asyncio.run(heard()) == b'event: changed\ndata: {"lists":["nodes"]}\n\n'


class SlowMarks(ListMarks):
    """Marks whose first look lasts until the test lets it end."""

    def __init__(self, api: Api) -> None:
        super().__init__(lambda: api.now, api.context.condition.degraded)
        self.looks, self.go_on = threading.Event(), threading.Event()

    def changes(self, tx: Transaction, *, all: bool) -> bytes:
        self.looks.set()
        assert self.go_on.wait(60)
        return super().changes(tx, all=all)


def test_no_change_falls_between_a_clients_first_look_and_the_streams(api: Api) -> None:
    api.add_node()
    marks = SlowMarks(api)
    rows = JobRows(api.settings, lambda: api.now, Sparklines())
    feed = events.Feed(api.context.bell, api.stores, rows, marks, sweep_seconds=0.1)

    async def heard() -> bytes:
        stream = events.stream(
            api.context.bell, feed, after=feed.start(), heartbeat_seconds=0.05, ended=_never
        )
        hello = asyncio.ensure_future(anext(stream))
        while not marks.looks.is_set():
            await asyncio.sleep(0)
        assert not hello.done(), "a client would read the lists now"
        marks.go_on.set()
        await hello
        is_drained(api)
        while (told := await _next(stream)) == b": heartbeat\n\n":
            pass
        return told

    assert asyncio.run(heard()) == b'event: changed\ndata: {"lists":["nodes"]}\n\n'


async def _next(stream: AsyncIterator[bytes]) -> bytes:
    return await asyncio.wait_for(anext(stream), 60)


async def _never() -> bool:
    return False
