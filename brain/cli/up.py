"""``brain up``: service and scaler on this machine, as two child processes that are kept running.

Agents are not among their child processes: agents continue while Brain is stopped, and the next
scaler adopts them.
"""

import asyncio
import fcntl
import os
import signal
import socket
import stat
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import click

from brain import calls, wire
from brain.cli.connect import link, somebody, state_directory
from brain.cli.programs import command
from brain.cli.supervise import Program, keep
from brain.client import AsyncBrainClient, Call
from brain.errors import BadInput, BrainError, Conflict, Unavailable
from brain.extras import expect
from brain.settings import settings_from

#: Program -> its command; the commands name modules, so that none of them is imported here.
PROGRAMS: Mapping[str, Sequence[str]] = {
    "service": command("brain.service"),
    "scaler": command("scaler.cli"),
}

#: Seconds after which the scaler starts even if the service listens but is not ready (for example,
#: without its database).
PATIENCE_SECONDS = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Record:
    """The content of ``service.json``."""

    pid: int
    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class House:
    """The state directory of ``brain up``, with the settings and the programs to run."""

    home: Path
    #: Settings given on the command line; the rest come from ``brain.toml`` and the environment.
    settings: Mapping[str, object]
    slots: int | None = None
    programs: Mapping[str, Sequence[str]]
    environment: Mapping[str, str]
    #: Person for whom a sign-in link is printed; None if the output is not a terminal.
    person: str | None = None


@click.command()
@click.option("--home", type=click.Path(path_type=Path), help="State directory ($BRAIN_HOME).")
@click.option("--host", help="Address to listen on; default: 127.0.0.1.")
@click.option("--port", type=int, help="TCP port to listen on; 0 picks a free one.")
@click.option(
    "--database-url",
    help=("SQLAlchemy URL of the database; default: SQLite in the state directory."),
)
@click.option(
    "--slots",
    type=click.IntRange(min=1),
    help="Number of CPUs (1000 mCPU each) to offer to jobs; default: this machine's CPUs.",
)
@click.option(
    "--allow-remote-submit",
    is_flag=True,
    help=("Let users elsewhere on the network submit commands, which run on this machine."),
)
@click.option(
    "--tls-certificate",
    type=click.Path(dir_okay=False, resolve_path=True),
    help="Serve HTTPS with this certificate chain (PEM).",
)
@click.option(
    "--tls-key",
    type=click.Path(dir_okay=False, resolve_path=True),
    help="Private key of the certificate, if it is in another file.",
)
@click.option(
    "--set",
    "chosen",
    metavar="NAME=VALUE",
    multiple=True,
    help="A setting; repeat the option for more. `brain config` lists all settings.",
)
def up(
    home: Path | None,
    host: str | None,
    port: int | None,
    database_url: str | None,
    slots: int | None,
    allow_remote_submit: bool,
    tls_certificate: str | None,
    tls_key: str | None,
    chosen: tuple[str, ...],
) -> None:
    """Start Brain on this machine: service, dashboard, and a scaler for local jobs.

    Ctrl-C stops Brain; jobs go on, and the next `brain up` finds them.
    """
    flags = {
        "host": host,
        "port": port,
        "database_url": database_url,
        "tls_certificate": tls_certificate,
        "tls_key": tls_key,
    }
    given = {key: value for key, value in flags.items() if value is not None}
    settings = dict(_pairs(chosen)) | given
    if allow_remote_submit:
        settings["allow_remote_submit"] = True
    if settings_from(settings).traces:
        expect("the setting traces", "otel")
    where = (home or state_directory()).expanduser().absolute()
    house = House(
        home=where,
        settings=settings,
        slots=slots,
        programs=PROGRAMS,
        environment=os.environ,
        person=somebody() if sys.stdout.isatty() else None,
    )
    with owned(where):
        asyncio.run(run(house, _say))


def _say(text: str) -> None:
    """Print, and ignore a failure: a full disk or a lost terminal must not end the programs."""
    with suppress(OSError):
        click.echo(text)


async def run(house: House, say: Callable[[str], None]) -> None:
    """Keep the programs running until SIGTERM or SIGINT, then end them.

    Raises:
        Unavailable: a program exited right after each of several starts.
    """
    work = asyncio.create_task(_supervise(house, say))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, work.cancel)
    try:
        await work
    except asyncio.CancelledError:
        say("Brain has stopped; jobs keep running.")
    except BaseExceptionGroup as group:
        # One program's failure cancels the other's task, so the group holds only the cause.
        reasons = [error for error in group.exceptions if isinstance(error, BrainError)]
        if not reasons:
            raise
        raise reasons[0] from None


