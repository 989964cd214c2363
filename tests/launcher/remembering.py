"""Builders of the memory checkpoint's tests: an agent's hold, and scripts under the shim."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from brain.errors import BadInput
from brain.types.resources import NodeName
from brain.types.world import Member
from launcher import messages
from launcher.ram_checkpoint.agent import RamCheckpoint
from launcher.ram_checkpoint.shared_memory import SharedMemory, new_root, words
from launcher.values.config import WorldDocument
from launcher.values.ram_checkpoint import parts
from launcher.workers.processes.process import free_port, listen
from tests import forks
from tests.launcher.building import a_config, a_world

SHIM = Path(__file__).parents[2] / "launcher" / "inject" / "shim.py"
#: Begins every script: the shim as the bootstrap starts it, and a state of two MiB.
BEGIN = f"""
import importlib.util, json, os, sys
spec = importlib.util.spec_from_file_location('_brain_shim', {str(SHIM)!r})
shim = importlib.util.module_from_spec(spec)
sys.modules['_brain_shim'] = shim
spec.loader.exec_module(shim)
shim.start(dict(memory=json.loads(os.environ.pop('MEMORY'))))
import torch
def state(step):
    return dict(step=step, weights=torch.full((1 << 19,), float(step)))
"""


class Held:
    """A hold, what it said, and scripts that save into it."""

    def __init__(self, hold: SharedMemory, registry: Path, said: list[str]) -> None:
        self.hold, self.registry, self.said = hold, registry, said
        self.declared: str | None = None

    def start(
        self, lines: str, directory: Path, *, cold: bool = False
    ) -> "subprocess.Popen[str] | forks.Worker":
        """Start a worker that runs ``lines`` in ``directory``; a ``cold`` one, as an interpreter
        of its own, has the shim before it has torch."""
        memory = words(self.hold.root, self.declared, self.registry, shim=True)
        environment = dict(os.environ, MEMORY=json.dumps(memory))
        if not cold:
            return forks.Worker(BEGIN + lines, directory, environment)
        return subprocess.Popen(
            [sys.executable, "-c", BEGIN + lines],
            cwd=directory,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    async def run(self, lines: str, directory: Path, *, cold: bool = False) -> str:
        """Run ``lines`` to their end; what they printed."""
        worker = await asyncio.to_thread(self.start, lines, directory, cold=cold)
        out, err = await asyncio.to_thread(worker.communicate)
        assert worker.returncode == 0, err
        self.complaints = err
        return out


@asynccontextmanager
async def holding(directory: Path) -> AsyncIterator[Held]:
    """A hold while the block runs; then it is closed."""
    said: list[str] = []
    registry = directory / "home" / "memory-directories"
    hold = SharedMemory.open(new_root(f"test{os.getpid()}", 0), registry, said.append)
    try:
        yield Held(hold, registry, said)
    finally:
        with contextlib.suppress(ProcessLookupError):  # a test may have killed it
            os.kill(hold.flusher_pid, signal.SIGCONT)  # or failed while it was stopped
        await hold.close()


def stop_keeper(hold: SharedMemory) -> Callable[[], None]:
    """Keep storage from being reached; what is returned lets it go on."""
    os.kill(hold.flusher_pid, signal.SIGSTOP)
    return lambda: os.kill(hold.flusher_pid, signal.SIGCONT)


def lines_of(worker: "subprocess.Popen[str] | forks.Worker") -> "asyncio.Queue[str]":
    """Its output by lines as they come; at the end an empty one."""
    lines: asyncio.Queue[str] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def read() -> None:
        assert worker.stdout is not None
        for line in worker.stdout:
            loop.call_soon_threadsafe(lines.put_nowait, line)
        loop.call_soon_threadsafe(lines.put_nowait, "")

    threading.Thread(target=read, daemon=True).start()
    return lines


def ended(worker: "subprocess.Popen[str] | forks.Worker") -> None:
    """Wait for its end, and let go of its streams."""
    worker.wait()
    for stream in (worker.stdin, worker.stdout, worker.stderr):
        assert stream is not None
        stream.close()


#: Begins every script that uses ``launcher.checkpoint``: what the bootstrap leaves in a worker.
TOLD = """
import json, os, sys
told = type(sys)('_brain_memory')
told.config = json.loads(os.environ.pop('TOLD'))
sys.modules['_brain_memory'] = told
import hashlib, torch
from launcher import checkpoint
def print_of(state):
    digest = hashlib.sha256()
    def add(each):
        if isinstance(each, dict):
            for key in sorted(each, key=str):
                digest.update(str(key).encode()); add(each[key])
        elif isinstance(each, (list, tuple)):
            for one in each: add(one)
        elif isinstance(each, torch.Tensor):
            whole = each.full_tensor() if hasattr(each, 'full_tensor') else each
            digest.update(whole.detach().contiguous().numpy().tobytes())
        else:
            digest.update(repr(each).encode())
    add(state)
    return digest.hexdigest()[:16]
