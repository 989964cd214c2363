"""Deletes the directories of jobs that ended too long ago; if the remaining directories are too
large together, also deletes the oldest of these.

A directory is deleted only if its job has ended and no agent holds a lock in it.
"""

import fcntl
import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from brain.confinement import forget_job, job_directory, kept_jobs
from brain.errors import NotFound
from brain.ports import Stores
from brain.settings import Settings
from brain.types.job import Job

#: Files that a living agent locks: its output first, later its lock file.
_LOCKS = ("lock", "agent.log")
#: Directory to which jobs' directories are moved before deletion; the next sweep empties it after a
#: crash.
_LEAVING = "leaving"


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedJob:
    """A job that has ended, and its directory."""

    id: str
    name: str
    finished_at: datetime
    size_bytes: int
    path: Path


def sweep(home: Path, stores: Stores, settings: Settings, now: datetime) -> list[EndedJob]:
    """Delete the directories that exceed the settings' limits; return the jobs they belonged to."""
    shutil.rmtree(home / _LEAVING, ignore_errors=True)
    return [each for each in expired(ended(home, stores), settings, now) if _delete(home, each)]


def expired(jobs: Sequence[EndedJob], settings: Settings, now: datetime) -> list[EndedJob]:
    """Return the jobs to delete: all that exceed the age limit, and then the oldest of the
    remaining jobs until the total size is within the size limit.

    The jobs are sorted by the time at which they ended, oldest first.
    """
    oldest = sorted(jobs, key=lambda each: each.finished_at)
    before = now - timedelta(seconds=settings.ended_job_seconds)
    above = sum(each.size_bytes for each in oldest) - settings.ended_job_bytes
    chosen = []
    for job in oldest:
        if job.finished_at >= before and above <= 0:
            break
        chosen.append(job)
        above -= job.size_bytes
    return chosen


def ended(home: Path, stores: Stores) -> list[EndedJob]:
    """Return the ended jobs whose directory exists and is not used by an agent."""
    found = []
    with stores.transaction(read_only=True) as tx:
        for id in _with_directory(home):
            with suppress(NotFound):  # unknown to this database, perhaps from before a restore
                found.append(tx.jobs.get(id))
    jobs = {job.id: job for job in found}  # a directory may have a job's name instead of its id
    return [each for job in jobs.values() if (each := _left_by(home, job)) is not None]


def _left_by(home: Path, job: Job) -> EndedJob | None:
    with suppress(OSError):  # a job may have closed its directory to this user; the others still go
        path = job_directory(home, job.id)
        if job.finished_at is not None and path.is_dir() and not _in_use(path):
            return EndedJob(
                id=job.id,
                name=job.document.name,
                finished_at=job.finished_at,
                size_bytes=_size(path),
                path=path,
            )
    return None


def _with_directory(home: Path) -> list[str]:
    own = home / "replicas"
    return sorted({*(os.listdir(own) if own.is_dir() else ()), *kept_jobs(home)})


def _size(path: Path) -> int:
    size = 0
    for directory, _, files in os.walk(path):
        for name in files:
            with suppress(FileNotFoundError):
                size += 512 * os.lstat(os.path.join(directory, name)).st_blocks
    return size


def _in_use(path: Path) -> bool:
    return any(_locked(file) for name in _LOCKS for file in path.glob(f"*/{name}"))


def _locked(file: Path) -> bool:
    try:
        # The job owns the directory, so a link there could name any file of the machine.
        descriptor = os.open(file, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _delete(home: Path, job: EndedJob) -> bool:
    """Remove a directory atomically for scalers, then delete it; return False on failure."""
    leaving = home / _LEAVING / job.id
    try:
        leaving.parent.mkdir(mode=0o700, exist_ok=True)
        job.path.rename(leaving)
        forget_job(home, job.id)
        shutil.rmtree(leaving.parent)
    except OSError:  # a member's job in a namespace may own files that are not this user's
        return not job.path.exists()
    return True