async def _supervise(house: House, say: Callable[[str], None]) -> None:
    service = _program(house, "service")
    service.worked = False
    if str(house.settings.get("port")) == "0" and (port := _last_port(house.home)):
        service.environment = dict(service.environment) | {"BRAIN_PORT": port}
    async with asyncio.TaskGroup() as kept:
        kept.create_task(keep(service, say))
        url, unready = await _reachable(house.home, service)
        service.worked = True
        # Agents know this URL, so the service keeps its port at each restart.
        port = str(urlsplit(url).port)
        service.environment = dict(service.environment) | {"BRAIN_PORT": port}
        (house.home / "port").write_text(port)
        is_up = (
            f"listens at {url} and is not ready yet ({unready})" if unready else f"is up at {url}"
        )
        say(f"Brain {is_up}, state in {house.home}, logs in {service.log.parent}")
        if unkept := await _submitters(house.home, url):
            say(f"Careful: {unkept}")
        say(await _sign_in(house, url))
        offered = ("--slots", str(house.slots)) if house.slots else ()
        kept.create_task(keep(_program(house, "scaler", "--url", url, *offered), say))


def _program(house: House, name: str, *arguments: str) -> Program:
    # Not arguments: any user may read a process's arguments, and a URL may hold a password.
    given = {**house.settings, "local_jobs": True}
    settings = {f"BRAIN_{key.upper()}": str(value) for key, value in given.items()}
    return Program(
        name=name,
        command=[*house.programs[name], "--home", str(house.home), *arguments],
        environment=dict(house.environment) | settings | {"PYTHONUNBUFFERED": "1"},
        log=house.home / "logs" / f"{name}.log",
    )


def _last_port(home: Path) -> str | None:
    """Return the last run's port if it is free, because running agents know no other port."""
    with suppress(OSError, ValueError), socket.socket() as probe:
        port = int((home / "port").read_text())
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", port))
        return str(port)
    return None


async def _reachable(home: Path, service: Program) -> tuple[str, str | None]:
    """Return the service's URL once it is ready, or after a while with the reason why it is not."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        record = _read_record(home)
        if record is not None and record.pid == service.pid:
            why = await _unready(home, record.url)
            if why is None or time.monotonic() > deadline:
                return record.url, why
        await asyncio.sleep(0.05)


async def _unready(home: Path, url: str) -> str | None:
    call: Call[bytes] = Call(method="GET", path="/readyz", reads=bytes, timeout_seconds=5)
    try:
        token = (home / "admin.token").read_text().strip()
        async with AsyncBrainClient(url, token) as client:
            await client.send(call)
    except (BrainError, OSError) as why:
        return str(why)
    return None


async def _sign_in(house: House, url: str) -> str:
    """Return how to sign in: by a link, if only the person at the terminal reads it."""
    how = "To sign in to the dashboard, open the link that `brain sign-in` prints in a terminal"
    if house.person is None:
        return how
    try:
        token = (house.home / "admin.token").read_text().strip()
        async with AsyncBrainClient(url, token) as client:
            return link(url, await client.send(calls.sign_in_code(house.person)))
    except (BrainError, OSError) as why:
        return f"{how}; `brain sign-in` cannot print a link yet: {why}"


async def _submitters(home: Path, url: str) -> str:
    """Return the service's warning about unconfined jobs; empty if there is none."""
    try:
        token = (home / "admin.token").read_text().strip()
        async with AsyncBrainClient(url, token) as client:
            return (await client.send(calls.health())).submitters
    except (BrainError, OSError):
        return ""


def _read_record(home: Path) -> _Record | None:
    with suppress(OSError, BadInput):
        return wire.decode((home / "service.json").read_bytes(), _Record)
    return None


@contextmanager
def owned(home: Path) -> Iterator[None]:
    """Create the state directory (0700) and hold its lock.

    Raises:
        Conflict: another ``brain up`` holds the lock; the message has that process's id and the
            remedy.
        Unavailable: the directory cannot be created or written.
    """
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        if stat.S_IMODE(home.stat().st_mode) & 0o066:
            home.chmod(0o700)
        descriptor = os.open(home / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as why:
        raise Unavailable(
            f"state directory {home}: {why.strerror}; choose another with --home"
        ) from why
    try:
        _take(descriptor, home)
        yield
    finally:
        os.close(descriptor)


def _take(descriptor: int, home: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as held:
        pid = os.pread(descriptor, 20, 0).decode().strip() or "unknown"
        raise Conflict(
            f"another `brain up` (process {pid}) runs on {home}; "
            f"stop it with `kill {pid}`, or choose another state directory with --home"
        ) from held
    except OSError as refused:
        raise Unavailable(
            f"state directory {home} does not support file locks: {refused.strerror}; choose "
            "one on a local disk with --home"
        ) from refused
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, str(os.getpid()).encode(), 0)


def _pairs(chosen: Sequence[str]) -> Iterator[tuple[str, str]]:
    for pair in chosen:
        key, separator, value = pair.partition("=")
        if not separator:
            raise BadInput(f"--set {pair!r} has no value; write --set {key}=VALUE", field=key)
        yield key, value
