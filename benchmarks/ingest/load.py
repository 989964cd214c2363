"""Clients on keep-alive connections; their own processor time is not measured."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

#: The body of a client's next request, and how many samples are in it.
Next = Callable[[], tuple[bytes, int]]
_LONGEST_SECONDS = 60.0


@dataclass(slots=True)
class Told:
    """The answers of a service."""

    statuses: Counter[int] = field(default_factory=Counter)
    #: Samples in requests that were answered by 200.
    samples: int = 0
    #: Seconds until each answer by 200.
    seconds: list[float] = field(default_factory=list)

    @property
    def p99(self) -> float:
        """Return the 99th percentile of response times in seconds."""
        return sorted(self.seconds)[int(0.99 * len(self.seconds))] if self.seconds else 0.0


@dataclass(frozen=True, slots=True)
class Client:
    """One sender, with its route, headers and bodies."""

    url: str
    path: str
    headers: tuple[str, ...]
    next: Next

    def request(self) -> tuple[bytes, int]:
        """Return the next request as bytes, and the number of its samples."""
        body, count = self.next()
        lines = [
            f"POST {self.path} HTTP/1.1",
            f"Host: {urlsplit(self.url).netloc}",
            f"Content-Length: {len(body)}",
            *self.headers,
        ]
        return ("\r\n".join(lines) + "\r\n\r\n").encode() + body, count


class _Connection:
    """A connection that is opened again if the service closes it."""

    def __init__(self, client: Client, told: Told) -> None:
        self._client, self._told = client, told
        split = urlsplit(client.url)
        self._where = (split.hostname, split.port)
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def send(self) -> float:
        """Send the next request; return the seconds for which the client should wait then."""
        request, count = self._client.request()
        began = time.monotonic()
        try:
            async with asyncio.timeout(_LONGEST_SECONDS):
                status, wait, closes = await self._asked(request)
        except (OSError, asyncio.IncompleteReadError, TimeoutError):
            status, wait, closes = 0, 0.1, True
        if closes:
            self.close()
        self._told.statuses[status] += 1
        if status in (200, 204):
            self._told.samples += count
            self._told.seconds.append(time.monotonic() - began)
        return wait

    async def _asked(self, request: bytes) -> tuple[int, float, bool]:
        if self._streams is None:
            self._streams = await asyncio.open_connection(*self._where)
        reader, writer = self._streams
        writer.write(request)
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        named = dict(line.split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line)
        await reader.readexactly(int(named.get("content-length", "0")))
        closes = named.get("connection") == "close"
        return int(head.split(" ", 2)[1]), float(named.get("retry-after", "0")), closes

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


def closed(clients: Sequence[Client], *, seconds: float, patient: bool = False) -> Told:
    """Let each client send its next request as soon as the last one is answered.

    ``patient`` clients obey ``Retry-After``; others send again immediately.
    """
    return asyncio.run(_closed(clients, seconds, patient))


async def _closed(clients: Sequence[Client], seconds: float, patient: bool) -> Told:
    told, until = Told(), time.monotonic() + seconds

    async def go_on(client: Client) -> None:
        connection = _Connection(client, told)
        while time.monotonic() < until:
            wait = await connection.send()
            if patient and wait:
                await asyncio.sleep(wait)
        connection.close()

    await asyncio.gather(*(go_on(client) for client in clients))
    return told


def open_loop(clients: Sequence[tuple[Client, float]], *, seconds: float) -> Told:
    """Let each client send at a fixed interval in seconds, even if its last request is not answered
    yet.
    """
    return asyncio.run(_open(clients, seconds))


async def _open(clients: Sequence[tuple[Client, float]], seconds: float) -> Told:
    told, began = Told(), time.monotonic()

    async def go_on(client: Client, every: float, first: float) -> None:
        connection = _Connection(client, told)
        at = began + first
        while at < began + seconds:
            await asyncio.sleep(max(0.0, at - time.monotonic()))
            await connection.send()
            at += every
        connection.close()

    spread = [every * index / len(clients) for index, (_, every) in enumerate(clients)]
    await asyncio.gather(
        *(
            go_on(client, every, first)
            for (client, every), first in zip(clients, spread, strict=True)
        )
    )
    return told
