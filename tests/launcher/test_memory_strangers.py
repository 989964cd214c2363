"""What others leave in shared memory, or say to an agent, that must not be taken for the job's."""

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from brain.errors import BadInput
from launcher import messages
from launcher.messages import Connection
from launcher.ram_checkpoint.flusher import Flusher
from launcher.ram_checkpoint.shared_memory import orphans
from launcher.ram_checkpoint.sharing import PartSharing
from launcher.values.ram_checkpoint.links import SHARED, mine
from launcher.values.ram_checkpoint.parts import StepPart
from tests.launcher.building import soon

TOKEN = messages.digest("token")
PART = asdict(StepPart(step=7, epoch=1, rank=0, world=1, path="/p", storage=True, accepted=0.0))


@pytest.fixture
def planted() -> Iterator[Path]:
    """A name of ours in shared memory, which anybody may take."""
    path = SHARED / f"brain-{os.getuid()}-planted{os.getpid()}-0"
    yield path
    if path.is_symlink():
        path.unlink()
    shutil.rmtree(path, ignore_errors=True)


def test_a_link_in_shared_memory_is_nobodys_left_directory(planted: Path, tmp_path: Path) -> None:
    (tmp_path / "lock").touch()
    planted.symlink_to(tmp_path)
    assert planted not in orphans()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make what belongs to another user")
def test_what_another_user_made_in_shared_memory_is_not_finished_for_them(planted: Path) -> None:
    planted.mkdir()
    ours = mine(planted)  # without a lock: an agent that starts at this moment would take it
    os.chown(planted, 65534, 65534)
    (planted / "lock").touch()
    assert (ours, planted in orphans()) == (True, False)


@asynccontextmanager
async def an_agent(answer: Callable[[Connection], Coroutine[Any, Any, None]]) -> AsyncIterator[str]:
    """The address of somebody who does ``answer`` with every connection."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = Connection(reader, writer)
        try:
            await answer(connection)
        finally:
            await connection.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()
        yield f"{host}:{port}"


@asynccontextmanager
async def keeping(
    steps: Path,
) -> AsyncIterator[tuple[Connection, "asyncio.Future[Exception | None]"]]:
    """A connection to who keeps others' parts in ``steps``, and what became of its first offer."""
    came: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()

    async def take(connection: Connection) -> None:
        offer = await connection.receive(messages.Offer)
        assert offer is not None
        try:
            await PartSharing(steps, "job", TOKEN).take(offer, connection)
        except Exception as error:  # noqa: BLE001 - whatever it is, a test looks at it
            came.set_result(error)
        else:
            came.set_result(None)

    async with an_agent(take) as address:
        connection = await Connection.to(address)
        yield connection, came
        await connection.close()


@pytest.mark.parametrize(
    "part",
    [
        [],
        PART | {"step": "../../escaped"},
        PART | {"rank": "/../../escaped"},
        PART | {"files": ["../escaped"]},
        PART | {"files": ["part-1"]},
    ],
    ids=str,
)
def test_what_is_no_part_is_refused_and_leaves_nothing(part: object, tmp_path: Path) -> None:
    (steps := tmp_path / "steps").mkdir()

    async def story() -> Exception | None:
        async with keeping(steps) as (connection, came):
            told = json.dumps(part).encode()
            connection.send(messages.Offer(job="job", token_sha256=TOKEN, part=told))
            connection.send(messages.Piece(data=b"x", last=True))
            return await soon(came)

    assert isinstance(asyncio.run(story()), BadInput)
    assert (os.listdir(tmp_path), os.listdir(steps)) == (["steps"], [])


def test_a_token_of_any_characters_is_refused_like_any_other(tmp_path: Path) -> None:
    async def story() -> Exception | None:
        async with keeping(tmp_path) as (connection, came):
            connection.send(messages.Offer(job="job", token_sha256="…", part=b"{}"))
            return await soon(came)

    assert isinstance(asyncio.run(story()), BadInput)


def test_nothing_stays_of_a_part_whose_sender_ends_in_the_middle(tmp_path: Path) -> None:
    async def story() -> Exception | None:
        async with keeping(tmp_path) as (connection, came):
            told = json.dumps(PART | {"files": ["one", "two"]}).encode()
            connection.send(messages.Offer(job="job", token_sha256=TOKEN, part=told))
            connection.send(messages.Piece(data=b"x", last=True))
            await connection.close()
            return await soon(came)

    assert (asyncio.run(story()), os.listdir(tmp_path)) == (None, [])


def test_a_copy_for_another_host_leaves_memory_to_our_own_workers(tmp_path: Path) -> None:
    async def story() -> messages.Taken | None:
        async with keeping(tmp_path) as (connection, _):
            told = json.dumps(PART | {"bytes": 1 << 60, "files": ["state.pt"]}).encode()
            connection.send(messages.Offer(job="job", token_sha256=TOKEN, part=told))
            return await soon(connection.receive(messages.Taken))

    assert (asyncio.run(story()), os.listdir(tmp_path)) == (messages.Taken(ok=False), [])


def test_a_host_that_hangs_holds_up_neither_who_asks_it_nor_who_copies_to_it(
    tmp_path: Path,
) -> None:
    (tmp_path / "own/7-1").mkdir(parents=True)
    (tmp_path / "own/7-1/state.pt").write_bytes(b"state")
    (tmp_path / "other").mkdir()
    part = StepPart(**PART | {"files": ("state.pt",)})

    async def story() -> list[bool]:
        own = PartSharing(tmp_path / "own", "job", TOKEN, patience_seconds=0.05)
        other = PartSharing(tmp_path / "other", "job", TOKEN, patience_seconds=0.05)

        async def serve(connection: Connection) -> None:
            asked = await connection.receive(messages.Fetch)
            assert asked is not None
            await own.serve(asked, connection)

        async with an_agent(_hang) as hung, an_agent(serve) as well:
            found = await soon(other.fetch([hung, well], "7-1", "state.pt"))
            return [found, await soon(own.push(hung, part))]

    assert asyncio.run(story()) == [True, False]


async def _hang(connection: Connection) -> None:
    with contextlib.suppress(BadInput):
        while await connection.receive(messages.Message) is not None:
            pass


def test_a_state_that_its_worker_did_not_live_to_write_is_removed(tmp_path: Path) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    halves = [tmp_path / "steps" / f".writing-7-1-0-{pid}" for pid in (gone.pid, os.getpid())]
    for half in halves:
        half.mkdir(parents=True)
    flusher = Flusher(str(tmp_path))
    flusher.turn()
    flusher.bell.close()
    assert list((tmp_path / "steps").iterdir()) == halves[1:]


def test_who_says_nothing_is_not_listened_to_for_ever() -> None:
    async def story() -> messages.Message | None:
        async with an_agent(_hang) as address:
            connection = await Connection.to(address)
            said = await soon(connection.receive(messages.Message, seconds=0.05))
            await connection.close()
            return said

    assert asyncio.run(story()) is None
