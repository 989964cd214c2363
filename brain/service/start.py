"""From a command line to a running service, or to one sentence that says why not."""

import argparse
import errno
import fcntl
import ipaddress
import logging
import os
import socket
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from brain.api import auth
from brain.api.secrets import Seal, write_private
from brain.db import SqlStores, missing, prepare
from brain.errors import BadInput, BrainError, NotAllowed, Unavailable
from brain.ports import Stores
from brain.service.connections import tls_context
from brain.service.serve import serve
from brain.settings import Settings, settings_from, settings_in_environment
from brain.types.job import PolicyMode
from brain.types.record import Role

#: Written into the state directory where they are not there.
_OWN_TOKENS = (("admin", Role.ADMIN), ("scaler", Role.SCALER))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the service until it is told to stop; return the exit code."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger("alembic").setLevel(logging.WARNING)
    options = vars(_parser().parse_args(arguments))
    home, only_migrate = Path(options.pop("home")), options.pop("migrate_only")
    only_check = options.pop("check")
    flags = {name: value for name, value in options.items() if value is not None}
    try:
        settings = _settings(home, os.environ, flags)
        if only_check:
            return _check(_database(home, settings))
        _make(home)
        if only_migrate:
            _say(prepare(_database(home, settings), contract=True).message or "nothing to do")
            return 0
        with _home_of_one(home), _listening(settings) as listener:
            _run(home, settings, listener)
    except BrainError as refused:
        said = refused.in_full if isinstance(refused, Unavailable) else str(refused)
        sys.stderr.write(f"brain: {said}\n")
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="brain.service", allow_abbrev=False)
    home = os.environ.get("BRAIN_HOME", str(Path("~/.brain").expanduser()))
    parser.add_argument("--home", default=home, help="state directory (default %(default)s)")
    parser.add_argument(
        "--migrate-only", action="store_true", help="bring the database up to date and exit"
    )
    parser.add_argument(
        "--check", action="store_true", help="say what that would do, and exit with 1 if anything"
    )
    for field in fields(Settings):
        flag = "--" + field.name.replace("_", "-")
        given = {"nargs": "?", "const": "true"} if field.type in (bool, "bool") else {}
        parser.add_argument(flag, metavar="VALUE", help=f"default {field.default!r}", **given)  # type: ignore[arg-type]
    return parser


def _check(url: str) -> int:
    steps = missing(url)
    waiting = f"the database lacks {', '.join(steps)}; run brain migrate"
    _say(waiting if steps else "nothing to do")
    return 1 if steps else 0


def _settings(home: Path, environment: Mapping[str, str], flags: Mapping[str, Any]) -> Settings:
    file = home / "brain.toml"
    try:
        written = tomllib.loads(file.read_text()) if file.exists() else {}
    except (OSError, tomllib.TOMLDecodeError) as bad:
        raise BadInput(f"{file}: {bad}") from bad
    settings = settings_from(written, settings_in_environment(environment), flags)
    if settings.policy_mode not in list(PolicyMode):
        known = ", ".join(PolicyMode)
        raise BadInput(
            f"policy_mode {settings.policy_mode!r} is none of {known}", field="policy_mode"
        )
    return settings


def _run(home: Path, settings: Settings, listener: socket.socket) -> None:
    url = _database(home, settings)
    if message := prepare(url).message:
        _say(message)
    seal, tls = Seal.of(home / "key"), tls_context(settings)
    with closing(SqlStores(url)) as stores:
        admit(home, settings, stores, datetime.now(UTC))
        serve(stores, settings, home=home, seal=seal, listener=listener, tls=tls, say=_say)


def admit(home: Path, settings: Settings, stores: Stores, now: datetime) -> None:
    """Make the tokens of the state directory known, and those that are not there yet.

    Raises:
        NotAllowed: the address is not loopback, and nobody configured who may come in.
    """
    # Put there by somebody, a Secret for example: so it is configured who may come in.
    for name, role in (*_OWN_TOKENS, ("viewer", Role.VIEWER)):
        if (home / f"{name}.token").exists():
            _keep_token(home / f"{name}.token", name, role, stores, now)
    _check_address(settings, stores)
    for name, role in _OWN_TOKENS:
        _keep_token(home / f"{name}.token", name, role, stores, now)


def _database(home: Path, settings: Settings) -> str:
    return settings.database_url or f"sqlite:///{home.absolute() / 'brain.db'}"


def _make(home: Path) -> None:
    """Make the state directory, or see that it can be written."""
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        (home / "service.lock").touch(mode=0o600)
    except OSError as bad:
        raise Unavailable(
            f"state directory {home}: {bad.strerror}; choose another with --home"
        ) from bad


@contextmanager
def _home_of_one(home: Path) -> Iterator[IO[str]]:
    """Refuse to share the state directory with another service."""
    with (home / "service.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as held:
            raise Unavailable(
                f"another service runs on {home}; stop it, or choose another with --home"
            ) from held
        except OSError as refused:
            raise Unavailable(
                f"state directory {home} takes no locks: {refused.strerror}; choose one on a disk "
                "of this machine with --home"
            ) from refused
        yield lock


@contextmanager
def _listening(settings: Settings) -> Iterator[socket.socket]:
    """A bound socket, so that a taken port is known before anything is touched."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((settings.host, settings.port))
            listener.listen(1024)
        except (OSError, OverflowError) as bad:
            raise _unusable(settings, bad) from bad
        yield listener


def _unusable(settings: Settings, bad: Exception) -> BrainError:
    where = f"{settings.host}:{settings.port}"
    if getattr(bad, "errno", None) == errno.EADDRINUSE:
        return Unavailable(
            f"port {where} is taken; stop what listens there, or choose another with --port "
            "(0 takes a free one)"
        )
    return BadInput(f"cannot listen on {where}: {bad}; choose another with --host and --port")


def _check_address(settings: Settings, stores: Stores) -> None:
    """Refuse to serve the network by accident.

    Raises:
        NotAllowed: the address is not loopback, and nobody configured who may come in, or nobody
            allowed commands to come over the network.
    """
    if _is_loopback(settings.host):
        return
    if not settings.allow_remote_submit:
        raise NotAllowed(
            f"host {settings.host} is not loopback, and submitted commands run on this machine; "
            "say --allow-remote-submit if that is meant, or listen on 127.0.0.1"
        )
    with stores.transaction(read_only=True) as tx:
        live = [token for token in tx.access.tokens() if token.revoked_at is None]
    if not live:
        raise NotAllowed(
            f"host {settings.host} is not loopback and no tokens are configured; start once on "
            "127.0.0.1, mint tokens, then listen elsewhere"
        )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _keep_token(path: Path, name: str, role: Role, stores: Stores, now: datetime) -> None:
    """See to it that the token in ``path`` is known to the stores; make it if there is none."""
    given = path.read_text().strip() if path.exists() else None
    with stores.transaction() as tx:
        if given and tx.access.token(auth.sha256(given)) is not None:
            return
        token, secret = auth.mint(name, role, now=now, secret=given)
        tx.access.add_token(token)
        # Written before the commit: a file without its token is mended at the next start. What is
        # mounted from a Secret cannot be written, and need not be.
        if secret != given:
            write_private(path, secret + "\n")


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
