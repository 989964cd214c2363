"""``save`` and ``load``: checkpoints that are written to storage while training continues.

    state = checkpoint.load() or {"step": 0}                 # the newest available to all ranks
    ...
    checkpoint.save({"model": model.state_dict(), "step": step}, step)

``save`` returns once the state is in memory that belongs to the agent, so the state survives the
script; the agent then writes it to storage and copies it to another host. ``save`` assumes that a
state without DTensors is the same on every rank: one rank of each host keeps the state, which is
stored as ``<path>/step-<n>.pt`` and can be read by plain ``torch.load``. If the state has DTensors
(FSDP2), every rank keeps its pieces. Such a state is stored as the directory ``<path>/step-<n>`` in
the format of ``torch.distributed.checkpoint``, and can be loaded at any world size.

Without an agent (plain Python, torchrun) ``save`` writes both kinds to storage atomically. The
functions import torch when they are called; this module does not.
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

#: Directory of checkpoints if neither the job nor the call names one.
DEFAULT = "checkpoint"
#: Number of steps to leave on storage.
KEPT = 2
#: Seconds that the agent may take to make room, and to bring a piece from another host.
_ROOM_SECONDS, _FETCH_SECONDS = 5.0, 120.0
_LOOK_SECONDS = 0.002

__all__ = ["load", "save", "step"]


def save(
    state: Mapping[str, Any], step: int, path: str | None = None, *, storage: bool = True
) -> None:
    """Store ``state`` as the checkpoint of ``step``. Every rank must call this function.

    With ``storage=False``, the state stays only in memory and on another host. With
    ``--save_at_breakpoint`` the agent still writes this state to storage when a worker fails.

    Raises:
        OSError: the state of an earlier ``save`` could not be written to storage. Without an
            agent, ``state`` itself could not be written.
    """
    place = _place(path)
    sharded = _sharded(state)
    memory = _memory()
    lacking = _lacking(memory, sharded)
    if memory is not None:
        memory.raise_error()
    elif not lacking:
        if storage:
            _save_to_storage(state, step, place, sharded)
        return
    if not sharded and _local_rank() != 0:
        return
    try:
        if memory is None or lacking:
            raise Unavailable(lacking)
        memory.put(state, step, place, sharded=sharded, storage=storage)
    except Exception as cannot:  # noqa: BLE001 - whatever it is, storage may do; else it says so
        with contextlib.suppress(OSError):  # full or closed: storage may do all the same
            sys.stderr.write(f"brain: step {step} is written directly to storage: {cannot}\n")
        _save_to_storage(state, step, place, sharded)


def load(
    path: str | None = None, *, into: dict[str, Any] | None = None, weights_only: bool = True
) -> dict[str, Any] | None:
    """Return the newest state that every rank can load, or None. Every rank must call this
    function.

    A state with DTensors is loaded ``into`` a state of the same shape, which is returned.

    Raises:
        Unavailable: a piece of the state is in no agent's memory.
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
    """Return the step whose state ``load`` would return; None if there is no checkpoint."""
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
        """Raise the error with which storage refused an earlier state."""
        with contextlib.suppress(FileNotFoundError):
            told = json.loads((self.root / "steps" / "error").read_text())
            (self.root / "steps" / "error").unlink()
            raise OSError(told["errno"], f"{os.strerror(told['errno'])} (an earlier checkpoint)")

    def put(
        self, state: Mapping[str, Any], step: int, place: Path, *, sharded: bool, storage: bool
    ) -> None:
        """Write this rank's part, then publish it."""
        key = parts.PartKey(step=step, epoch=int(self.config["epoch"]))
        writing = self.root / "steps" / f".writing-{key}-{_rank()}-{os.getpid()}"
        shutil.rmtree(writing, ignore_errors=True)
        writing.mkdir()  # not what is above it: the agent may be gone
        try:
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
        if into is not None and _sharded(into):
            self.fetch(directory, ".metadata")
            _dcp_load(into, _fetching_reader(directory, self.fetch))
            return into
        self.fetch(directory, "state.pt")
        return _loaded(directory / "state.pt", into, weights_only)

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


def _memory() -> _Memory | None:
    """Return the agent's memory, which the first use creates; None if there is no agent."""
    if gate := sys.modules.get("_brain_gate"):
        gate.at_end()  # what is agreed is known once this world exists
    told = sys.modules.get("_brain_memory")
    if told is None or not told.config.get("memory"):
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
                told.config["memory"] = None  # asked once
                return None
            time.sleep(_LOOK_SECONDS)
    return memory


def _lacking(memory: _Memory | None, sharded: bool) -> str:
    """Return why the state cannot be kept in memory; empty if it can, or if there is no agent. A
    state with pieces on every rank needs the memory of all ranks.
    """
    every = [None if memory is None else memory.lacking()]
    if sharded and _distributed():
        own, every = every[0], every * _torch().distributed.get_world_size()
        _torch().distributed.all_gather_object(every, own)
    told = next(filter(None, every), "")
    return told or ("the agent of another rank has no memory" if {None, ""} <= set(every) else "")


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
    """Return the newest complete step on storage; names of incomplete steps begin with a dot."""
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
    """True if the state holds a DTensor."""
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
    """Return a reader of torch's files that fetches missing files before it reads them."""
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
