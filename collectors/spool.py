"""Samples on disk that are not delivered yet.

Each job has a directory of segments: append-only files with one JSON sample per line, numbered in
the order of their creation. A sample leaves the spool once the service has answered 200 for it.
After a restart, the collector never appends to an old segment. It sends again every sample for
which it has no record of an acknowledgement; the service drops duplicates.

Each line is one write, so ``kill -9`` of the collector or the service loses no accepted sample.
``sync`` is called once a second, so a power cut loses at most the samples of one second. An
incomplete line after a power cut is skipped and counted. If the spool exceeds its limits, the
oldest segments are removed, and their samples are counted as lost.
"""

import errno
import os
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

#: Bytes after which a segment is closed; only whole segments are dropped.
SEGMENT_BYTES = 1 << 20
LIMIT_BYTES = 256 << 20
LIMIT_SECONDS = 86_400.0
#: Bytes from which an open segment is removed once it is fully delivered.
TIDY_BYTES = 64 << 10

#: Errors of a full disk; a line that was written in part has no number.
_FULL = (errno.ENOSPC, errno.EDQUOT, None)
#: Names of segments.
_SEGMENT = re.compile(r"[0-9]{12}\.ndjson")
_JOB = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


@dataclass(slots=True)
class _Segment:
    """One file of samples; ``sent`` bytes of its ``size`` are acknowledged."""

    path: Path
    size: int = 0
    sent: int = 0
    #: Number of complete lines that are not acknowledged.
    lines: int = 0
    #: Time of the newest line, in seconds since 1970.
    written_at: float = 0.0
    descriptor: int | None = None
    unsynced: bool = False


@dataclass(frozen=True, slots=True)
class SpooledBatch:
    """Lines of one job to deliver; pass the batch to ``acknowledge`` once it is delivered."""

    job: str
    lines: tuple[bytes, ...]
    segment: Path
    #: Offset in the segment at which the batch ends.
    end: int


@dataclass(slots=True)
class Counts:
    """Counts of lost lines and samples since the spool was opened."""

    #: Number of lines that a crash left incomplete.
    torn: int = 0
    #: Number of samples dropped because of the spool's size, their age or a full disk.
    dropped: int = 0
    #: Number of dropped samples, by job, that no ``LossSample`` has reported yet.
    untold: Counter[str] = field(default_factory=Counter)


