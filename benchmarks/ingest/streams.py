"""Measures 500 streams of events: the service compared with a minimal fan-out of the same messages.

``make bench-streams``
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import urlsplit

from benchmarks.ingest.services import Running, database, fanout, settle
from benchmarks.ingest.services import brain as brain_over
from benchmarks.report import Row, publish
from brain import wire
from brain.types.resources import Node, NodeName, PoolName, Resources
from tests.serving import Service

STREAMS, EVENTS_PER_SECOND, SECONDS = 500, 10, 20
#: Most time per message over that of the bare fan-out.
BAR = 2.0
_MORE = """
The time of the events without a stream is measured just before, and subtracted. The machine's load
average over the last 15 minutes was {load:.0f}, on {processors} processors.
"""


@dataclass(slots=True)
class _Stream:
    """An open stream: the number of bytes that came and, for the first stream, the bytes."""

    length: int = 0
    kept: list[bytes] | None = None

    async def read(self, reader: asyncio.StreamReader) -> None:
        while data := await reader.read(2**16):
            self.length += len(data)
            if self.kept is not None:
                self.kept.append(data)


def measured(kind: str) -> Row:
    """Return the row of one kind of database."""
    with database(kind) as at, brain_over(at) as (brain, service), fanout() as bare:
        settle(brain)
        return asyncio.run(_measured(kind, brain, service, bare))


async def _measured(kind: str, brain: Running, service: Service, bare: Running) -> Row:
    async def happen(number: int) -> None:
        await _put_node(service, number)

    # Code and statements are warm.
    for number in range(100):
        await happen(number)
    alone, _ = await _cost(brain, happen, EVENTS_PER_SECOND)
    path, token = "/api/v1/events", f"Authorization: Bearer {service.token('admin')}"
    async with _open(brain.url, path, token) as streams:
        ours, told = await _cost(brain, happen, EVENTS_PER_SECOND, streams)
        message = b"".join(streams[0].kept or [])

    async def send(number: int) -> None:
        # The same bytes, in as many pieces as seconds.
        size = -(-len(message) // SECONDS)
        await _asked(bare.url, "POST", "/", "", message[number * size : (number + 1) * size])

    async with _open(bare.url, "/", "") as streams:
        theirs, as_told = await _cost(bare, send, 1, streams)
    per = 1e6 / (STREAMS * SECONDS)
    return Row(
        metric=(
            f"{kind}: processor time per message of {STREAMS} streams, {EVENTS_PER_SECOND} events/s"
        ),
        value=(ours - alone) * per,
        unit="µs",
        peer="bare ASGI fan-out of the same bytes",
        peer_value=theirs * per,
        ratio_bar=1 / BAR,
        note=(
            f"{SECONDS} s, a message is what one stream gets in a second; "
            f"{told / STREAMS / SECONDS:.0f} bytes of it, of the peer "
            f"{as_told / STREAMS / SECONDS:.0f}; less the {alone * per:.1f} µs that the events "
            "take without a stream"
        ),
    )


async def _cost(
    running: Running,
    act: Callable[[int], Awaitable[None]],
    per_second: int,
    streams: Sequence[_Stream] = (),
) -> tuple[float, int]:
    """Return the processor time while events happen at a rate, and the bytes of all streams."""
    before, length, began = running.cpu_seconds, sum(s.length for s in streams), time.monotonic()
    for number in range(SECONDS * per_second):
        await asyncio.sleep(max(0.0, began + number / per_second - time.monotonic()))
        await act(number)
    await asyncio.sleep(1.5)
    return running.cpu_seconds - before, sum(s.length for s in streams) - length


@asynccontextmanager
async def _open(url: str, path: str, header: str) -> AsyncIterator[list[_Stream]]:
    opened, reading = [], []
    split = urlsplit(url)
    streams = [_Stream(kept=[] if number == 0 else None) for number in range(STREAMS)]
    for stream in streams:
        reader, writer = await asyncio.open_connection(split.hostname, split.port)
        writer.write(_request("GET", path, split.netloc, header))
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
        opened.append(writer)
        reading.append(asyncio.create_task(stream.read(reader)))
    await asyncio.sleep(2)
    try:
        yield streams
    finally:
        for task, writer in zip(reading, opened, strict=True):
            task.cancel()
            writer.close()


async def _put_node(service: Service, number: int) -> None:
    node = Node(
        name=NodeName(f"node-{number % 50}"),
        pool=PoolName("local"),
        capacity=Resources(cpu_millis=128_000, memory_bytes=2**40),
        slots=number,
        seen_at=datetime.now(UTC),
    )
    token = f"Authorization: Bearer {service.token('scaler')}"
    await _asked(service.url, "PUT", f"/api/v1/nodes/{node.name}", token, wire.encode(node))


async def _asked(url: str, method: str, path: str, header: str, body: bytes) -> None:
    split = urlsplit(url)
    reader, writer = await asyncio.open_connection(split.hostname, split.port)
    writer.write(_request(method, path, split.netloc, header, body))
    status = (await reader.readuntil(b"\r\n")).split()[1]
    writer.close()
    assert status == b"204", status


def _request(method: str, path: str, host: str, header: str, body: bytes = b"") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, *([header] if header else []), "", ""]).encode() + body


def main() -> None:
    """Measure and print the rows; exit with 1 if a bar is not met."""
    rows = [measured(kind) for kind in ("SQLite", "PostgreSQL")]
    more = _MORE.format(load=os.getloadavg()[2], processors=os.cpu_count())
    publish("streams", "Streams of events, beside a bare fan-out", rows, more)


if __name__ == "__main__":
    main()
