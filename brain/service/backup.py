"""``brain backup`` and ``brain restore``: one tar file of the database, the key and the tokens."""

import argparse
import fcntl
import os
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path

import brain
from brain import wire
from brain.api.secrets import write_private
from brain.db.backup import backend_of, dump, load
from brain.db.schema import expect_known
from brain.errors import BadInput, BrainError, Conflict, NotFound, Unavailable
from brain.service.home import database_at, database_of_one, home_of_one, make_home, settings_at

_MANIFEST, _DATABASE = "backup.json", "database"
#: Prefix of the directories that hold unfinished backups.
_UNFINISHED = ".brain-backup-"
#: Files of the state directory that the database needs: stored values are sealed with the key, and
#: nothing else has the secret of a token.
_FILES = ("key", "admin.token", "scaler.token", "viewer.token")


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The file that describes the content of a backup."""

    version: str
    #: Revision of the schema.
    revision: str
    #: ``sqlite`` or ``postgresql``.
    backend: str
    made_at: datetime


def main(arguments: Sequence[str] | None = None) -> int:
    """Back up or restore the installation of ``$BRAIN_HOME``; return the exit code."""
    parser = argparse.ArgumentParser(prog="brain.service.backup", allow_abbrev=False)
    parser.add_argument("action", choices=("backup", "restore"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--overwrite", action="store_true")
    asked = parser.parse_args(arguments)
    try:
        if asked.action == "backup":
            said = back_up(asked.home, asked.file)
        else:
            said = restore(asked.home, asked.file, overwrite=asked.overwrite)
    except BrainError as refused:
        said = refused.in_full if isinstance(refused, Unavailable) else str(refused)
        sys.stderr.write(f"brain: {said}\n")
        return 1
    except OSError as refused:
        sys.stderr.write(f"brain: {refused.filename or asked.file}: {refused.strerror}\n")
        return 1
    sys.stdout.write(said + "\n")
    return 0


def back_up(home: Path, file: Path) -> str:
    """Write a backup while the service runs; return a sentence about the backup.

    If the backup cannot be completed, no file is left.

    Raises:
        Conflict: the file exists.
        NotFound: the database, or the directory of the file, does not exist.
        Unavailable: the database cannot be read.
        OSError: the file cannot be written.
    """
    if file.exists():
        raise Conflict(f"{file} exists; name a file that does not")
    if not (directory := file.absolute().parent).is_dir():
        raise NotFound(f"{directory} is not a directory; create it, or name another file")
    url = database_at(home, settings_at(home, os.environ))
    with _own_directory(directory) as made:
        database, unfinished = made / _DATABASE, made / "backup.tar"
        manifest = Manifest(
            version=brain.__version__,
            revision=dump(url, database),
            backend=backend_of(url),
            made_at=datetime.now(UTC),
        )
        # Only this user can enter the directory, and the file keeps its mode.
        with tarfile.open(unfinished, "w") as tar:
            described = tarfile.TarInfo(_MANIFEST)
            written = wire.encode(manifest)
            described.size = len(written)
            tar.addfile(described, BytesIO(written))
            tar.add(database, _DATABASE)
            for name in _FILES:
                if (home / name).exists():
                    tar.add((home / name).resolve(), name)
        unfinished.chmod(0o600)
        unfinished.replace(file)
    size = file.stat().st_size / 2**20
    return (
        f"{file} ({size:.1f} MiB) holds the database at revision {manifest.revision}, the key and "
        "the tokens; anyone who can read the file is an administrator here"
    )


@contextmanager
def _own_directory(parent: Path) -> Iterator[Path]:
    """Make a directory for an unfinished backup, and delete those of backups that were killed."""
    with ExitStack() as held:
        with ExitStack() as turn:
            # One backup at a time, because a new directory of another one is not locked yet.
            _lock(parent, turn, wait=True)
            for left in parent.glob(f"{_UNFINISHED}*"):
                with suppress(BlockingIOError), ExitStack() as looked:
                    _lock(left, looked)
                    shutil.rmtree(left, ignore_errors=True)
            made = tempfile.TemporaryDirectory(prefix=_UNFINISHED, dir=parent)
            directory = Path(held.enter_context(made))
            _lock(directory, held)
        yield directory


def _lock(directory: Path, held: ExitStack, *, wait: bool = False) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    held.callback(os.close, descriptor)
    fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))


def restore(home: Path, file: Path, *, overwrite: bool) -> str:
    """Restore a backup into a state directory and its database; return a sentence about the result.

    Raises:
        BadInput: the file is not a backup, or is a backup of another kind of database.
        Conflict: the target is not empty and ``overwrite`` is false, or another Brain uses it.
        SchemaTooNew: a newer Brain wrote the backup.
        Unavailable: a service runs on the state directory, or the database cannot be written.
        OSError: a file cannot be read or written.
    """
    try:
        with tarfile.open(file) as tar:
            manifest = wire.decode(_member(tar, _MANIFEST), Manifest)
            _expect_usable(manifest, file)
            make_home(home)
            settings = settings_at(home, os.environ)
            url = database_at(home, settings)
            _expect_same(manifest, backend_of(url), file)
            with home_of_one(home), database_of_one(home, settings):
                return _restored(home, url, tar, manifest, overwrite=overwrite)
    except (tarfile.TarError, KeyError) as bad:
        why = str(bad.args[0]).partition("\n")[0].rstrip(":")  # then one per compression
        raise BadInput(
            f"{file} is not a backup of Brain ({why}); name a file that `brain backup` wrote",
            field="file",
        ) from bad


def _restored(
    home: Path, url: str, tar: tarfile.TarFile, manifest: Manifest, *, overwrite: bool
) -> str:
    files = {name: _member(tar, name).decode() for name in _FILES if name in tar.getnames()}
    differing = [name for name, text in files.items() if _differs(home / name, text)]
    occupied = [name for name in differing if (home / name).exists()]
    if occupied and not overwrite:
        raise Conflict(
            f"{home} already contains a {occupied[0]}; restore into a new state directory with "
            "--home, or use --overwrite to replace it"
        )
    with tempfile.TemporaryDirectory(prefix=".restore-", dir=home) as made:
        tar.extract(_DATABASE, made, filter="data")
        before = load(url, Path(made, _DATABASE), overwrite=overwrite)
    if before is not None:
        # The database that was set aside cannot be read without its key.
        aside = before.name[before.name.rindex(".before-") :]
        for name in occupied:
            (home / name).rename(home / f"{name}{aside}")
    for name in differing:
        write_private(home / name, files[name])
    kept = f"; the earlier database is {before}" if before else ""
    return (
        f"restored the database of {manifest.made_at:%Y-%m-%d %H:%M} UTC at revision "
        f"{manifest.revision}, the key and the tokens to {home}{kept}"
    )


def _differs(path: Path, text: str) -> bool:
    return not path.exists() or path.read_text().strip() != text.strip()


def _member(tar: tarfile.TarFile, name: str) -> bytes:
    found = tar.extractfile(name)
    if found is None:
        raise KeyError(f"{name} in it is not a file")
    return found.read()


def _expect_usable(manifest: Manifest, file: Path) -> None:
    try:
        expect_known(manifest.revision)
    except BrainError as new:
        raise type(new)(
            f"{file} was made by version {manifest.version} at revision {manifest.revision}, "
            f"which this version {brain.__version__} does not know; install {manifest.version} or "
            "a later version, and restore with it"
        ) from new


def _expect_same(manifest: Manifest, backend: str, file: Path) -> None:
    if manifest.backend != backend:
        raise BadInput(
            f"{file} holds a {manifest.backend} database, but database_url names a {backend} "
            f"database; name a {manifest.backend} database with --database-url",
            field="database_url",
        )


if __name__ == "__main__":
    sys.exit(main())
