"""Files that survive a crash at any point: replaced whole, private, on storage when written."""

import fcntl
import os
from pathlib import Path
from typing import TypeVar

from brain import wire
from brain.errors import BadInput

T = TypeVar("T")


def locked(path: Path) -> bool:
    """True if some process holds the flock of ``path``."""
    try:
        # NFS locks bytes instead, exclusively only for who may write.
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def write_json(path: Path, value: object) -> None:
    """Replace a file whole, readable by its owner alone, on storage when this returns."""
    write_private(path, wire.encode(value))


def write_private(path: Path, data: bytes) -> None:
    """Replace a file by ``data``, readable by its owner alone, on storage when this returns."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    partial.rename(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def read_json(path: Path, kind: type[T]) -> T | None:
    """A file's value; None where it is missing or not readable as ``kind``.

    Files are replaced whole, so what cannot be read was damaged by other hands; one damaged
    replica must not keep the others from healing.
    """
    try:
        return wire.decode(path.read_bytes(), kind)
    except (FileNotFoundError, NotADirectoryError, BadInput):
        return None
