"""Builders of the launcher's tests: worlds, configurations, and workers that run a few lines."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from brain.types.resources import NodeName
from brain.types.world import Cause, Member
from launcher.command.entrypoint import Entrypoint
from launcher.values.config import LaunchConfig, WorldDocument
from launcher.values.workers import ProbeEvent, WorkerExit
from launcher.workers.workers import Workers

T = TypeVar("T")
#: Longer than anything here takes on a busy machine.
DEADLINE_SECONDS = 90.0
#: A worker that announces itself like a probe does.
ANNOUNCE = """
import json, os, socket
told = json.loads(os.environ['BRAIN_WORKER'])
def say(**event):
    known = {'v': 1, 'rank': int(os.environ['RANK']), 'local_rank': 0, 'epoch': told['epoch']}
    datagram = json.dumps(dict(known, **event)).encode()
    socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(datagram, told['agent'])
"""
#: Keeps BRAIN_WORKER in the environment, where a rank's Python would take it away.
AS_PROGRAM = (sys.executable, "-S", "-u", "-c")


def a_world(*processes: int, **changes: Any) -> WorldDocument:
    """A world whose members run so many processes, without a lease."""
    members = tuple(
        Member(
            replica=10 + rank, group_rank=rank, processes=count, node=NodeName("n"), address="a:1"
        )
        for rank, count in enumerate(processes)
    )
    world = WorldDocument(
        job="digits",
        epoch=4,
        generation=2,
        cause=Cause.START,
        members=members,
        master_addr="localhost",
        master_port=29500,
        run_id="run",
        coordinator="a:1",
        lease_seconds=0,
    )
    return replace(world, **changes)


def a_config(directory: Path, argv: Sequence[str], **changes: Any) -> LaunchConfig:
    """Workers that run ``argv`` in ``directory``, with nothing of this process's Brain."""
    config = LaunchConfig(
        entrypoint=Entrypoint(
            argv=tuple(argv), name="script", python=True, interpreter=sys.executable
        ),
        run_id="run",
        job="digits",
        directory=str(directory),
        home=str(directory / "home"),
        environment=dict(os.environ) | {"PYTHONDONTWRITEBYTECODE": "1"},
        probe=False,
    )
    return replace(config, **changes)


def python(lines: str) -> tuple[str, ...]:
    """The command that runs ``lines``."""
    return (sys.executable, "-u", "-c", lines)


class Watched:
    """Running workers, with what they announced so far."""

    def __init__(self) -> None:
        self.events: list[ProbeEvent] = []
        self.exits: list[WorkerExit] = []
        self.workers: Workers
        self._news = asyncio.Event()

    def heard(self, event: ProbeEvent) -> None:
        self.events.append(event)
        self._news.set()

    def ended(self, exit: WorkerExit) -> None:
        self.exits.append(exit)
        self._news.set()

    async def until(self, true: Callable[[], bool]) -> None:
        """Wait for news until ``true()``."""
        while not true():
            await soon(self._news.wait())
            self._news.clear()

    async def all(self) -> tuple[WorkerExit, ...]:
        """Wait until all have ended by themselves."""
        return await soon(self.workers.wait())


@asynccontextmanager
async def running(
    config: LaunchConfig, world: WorldDocument | None = None, group_rank: int = 0
) -> AsyncIterator[Watched]:
    """Workers while the block runs; afterwards they are stopped."""
    watched = Watched()
    watched.workers = await Workers.start(
        config,
        world or a_world(1),
        group_rank,
        on_event=watched.heard,
        on_exit=watched.ended,
    )
    try:
        yield watched
    finally:
        await soon(watched.workers.stop(0))


async def soon(what: Awaitable[T]) -> T:
    """``what``, or a time-out that fails the test."""
    return await asyncio.wait_for(what, DEADLINE_SECONDS)


async def file_appears(path: Path) -> str:
    """The content of a file once it is there and not empty."""

    async def look() -> str:
        while not path.exists() or not path.read_text():
            await asyncio.sleep(0.01)
        return path.read_text()

    return await soon(look())
