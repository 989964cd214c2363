"""Streams after an older copy replaced the database: `brain restore`, or a standby that lagged."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import httpx2
import sqlalchemy as sa

from brain.db import SqlStores
from brain.settings import Settings
from tests.api.app import Api
from tests.api.served import served
from tests.builders import event


def _add(api: Api, *kinds: str) -> int:
    with api.stores.transaction() as tx:
        last = [tx.events.add(event(kind)).id for kind in kinds][-1]
    api.context.bell.ring()
    return last


def _forget_events(api: Api, url: str, *, after: int) -> None:
    """Leave the events that an older copy of the database would have."""
    engine = sa.create_engine(url)
    with closing(engine.raw_connection()) as connection:
        connection.execute("DELETE FROM events WHERE id > ?", (after,))
        connection.execute("UPDATE sqlite_sequence SET seq = ? WHERE name = 'events'", (after,))
        connection.commit()
    engine.dispose()
    api.context.bell.ring()


async def _line(lines: AsyncIterator[str], begin: str) -> str:
    async with asyncio.timeout(60):
        async for line in lines:
            if line.startswith(begin):
                return line
    raise AssertionError(f"the stream ended before {begin}")


def test_an_open_stream_ends_and_the_next_one_goes_on(tmp_path: Path, sqlite_url: str) -> None:
    async def listened(api: Api, url: str) -> str:
        headers = {"Authorization": f"Bearer {api.token()}"}
        async with httpx2.AsyncClient(base_url=url, headers=headers, timeout=90) as http:
            async with http.stream("GET", "/api/v1/events") as stream:
                lines = stream.aiter_lines()
                await _line(lines, ": hello")
                last = _add(api, *["job.Running"] * 5)
                await _line(lines, f"id: {last}")
                _forget_events(api, sqlite_url, after=last - 4)
                # The client reads the lists anew with its next stream.
                async with asyncio.timeout(60):
                    async for _ in lines:
                        pass
            resumed = {"Last-Event-ID": str(last)}
            async with http.stream("GET", "/api/v1/events", headers=resumed) as stream:
                lines = stream.aiter_lines()
                await _line(lines, ": hello")
                _add(api, "job.Suspended")
                return await _line(lines, "data: {")

    with closing(SqlStores(sqlite_url)) as stores:
        api = Api(tmp_path, Settings(heartbeat_seconds=1), stores=stores)
        with served(api.app) as url:
            try:
                assert "job.Suspended" in asyncio.run(listened(api, url))
            finally:
                api.context.bell.close()
