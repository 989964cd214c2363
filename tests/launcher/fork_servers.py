"""Builders of the fork server's tests: forked workers of a script, and what they printed."""

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from launcher.values.config import LaunchConfig, LogConfig
from launcher.workers.fork_server.fork_server import ForkServer
from launcher.workers.workers import Workers
from tests.launcher.building import Watched, a_config, a_world, soon

#: Begins the path on which a torch is found that takes no time to import.
LIGHT = str(Path(__file__).parent / "light" / "site-packages")
#: Announces a first step as the probe does, in its control file.
ANNOUNCES = (
    "import gc\n"
    "for each in gc.get_objects():\n"
    "    if isinstance(each, memoryview) and each.format == 'Q': each[7] = 1\n"
)


def a_script(directory: Path, lines: str, *options: str, **changes: Any) -> LaunchConfig:
    """Workers that run ``lines`` as ``train.py``; what they print comes to ``output.log``."""
    (directory / "train.py").write_text(lines)
    return a_command(directory, sys.executable, "-u", *options, "train.py", **changes)


def a_command(directory: Path, *argv: str, **changes: Any) -> LaunchConfig:
    """Workers that run ``argv``, with a cache of their own."""
    own = {"XDG_CACHE_HOME": str(directory / "cache"), "PYTHONDONTWRITEBYTECODE": "1"}
    environment = {"environment": dict(os.environ) | own} | changes
    logs = LogConfig(replica_log=str(directory / "output.log"))
    return a_config(directory, argv, logs=logs, **environment)


def printed(directory: Path, rank: int = 0) -> str:
    """What the worker of this rank printed, its lines without their mark."""
    mark = f"[default{rank}]:"
    lines = (directory / "output.log").read_text().splitlines()
    return "\n".join(line[len(mark) :] for line in lines if line.startswith(mark))


@asynccontextmanager
async def a_fork_server(config: LaunchConfig) -> AsyncIterator[tuple[ForkServer, list[str]]]:
    """A fork server that has imported what it will, and what it had to say."""
    said: list[str] = []
    fork_server = await ForkServer.open(config, said.append)
    try:
        await soon(fork_server.ready())
        yield fork_server, said
    finally:
        await fork_server.close()


@asynccontextmanager
async def forked(
    config: LaunchConfig, fork_server: ForkServer, processes: int = 1, *, held: bool = False
) -> AsyncIterator[Watched]:
    """Workers from the fork server while the block runs; ``held`` at the gate."""
    watched = Watched()
    make = Workers.prepare if held else Workers.start
    watched.workers = await make(
        config,
        a_world(processes),
        0,
        fork_server=fork_server,
        on_event=watched.heard,
        on_exit=watched.ended,
    )
    try:
        yield watched
    finally:
        await soon(watched.workers.stop(0))


async def run_to_end(config: LaunchConfig, processes: int = 1) -> list[int]:
    """Run forked workers to their end; their codes by rank."""
    async with (
        a_fork_server(config) as (fork_server, _),
        forked(config, fork_server, processes) as watched,
    ):
        exits = await watched.all()
    return [exit.code for exit in sorted(exits, key=lambda exit: exit.rank)]
