"""A web application on a thread of its own, which can be stopped, broken off and started again."""

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from aiohttp import web

T = TypeVar("T")

_WAIT_SECONDS = 60.0
#: Turns of the loop until nothing follows from what was due.
_ROUNDS = 20


class Turns:
    """One thread; what is given to it is done one after the other."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def call(self, work: Callable[[], T]) -> T:
        """Do ``work`` there; returns its result."""
        if threading.current_thread() is self._thread:
            return work()

        async def run() -> T:
            return work()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(_WAIT_SECONDS)

    def soon(self, work: Callable[[], object], seconds: float = 0.0) -> None:
        """Do ``work`` there later."""
        if seconds <= 0.0:
            # In the order in which it was given.
            self._loop.call_soon_threadsafe(work)
        else:
            self._loop.call_soon_threadsafe(self._loop.call_later, seconds, work)

    def end(self) -> None:
        """Do nothing more."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_WAIT_SECONDS)
        self._loop.close()


class Listening(Turns):
    """Serves ``application()`` on a free port of the loopback, which stays its own."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._runner: web.AppRunner | None = None
        self._port = 0
        self._held: socket.socket | None = None
        self._listening: asyncio.Server | None = None
        #: Speaks TLS where one is given before ``start``.
        self.ssl_context: ssl.SSLContext | None = None

    def application(self) -> web.Application:
        """Return what is served, anew for each start."""
        raise NotImplementedError

    def end_watches(self) -> None:
        """End every stream cleanly; on the own thread."""
        raise NotImplementedError

    @property
    def url(self) -> str:
        """Return where it listens."""
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Listen, where it listened before."""
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(_WAIT_SECONDS)

    def stop(self) -> None:
        """Refuse connections, and break those there are."""
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(_WAIT_SECONDS)

    def restart(self) -> None:
        """Break everything off and listen again."""
        self.stop()
        self.start()

    @contextlib.contextmanager
    def outage(self) -> Iterator[None]:
        """Refuse connections while the block runs."""
        self.stop()
        try:
            yield
        finally:
            self.start()

    def drop_watches(self) -> None:
        """End all watches cleanly."""
        self.call(self.end_watches)

    def close(self) -> None:
        """Stop for good."""
        self.stop()
        self.end()
        if self._held is not None:
            self._held.close()

    async def _start(self) -> None:
        self._runner = web.AppRunner(
            self.application(),
            access_log=None,
            shutdown_timeout=0.0,
            handler_cancellation=True,
        )
        await self._runner.setup()
        if self._held is None:
            self._held = _held_port()
            self._port = self._held.getsockname()[1]
        self._listening = await self._loop.create_server(
            self._runner.server,
            "127.0.0.1",
            self._port,
            reuse_address=True,
            reuse_port=True,
            ssl=self.ssl_context,
            # A thousand connections at once are no reason to refuse one.
            backlog=4096,
        )

    async def _stop(self) -> None:
        if self._runner is None:
            return
        runner, self._runner = self._runner, None
        listening, self._listening = self._listening, None
        if listening is not None:
            # First accept no more and let what was accepted come up: CPython 3.11 loses a
            # connection whose listener is closed between the two.
            for listener in listening.sockets:
                self._loop.remove_reader(listener.fileno())
            await _rounds()
            listening.close()
        self.end_watches()
        _abort_all(self._loop)
        await runner.cleanup()
        _abort_all(self._loop)
        await _rounds()


async def _rounds() -> None:
    """Let everything happen that is due, and what follows from it."""
    for _ in range(_ROUNDS):
        await asyncio.sleep(0)


def _abort_all(loop: asyncio.AbstractEventLoop) -> None:
    """Break every connection: the loop knows those, too, that aiohttp has already forgotten."""
    transports: Mapping[int, asyncio.Transport] = vars(loop)["_transports"]
    for transport in list(transports.values()):
        transport.abort()


def _held_port() -> socket.socket:
    """Return a socket that keeps a free port ours while nobody listens there."""
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    held.bind(("127.0.0.1", 0))
    return held
