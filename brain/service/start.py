"""Starts the service from a command line, or ends with one sentence that says why it cannot run."""

import argparse
import errno
import ipaddress
import logging
import os
import socket
import ssl
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path

from opentelemetry.trace import TracerProvider

from brain.api import auth
from brain.api.secrets import Seal, write_private
from brain.confinement import hindrance
from brain.db import SqlStores, missing, prepare
from brain.errors import BadInput, BrainError, NotAllowed, Unavailable
from brain.extras import expect
from brain.ports import Stores
from brain.service.home import (
    database_at,
    database_of_one,
    home_of_one,
    make_home,
    settings_at,
)
from brain.service.logs import STARTS
from brain.service.logs import set_up as set_up_log
from brain.service.serve import BACKLOG, serve
from brain.service.tls import tls_context
from brain.settings import Settings
from brain.types.record import Role

#: Files that are created in the state directory if they are missing.
_OWN_TOKENS = (("admin", Role.ADMIN), ("scaler", Role.SCALER))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the service until it is told to stop; return the exit code."""
    options = vars(_parser().parse_args(arguments))
    home, only_migrate = Path(options.pop("home")), options.pop("migrate_only")
    only_check = options.pop("check")
    flags = {name: value for name, value in options.items() if value is not None}
    as_json = False
    try:
        settings = settings_at(home, os.environ, flags)
        set_up_log(settings)
        as_json = settings.log_format == "json" and not (only_check or only_migrate)
        if only_check:
            return _check(database_at(home, settings))
        opened = _provider(settings)
        make_home(home)
        if only_migrate:
            _say(prepare(database_at(home, settings), contract=True).message or "nothing to do")
            return 0
        tls = tls_context(settings)
        submitters = _submitters(home, settings)
        _check_commands(settings, submitters)
        with (
            opened as provider,
            home_of_one(home),
            database_of_one(home, settings),
            _bound(settings) as listener,
        ):
            _run(home, settings, listener, tls, submitters, provider)
    except BrainError as refused:
        said = refused.in_full if isinstance(refused, Unavailable) else str(refused)
        if as_json:
            logging.getLogger("brain").error("%s", said)
        else:
            sys.stderr.write(f"brain: {said}\n")
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="brain.service", allow_abbrev=False)
    home = os.environ.get("BRAIN_HOME", str(Path("~/.brain").expanduser()))
    parser.add_argument("--home", default=home, help="state directory (default %(default)s)")
    parser.add_argument("--migrate-only", action="store_true", help="migrate the database and exit")
    parser.add_argument(
        "--check",
        action="store_true",
        help=("print the migrations without running them; exit with 1 if there are any"),
    )
    for field in fields(Settings):
        flag = "--" + field.name.replace("_", "-")
        given = {"nargs": "?", "const": "true"} if field.type in (bool, "bool") else {}
        parser.add_argument(flag, metavar="VALUE", help=f"default {field.default!r}", **given)  # type: ignore[arg-type]
    return parser


def _check(url: str) -> int:
    steps = missing(url)
    waiting = f"the database lacks the migrations {', '.join(steps)}; run brain migrate"
    _say(waiting if steps else "nothing to do")
    return 1 if steps else 0


def _provider(settings: Settings) -> AbstractContextManager[TracerProvider | None]:
    """Open what records traces; None where the setting ``traces`` is off.

    Raises:
        Unavailable: the extra ``otel`` is not installed.
        BadInput: a variable ``OTEL_*`` has a value that is not supported.
    """
    if not settings.traces:
        return nullcontext()
    expect("the setting traces", "otel")
    # Imported late, because it imports distributions that may be missing.
    from brain.service.exporting import exporting

    return exporting(os.environ)


def _run(
    home: Path,
    settings: Settings,
    listener: socket.socket,
    tls: ssl.SSLContext | None,
    submitters: str,
    provider: TracerProvider | None,
) -> None:
    url = database_at(home, settings)
    if message := prepare(url).message:
        STARTS.info("%s", message)
    seal = Seal.of(home / "key")
    with closing(SqlStores(url, connections=settings.database_connections)) as stores:
        admit(home, settings, stores, datetime.now(UTC))
        _listen(listener, settings)
        serve(
            stores,
            settings,
            home=home,
            seal=seal,
            listener=listener,
            tls=tls,
            submitters=submitters,
            provider=provider,
        )


def admit(home: Path, settings: Settings, stores: Stores, now: datetime) -> None:
    """Store the tokens of the state directory, and create the missing ones.

    Raises:
        NotAllowed: the address is not loopback, and no token is configured.
    """
    # A person put the file there, for example from a Secret, so access is configured.
    for name, role in (*_OWN_TOKENS, ("viewer", Role.VIEWER)):
        if (home / f"{name}.token").exists():
            _keep_token(home / f"{name}.token", name, role, stores, now)
    _check_tokens(settings, stores)
    for name, role in _OWN_TOKENS:
        _keep_token(home / f"{name}.token", name, role, stores, now)


@contextmanager
def _bound(settings: Settings) -> Iterator[socket.socket]:
    """Yield a bound socket, so that a port in use is found before anything is changed.

    No client can connect yet: the socket listens once access is settled.
    """
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((settings.host, settings.port))
        except (OSError, OverflowError) as bad:
            raise _unusable(settings, bad) from bad
        yield listener


def _listen(listener: socket.socket, settings: Settings) -> None:
    try:
        listener.listen(BACKLOG)
    except OSError as bad:  # another process bound the same port first
        raise _unusable(settings, bad) from bad


def _unusable(settings: Settings, bad: Exception) -> BrainError:
    where = f"{settings.host}:{settings.port}"
    if getattr(bad, "errno", None) == errno.EADDRINUSE:
        return Unavailable(
            f"port {where} is in use; stop the program that listens there, or choose another with "
            "--port (0 picks a free port)"
        )
    return BadInput(f"cannot listen on {where}: {bad}; choose another with --host and --port")


def _submitters(home: Path, settings: Settings) -> str:
    """Return a warning if submitters' jobs are not confined on this machine; else empty."""
    why = hindrance(home) if settings.local_jobs else None
    if why is None:
        return ""
    return (
        "jobs of submitters and operators run as the user of `brain up` and could read the "
        f"administrator's token: {why}"
    )