class Spool:
    """The spool of one machine; only one process opens it at a time (the collector's lock)."""

    def __init__(
        self,
        directory: Path,
        *,
        limit_bytes: int = LIMIT_BYTES,
        limit_seconds: float = LIMIT_SECONDS,
        segment_bytes: int = SEGMENT_BYTES,
        write: Callable[[int, bytes], int] = os.write,
    ) -> None:
        self._directory = directory
        self._limit_bytes, self._limit_seconds = limit_bytes, limit_seconds
        self._segment_bytes = segment_bytes
        self._write = write
        self.counts = Counts()
        self._jobs: dict[str, list[_Segment]] = {}
        directory.mkdir(parents=True, exist_ok=True)
        for path in sorted(directory.glob("*/*.ndjson")):
            if _SEGMENT.fullmatch(path.name) and path.is_file():
                self._jobs.setdefault(path.parent.name, []).append(self._found(path))
        numbers = [int(segment.path.stem) for segment in self._segments()]
        self._number = max(numbers, default=0)

    def append(self, job: str, line: bytes, *, now: float) -> bool:
        """Write one encoded sample; if that fails, count it as lost and return False.

        Args:
            job: a job's id; an id that is not a plain file name is refused.
            now: seconds since 1970.
        """
        kept = self.try_append(job, line, now=now)
        if not kept:
            self._lost(job, 1)
        return kept

    def try_append(self, job: str, line: bytes, *, now: float) -> bool:
        """Write one encoded sample; return False if that fails, without counting a loss."""
        if not _JOB.fullmatch(job):
            return False
        while True:
            try:
                self._put(job, line + b"\n", now)
            except OSError as why:
                # On a full disk, what is delivered gives way, then the oldest; any other failure
                # would cost earlier samples for nothing.
                full = why.errno in _FULL
                if not full or not (self._remove_delivered() or self._drop_oldest()):
                    return False
            else:
                self._bound()
                return True

    def losses(self) -> dict[str, int]:
        """Return, by job, the number of dropped samples that no ``LossSample`` has reported yet."""
        return dict(+self.counts.untold)

    def told(self, job: str, dropped: int) -> None:
        """Record that a ``LossSample`` has reported ``dropped`` samples of a job."""
        self.counts.untold[job] -= dropped

    def jobs(self) -> list[str]:
        """Return the jobs with samples to deliver."""
        return [job for job in self._jobs if any(seg.lines for seg in self._jobs[job])]

    def take(self, job: str, limit: int) -> SpooledBatch | None:
        """Return a job's oldest undelivered lines, at most ``limit``; None if there are none."""
        for segment in list(self._jobs.get(job, ())):
            whole = _lines(segment, limit) if segment.lines else []
            if whole:
                end = segment.sent + sum(map(len, whole))
                texts = tuple(line.rstrip(b"\n") for line in whole)
                return SpooledBatch(job=job, lines=texts, segment=segment.path, end=end)
            if segment.lines:
                # Somebody removed or cut the file.
                self._drop(job, segment)
        return None

    def acknowledge(self, batch: SpooledBatch) -> None:
        """Remove a delivered batch from the spool."""
        for segment in self._jobs.get(batch.job, ()):
            if segment.path == batch.segment:
                segment.sent = batch.end
                segment.lines -= len(batch.lines)
                closed = segment.descriptor is None or segment.size >= TIDY_BYTES
                if not segment.lines and closed:
                    self._remove(batch.job, segment)
                return

    def expire(self, *, now: float) -> None:
        """Drop samples older than the limit, which the service would refuse."""
        for job, segment in self._all():
            if now - segment.written_at > self._limit_seconds:
                self._drop(job, segment)

    def sync(self) -> None:
        """Make appended samples survive a power cut (``fsync``)."""
        for segment in self._segments():
            if segment.unsynced and segment.descriptor is not None:
                os.fsync(segment.descriptor)
                segment.unsynced = False

    def close(self) -> None:
        """Call ``sync`` and remove delivered segments."""
        self.sync()
        for job, segment in self._all():
            if segment.lines:
                self._shut(segment)
            else:
                self._remove(job, segment)

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self._segments())

    @property
    def waiting(self) -> int:
        """Return the number of undelivered samples."""
        return sum(segment.lines for segment in self._segments())

    def _all(self) -> list[tuple[str, _Segment]]:
        return [(job, segment) for job, segments in self._jobs.items() for segment in segments]

    def _segments(self) -> list[_Segment]:
        return [segment for _, segment in self._all()]

    def _found(self, path: Path) -> _Segment:
        data = path.read_bytes()
        if data and not data.endswith(b"\n"):
            self.counts.torn += 1
        size, lines = len(data), data.count(b"\n")
        return _Segment(path=path, size=size, lines=lines, written_at=path.stat().st_mtime)

    def _put(self, job: str, line: bytes, now: float) -> None:
        segment = self._open(job)
        descriptor = segment.descriptor
        assert descriptor is not None
        try:
            written = self._write(descriptor, line)
            if written != len(line):
                raise OSError(f"{segment.path}: {written} of {len(line)} bytes were written")
        except OSError:
            os.ftruncate(descriptor, segment.size)
            raise
        segment.size += len(line)
        segment.lines += 1
        segment.written_at = now
        segment.unsynced = True

    def _open(self, job: str) -> _Segment:
        segments = self._jobs.setdefault(job, [])
        if segments and segments[-1].descriptor is not None:
            if segments[-1].size < self._segment_bytes:
                return segments[-1]
            self._shut(segments[-1])
        (self._directory / job).mkdir(exist_ok=True)
        self._number += 1
        path = self._directory / job / f"{self._number:012d}.ndjson"
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        segments.append(_Segment(path=path, descriptor=os.open(path, flags, 0o600)))
        return segments[-1]

    def _bound(self) -> None:
        while self.size_bytes > self._limit_bytes and self._drop_oldest():
            pass

    def _remove_delivered(self) -> bool:
        """Remove fully delivered segments; return True if there was any."""
        delivered = [(job, each) for job, each in self._all() if each.size and not each.lines]
        for job, segment in delivered:
            self._remove(job, segment)
        return bool(delivered)

    def _drop_oldest(self) -> bool:
        """Drop the oldest segment of all jobs; return False if only one segment is left."""
        segments = sorted((each.path.name, job) for job, each in self._all())
        if len(segments) < 2:
            return False
        name, job = segments[0]
        self._drop(job, next(each for each in self._jobs[job] if each.path.name == name))
        return True

    def _drop(self, job: str, segment: _Segment) -> None:
        self._lost(job, segment.lines)
        self._remove(job, segment)

    def _lost(self, job: str, lines: int) -> None:
        self.counts.dropped += lines
        if lines:
            self.counts.untold[job] += lines

    def _remove(self, job: str, segment: _Segment) -> None:
        self._shut(segment)
        segment.path.unlink(missing_ok=True)
        self._jobs[job].remove(segment)
        if not self._jobs[job]:
            del self._jobs[job]
            try:
                segment.path.parent.rmdir()
            except OSError:
                # Somebody keeps a file of theirs in it; an empty directory is all we wanted gone.
                return

    def _shut(self, segment: _Segment) -> None:
        if segment.descriptor is not None:
            os.close(segment.descriptor)
            segment.descriptor = None


def _lines(segment: _Segment, limit: int) -> list[bytes]:
    try:
        with segment.path.open("rb") as file:
            file.seek(segment.sent)
            lines = [file.readline() for _ in range(min(limit, segment.lines))]
    except FileNotFoundError:
        return []
    return [line for line in lines if line.endswith(b"\n")]
