"""A TCP proxy between two programs, which harms what goes through it."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
#: Connects to the program behind the proxy.
Connect = Callable[[], Coroutine[Any, Any, Streams]]


class Cable:
    """Listens on ``port`` of loopback; what it does to the bytes may be set at any time."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._loop = asyncio.new_event_loop()
        self._writers = set[asyncio.StreamWriter]()
        self.port = 0
        #: Before each piece, and per byte of it.
        self.delay_seconds = self.seconds_per_byte = 0.0
        #: Nothing goes through, and nobody is told.
        self.silent = False
        #: Connections end as soon as they begin.
        self.refuses = False

    def tear(self) -> None:
        """End all connections, without a farewell."""
        self._loop.call_soon_threadsafe(self._abort)

    def _abort(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, ready: threading.Event) -> None:
        async with await asyncio.start_server(self._pass_on, "127.0.0.1", 0) as server:
            self.port = server.sockets[0].getsockname()[1]
            ready.set()
            await server.serve_forever()

    async def _pass_on(self, *near: Any) -> None:
        reader, writer = near
        if self.refuses:
            writer.transport.abort()
            return
        with suppress(OSError):
            far_reader, far_writer = await self._connect()
            self._writers |= {writer, far_writer}
            pumps = self._pump(reader, far_writer), self._pump(far_reader, writer)
            await asyncio.gather(*pumps, return_exceptions=True)
            self._writers -= {writer, far_writer}

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(1024):
                await asyncio.sleep(self.delay_seconds + self.seconds_per_byte * len(data))
                while self.silent and not writer.is_closing():
                    await asyncio.sleep(0.02)
                writer.write(data)
                await writer.drain()
        finally:
            writer.close()


@contextmanager
def cable(connect: Connect) -> Iterator[Cable]:
    """A proxy to what ``connect`` connects to."""
    made, ready = Cable(connect), threading.Event()
    task = asyncio.ensure_future(made._serve(ready), loop=made._loop)

    def run() -> None:
        with suppress(asyncio.CancelledError):
            made._loop.run_until_complete(task)
        for left in asyncio.all_tasks(made._loop):
            left.cancel()
        made._loop.run_until_complete(asyncio.sleep(0.05))
        made._loop.close()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert ready.wait(60)
        yield made
    finally:
        made.tear()
        made._loop.call_soon_threadsafe(task.cancel)
        thread.join()


async def _latency(way: Cable, seconds: float) -> None:
    way.delay_seconds = 0.15
    await asyncio.sleep(seconds)
    way.delay_seconds = 0.0


async def _cut(way: Cable, seconds: float) -> None:
    way.refuses = True
    way.tear()
    await asyncio.sleep(seconds)
    way.refuses = False


async def _half_open(way: Cable, seconds: float) -> None:
    way.silent = True
    await asyncio.sleep(seconds)
    # As a firewall that forgot its connections.
    way.tear()
    way.silent = False


async def _throttle(way: Cable, seconds: float) -> None:
    way.seconds_per_byte = 1 / 4000
    await asyncio.sleep(seconds)
    way.seconds_per_byte = 0.0


#: What may happen to a cable for some seconds.
HARMS: Mapping[str, Callable[[Cable, float], Coroutine[Any, Any, None]]] = {
    "latency": _latency,
    "cut": _cut,
    "half-open": _half_open,
    "throttle": _throttle,
}
