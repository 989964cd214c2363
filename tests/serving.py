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
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPResponse
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from brain.client import BrainClient, Call
from tests.patience import Patience

#: Seconds that a start may take on a busy machine.
START_SECONDS = 100


@dataclass
class Service:
    """A running ``python -m brain.service``."""

    home: Path
    process: subprocess.Popen[str]
    said: list[str]

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
    home: Path, *flags: str, descriptors: int | None = None, log: IO[str] | None = None
) -> Iterator[Service]:
    """A service on a free port, up when the block begins and gone when it ends.

    ``descriptors`` is the number that it may have, ``log`` the file for its standard error.
    """
    command = [sys.executable, "-m", "brain.service", f"--home={home}", "--port=0", *flags]
    if descriptors is not None:
        command = ["prlimit", f"--nofile={descriptors}:{descriptors}", *command]
    environment = {key: text for key, text in os.environ.items() if not key.startswith("BRAIN_")}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment
    )
    assert process.stdout
    try:
        said = _until_up(process)
        yield Service(home, process, said)
    finally:
        process.kill()
        process.wait(60)
        process.stdout.close()


def _until_up(process: subprocess.Popen[str]) -> list[str]:
    assert process.stdout
    alarm = threading.Timer(START_SECONDS, process.kill)
    alarm.start()
    said: list[str] = []
    for line in process.stdout:
        said.append(line.strip())
        if line.startswith("Brain "):
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