def _check_commands(settings: Settings, submitters: str) -> None:
    """Raise if users of the network could run commands unintentionally, or as an administrator.

    Raises:
        NotAllowed: the address is not loopback, and either no setting allows that or nothing
            confines the jobs of submitters.
    """
    if settings.allow_remote_submit and submitters:
        raise NotAllowed(f"--allow-remote-submit: {submitters}")
    if not (_is_loopback(settings.host) or settings.allow_remote_submit):
        raise NotAllowed(
            f"host {settings.host} is not loopback, so users elsewhere could run commands on "
            "this machine; allow that with --allow-remote-submit, or listen on 127.0.0.1"
        )


def _check_tokens(settings: Settings, stores: Stores) -> None:
    """Raise if the service would serve the network without any token.

    Raises:
        NotAllowed: the address is not loopback, and there is no token.
    """
    if _is_loopback(settings.host):
        return
    with stores.transaction(read_only=True) as tx:
        live = [token for token in tx.access.tokens() if token.revoked_at is None]
    if not live:
        raise NotAllowed(
            f"host {settings.host} is not loopback and no token exists; start the service on "
            "127.0.0.1, create tokens, then listen elsewhere"
        )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _keep_token(path: Path, name: str, role: Role, stores: Stores, now: datetime) -> None:
    """Make sure that the stores have the token in ``path``; create the token if there is none."""
    given = path.read_text().strip() if path.exists() else None
    with stores.transaction() as tx:
        if given and tx.access.token(auth.sha256(given)) is not None:
            return
        token, secret = auth.mint(name, role, now=now, secret=given)
        tx.access.add_token(token)
        # Written before the commit, because the next start mends a file without its token. A file
        # mounted from a Secret cannot be written, and need not be.
        if secret != given:
            write_private(path, secret + "\n")


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
