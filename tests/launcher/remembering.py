"""Builders of the memory checkpoint's tests: an agent's hold, and scripts under the shim."""

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from launcher.memory.hold import Hold, free_root, words

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

    def __init__(self, hold: Hold, registry: Path, said: list[str]) -> None:
        self.hold, self.registry, self.said = hold, registry, said
        self.declared: str | None = None

    def start(self, lines: str, directory: Path) -> "subprocess.Popen[str]":
        """Start a worker that runs ``lines`` in ``directory``."""
        memory = words(self.hold.root, self.declared, self.registry, shim=True)
        return subprocess.Popen(
            [sys.executable, "-c", BEGIN + lines],
            cwd=directory,
            env=dict(os.environ, MEMORY=json.dumps(memory)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    async def run(self, lines: str, directory: Path) -> str:
        """Run ``lines`` to their end; what they printed."""
        worker = self.start(lines, directory)
        out, err = await asyncio.to_thread(worker.communicate)
        assert worker.returncode == 0, err
        self.complaints = err
        return out


@asynccontextmanager
async def holding(directory: Path) -> AsyncIterator[Held]:
    """A hold while the block runs; then it is closed."""
    said: list[str] = []
    registry = directory / "home" / "memory-directories"
    hold = Hold.open(free_root(f"test{os.getpid()}", 0), registry, said.append)
    try:
        yield Held(hold, registry, said)
    finally:
        await hold.close()


def stop_keeper(hold: Hold) -> Callable[[], None]:
    """Keep storage from being reached; what is returned lets it go on."""
    import signal

    os.kill(hold.keeper_pid, signal.SIGSTOP)
    return lambda: os.kill(hold.keeper_pid, signal.SIGCONT)


def lines_of(worker: "subprocess.Popen[str]") -> "asyncio.Queue[str]":
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


def ended(worker: "subprocess.Popen[str]") -> None:
    """Wait for its end, and let go of its streams."""
    worker.wait()
    for stream in (worker.stdin, worker.stdout, worker.stderr):
        assert stream is not None
        stream.close()
