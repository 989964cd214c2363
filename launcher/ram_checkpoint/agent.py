"""The agent's part in RAM checkpoints: it starts them, tracks saves that are not on storage yet,
and shares parts of steps.
"""

import asyncio
import json
import os
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from brain.errors import BadInput, Unavailable
from brain.types.world import Member, MemoryCheckpoint
from launcher import messages
from launcher.messages import Connection
from launcher.ram_checkpoint.shared_memory import SharedMemory, new_root, words
from launcher.ram_checkpoint.sharing import PartSharing, buddy_of
from launcher.values.config import LaunchConfig, WorldDocument
from launcher.values.console import say
from launcher.values.ram_checkpoint import parts
from launcher.values.ram_checkpoint.parts import StepPart
from launcher.values.workers import WorkerExit

#: In ``$BRAIN_HOME``: directories in which checkpoints were ever saved through memory.
REGISTRY = "memory-directories"
#: Seconds that a lost world waits for storage with ``--save_at_breakpoint``.
_BREAKPOINT_SECONDS = 30.0
#: Seconds that a copy to another host may take before it counts as missing.
_COPY_SECONDS = 5.0


class RamCheckpoint:
    """The agent's RAM checkpoint, which uses no memory until the job or its script requests it."""

    def __init__(self, token_sha256: str) -> None:
        self._token_sha256 = token_sha256
        self.hold: SharedMemory | None = None
        self.off = ""
        self._config: LaunchConfig | None = None
        self._root: Path | None = None
        self._sharing: PartSharing | None = None
        self._world: WorldDocument | None = None
        self._replica = -1
        self._tasks: set[asyncio.Task[None]] = set()
        self._pushing: asyncio.Task[None] | None = None
        #: Other agents that are being served; none is once this one leaves.
        self._visitors: set[Connection] = set()
        self._over = False

    def configured(self, config: LaunchConfig) -> LaunchConfig:
        """Return the configuration with its field ``memory`` set.

        Also open the shared memory now if the job requests a RAM checkpoint.
        """
        self._replica = config.replica
        if self._root is None:
            self._root = new_root(config.job, config.replica)
            self._config = config
            if config.memory_checkpoint:
                self._open()
        declared = config.checkpoint.path
        if declared is not None:
            declared = str(Path(config.directory, declared))
        shim = config.memory_checkpoint and self.hold is not None
        registry = Path(config.home) / REGISTRY
        return replace(config, memory=words(self._root, declared, registry, shim=shim))

    def asked(self, path: str | None) -> None:
        """Open the shared memory for a worker that requests it.

        If ``path`` (``<step>-<epoch>/<name>``) is given, also fetch this file from another host.
        """
        if self.hold is None:
            self._open()
        if path is not None and self._sharing is not None:
            self._do(self._bring(self._sharing, path))

    @property
    def held(self) -> tuple[StepPart, ...]:
        """Return the parts of steps in this agent's memory."""
        return () if self.hold is None else parts.found(self.hold.root / "steps")

    @property
    def state(self) -> MemoryCheckpoint | None:
        """Return the state of the RAM checkpoint; None if no RAM checkpoint was requested."""
        if self.hold is None:
            return MemoryCheckpoint(off=self.off) if self.off else None
        since = self.hold.ahead_since
        return MemoryCheckpoint(
            ahead_since=None if since is None else datetime.fromtimestamp(since, UTC),
            buddy=self._buddy_has(),
            off=self.hold.off,
        )

    def began(self, world: WorldDocument, agreed: StepPart | None) -> None:
        """Record that a new world began, whose members agreed on a step; drop all other steps."""
        self._world = world
        if agreed is not None and self.hold is None:
            self._open()
        if self.hold is None:
            return
        steps, told = self.hold.root / "steps", self.hold.root / "agreed"
        for part in self.held:
            if agreed is None or part.key != agreed.key:
                parts.drop(steps, part)
        if agreed is None:
            told.unlink(missing_ok=True)
            return
        step = {"step": agreed.step, "epoch": agreed.epoch, "path": agreed.path}
        half = told.with_name(".agreed")
        half.write_text(json.dumps(step | {"world": world.epoch}))
        os.replace(half, told)
        if agreed.shared and self._sharing is not None:  # it will be asked for
            self._do(self._bring(self._sharing, f"{agreed.key}/state.pt"))

    def goes_on(self, world: WorldDocument) -> None:
        """Store the new world; a change in process keeps the content of the memory."""
        self._world = world

    async def answer(self, said: messages.Fetch | messages.Offer, connection: Connection) -> None:
        """Answer another agent's request.

        Raises:
            BadInput: the request is not from this job.
        """
        if isinstance(said, messages.Offer) and self.hold is None:
            self._open()
        if self._sharing is None or self._over:
            connection.send(messages.Piece(missing=True))
            return
        self._visitors.add(connection)
        try:
            if isinstance(said, messages.Fetch):
                await self._sharing.serve(said, connection)
            else:
                await self._sharing.take(said, connection)
        finally:
            self._visitors.discard(connection)

    def stored(self, exit: WorkerExit, tell: Callable[[WorkerExit], None]) -> None:
        """Report a worker's end once its saves are on storage.

        If this agent ended the worker, report at once.
        """
        if self.hold is None or exit.stopped or not self.hold.holds(exit.pid):
            tell(exit)
        else:
            self._do(self._when_stored(self.hold, exit, tell))

    async def breakpoint(self) -> None:
        """After a lost world, write the RAM checkpoint to storage if the job requests it
        (``--save_at_breakpoint``).
        """
        if self.hold is None or not self._breakpoints:
            return
        self.hold.persist()
        try:
            async with asyncio.timeout(_BREAKPOINT_SECONDS):
                await self.hold.persisted()
        except TimeoutError:
            say(
                "writing the checkpoint to storage takes longer than "
                f"{_BREAKPOINT_SECONDS:.0f} s; training goes on"
            )

    def withdraw(self) -> None:
        """Serve no other agent any more."""
        self._over = True
        for visitor in tuple(self._visitors):
            visitor.abandon()

    async def drain(self) -> None:
        """Write everything to storage and free the memory, before the agent leaves.

        If the agent does not wait for this, the flusher does both after the agent has left.
        """
        self.withdraw()
        if self.hold is None:
            return
        if self._breakpoints:
            self.hold.persist()
        await self.hold.close()

    @property
    def _breakpoints(self) -> bool:
        return self._config is not None and self._config.save_at_breakpoint

    def _open(self) -> None:
        config, root = self._config, self._root
        assert config is not None
        assert root is not None
        if self.off:
            return
        try:
            self.hold = SharedMemory.open(root, Path(config.home) / REGISTRY, say, self._news)
        except Unavailable as without:
            self.off = str(without)
            say(f"{without}; checkpoints go directly to storage")
            return
        self._sharing = PartSharing(self.hold.root / "steps", config.job, self._token_sha256)

    async def _when_stored(
        self, hold: SharedMemory, exit: WorkerExit, tell: Callable[[WorkerExit], None]
    ) -> None:
        lost = await hold.settled(exit.pid)
        if lost is not None and exit.code == 0:
            exit = replace(
                exit,
                code=1,
                message=(f"the agent's last checkpoint could not be written to storage: {lost}"),
            )
        tell(exit)

    async def _bring(self, sharing: PartSharing, path: str) -> None:
        key, _, name = path.partition("/")
        others = [m for m in self._members() if m.replica != self._replica]
        try:
            found = await sharing.fetch([other.address for other in others], key, name)
        except BadInput as bad:
            say(str(bad))
            return
        if not found and self.hold is not None:
            directory = self.hold.root / "steps" / key
            directory.mkdir(exist_ok=True)
            (directory / f"{name}.nobody").touch()

    def _news(self) -> None:
        """Act on a message of the flusher: copy new parts to the buddy, one at a time."""
        if not self._over and (self._pushing is None or self._pushing.done()):
            self._pushing = asyncio.create_task(self._push())

    async def _push(self) -> None:
        buddy = buddy_of(self._members(), self._replica)
        while buddy is not None and self._sharing is not None and (waiting := self._unsafe()):
            if not await self._sharing.push(buddy.address, waiting[-1]):
                return

    def _unsafe(self) -> list[StepPart]:
        """Return the parts of this agent's newest step that no other host has yet."""
        mine = [part for part in self.held if not part.copied]
        if not mine or self.hold is None:
            return []
        newest = self.hold.root / "steps" / str(mine[-1].key)
        same = (part for part in mine if part.key == mine[-1].key)
        return [part for part in same if not (newest / f"safe-{part.rank}").exists()]

    def _buddy_has(self) -> bool | None:
        if buddy_of(self._members(), self._replica) is None or not self.held:
            return None
        grace = time.time() - _COPY_SECONDS
        return all(part.accepted > grace for part in self._unsafe())

    def _members(self) -> tuple[Member, ...]:
        return () if self._world is None else self._world.members

    def _do(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
