"""The agent's shared memory, seen from a worker."""

import contextlib
import json
import os
import shutil
import socket
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from brain.errors import Unavailable
from launcher import checkpoint_saved
from launcher.checkpoint.state import (
    is_sharded,
    load_file,
    load_pieces,
    on_all_ranks,
    rank,
    save_pieces,
    torch,
    world_size,
)
from launcher.values.ram_checkpoint import parts

#: Seconds that the agent may take to make room, and to bring a piece from another host.
_ROOM_SECONDS, _FETCH_SECONDS = 5.0, 120.0
_LOOK_SECONDS = 0.002


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerMemory:
    """The agent's shared memory, seen from a worker."""

    root: Path
    config: Mapping[str, Any]
    agent: str

    def ask(self, path: str | None) -> None:
        """Ask the agent for memory, or for a piece of a checkpoint on another host."""
        event: dict[str, Any] = {"v": 1, "rank": rank(), "local_rank": self.local_rank}
        event |= {"epoch": self.config["epoch"], "event": "memory", "path": path}
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bell:
            bell.sendto(json.dumps(event).encode(), self.agent)

    def ring(self) -> None:
        """Notify the flusher of new files."""
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bell:
            bell.setblocking(False)
            bell.sendto(b"!", str(self.root / "bell"))

    @property
    def local_rank(self) -> int:
        """Return the number of this worker on its machine. With ``--virtual-local-rank`` the
        variable LOCAL_RANK is 0 in all workers.
        """
        told = self.config.get("local_rank")
        return int(os.environ.get("LOCAL_RANK", "0") if told is None else told)

    def take_error(self) -> OSError | None:
        """Return the error with which storage refused an earlier state, once; None if there is
        none.
        """
        with contextlib.suppress(FileNotFoundError):
            told = json.loads((self.root / "steps" / "error").read_text())
            (self.root / "steps" / "error").unlink()
            return OSError(told["errno"], f"{os.strerror(told['errno'])} (an earlier checkpoint)")
        return None

    def put(
        self, state: Mapping[str, Any], step: int, place: Path, *, sharded: bool, storage: bool
    ) -> None:
        """Write this rank's part, then publish it. A rank that fails to do so makes every rank
        fail, if each rank has pieces of the state.
        """
        key = parts.PartKey(step=step, epoch=int(self.config["epoch"]))
        part = parts.StepPart(
            step=step,
            epoch=key.epoch,
            rank=rank(),
            world=world_size() if sharded else 1,
            path=str(place),
            storage=storage,
            accepted=time.time(),
        )
        together = on_all_ranks if sharded else contextlib.nullcontext
        writing = self.root / "steps" / f".writing-{key}-{part.rank}-{os.getpid()}"
        try:
            with together():
                shutil.rmtree(writing, ignore_errors=True)
                writing.mkdir()  # not what is above it: the agent may be gone
            with together():
                if sharded:
                    save_pieces(state, writing, durable=False)
                else:
                    torch().save(dict(state), writing / "state.pt")
                part = replace(part, files=tuple(sorted(os.listdir(writing))))
                parts.publish(self.root / "steps", writing, part)
        except BaseException:
            if part.files:  # else an earlier save of this step is untouched
                parts.drop(self.root / "steps", part)
            raise
        finally:
            shutil.rmtree(writing, ignore_errors=True)
        parts.prune(self.root / "steps", rank=part.rank)
        self.ring()
        checkpoint_saved(self.root / "steps" / str(key))

    def lacking(self) -> str:
        """Return why another step as large as the last one must not be kept in memory, which other
        programs on the machine may need; empty if it may.
        """
        last = max((part.bytes for part in parts.found(self.root / "steps")), default=0)
        try:
            room = parts.room(self.root)
        except OSError as gone:
            return str(gone)
        told = f"the last checkpoint has {last >> 20} MiB, but shared memory has room for "
        told += f"{max(room, 0) >> 20} MiB; give the container more shared memory (--shm-size)"
        return told if last > room else ""

    def agreed(self, place: Path) -> parts.PartKey | None:
        """Return the step that the coordinator found complete when this world was formed; None if
        none.
        """
        try:
            told = json.loads((self.root / "agreed").read_text())
        except FileNotFoundError:
            return None
        if told["world"] != self.config["epoch"] or told["path"] != str(place):
            return None
        return parts.PartKey(step=told["step"], epoch=told["epoch"])

    def get(
        self, key: parts.PartKey, into: dict[str, Any] | None, weights_only: bool
    ) -> dict[str, Any]:
        """Load a step; the agent fetches missing files from other hosts."""
        directory = self.root / "steps" / str(key)
        if into is not None and is_sharded(into):
            self.fetch(directory, ".metadata")
            load_pieces(into, directory, self.fetch)
            return into
        self.fetch(directory, "state.pt")
        return load_file(directory / "state.pt", into, weights_only)

    def fetch(self, directory: Path, name: str) -> None:
        """Wait until a file is on this host.

        Raises:
            Unavailable: no agent has the file, or none sent it in time.
        """
        if (directory / name).exists():
            return
        nobody = directory / f"{name}.nobody"
        nobody.unlink(missing_ok=True)  # from an earlier world
        self.ask(f"{directory.name}/{name}")
        until = time.monotonic() + _FETCH_SECONDS
        while not (directory / name).exists():
            if nobody.exists() or time.monotonic() > until:
                raise Unavailable(
                    f"no agent of the job has {name} of step {directory.name}; "
                    "load an earlier step from storage"
                )
            time.sleep(_LOOK_SECONDS)


def worker_memory() -> WorkerMemory | None:
    """Return the agent's memory, which the first use creates; None if there is no agent."""
    if gate := sys.modules.get("_brain_gate"):
        gate.at_end()  # what is agreed is known once this world exists
    told = sys.modules.get("_brain_memory")
    if told is None or not told.config.get("memory"):
        return None
    config = told.config
    memory = WorkerMemory(
        root=Path(config["memory"]["directory"]), config=config, agent=config["agent"]
    )
    if not (memory.root / "bell").exists():
        try:
            memory.ask(None)
        except OSError:
            return None
        until = time.monotonic() + _ROOM_SECONDS
        while not (memory.root / "bell").exists():
            if time.monotonic() > until:
                told.config["memory"] = None  # asked once
                return None
            time.sleep(_LOOK_SECONDS)
    return memory
