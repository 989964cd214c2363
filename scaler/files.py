"""Files that survive a crash at any point: each is replaced as a whole, synced and private."""

import fcntl
import os
from pathlib import Path
from typing import TypeVar

from brain import wire
from brain.errors import BadInput

T = TypeVar("T")

#: Most bytes of the scaler's files. A job may have written a larger one, which is not read.
_MOST_BYTES = 64 * 1024 * 1024


def locked(path: Path) -> bool:
    """True if a process holds the flock of ``path``."""
    try:
        # NFS implements flock by byte-range locks; an exclusive one needs the right to write.
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except (FileNotFoundError, IsADirectoryError):
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def write_json(path: Path, value: object) -> None:
    """Replace a file completely, readable only by its owner; it is on storage when this returns."""
    write_private(path, wire.encode(value))


def write_private(path: Path, data: bytes) -> None:
    """Replace a file by ``data``, readable only by its owner; it is on storage when this
    returns.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    hand_over(descriptor, path.parent)
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


def hand_over(made: int | Path, folder: Path) -> None:
    """Give files that root made in ``folder`` to the user who owns that folder."""
    owner = folder.stat()
    if os.geteuid() == 0 and owner.st_uid != 0:
        os.chown(made, owner.st_uid, owner.st_gid)


def read_json(path: Path, kind: type[T]) -> T | None:
    """Return a file's value; None if the file is missing or not readable as ``kind``.

    The scaler replaces files completely, so an unreadable file was damaged by another program. One
    replica with a damaged file must not prevent the scaler from replacing other replicas.
    """
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            return wire.decode(file.read() if size < _MOST_BYTES else b"", kind)
    except (
        FileNotFoundError,
        NotADirectoryError,
        IsADirectoryError,
        PermissionError,
        BadInput,
    ):
        return None
