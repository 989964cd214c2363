"""The service as a process, and what a stranger does to it over a socket."""

import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPResponse
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any
from urllib.parse import urlsplit

from brain.client import BrainClient, Call
from tests.forks import Fork
from tests.patience import Patience

#: Seconds that a start may take on a busy machine.
START_SECONDS = 100
_MODULE = "brain.service.start"
NOTHING: Mapping[str, str] = MappingProxyType({})


@dataclass
class Service:
    """A running service."""

    home: Path
    process: "Fork | subprocess.Popen[bytes]"
    said: list[str]
    #: Its further output.
    printed: IO[str]

    def client(self, who: str = "admin") -> BrainClient:
        """A client with the token that the service wrote."""
        return BrainClient(self.url, self.token(who))

    @property
    def url(self) -> str:
        """Where it listens."""
        return str(json.loads((self.home / "service.json").read_text())["url"])

    def token(self, who: str) -> str:
        """A token that it wrote."""
        return (self.home / f"{who}.token").read_text().strip()

    def stop(self, number: int = signal.SIGTERM) -> float:
        """Send a signal; return the seconds until the process was gone."""
        began = time.monotonic()
        self.process.send_signal(number)
        self.process.wait(60)
        return time.monotonic() - began


@contextmanager
def service(
    home: Path,
    *flags: str,
    descriptors: int | None = None,
    log: IO[str] | None = None,
    cold: bool = False,
    environment: Mapping[str, str] = NOTHING,
) -> Iterator[Service]:
    """A service on a free port, up when the block begins and gone when it ends.

    ``descriptors`` is the number that it may have, ``log`` the file for its standard error; a
    ``cold`` one starts as a user starts it; ``environment`` has more variables.
    """
    ours, theirs = os.pipe()
    with open(ours) as printed:
        with open(theirs, "w") as output:
            flags = (f"--home={home}", "--port=0", *flags)
            process = begin(
                *flags,
                output=output,
                errors=log,
                descriptors=descriptors,
                cold=cold,
                more=environment,
            )
        try:
            said = _until_up(process, printed)
            yield Service(home, process, said, printed)
        finally:
            process.kill()
            process.wait(60)


def begin(
    *flags: str,
    output: IO[Any],
    errors: IO[Any] | None,
    descriptors: int | None = None,
    cold: bool = False,
    more: Mapping[str, str] = NOTHING,
) -> "Fork | subprocess.Popen[bytes]":
    """Start a service; most of a start is the import of its modules, which are there already.

    A ``cold`` one imports them, as a user's and one that is measured do.
    """
    lines = ["import resource, sys", f"from {_MODULE} import main", f"sys.exit(main({flags}))"]
    if descriptors is not None:
        lines.insert(1, f"resource.setrlimit(resource.RLIMIT_NOFILE, {(descriptors,) * 2})")
    environment = {key: text for key, text in os.environ.items() if not key.startswith("BRAIN_")}
    environment |= more
    if cold:
        command = [sys.executable, "-m", "brain.service", *flags]
        return subprocess.Popen(command, stdout=output, stderr=errors, env=environment)
    streams = (0, output.fileno(), 2 if errors is None else errors.fileno())
    return Fork("\n".join(lines), Path.cwd(), environment, streams, _MODULE)


def _until_up(process: "Fork | subprocess.Popen[bytes]", printed: IO[str]) -> list[str]:
    alarm = threading.Timer(START_SECONDS, process.kill)
    alarm.start()
    said: list[str] = []
    for line in printed:
        said.append(line.strip())
        # In JSON the line is an object.
        if re.match(r'Brain |{.*"Brain ', line):
            alarm.cancel()
            return said
    raise AssertionError(f"the service ended or was not up in {START_SECONDS} s: {said}")


def metric(running: Service, name: str, **labels: str) -> float:
    """A metric of the service as a scraper sees it; 0 where it is not there yet."""
    with running.client("scaler") as scaler:
        text = scaler.send(Call(method="GET", path="/metrics", reads=bytes)).decode()
    inside = ",".join(f'{key}="{value}"' for key, value in labels.items())
    found = re.search(
        rf"^{name}{re.escape('{' + inside + '}') if inside else ''} (\S+)$", text, re.M
    )
    return float(found[1]) if found else 0.0


def refusals(running: Service, limit: str) -> float:
    """How often a limit refused somebody."""
    return metric(running, "brain_refusals_total", limit=limit)


def memory_mib(running: Service) -> float:
    """Resident memory of the service."""
    status = Path(f"/proc/{running.process.pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert found
    return int(found[1]) / 1024


@dataclass
class Wire:
    """A bare connection to the service, for what no client would send."""

    socket: socket.socket

    def send(self, data: bytes) -> None:
        """Send; a service that closed meanwhile is no failure of the test."""
        with suppress(ConnectionError):
            self.socket.sendall(data)

    def head(self, route: str, *, length: int | None = None, **headers: str) -> None:
        """Send the head of a request, chunked where it has no length."""
        size = "Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}"
        lines = [f"{route} HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json", size]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        self.send("\r\n".join([*lines, "", ""]).encode())

    def answer(self) -> tuple[int, dict[str, str], dict[str, Any]]:
        """Status, headers and document of what the service says before it closes."""
        response = HTTPResponse(self.socket)
        response.begin()
        headers = {name.lower(): value for name, value in response.getheaders()}
        return response.status, headers, json.loads(response.read() or b"{}")


@contextmanager
def wires(running: Service, count: int, tls: ssl.SSLContext | None = None) -> Iterator[list[Wire]]:
    """So many connections from this address."""
    split = urlsplit(running.url)
    assert split.hostname
    assert split.port
    with ExitStack() as opened:

        def connect() -> socket.socket:
            plain = socket.create_connection((split.hostname, split.port), 60)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return opened.enter_context(tls.wrap_socket(plain) if tls else plain)

        yield [Wire(connect()) for _ in range(count)]


def eventually(look: Callable[[], bool], *, seconds: float = 60) -> None:
    """Wait until something is so."""
    patience = Patience(seconds)
    while not look():
        assert not patience.over, f"not within {seconds:g} s"
        time.sleep(0.05)
