"""The door of the workers: what comes in there from nobody of ours costs nobody else anything."""

import asyncio
from pathlib import Path

import pytest

from launcher import messages
from launcher.data.shard_socket import ShardSocket
from tests.launcher.building import soon

GOOD = b'{"n": 1, "do": "ask", "name": "train", "done": null, "wait": true}'


async def _knocked(place: Path, line: bytes) -> list[messages.Message]:
    """What is told the coordinator until it is something, or until the line is ended."""
    told: list[messages.Message] = []
    heard = asyncio.Event()

    def tell(message: messages.Message) -> None:
        told.append(message)
        heard.set()

    way = ShardSocket(tell).way(place / "data")
    await way.open()
    reader, writer = await asyncio.open_unix_connection(place / "data")
    writer.write(line + b"\n")
    tasks = [asyncio.create_task(heard.wait()), asyncio.create_task(_ended(reader))]
    await soon(asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED))
    first = list(told)
    writer.close()
    way.close()
    tasks[0].cancel()
    return first


async def _ended(reader: asyncio.StreamReader) -> None:
    assert await reader.read() == b""


def test_a_question_goes_to_whoever_coordinates(tmp_path: Path) -> None:
    (asked,) = asyncio.run(_knocked(tmp_path, GOOD))
    assert isinstance(asked, messages.Asked)
    assert asked.number == 1


@pytest.mark.parametrize(
    "line",
    [
        b"GET / HTTP/1.1",
        b"[]",
        b"7",
        b"{}",
        b'{"do": "ask"}',
        b'{"n": -1, "do": "resume", "era": 0}',
        b'{"n": 1, "do": "part", "at": {}}',
        b'{"n": "x", "do": "ask"}',
        b'{"n": 18446744073709551616, "do": "ask"}',
        b'{"do": "at", "name": "train", "at": null}',
    ],
)
def test_what_no_worker_of_ours_says_ends_the_line_and_goes_nowhere(
    tmp_path: Path, line: bytes
) -> None:
    assert asyncio.run(_knocked(tmp_path, line)) == []
