"""States of all ranks, saved and loaded by torch, which is imported when a function needs it."""

import contextlib
import importlib
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from brain.errors import Unavailable

T = TypeVar("T")


def torch() -> Any:
    return importlib.import_module("torch")


def is_sharded(state: Mapping[str, Any]) -> bool:
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


def save_pieces(state: Mapping[str, Any], directory: Path, *, durable: bool) -> None:
    """Write the pieces of all ranks; with ``durable``, also sync their files. If a rank fails,
    raise its error on every rank.
    """
    writer = _dcp().FileSystemWriter(str(directory), sync_files=durable)
    try:
        _dcp().save(dict(state), storage_writer=writer, no_dist=not distributed())
    except _dcp().CheckpointException as failed:  # no subclass of Exception
        error, _ = next(iter(failed.failures.values()))
        raise error from failed


def load_pieces(into: dict[str, Any], directory: Path, fetch: Any = None) -> None:
    """Load the pieces of all ranks; ``fetch`` brings files that are missing."""
    reader = _dcp().FileSystemReader(str(directory))
    if fetch is not None:
        reader = _fetching_reader(directory, fetch)
    _dcp().load(into, storage_reader=reader, no_dist=not distributed())


def _dcp() -> Any:
    return importlib.import_module("torch.distributed.checkpoint")


def _fetching_reader(directory: Path, fetch: Any) -> Any:
    """Return a reader of torch's files that fetches missing files before it reads them."""
    base = _dcp().FileSystemReader

    class Fetching(base):  # type: ignore[misc, valid-type]  # torch is not imported by us
        def read_data(self, plan: Any, planner: Any) -> Any:
            for item in plan.items:
                fetch(directory, self.storage_data[item.storage_index].relative_path)
            return super().read_data(plan, planner)

    return Fetching(str(directory))


def load_file(path: Path, into: dict[str, Any] | None, weights_only: bool) -> dict[str, Any]:
    """Load a state that one file contains."""
    state: dict[str, Any] = torch().load(path, map_location="cpu", weights_only=weights_only)
    if into is None:
        return state
    into.clear()
    into.update(state)
    return into


# --- ranks ----------------------------------------------------------------------------------


def distributed() -> bool:
    """True if the script has created its process group."""
    group = torch().distributed
    return bool(group.is_available() and group.is_initialized())


def of_all_ranks(own: T) -> list[T]:
    """Return the value of each rank. Every rank must call this function."""
    if not distributed():
        return [own]
    values = [own] * torch().distributed.get_world_size()
    torch().distributed.all_gather_object(values, own)
    return values


@contextlib.contextmanager
def on_all_ranks() -> Iterator[None]:
    """Run the block on all ranks; if the block fails on one rank, raise an error on every rank.

    Raises:
        Unavailable: the block failed on another rank.
    """
    failed: Exception | None = None
    try:
        yield
    except Exception as error:  # noqa: BLE001 - other ranks would wait for this one
        failed = error
    told = of_all_ranks(None if failed is None else f"{type(failed).__name__}: {failed}")
    if failed is not None:
        raise failed
    for number, error_there in enumerate(told):
        if error_there is not None:
            raise Unavailable(f"rank {number}: {error_there}")


def rank() -> int:
    """Return the rank of this process."""
    return int(os.environ.get("RANK", "0"))


def world_size() -> int:
    """Return the number of ranks."""
    return int(os.environ.get("WORLD_SIZE", "1"))
