"""An installation's state directory: its settings, its database, and the locks that allow only one
service.
"""

import fcntl
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any

from brain.db.engine import database_url, sqlite_file
from brain.errors import BadInput, Unavailable
from brain.settings import Settings, settings_from, settings_in_environment
from brain.types.job import PolicyMode


def settings_at(
    home: Path, environment: Mapping[str, str], flags: Mapping[str, Any] = MappingProxyType({})
) -> Settings:
    """Merge the settings of ``brain.toml``, the environment and the command line.

    Raises:
        BadInput: a key is not a setting, or its value has the wrong type.
    """
    file = home / "brain.toml"
    try:
        written = tomllib.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    except (OSError, ValueError) as bad:
        raise BadInput(f"{file} cannot be used: {bad}; correct it or delete it") from bad
    settings = settings_from(written, settings_in_environment(environment), flags)
    if settings.policy_mode not in list(PolicyMode):
        known = ", ".join(PolicyMode)
        raise BadInput(
            f"policy_mode {settings.policy_mode!r} does not exist; choose one of {known}",
            field="policy_mode",
        )
    return settings


def database_at(home: Path, settings: Settings) -> str:
    """Return the URL of the installation's database."""
    return settings.database_url or f"sqlite:///{home.absolute() / 'brain.db'}"


def make_home(home: Path) -> None:
    """Create the state directory, or check that it is writable; raise ``Unavailable`` if neither is
    possible.
    """
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        (home / "service.lock").touch(mode=0o600)
    except OSError as bad:
        raise Unavailable(
            f"state directory {home}: {bad.strerror}; choose another with --home"
        ) from bad


def home_of_one(home: Path) -> AbstractContextManager[IO[str]]:
    """Hold the lock of the state directory; raise ``Unavailable`` if another service holds the
    lock.
    """
    return _alone(home / "service.lock", f"state directory {home}", "choose another with --home")


@contextmanager
def database_of_one(home: Path, settings: Settings) -> Iterator[None]:
    """Hold the lock of the SQLite file; raise ``Unavailable`` if the service of another state
    directory holds the lock.
    """
    url = database_url(database_at(home, settings))
    if url.get_backend_name() != "sqlite":
        yield
        return
    file = sqlite_file(url).resolve()
    remedy = "choose another with --database-url, or PostgreSQL for several services"
    with _alone(file.with_name(f"{file.name}.lock"), f"database {file}", remedy):
        yield


@contextmanager
def _alone(path: Path, what: str, remedy: str) -> Iterator[IO[str]]:
    """Hold the lock of a file that only one service may use."""
    try:
        lock = path.open("w")
    except OSError as bad:
        raise Unavailable(f"{what}: {bad.strerror}; {remedy}") from bad
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as held:
            raise Unavailable(
                f"another service already uses {what}; stop that service, or {remedy}"
            ) from held
        except OSError as refused:
            raise Unavailable(
                f"{what} does not support file locks: {refused.strerror}; move it to a local "
                f"disk, or {remedy}"
            ) from refused
        yield lock
