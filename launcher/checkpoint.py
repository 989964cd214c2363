"""Checkpoints that training need not wait for: two lines in a script.

    state = checkpoint.load() or {"step": 0}                 # newest that all ranks can have
    ...
    checkpoint.save({"model": model.state_dict(), "step": step}, step)

``save`` returns once the state is in memory that belongs to the agent, so it survives the script;
storage and a copy on another host follow. A state without DTensors is taken to be the same on
every rank: one rank of each host keeps it, and it becomes ``<path>/step-<n>.pt`` for plain
``torch.load``. One with DTensors (FSDP2) is kept by every rank in pieces, and becomes the directory
``<path>/step-<n>`` of plain ``torch.distributed.checkpoint``; it loads at any world size.

Without an agent (plain Python, torchrun) both are written to storage atomically, and nothing else
differs. torch is only imported by these functions.
"""

import contextlib
import importlib
import json
import os
import re
import shutil
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from brain.errors import Unavailable
from launcher import checkpoint_saved
from launcher.values.ram_checkpoint import parts

#: Where checkpoints are unless the job or the call says.
DEFAULT = "checkpoint"
#: Steps that are left on storage.
KEPT = 2
#: Seconds that the agent may take to make room, and to bring a piece from another host.
_ROOM_SECONDS, _FETCH_SECONDS = 5.0, 120.0
_LOOK_SECONDS = 0.002

__all__ = ["load", "save", "step"]


def save(
    state: Mapping[str, Any], step: int, path: str | None = None, *, storage: bool = True
) -> None:
    """Keep ``state`` as that of ``step``. Every rank calls it.

    ``storage=False`` keeps it in memory and on the other host only; it comes to storage when a
    worker fails, with ``--save_at_breakpoint``.

    Raises:
        OSError: an earlier state could not be written to storage, or, without an agent, this one.
    """
    place = _place(path)
    sharded = _sharded(state)
    memory = _memory()
    if memory is None:
        if storage:
            _save_to_storage(state, step, place, sharded)
        return
    memory.raise_error()
    if not sharded and _local_rank() != 0:
        return
    try:
        memory.put(state, step, place, sharded=sharded, storage=storage)
    except Exception as cannot:  # noqa: BLE001 - whatever it is, storage may do; else it says so
        with contextlib.suppress(OSError):  # full or closed: storage may do all the same
            sys.stderr.write(f"brain: step {step} goes to storage at once: {cannot}\n")
        _save_to_storage(state, step, place, sharded)


def load(
    path: str | None = None, *, into: dict[str, Any] | None = None, weights_only: bool = True
) -> dict[str, Any] | None:
    """The newest state that every rank can have, or None where there is none. Every rank calls it.

    A state in pieces is loaded ``into`` one of the same shape with DTensors, which is returned.

    Raises:
        Unavailable: a piece of it can be had from nobody.
    """
    memory, place = _memory(), _place(path)
    agreed = None if memory is None else memory.agreed(place)
    newest = _newest_on_storage(place)
    if memory is not None and agreed is not None and agreed.step >= (newest or 0):
        return memory.get(agreed, into, weights_only)
    if newest is None:
        return None
    return _load_from(place, newest, into, weights_only)


