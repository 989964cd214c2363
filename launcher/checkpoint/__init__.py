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
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from brain.errors import Unavailable
from launcher.checkpoint.memory import WorkerMemory, worker_memory
from launcher.checkpoint.state import is_sharded, of_all_ranks
from launcher.checkpoint.storage import load_from_storage, newest_on_storage, save_to_storage

#: Directory of checkpoints if neither the job nor the call names one.
DEFAULT = "checkpoint"

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
    sharded = is_sharded(state)
    memory = worker_memory()
    lacking, refused = _asked(memory, sharded)
    if refused is not None:
        raise refused
    if memory is None and not lacking:
        if storage:
            save_to_storage(state, step, place, sharded=sharded)
        return
    if memory is not None and not sharded and memory.local_rank != 0:
        return
    try:
        if memory is None or lacking:
            raise Unavailable(lacking)
        memory.put(state, step, place, sharded=sharded, storage=storage)
    except Exception as cannot:  # noqa: BLE001 - whatever it is, storage may do; else it says so
        with contextlib.suppress(OSError):  # full or closed: storage may do all the same
            sys.stderr.write(f"brain: step {step} is written directly to storage: {cannot}\n")
        save_to_storage(state, step, place, sharded=sharded)


def load(
    path: str | None = None, *, into: dict[str, Any] | None = None, weights_only: bool = True
) -> dict[str, Any] | None:
    """Return the newest state that every rank can load, or None. Every rank must call this
    function.

    A state with DTensors is loaded ``into`` a state of the same shape, which is returned.

    Raises:
        Unavailable: a piece of the state is in no agent's memory.
    """
    memory, place = worker_memory(), _place(path)
    agreed = None if memory is None else memory.agreed(place)
    newest = newest_on_storage(place)
    if memory is not None and agreed is not None and agreed.step >= (newest or 0):
        return memory.get(agreed, into, weights_only)
    if newest is None:
        return None
    return load_from_storage(place, newest, into, weights_only)


def step(path: str | None = None) -> int | None:
    """Return the step whose state ``load`` would return; None if there is no checkpoint."""
    memory, place = worker_memory(), _place(path)
    agreed = None if memory is None else memory.agreed(place)
    known = [newest_on_storage(place), None if agreed is None else agreed.step]
    return max((each for each in known if each is not None), default=None)


def _asked(memory: WorkerMemory | None, sharded: bool) -> tuple[str, OSError | None]:
    """Return why the state cannot be kept in memory (empty if it can, or if there is no agent), and
    the error with which storage refused an earlier state. A state with pieces on every rank needs
    the memory of all of them.
    """
    own = (None, None) if memory is None else (memory.lacking(), memory.take_error())
    every = of_all_ranks(own) if sharded else [own]
    lacking = next((text for text, _ in every if text), "")
    if not lacking and {None, ""} <= {text for text, _ in every}:
        lacking = "the agent of another rank has no memory"
    return lacking, next((error for _, error in every if error is not None), None)


def _place(path: str | None) -> Path:
    told = sys.modules.get("_brain_memory")
    declared = None if told is None else told.config.get("checkpoint")
    return Path(os.path.abspath(path or declared or DEFAULT))
