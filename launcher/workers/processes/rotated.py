"""A replica's log of limited size: ``output.log``, and ``output.log.1`` with older lines."""

import os
import threading
from pathlib import Path

#: Held while one stream of the process renames the log, so that no other renames the next one.
_ROTATING = threading.Lock()


class RotatedLog:
    """A log file to which several streams of this process append; each stream has a descriptor of
    its own.
    """

    def __init__(self, path: Path, limit_bytes: int) -> None:
        self._path, self._limit_bytes = path, limit_bytes
        self._fd = append(path)

    def write(self, line: bytes) -> None:
        """Append a whole line; if the disk is full, the line is lost."""
        try:
            if os.fstat(self._fd).st_size >= self._limit_bytes:
                self._rotate()
            while line:
                line = line[os.write(self._fd, line) :]
        except OSError:
            return

    def close(self) -> None:
        os.close(self._fd)

    def _rotate(self) -> None:
        with _ROTATING:
            # Another stream may have renamed the file that this one still writes.
            if self._path.exists() and os.path.samestat(os.fstat(self._fd), os.stat(self._path)):
                self._path.rename(f"{self._path}.1")
            fresh = append(self._path)
        os.close(self._fd)
        self._fd = fresh


def append(path: Path) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
