"""Checkpoints on storage, as ranks write them without an agent's memory."""

import contextlib
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from brain.errors import Unavailable
from launcher.checkpoint.state import (
    load_file,
    load_pieces,
    on_all_ranks,
    rank,
    save_pieces,
    torch,
)
from launcher.values.ram_checkpoint import parts

#: Number of steps to leave on storage.
KEPT = 2


def save_to_storage(state: Mapping[str, Any], step: int, place: Path, *, sharded: bool) -> None:
    """Write a step. A step gets its final name once its content is durable."""
    temporary, final = (
        place / f".step-{step}.{'parts' if sharded else 'pt'}",
        parts.final(place, step, sharded),
    )
    if not sharded and rank() != 0:
        return
    if sharded:
        with on_all_ranks():
            place.mkdir(parents=True, exist_ok=True)
        save_pieces(state, temporary, durable=True)
        with on_all_ranks():
            if rank() == 0:
                parts.sync(temporary)
                shutil.rmtree(final, ignore_errors=True)
                os.rename(temporary, final)
    else:
        place.mkdir(parents=True, exist_ok=True)
        torch().save(dict(state), temporary)
        parts.sync(temporary)
        os.replace(temporary, final)
    if rank() == 0:
        parts.sync(place)
        parts.retire(place, KEPT)


def newest_on_storage(place: Path) -> int | None:
    """Return the newest complete step on storage; names of incomplete steps begin with a dot."""
    found = (re.fullmatch(r"step-(\d+)(\.pt)?", name) for name in _names(place))
    return max((int(match[1]) for match in found if match), default=None)


def _names(place: Path) -> Iterator[str]:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        yield from os.listdir(place)


def load_from_storage(
    place: Path, step: int, into: dict[str, Any] | None, weights_only: bool
) -> dict[str, Any]:
    """Load a step.

    Raises:
        Unavailable: the step has pieces, and ``into`` is missing.
    """
    directory = place / f"step-{step}"
    if not directory.is_dir():
        return load_file(place / f"step-{step}.pt", into, weights_only)
    if into is None:
        raise Unavailable(
            f"{directory} has a sharded checkpoint; give load(into=...) a state of the same shape"
        )
    load_pieces(into, directory)
    return into