"""


class Agent:
    """Memory of one agent, its port, and the socket that its workers talk to."""

    def __init__(self, directory: Path, replica: int) -> None:
        self.replica, self.place = replica, directory / "checkpoint"
        self.virtual_local_rank = False
        self.part = RamCheckpoint(TOKEN)
        name = f"api{os.getpid()}"
        self.config = self.part.configured(
            a_config(directory, ["true"], job=name, replica=replica, home=str(directory / "home"))
        )
        self.told = directory / f"agent-{replica}"
        self._socket = listen(self.told)
        asyncio.get_running_loop().add_reader(self._socket.fileno(), self._hear)

    async def serve(self) -> None:
        """Answer other agents."""
        self._server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        self.address = f"{host}:{port}"

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = messages.Connection(reader, writer)
        try:
            first = await connection.receive(messages.Message)
            assert isinstance(first, messages.Fetch | messages.Offer)
            with contextlib.suppress(BadInput):
                await self.part.answer(first, connection)
        finally:  # the company may leave in the middle of it
            await connection.close()

    def _hear(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while told := self._socket.recv(65536):
                self.part.asked(json.loads(told)["path"])

    def environment(self, world: WorldDocument, local_rank: int) -> dict[str, str]:
        """What a worker of ours finds in a world."""
        config = {
            "epoch": world.epoch,
            "local_rank": local_rank,
            "agent": str(self.told),
            "memory": dict(self.config.memory or {}),
            "checkpoint": str(self.place),
        }
        group_rank = next(m.group_rank for m in world.members if m.replica == self.replica)
        ranks = {
            "RANK": world.first_rank(group_rank) + local_rank,
            "LOCAL_RANK": 0 if self.virtual_local_rank else local_rank,
            "WORLD_SIZE": world.processes,
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": world.master_port,
        }
        ours = {name: str(value) for name, value in ranks.items()}
        return dict(os.environ, TOLD=json.dumps(config), OMP_NUM_THREADS="1", **ours)

    async def close(self) -> None:
        """Bring all to storage and go."""
        await self.part.drain()
        self._server.close()
        asyncio.get_running_loop().remove_reader(self._socket.fileno())
        self._socket.close()


class Company:
    """Several agents that form one world after the other."""

    def __init__(self, directory: Path, here: list[Agent]) -> None:
        self.directory, self.here, self._epoch = directory, here, 0

    def world(self, *processes: int) -> WorldDocument:
        """The next world, of the first agents, with what they agree to load."""
        self._epoch += 1
        held = [part for agent in self.here for part in agent.part.held]
        members = tuple(
            Member(
                replica=agent.replica,
                group_rank=rank,
                processes=count,
                node=NodeName(f"host{agent.replica}"),
                address=agent.address,
            )
            for rank, (agent, count) in enumerate(zip(self.here, processes, strict=False))
        )
        port = free_port("127.0.0.1")
        world = a_world(1, members=members, epoch=self._epoch, master_port=port)
        for agent, _ in zip(self.here, processes, strict=False):
            agent.part.began(world, parts.complete(held))
        return world

    async def run(self, world: WorldDocument, lines: str) -> list[str]:
        """Run ``lines`` in every rank; what each printed."""
        workers = [
            asyncio.to_thread(
                forks.run, TOLD + lines, self.directory, agent.environment(world, local_rank)
            )
            for agent, member in zip(self.here, world.members, strict=False)
            for local_rank in range(member.processes)
        ]
        return await asyncio.gather(*workers)


TOKEN = messages.digest("token")


@asynccontextmanager
async def company(directory: Path, agents: int) -> AsyncIterator[Company]:
    """Agents while the block runs."""
    here = [Agent(directory, replica) for replica in range(agents)]
    for agent in here:
        await agent.serve()
    try:
        yield Company(directory, here)
    finally:
        for agent in here:
            await agent.close()
