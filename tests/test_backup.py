"""``brain backup`` and ``brain restore``, as an operator calls them."""

import fcntl
import os
import sqlite3
import stat
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from benchmarks.ingest import services
from benchmarks.ingest.load import closed
from brain import calls
from brain.client import BrainClient
from brain.views import ResizeRequest
from tests.api.app import digits
from tests.builders import node
from tests.postgresql import Server
from tests.serving import service


def brain(*words: object) -> "subprocess.CompletedProcess[str]":
    environment = {key: text for key, text in os.environ.items() if not key.startswith("BRAIN_")}
    command = [sys.executable, "-m", "brain.cli", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)


@pytest.fixture(params=["sqlite", "postgresql"])
def places(request: pytest.FixtureRequest) -> Iterator[list[tuple[str, ...]]]:
    """The options of two installations, each with an empty database of its own."""
    if request.param == "sqlite":
        yield [(), ()]
        return
    server: Server = request.getfixturevalue("postgresql")
    with server.database() as first, server.database() as second:
        yield [(f"--database-url={server.url(name)}",) for name in (first, second)]


def told(client: BrainClient) -> dict[str, Any]:
    """Jobs, plans, freezes and tokens by the API."""
    return {
        "jobs": [(job.id, job.name, job.state) for job in client.send(calls.jobs()).items],
        "plans": [(one.plan.job, one.plan.generation) for one in client.send(calls.plans()).items],
        "freezes": client.send(calls.freezes()).items,
        "tokens": sorted((each.id, each.name) for each in client.send(calls.tokens()).items),
    }


def test_a_backup_under_load_has_all_that_was_acknowledged_before(
    places: list[tuple[str, ...]], tmp_path: Path
) -> None:
    home, other, file = tmp_path / "home", tmp_path / "other", tmp_path / "brain.tar"
    with service(home, *places[0]) as running:
        with running.client() as admin, running.client("scaler") as scaler:
            scaler.send(calls.put_node(node(seen_at=datetime.now(UTC))))
            admin.send(calls.submit(digits()))
            admin.send(calls.resize("digits", ResizeRequest(replicas=2)))
        senders = services.job_senders(running, 3, batch=5)
        before = closed(senders, seconds=1.0)
        with running.client() as admin:
            expected = told(admin)
        with ThreadPoolExecutor(1) as beside:
            during = beside.submit(closed, senders, seconds=4.0)
            done = brain("backup", file, "--home", home, *places[0])
            loaded = during.result()
        secret = running.token("admin")
    assert done.returncode == 0, done.stderr
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert set(before.statuses) == set(loaded.statuses) == {200}, "nobody was disturbed"

    done = brain("restore", file, "--home", other, *places[1])
    assert done.returncode == 0, done.stderr
    with service(other, *places[1]) as restored:
        assert restored.token("admin") == secret
        with restored.client() as admin:
            assert told(admin) == expected
        url = places[1][0].partition("=")[2] if places[1] else f"sqlite:///{other}/brain.db"
        stored = services.size_of(services.Database(url), "throughput")[1]
    assert expected["plans"]
    assert before.samples <= stored <= before.samples + loaded.samples


def test_a_database_in_use_or_not_empty_is_kept(
    places: list[tuple[str, ...]], tmp_path: Path
) -> None:
    home, other, file = tmp_path / "home", tmp_path / "other", tmp_path / "brain.tar"
    with service(home, *places[0]) as running:
        assert brain("backup", file, "--home", home, *places[0]).returncode == 0
        busy = brain("restore", file, "--home", home, *places[0], "--overwrite")
        with running.client() as admin:
            admin.send(calls.submit(digits()))
    assert busy.returncode == 1
    assert f"another service already uses state directory {home}" in busy.stderr

    # A database that two state directories name is full for both.
    for target in (home, other) if places[0] else (home,):
        full = brain("restore", file, "--home", target, *places[0])
        assert full.returncode == 1
        assert "--overwrite" in full.stderr
    again = brain("backup", file, "--home", home, *places[0])
    assert again.returncode == 1
    assert f"{file} exists" in again.stderr

    done = brain("restore", file, "--home", home, *places[0], "--overwrite")
    assert done.returncode == 0, done.stderr
    with service(home, *places[0]) as running, running.client() as admin:
        assert admin.send(calls.jobs()).items == ()


def test_a_brain_elsewhere_keeps_its_database_from_being_restored(
    postgresql: Server, tmp_path: Path
) -> None:
    with postgresql.database() as name:
        option = f"--database-url={postgresql.url(name)}"
        with service(tmp_path / "home", option):
            file = tmp_path / "brain.tar"
            brain("backup", file, "--home", tmp_path / "home", option)
            busy = brain("restore", file, "--home", tmp_path / "new", option, "--overwrite")
    assert busy.returncode == 1
    assert "a Brain process is connected to" in busy.stderr


def test_what_was_there_before_a_restore_is_set_aside(tmp_path: Path) -> None:
    home, file = tmp_path / "home", tmp_path / "brain.tar"
    with service(home) as running:
        brain("backup", file, "--home", home)
        with running.client() as admin:
            id = admin.send(calls.submit(digits())).id
    brain("restore", file, "--home", home, "--overwrite")
    with closing(sqlite3.connect(home / "brain.db.before-restore")) as aside:
        assert aside.execute("SELECT id FROM jobs").fetchall() == [(id,)]


