"""``brain gc``, as an operator calls it, and what the service does of it by itself."""

import fcntl
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from brain import calls
from brain.inmemory import MemoryStores
from brain.service.disk import EndedJob, expired, sweep
from brain.settings import Settings
from brain.types.job import JobState
from tests.api.app import digits
from tests.builders import NOW, job
from tests.serving import Service, service


def gc(home: Path, *words: str, **settings: object) -> str:
    environment = {key: text for key, text in os.environ.items() if not key.startswith("BRAIN_")}
    environment |= {f"BRAIN_{key.upper()}": str(value) for key, value in settings.items()}
    command = [sys.executable, "-m", "brain.cli", "gc", "--home", str(home), *words]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def submitted(running: Service, name: str) -> Path:
    """The directory of a job that printed a megabyte."""
    with running.client() as admin:
        id = admin.send(calls.submit(digits(name=name))).id
    output = running.home / "replicas" / id / "0" / "output.log"
    output.parent.mkdir(parents=True)
    output.write_bytes(b"x" * 2**20)
    return output.parents[1]


def test_what_ended_jobs_left_goes_and_nothing_of_others(tmp_path: Path) -> None:
    with service(tmp_path) as running:
        ended, held, runs = (submitted(running, name) for name in ("ended", "held", "runs"))
        stranger = tmp_path / "replicas" / "of-another-database" / "0"
        stranger.mkdir(parents=True)
        with running.client() as admin:
            for each in (ended, held):
                admin.send(calls.cancel(each.name))
        with (held / "0" / "lock").open("w") as lock:
            # An agent that has not ended yet.
            fcntl.flock(lock, fcntl.LOCK_EX)
            assert "directories of 0 jobs, 0.0 MiB" in gc(tmp_path)
            would = gc(tmp_path, "--dry-run", ended_job_seconds=0)
            assert ended.exists()
            did = gc(tmp_path, ended_job_seconds=0)
        assert f"{ended}  1.0 MiB  ended, ended" in would
        assert "would delete the directories of 1 job, 1.0 MiB" in would
        assert "deleted the directories of 1 job, 1.0 MiB" in did
        assert [each.exists() for each in (ended, held, runs, stranger)] == [
            False,
            True,
            True,
            True,
        ]
        with running.client() as admin:
            assert admin.send(calls.logs(ended.name)) == b""
        assert f"{held}  1.0 MiB" in gc(tmp_path, ended_job_bytes=0)


def test_a_directory_that_a_job_closed_keeps_no_other(tmp_path: Path) -> None:
    stores = MemoryStores()
    with stores.transaction() as tx:
        for name in ("closed", "linked", "ended"):
            made = job(name, name=name, state=JobState.CANCELLED, finished_at=NOW)
            tx.jobs.add(made)
            (tmp_path / "replicas" / name / "0").mkdir(parents=True)
    # A lock that cannot be opened, or is another file of the machine: nobody knows who holds it.
    (tmp_path / "replicas" / "closed" / "0" / "lock").mkdir()
    (tmp_path / "replicas" / "linked" / "0" / "lock").symlink_to(tmp_path / "key")
    (tmp_path / "key").touch()
    gone = sweep(tmp_path, stores, Settings(ended_job_seconds=0), NOW + timedelta(hours=1))
    assert [each.id for each in gone] == ["ended"]
    assert (tmp_path / "replicas" / "closed").exists()


def test_the_oldest_go_where_they_are_too_much() -> None:
    def left(name: str, hours: float) -> EndedJob:
        at = NOW - timedelta(hours=hours)
        return EndedJob(id=name, name=name, finished_at=at, size_bytes=10, path=Path(name))

    jobs = [left("new", 1), left("old", 30), left("middle", 20)]

    def names(**settings: float) -> list[str]:
        return [each.name for each in expired(jobs, Settings(**settings), NOW)]  # type: ignore[arg-type]

    assert names() == []
    assert names(ended_job_bytes=20) == ["old"]
    assert names(ended_job_bytes=19) == ["old", "middle"]
    assert names(ended_job_seconds=25 * 3600) == ["old"]
    assert names(ended_job_seconds=25 * 3600, ended_job_bytes=10) == ["old", "middle"]


@pytest.mark.parametrize("beside", [True, False])
def test_free_pages_go_back_to_the_disk(beside: bool, tmp_path: Path) -> None:
    file = tmp_path / "brain.db"
    with service(tmp_path):
        pass
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        if not beside:  # a file of a release that gave nothing back
            connection.execute("PRAGMA auto_vacuum = NONE")
            connection.execute("VACUUM")
        connection.execute("CREATE TABLE filler (text)")
        connection.executemany("INSERT INTO filler VALUES (?)", [("x" * 4000,)] * 5000)
        connection.execute("DROP TABLE filler")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    before = file.stat().st_size
    assert "MiB" in gc(tmp_path, "--dry-run")
    if beside:
        with service(tmp_path) as running:
            said = gc(tmp_path)
            with running.client() as admin:
                admin.send(calls.submit(digits()))
    else:
        said = gc(tmp_path)
    assert "0.0 MiB of unused space are left in it" in said
    assert file.stat().st_size < before / 5
