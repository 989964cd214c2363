"""The nursery of an agent: workers are forked from a process that has imported what they need.

Where that cannot be (no such interpreter, a library that starts threads, a server that died) the
caller starts workers as ever, slower and as correct; the reason is said once.
"""

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from brain.errors import Unavailable
from launcher import flags
from launcher.config import LaunchConfig
from launcher.nursery import command as commands
from launcher.nursery.channel import Channel, Child, Readiness
from launcher.processes import process

_SERVER = Path(__file__).parents[1] / "inject" / "nursery.py"
#: What a torch script imports in the end; the last one lazily, as it makes its first optimizer.
TORCH = ("torch", "torch.distributed", "torch.nn.parallel.distributed", "torch._dynamo")
#: Room for the command line and for what tells a worker from others, as the kernel shows them.
_TITLE_BYTES, _SHOWN_BYTES = 2048, 4096


class Nursery:
    """The fork server of one agent. ``open`` it, ``fork`` from it, ``close`` it."""

    def __init__(self, config: LaunchConfig, say: Callable[[str], None]) -> None:
        """Use ``open``."""
        self._config, self._say = config, say
        self._command = commands.read(config.entrypoint.argv) if config.entrypoint.python else None
        self._base = _base_environment(config)
        self._channel: Channel | None = None
        self._said = False
        #: When this agent began (Unix seconds), and what its workers have saved since.
        self.since, self.checkpoints = time.time(), set[str]()
        #: Ends what is left if this agent is killed; one for all worlds.
        self.guard = process.Guard()

    @classmethod
    async def open(cls, config: LaunchConfig, say: Callable[[str], None]) -> "Nursery":
        """Start the server; returns at once, it imports meanwhile. ``say`` hears what to know."""
        nursery = cls(config, say)
        if os.path.isdir(config.directory):  # else there is nothing to run there either
            nursery._start(nursery._preload())
        return nursery

    async def ready(self) -> Readiness:
        """Wait until everything is imported that will be; what that was."""
        if self._channel is None:
            return Readiness()
        try:
            return await asyncio.shield(self._channel.ready)
        except Unavailable:
            return Readiness()

    @property
    def pid(self) -> int | None:
        """The server's process id; None where there is none."""
        return None if self._channel is None else self._channel.process.pid

    @property
    def pids(self) -> frozenset[int]:
        """Its own children: workers of all worlds, by process id."""
        return frozenset() if self._channel is None else self._channel.pids

    async def alone(self) -> bool:
        """Whether it has no child at all, so that nothing of any worker is left."""
        return self._channel is not None and await self._channel.alone()

    @property
    def holds(self) -> bool:
        """Whether forked workers wait at the gate where they are asked to."""
        return self._channel is not None and self._channel.alive and self._command is not None

    async def fork(
        self, argv: Sequence[str], environment: Mapping[str, str], fds: Sequence[int]
    ) -> Child:
        """Make one worker that runs ``argv`` in the job's directory with ``fds`` as its streams.

        Raises:
            Unavailable: it cannot be made here; start it otherwise.
        """
        if self._channel is None:
            raise Unavailable("there is no fork server")
        try:
            return await self._channel.fork(self._spec(argv, environment), fds)
        except Unavailable as cannot:
            self._slow(str(cannot))
            raise

    async def close(self) -> None:
        """End the server; nothing that it started is left."""
        if self._channel is not None:
            self._channel.retire()
            self._channel.close()
        self.guard.close()

    def _start(self, modules: Sequence[str]) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if self._command is None:
            python = [sys.executable, "-I", "-S"]
        else:
            python = [self._config.entrypoint.argv[0], *self._command.options]
        title = " " * _TITLE_BYTES
        try:
            with theirs:
                server = subprocess.Popen(
                    [*python, str(_SERVER), str(theirs.fileno()), str(os.getpid()), title],
                    env=self._base | {"TORCHELASTIC_ERROR_FILE": " " * _SHOWN_BYTES},
                    cwd=self._config.directory,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                )
        except OSError as cannot:
            ours.close()
            self._slow(str(cannot))
            return
        self._channel = Channel(server, ours, self._gone)
        probe = process.probe_path() if self._config.probe and self._command else None
        self._channel.open(modules, probe)

    def _preload(self) -> Sequence[str]:
        if self._command is None or flags.installed_torch(self._config.entrypoint.argv[0]) is None:
            return ()
        source = commands.source_of(self._command, self._config.directory)
        return TORCH if commands.wants_torch(source) else ()

    def _spec(self, argv: Sequence[str], environment: Mapping[str, str]) -> dict[str, Any]:
        command = None if self._command is None else commands.read(argv)
        return {
            "kind": "exec" if command is None else command.kind,
            "target": "" if command is None else command.target,
            "arguments": [] if command is None else command.arguments,
            "argv": list(argv),
            "environment": dict(environment),
            "directory": self._config.directory,
        }

    def _gone(self) -> None:
        self._slow("it ended by itself")

    def _slow(self, why: str) -> None:
        if not self._said:
            self._said = True
            self._say(f"workers are started one by one, without the fork server: {why}")


def _base_environment(config: LaunchConfig) -> dict[str, str]:
    """What all workers of this agent have in common: libraries read it as they are imported."""
    base = {name: value for name, value in config.environment.items() if name != "BRAIN_WORKER"}
    base.pop("TORCHELASTIC_ERROR_FILE", None)
    base.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1")
    if config.processes > 1:
        base.setdefault("OMP_NUM_THREADS", "1")
    return base
