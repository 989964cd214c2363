"""Pins: second names that keep a checkpoint until the next world has loaded it.

A script that starts from the beginning, instead of loading its checkpoint, may overwrite or delete
it. If the script renames new checkpoints into place, a pin is a hard link next to the checkpoint,
which keeps the old content; otherwise it is a copy. If a checkpoint is still in memory, the hard
link points to the file that will be on storage. Pins are named ``.brain-pin-<job>-<name>.pin``, so
that no pattern for checkpoints matches them. The pin of a directory is one level higher if
possible, because scripts take every name next to such a checkpoint for the name of a step.
"""

import errno
import filecmp
import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from brain.errors import Unavailable
from launcher.values.ram_checkpoint import links

#: Errors of a file system without hard links, or without room for more.
_NO_LINKS = frozenset({errno.EPERM, errno.EMLINK, errno.ENOTSUP, errno.ENOSYS})


class CannotPin(Unavailable):
    """Raised if a checkpoint cannot be kept; the change is held for this reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """A second name that keeps a checkpoint."""

    path: str
    #: The second name of it.
    kept: str
    #: Inode of ``path`` when it was pinned, which the next world must load.
    inode: int


def pin(path: str, *, job: str, replaced: bool) -> Pin:
    """Keep the file or directory at ``path``, and return its pin.

    Raises:
        CannotPin: the checkpoint is missing, or the disk is full or not writable.
    """
    kept = _place(path, job)
    try:
        _remove(kept)
        inode = links.link_durable(path, kept)
        if inode is not None:
            return Pin(path=links.real(path), kept=kept, inode=inode)
        inode = os.stat(path).st_ino
        if os.path.isdir(path):
            links.settle(path)
            shutil.copytree(path, kept, copy_function=_link if replaced else shutil.copy2)
        else:
            (_link if replaced else shutil.copy2)(path, kept)
    except (OSError, shutil.Error) as cannot:
        _remove(kept)
        raise CannotPin(f"the checkpoint {path} cannot be kept: {_why(cannot)}") from cannot
    return Pin(path=links.real(path), kept=kept, inode=inode)


def pin_all(checkpoints: Mapping[str, bool], *, job: str) -> tuple[Pin, ...]:
    """Keep all of several checkpoints, or none; return their pins. ``checkpoints`` has True for
    each path at which the script renamed the checkpoint into place.

    Raises:
        CannotPin: one of the checkpoints cannot be kept.
    """
    taken: list[Pin] = []
    try:
        for path, replaced in checkpoints.items():
            taken.append(pin(path, job=job, replaced=replaced))
    except CannotPin:
        for each in taken:
            unpin(each)
        raise
    return tuple(taken)


def renew_all(kept: Iterable[Pin], *, job: str) -> tuple[Pin, ...]:
    """Pin again the files that a script, while it saves and ends, has renamed into place since
    their last pin. Return all pins, new and old.

    A file that was overwritten in place may be incomplete, so its earlier pin remains.

    Raises:
        CannotPin: one of the new files cannot be kept.
    """
    return tuple(
        pin(each.path, job=job, replaced=True) if _renamed_over(each) else each for each in kept
    )


def put_back(kept: Iterable[Pin], *, job: str, keep: bool) -> None:
    """Restore all checkpoints; with ``keep``, pin the restored ones again.

    Raises:
        CannotPin: one of the checkpoints cannot be put back.
    """
    for each in kept:
        if restore(each) and keep:
            pin(each.path, job=job, replaced=True)


def restore(kept: Pin) -> bool:
    """Restore the checkpoint under its name; return False if it was unchanged.

    Raises:
        CannotPin: the checkpoint cannot be put back; the pin stays.
    """
    if not os.path.lexists(kept.kept):
        return False
    if links.in_memory(kept.path) and links.inode(kept.path) == kept.inode:
        return False
    try:
        links.settle(kept.path, kept.inode)
        if _same(kept):
            return False
        if not os.path.isdir(kept.kept):
            os.replace(kept.kept, kept.path)
            return True
        aside = kept.kept + ".aside"
        _remove(aside)
        if os.path.lexists(kept.path):
            os.rename(kept.path, aside)
        os.rename(kept.kept, kept.path)
        _remove(aside)
    except OSError as cannot:
        raise CannotPin(f"{kept.path} cannot be put back from {kept.kept}: {cannot}") from cannot
    return True


def unpin(kept: Pin) -> None:
    """Remove the pin, if it still exists."""
    _remove(kept.kept)


def sweep(directories: Iterable[str], *, job: str, keep: Iterable[Pin] = ()) -> list[str]:
    """Remove pins of ``job`` that a crash left behind; return their names."""
    kept = {pin.kept for pin in keep}
    stale = [
        str(path)
        for directory in {place for each in map(Path, directories) for place in (each, each.parent)}
        for path in directory.glob(f".brain-pin-{job}-*")
        if str(path) not in kept
    ]
    for path in stale:
        _remove(path)
    return stale


def loads(kept: Pin, path: str, inode: int | None) -> bool:
    """True if ``path`` (with ``inode``) is the pinned checkpoint or a part of it."""
    if inode == kept.inode or (inode is None and links.real(path) == kept.path):
        return True
    return os.path.realpath(path).startswith(os.path.realpath(kept.path) + os.sep)


def _renamed_over(kept: Pin) -> bool:
    return os.path.isfile(kept.path) and links.inode(kept.path) != kept.inode


def directory_of(path: str) -> Path:
    """Return the directory for the launcher's own files that belong to the checkpoint at
    ``path``.
    """
    clean = Path(os.path.abspath(path))
    beside, above = clean.parent, clean.parent.parent
    higher = clean.is_dir() and above != beside and _may_rename(beside, above)
    return above if higher else beside


def _place(path: str, job: str) -> str:
    clean, directory = Path(os.path.abspath(path)), directory_of(path)
    inside = "" if directory == clean.parent else f"{clean.parent.name}-"
    return str(directory / f".brain-pin-{job}-{inside}{clean.name}.pin")


def _may_rename(source: Path, target: Path) -> bool:
    """True if files of one directory can be linked and renamed into the other."""
    return source.stat().st_dev == target.stat().st_dev and os.access(target, os.W_OK | os.X_OK)


def _link(source: str, target: str, *, follow_symlinks: bool = True) -> str:
    """Like ``shutil.copy2``, by a second name; file systems without links get a copy."""
    try:
        os.link(source, target, follow_symlinks=follow_symlinks)
    except OSError as cannot:
        if cannot.errno not in _NO_LINKS:
            raise
        shutil.copy2(source, target)
    return target


def _same(kept: Pin) -> bool:
    if not os.path.lexists(kept.path):
        return False
    if os.path.isdir(kept.kept) != os.path.isdir(kept.path):
        return False
    if not os.path.isdir(kept.kept):
        return _equal(kept.kept, kept.path)
    names = {str(p.relative_to(kept.kept)) for p in Path(kept.kept).rglob("*") if p.is_file()}
    others = {str(p.relative_to(kept.path)) for p in Path(kept.path).rglob("*") if p.is_file()}
    return names == others and all(
        _equal(os.path.join(kept.kept, name), os.path.join(kept.path, name)) for name in names
    )


def _equal(one: str, other: str) -> bool:
    return os.path.samefile(one, other) or filecmp.cmp(one, other, shallow=False)


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path, ignore_errors=True)
    else:
        Path(path).unlink(missing_ok=True)


def _why(cannot: OSError | shutil.Error) -> str:
    return getattr(cannot, "strerror", None) or str(cannot)
