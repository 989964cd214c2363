"""Checkpoint steps in shared memory: each rank's part of a state, visible only once it is complete.

``<directory>/steps/<step>-<epoch>/`` holds the files of parts; among them ``part-<rank>`` (JSON) is
written last, so that a part is ignored if its process died while writing it. The epoch
distinguishes parts of the same step in two worlds. This module uses only the standard library.
"""

import contextlib
import json
import os
import re
import shutil
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path

#: Steps of each rank that stay in memory.
SLOTS = 2


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class PartKey:
    """A step, as it was saved in one world."""

    step: int
    epoch: int

    def __str__(self) -> str:
        return f"{self.step}-{self.epoch}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPart:
    """One rank's saved part of a step."""

    step: int
    epoch: int
    rank: int
    #: Parts that make it complete; 1 where every rank has the same state.
    world: int
    #: Directory on storage.
    path: str
    #: It shall come to storage by itself.
    storage: bool
    #: Seconds since the epoch.
    accepted: float
    files: tuple[str, ...] = ()
    bytes: int = 0
    #: It was saved on another host.
    copied: bool = False

    @property
    def key(self) -> PartKey:
        return PartKey(step=self.step, epoch=self.epoch)

    @property
    def shared(self) -> bool:
        """True if one part contains the whole state."""
        return "state.pt" in self.files


def publish(steps: Path, writing: Path, part: StepPart) -> None:
    """Make a part visible whose files are complete in the directory ``writing``."""
    directory = steps / str(part.key)
    directory.mkdir(exist_ok=True)
    size = sum(os.path.getsize(writing / name) for name in part.files)
    for name in part.files:
        os.replace(writing / name, directory / name)
    half = writing / "part"
    half.write_text(json.dumps(asdict(part) | {"bytes": size}))
    os.replace(half, directory / f"part-{part.rank}")


def found(steps: Path) -> tuple[StepPart, ...]:
    """Return all complete parts in a directory of steps in memory, the oldest first."""
    parts: list[StepPart] = []
    for step in _entries(steps):
        for path in _entries(step):
            if path.name.startswith("part-"):
                with contextlib.suppress(OSError, ValueError, TypeError):
                    parts.append(part_of(path.read_bytes()))
    return tuple(sorted(parts, key=lambda part: (part.key, part.rank)))


def _entries(directory: Path) -> list[Path]:
    """Return the entries of a directory; none if it is no directory, or was pruned at this
    moment.
    """
    try:
        return list(directory.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def part_of(told: bytes) -> StepPart:
    """Return the part that the content of its file ``part-<rank>`` describes.

    Raises:
        ValueError: the content describes no part.
    """
    known = {field.name for field in fields(StepPart)}
    values = {name: value for name, value in json.loads(told).items() if name in known}
    values["files"] = tuple(values.get("files", ()))
    return StepPart(**values)


def complete(parts: Iterable[StepPart]) -> StepPart | None:
    """Return a part of the newest step whose parts all exist, on any host; None if there is none.

    >>> whole = dict(epoch=1, path="p", storage=True, accepted=0.0)
    >>> first, second = (StepPart(step=8, rank=r, world=2, **whole) for r in (0, 1))
    >>> complete([first]) is None, complete([first, second]).step
    (True, 8)
    """
    ranks: dict[PartKey, dict[int, StepPart]] = {}
    for part in parts:
        ranks.setdefault(part.key, {})[part.rank] = part
    for key in sorted(ranks, reverse=True):
        held = ranks[key]
        shared = next((part for part in held.values() if part.shared), None)
        if shared is not None:
            return shared
        some = next(iter(held.values()))
        if all(rank in held for rank in range(some.world)):
            return some
    return None


def prune(steps: Path, *, rank: int) -> None:
    """Remove a rank's parts from memory, except the newest ``SLOTS`` parts, the newest part that
    another host has, and the parts that are being written to storage.
    """
    mine = [part for part in found(steps) if part.rank == rank]
    safe = [part for part in mine if (steps / str(part.key) / f"safe-{rank}").exists()]
    for part in mine[:-SLOTS]:
        if part not in safe[-1:] and not (steps / str(part.key) / "persisting").exists():
            drop(steps, part)


def drop(steps: Path, part: StepPart) -> None:
    directory = steps / str(part.key)
    for name in (f"part-{part.rank}", *part.files, f"safe-{part.rank}", f"stored-{part.rank}"):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            os.unlink(directory / name)
    with contextlib.suppress(OSError):  # others have parts in it
        os.rmdir(directory)


def room(directory: Path) -> int:
    """Return the bytes of memory that checkpoints may still use; a tenth is left to other
    programs.
    """
    shared = os.statvfs(directory)
    return (shared.f_bavail - shared.f_blocks // 10) * shared.f_frsize


def final(place: Path, step: int, sharded: bool) -> Path:
    """Return the path of a step on storage."""
    return place / (f"step-{step}" if sharded else f"step-{step}.pt")


def sync(path: Path) -> None:
    """Sync a file or a directory, to make its content or names durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def retire(place: Path, kept: int) -> None:
    """Remove all steps on storage except the newest ``kept`` steps."""
    names = (re.fullmatch(r"step-(\d+)(\.pt)?", name) for name in os.listdir(place))
    steps = sorted((int(match[1]), match[0]) for match in names if match)
    for _, name in steps[:-kept]:
        path = place / name
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