def step(path: str | None = None) -> int | None:
    """The step that ``load`` would return; None where there is none."""
    memory, place = _memory(), _place(path)
    agreed = None if memory is None else memory.agreed(place)
    known = [_newest_on_storage(place), None if agreed is None else agreed.step]
    return max((each for each in known if each is not None), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Memory:
    """The agent's shared memory, seen from a worker."""

    root: Path
    config: Mapping[str, Any]
    agent: str

    def ask(self, path: str | None) -> None:
        """Ask the agent for memory, or for a piece of a checkpoint on another host."""
        event: dict[str, Any] = {"v": 1, "rank": _rank(), "local_rank": _local_rank()}
        event |= {"epoch": self.config["epoch"], "event": "memory", "path": path}
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bell:
            bell.sendto(json.dumps(event).encode(), self.agent)

    def ring(self) -> None:
        """Notify the flusher of new files."""
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bell:
            bell.setblocking(False)
            bell.sendto(b"!", str(self.root / "bell"))

    def raise_error(self) -> None:
        """Raise what storage said of an earlier state."""
        with contextlib.suppress(FileNotFoundError):
            told = json.loads((self.root / "steps" / "error").read_text())
            (self.root / "steps" / "error").unlink()
            raise OSError(told["errno"], f"{os.strerror(told['errno'])} (an earlier checkpoint)")

    def put(
        self, state: Mapping[str, Any], step: int, place: Path, *, sharded: bool, storage: bool
    ) -> None:
        """Write this rank's part, then let it be seen."""
        key = parts.PartKey(step=step, epoch=int(self.config["epoch"]))
        writing = self.root / "steps" / f".writing-{key}-{_rank()}-{os.getpid()}"
        shutil.rmtree(writing, ignore_errors=True)
        writing.mkdir()  # not what is above it: the agent may be gone
        try:
            self.check_room()
            if sharded:
                _dcp_save(state, writing)
            else:
                _torch().save(dict(state), writing / "state.pt")
            parts.publish(
                self.root / "steps",
                key,
                writing,
                parts.StepPart(
                    step=step,
                    epoch=key.epoch,
                    rank=_rank(),
                    world=_world_size() if sharded else 1,
                    path=str(place),
                    storage=storage,
                    accepted=time.time(),
                ),
            )
        finally:
            shutil.rmtree(writing, ignore_errors=True)
        parts.prune(self.root / "steps", rank=_rank())
        self.ring()
        checkpoint_saved(self.root / "steps" / str(key))

    def check_room(self) -> None:
        """Leave memory to others where there is little.

        Raises:
            Unavailable: there is no room for another step like the last one.
        """
        last = max((part.bytes for part in parts.found(self.root / "steps")), default=0)
        room = parts.room(self.root)
        if last > room:
            raise Unavailable(
                f"it has {last >> 20} MiB, shared memory has room for {max(room, 0) >> 20}; "
                "more of it (--shm-size) helps"
            )

    def agreed(self, place: Path) -> parts.PartKey | None:
        """The step that the coordinator found complete when this world was formed."""
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
        """Load a step, with what is missing here brought from other hosts."""
        directory = self.root / "steps" / str(key)
        if into is not None and _sharded(into):
            self.fetch(directory, ".metadata")
            _dcp_load(into, _fetching_reader(directory, self.fetch))
            return into
        self.fetch(directory, "state.pt")
        return _loaded(directory / "state.pt", into, weights_only)

    def fetch(self, directory: Path, name: str) -> None:
        """Wait until a file is here.

        Raises:
            Unavailable: nobody has it.
        """
        if (directory / name).exists():
            return
        self.ask(f"{directory.name}/{name}")
        until = time.monotonic() + _FETCH_SECONDS
        while not (directory / name).exists():
            if (directory / f"{name}.nobody").exists() or time.monotonic() > until:
                raise Unavailable(
                    f"no agent of the job has {name} of step {directory.name}; "
                    "load an older step from storage"
                )
            time.sleep(_LOOK_SECONDS)


def _memory() -> _Memory | None:
    """The agent's memory, made now if this is its first use; None where there is no agent."""
    if gate := sys.modules.get("_brain_gate"):
        gate.at_end()  # what is agreed is known once this world exists
    told = sys.modules.get("_brain_memory")
    if told is None:
        return None
    config = told.config
    memory = _Memory(root=Path(config["memory"]["directory"]), config=config, agent=config["agent"])
    if not (memory.root / "bell").exists():
        try:
            memory.ask(None)
        except OSError:
            return None
        until = time.monotonic() + _ROOM_SECONDS
        while not (memory.root / "bell").exists():
            if time.monotonic() > until:
                del sys.modules["_brain_memory"]  # asked once
                return None
            time.sleep(_LOOK_SECONDS)
    return memory


def _place(path: str | None) -> Path:
    told = sys.modules.get("_brain_memory")
    declared = None if told is None else told.config.get("checkpoint")
    return Path(os.path.abspath(path or declared or DEFAULT))


# --- storage without an agent ---------------------------------------------------------------


def _save_to_storage(state: Mapping[str, Any], step: int, place: Path, sharded: bool) -> None:
    temporary, final = (
        place / f".step-{step}.{'parts' if sharded else 'pt'}",
        parts.final(place, step, sharded),
    )
    if not sharded and _rank() != 0:
        return
    place.mkdir(parents=True, exist_ok=True)
    if sharded:
        _dcp_save(state, temporary)
        if _rank() == 0:
            shutil.rmtree(final, ignore_errors=True)
            os.rename(temporary, final)
        _barrier()
    else:
        _torch().save(dict(state), temporary)
        parts.sync(temporary)
        os.replace(temporary, final)
    if _rank() == 0:
        parts.sync(place)
        parts.retire(place, KEPT)


def _newest_on_storage(place: Path) -> int | None:
    """The newest complete step on storage; incomplete ones have names that begin with a dot."""
    found = (re.fullmatch(r"step-(\d+)(\.pt)?", name) for name in _names(place))
    return max((int(match[1]) for match in found if match), default=None)


def _names(place: Path) -> Iterator[str]:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        yield from os.listdir(place)


def _load_from(
    place: Path, step: int, into: dict[str, Any] | None, weights_only: bool
) -> dict[str, Any]:
    directory = place / f"step-{step}"
    if not directory.is_dir():
        return _loaded(place / f"step-{step}.pt", into, weights_only)
    if into is None:
        raise Unavailable(
            f"{directory} has a sharded checkpoint; give load(into=...) a state of the same shape"
        )
    _dcp_load(into, _dcp().FileSystemReader(str(directory)))
    return into


# --- torch ----------------------------------------------------------------------------------


def _torch() -> Any:
    return importlib.import_module("torch")


def _dcp() -> Any:
    return importlib.import_module("torch.distributed.checkpoint")


def _sharded(state: Mapping[str, Any]) -> bool:
    """True if there is a DTensor in it."""
    tensor = sys.modules.get("torch.distributed.tensor")
    if tensor is None:
        return False
    rest: list[Any] = [state]
    while rest:
        each = rest.pop()
        if isinstance(each, tensor.DTensor):
            return True
        if isinstance(each, Mapping):
            rest.extend(each.values())
        elif isinstance(each, list | tuple):
            rest.extend(each)
    return False


def _dcp_save(state: Mapping[str, Any], directory: Path) -> None:
    writer = _dcp().FileSystemWriter(str(directory), sync_files=False)
    _dcp().save(dict(state), storage_writer=writer, no_dist=not _distributed())


def _dcp_load(into: dict[str, Any], reader: Any) -> None:
    _dcp().load(into, storage_reader=reader, no_dist=not _distributed())


def _fetching_reader(directory: Path, fetch: Any) -> Any:
    """A reader of torch's files that brings missing ones here before it reads them."""
    base = _dcp().FileSystemReader

    class Fetching(base):  # type: ignore[misc, valid-type]  # torch is not imported by us
        def read_data(self, plan: Any, planner: Any) -> Any:
            for item in plan.items:
                fetch(directory, self.storage_data[item.storage_index].relative_path)
            return super().read_data(plan, planner)

    return Fetching(str(directory))


def _loaded(path: Path, into: dict[str, Any] | None, weights_only: bool) -> dict[str, Any]:
    state: dict[str, Any] = _torch().load(path, map_location="cpu", weights_only=weights_only)
    if into is None:
        return state
    into.clear()
    into.update(state)
    return into


def _distributed() -> bool:
    distributed = _torch().distributed
    return bool(distributed.is_available() and distributed.is_initialized())


def _barrier() -> None:
    if _distributed():
        _torch().distributed.barrier()


def _rank() -> int:
    return int(os.environ.get("RANK", "0"))


def _local_rank() -> int:
    return int(os.environ.get("LOCAL_RANK", "0"))


def _world_size() -> int:
    return int(os.environ.get("WORLD_SIZE", "1"))
