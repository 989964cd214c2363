"""Sources of shards: objects that have a length and return their examples by range.

The lines of a text file are found through an index, which is built once per machine and file, and
cached in ``$XDG_CACHE_HOME/elastic-brain`` (default ``~/.cache``). The index contains the start of
every 256th line, and a digest of the whole content. Workers on other machines compare the digest to
verify that they read the same file.
"""

import contextlib
import hashlib
import os
import struct
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Generic, Protocol, TypeVar

from brain.errors import BadInput, Unavailable

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
#: Lines between two that the index knows.
_STRIDE = 256
_BLOCK_BYTES = 1 << 20
#: Version, bytes and nanoseconds of the file, lines, digest; then 8 bytes per known line.
_HEADER = struct.Struct("<QQQQ32s")
_VERSION = 1


class Source(Protocol[T_co]):
    """A dataset whose examples are numbered from 0 to ``size`` − 1."""

    @property
    def size(self) -> int:
        """Number of examples."""
        ...

    @property
    def mark(self) -> str:
        """Digest of the content; empty if only the length is known."""
        ...

    def read(self, start: int, stop: int) -> Iterator[T_co]:
        """Return the examples from ``start`` up to ``stop`` (exclusive).

        Raises:
            BadInput: the data has changed since the source was made.
        """
        ...


@dataclass(frozen=True, slots=True)
class Items(Generic[T]):
    """A sequence; ``range(n)`` gives indices."""

    items: Sequence[T]

    @property
    def size(self) -> int:
        return len(self.items)

    @property
    def mark(self) -> str:
        return ""

    def read(self, start: int, stop: int) -> Iterator[T]:
        if self.size < stop:
            raise BadInput(
                f"size: example {stop - 1} was asked for, but the data shrank to {self.size} "
                "examples during training; leave the data unchanged until training ends",
                field="size",
            )
        return (self.items[place] for place in range(start, stop))


@dataclass(frozen=True, slots=True)
class _Index:
    size_bytes: int
    changed_ns: int
    lines: int
    digest: bytes
    #: Byte offsets of every ``_STRIDE``-th line.
    offsets: tuple[int, ...]

    def pack(self) -> bytes:
        head = _HEADER.pack(_VERSION, self.size_bytes, self.changed_ns, self.lines, self.digest)
        return head + struct.pack(f"<{len(self.offsets)}Q", *self.offsets)

    @classmethod
    def unpack(cls, packed: bytes) -> "_Index | None":
        if len(packed) < _HEADER.size:
            return None
        version, size, changed_ns, lines, digest = _HEADER.unpack_from(packed)
        known = (len(packed) - _HEADER.size) // 8
        if version != _VERSION or known != -(-lines // _STRIDE):
            return None
        offsets = struct.unpack_from(f"<{known}Q", packed, _HEADER.size)
        return cls(size, changed_ns, lines, digest, offsets)


class TextFile:
    """The lines of a file, without line ends; empty lines are examples, too."""

    def __init__(self, path: "str | os.PathLike[str]", *, encoding: str = "utf-8") -> None:
        """Find the lines; an earlier index is used if the file has not changed since.

        Raises:
            Unavailable: the file cannot be read.
            BadInput: lines do not end with one byte in this encoding.
        """
        if not _ends_lines(encoding):
            raise BadInput(
                f"encoding: {encoding} is unknown, or does not end a line with one byte; convert "
                "the file to utf-8",
                field="encoding",
            )
        self._path, self._encoding = Path(os.path.abspath(path)), encoding
        self._index = self._find_index()

    @property
    def size(self) -> int:
        return self._index.lines

    @property
    def mark(self) -> str:
        return self._index.digest.hex()

    def read(self, start: int, stop: int) -> Iterator[str]:
        with self._path.open("rb") as file:
            self._check(file.fileno())
            file.seek(self._index.offsets[start // _STRIDE])
            for _ in range(start % _STRIDE):
                file.readline()
            for _ in range(start, stop):
                line = file.readline()
                self._check(file.fileno())
                yield line.removesuffix(b"\n").removesuffix(b"\r").decode(self._encoding)

    def _check(self, fd: int) -> None:
        if _state(fd) != (self._index.size_bytes, self._index.changed_ns):
            raise BadInput(
                f"{self._path}: the file changed while it was read; do not change it during "
                "training, or write a new file and use another name",
                field="path",
            )

    def _find_index(self) -> _Index:
        kept = _cache() / f"lines-{hashlib.sha256(os.fsencode(self._path)).hexdigest()[:16]}"
        try:
            with self._path.open("rb") as file:
                known = _Index.unpack(kept.read_bytes()) if kept.exists() else None
                if known is not None and _state(file.fileno()) == (
                    known.size_bytes,
                    known.changed_ns,
                ):
                    return known
                index = _read_index(file)
        except OSError as cannot:
            raise Unavailable(f"{self._path} cannot be read: {cannot}") from cannot
        with contextlib.suppress(OSError):  # it is found anew the next time
            _keep(kept, index.pack())
        return index


def _read_index(file: BinaryIO) -> _Index:
    size, changed_ns = _state(file.fileno())
    digest, offsets, lines, at, last = hashlib.sha256(), [0], 0, 0, b""
    while block := file.read(_BLOCK_BYTES):
        digest.update(block)
        found = -1
        while (found := block.find(b"\n", found + 1)) >= 0:
            lines += 1
            if lines % _STRIDE == 0:
                offsets.append(at + found + 1)
        at, last = at + len(block), block
    lines += bool(last) and not last.endswith(b"\n")
    known = tuple(offsets[: -(-lines // _STRIDE)])
    return _Index(size, changed_ns, lines, digest.digest(), known)


def _ends_lines(encoding: str) -> bool:
    """True if a line ends with one byte in this encoding, the same byte as in ASCII."""
    try:
        return b"\n".decode(encoding) == "\n"
    except (LookupError, UnicodeError):
        return False


def _state(fd: int) -> tuple[int, int]:
    """Return a file's size and modification time, which change with its content."""
    now = os.fstat(fd)
    return now.st_size, now.st_mtime_ns


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base, "elastic-brain")


def _keep(path: Path, content: bytes) -> None:
    """Replace a file atomically: several ranks may build the same index."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    fd, half = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(content)
        os.replace(half, path)
    except OSError:
        Path(half).unlink(missing_ok=True)
        raise