def test_a_database_that_is_set_aside_keeps_its_key_and_its_tokens(tmp_path: Path) -> None:
    home, other, file = tmp_path / "home", tmp_path / "other", tmp_path / "brain.tar"
    with service(other):
        brain("backup", file, "--home", other)
    with service(home) as running, running.client() as admin:
        id = admin.send(calls.submit(digits())).id
    before = {name: (home / name).read_text() for name in ("key", "admin.token", "scaler.token")}
    done = brain("restore", file, "--home", home, "--overwrite")
    assert done.returncode == 0, done.stderr
    assert all((home / name).read_text() != text for name, text in before.items())
    for aside in home.glob("*.before-restore"):
        aside.replace(home / aside.name.removesuffix(".before-restore"))
    assert {name: (home / name).read_text() for name in before} == before
    with service(home) as running, running.client() as admin:
        assert [job.id for job in admin.send(calls.jobs()).items] == [id]


def test_a_backup_deletes_what_a_killed_one_left_and_nothing_of_another_that_runs(
    tmp_path: Path,
) -> None:
    with service(tmp_path / "home"):
        killed, running = (tmp_path / f".brain-backup-{name}" for name in ("killed", "running"))
        for each in (killed, running):
            each.mkdir()
            (each / "database").write_bytes(b"half of it")
        holder = os.open(running, os.O_RDONLY)
        try:
            fcntl.flock(holder, fcntl.LOCK_EX)
            done = brain("backup", tmp_path / "brain.tar", "--home", tmp_path / "home")
        finally:
            os.close(holder)
    assert done.returncode == 0, done.stderr
    assert sorted(each.name for each in tmp_path.iterdir()) == [running.name, "brain.tar", "home"]


def test_a_damaged_database_gives_way_to_a_backup(tmp_path: Path) -> None:
    home, file = tmp_path / "home", tmp_path / "brain.tar"
    with service(home) as running:
        with running.client() as admin:
            id = admin.send(calls.submit(digits())).id
        brain("backup", file, "--home", home)
    for part in ("brain.db", "brain.db-wal"):
        (home / part).write_bytes(b"damaged" * 1000)
    done = brain("restore", file, "--home", home, "--overwrite")
    assert done.returncode == 0, done.stderr
    assert (home / "brain.db.before-restore").read_bytes() == b"damaged" * 1000
    with service(home) as running, running.client() as admin:
        assert [job.id for job in admin.send(calls.jobs()).items] == [id]


def test_a_restore_that_fails_leaves_the_database_as_it_was(
    places: list[tuple[str, ...]], tmp_path: Path
) -> None:
    home, file = tmp_path / "home", tmp_path / "brain.tar"
    with service(home, *places[0]) as running:
        brain("backup", file, "--home", home, *places[0])
        with running.client() as admin:
            id = admin.send(calls.submit(digits())).id
    with tarfile.open(file) as tar:
        tar.extractall(tmp_path / "parts", filter="data")
    database = tmp_path / "parts" / "database"
    # PostgreSQL's tables come before the rows, of which some are missing.
    database.write_bytes(database.read_bytes()[:-500] if places[0] else b"damaged" * 1000)
    with tarfile.open(tmp_path / "bad.tar", "w") as tar:
        for part in (tmp_path / "parts").iterdir():
            tar.add(part, part.name)
    done = brain("restore", tmp_path / "bad.tar", "--home", home, *places[0], "--overwrite")
    assert done.returncode == 1
    assert done.stderr.startswith("brain: ")
    with service(home, *places[0]) as running, running.client() as admin:
        assert [job.id for job in admin.send(calls.jobs()).items] == [id]


def test_a_backup_of_a_later_schema_or_another_database_is_refused_with_the_remedy(
    postgresql: Server, tmp_path: Path
) -> None:
    home, file = tmp_path / "home", tmp_path / "brain.tar"
    with service(home):
        brain("backup", file, "--home", home)
    with postgresql.database() as name:
        option = f"--database-url={postgresql.url(name)}"
        other = brain("restore", file, "--home", tmp_path / "new", option)
    assert other.returncode == 1
    assert "holds a sqlite database, but database_url names a postgresql database" in other.stderr
    with tarfile.open(file) as tar:
        tar.extractall(tmp_path / "parts", filter="data")
    manifest = tmp_path / "parts" / "backup.json"
    revision = manifest.read_text().partition('"revision":"')[2][:4]
    manifest.write_text(manifest.read_text().replace(revision, "9999"))
    later = tmp_path / "later.tar"
    with tarfile.open(later, "w") as tar:
        for part in (tmp_path / "parts").iterdir():
            tar.add(part, part.name)
    done = brain("restore", later, "--home", tmp_path / "new")
    assert done.returncode == 1
    assert "at revision 9999, which this version" in done.stderr
    assert "or a later version, and restore with it" in done.stderr
    assert not (tmp_path / "new" / "brain.db").exists()


def test_no_database_and_no_backup_are_said(tmp_path: Path) -> None:
    done = brain("backup", tmp_path / "brain.tar", "--home", tmp_path)
    assert done.returncode == 1
    assert "is not a database of Brain; name the state directory with --home" in done.stderr
    (tmp_path / "text").write_text("no tar")
    done = brain("restore", tmp_path / "text", "--home", tmp_path)
    assert done.returncode == 1
    assert "text is not a backup of Brain (file could not be opened successfully)" in done.stderr
    nowhere = brain("backup", tmp_path / "none" / "brain.tar", "--home", tmp_path)
    assert nowhere.stderr == (
        f"brain: {tmp_path / 'none'} is not a directory; create it, or name another file\n"
    )
    missing = brain("restore", tmp_path / "missing", "--home", tmp_path)
    assert missing.stderr == f"brain: {tmp_path / 'missing'}: No such file or directory\n"
