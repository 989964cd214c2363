"""The agent's part in the memory checkpoint: when it begins, and what waits for storage."""

import asyncio
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from brain.errors import Unavailable
from launcher.config import LaunchConfig
from launcher.memory.hold import Hold, words
from launcher.processes.values import WorkerExit

#: In ``$BRAIN_HOME``: directories in which checkpoints were ever saved through memory.
REGISTRY = "memory-directories"


class MemoryPart:
    """Nothing until ``configured`` finds that the job wants it."""

    def __init__(self) -> None:
        self.hold: Hold | None = None
        self._tried = False
        self._words: dict[str, str | None] | None = None
        self._waiting: set[asyncio.Task[None]] = set()

    def configured(self, config: LaunchConfig) -> LaunchConfig:
        """The configuration with ``memory``, where the job asks for it and there is any."""
        if not config.memory_checkpoint:
            return config
        if not self._tried:
            self._tried = True
            self._open(config)
        return replace(config, memory=self._words)

    def _open(self, config: LaunchConfig) -> None:
        registry = Path(config.home) / REGISTRY
        try:
            self.hold = Hold.open(config.job, config.replica, registry, _say)
        except Unavailable as without:
            _say(f"{without}; checkpoints are saved as always")
            return
        declared = config.checkpoint.path
        if declared is not None:
            declared = str(Path(config.directory, declared))
        self._words = words(self.hold, config.job, declared, registry)

    def stored(self, exit: WorkerExit, tell: Callable[[WorkerExit], None]) -> None:
        """Tell of a worker's end once its saves are on storage; at once where we ended it."""
        if self.hold is None or exit.stopped or not self.hold.holds(exit.pid):
            tell(exit)
            return
        task = asyncio.create_task(self._when_stored(self.hold, exit, tell))
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)

    async def _when_stored(
        self, hold: Hold, exit: WorkerExit, tell: Callable[[WorkerExit], None]
    ) -> None:
        lost = await hold.settled(exit.pid)
        if lost is not None and exit.code == 0:
            exit = replace(exit, code=1, message=f"its last checkpoint could not be saved: {lost}")
        tell(exit)

    async def drain(self, *, hurry: bool) -> None:
        """Before the agent leaves: everything on storage, memory given back.

        In a ``hurry`` the keeper does that after us.
        """
        if self.hold is not None and not hurry:
            await self.hold.close()


def _say(text: str) -> None:
    """On the console, whoever started the agent: it is about the job's checkpoints."""
    sys.stderr.write(f"brain: {text}\n")
    sys.stderr.flush()
