"""The addresses at which an agent accepts connections."""

import asyncio
from collections.abc import Awaitable, Callable


class AgentListener:
    """The servers of one agent; a separate task handles each connection."""

    def __init__(
        self, answer: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
    ) -> None:
        self._answer = answer
        self._servers: list[asyncio.Server] = []
        self._answering: set[asyncio.Future[None]] = set()

    async def listen(self, host: str | None, port: int) -> asyncio.Server:
        """Accept connections at one more address, until ``close``; return the server.

        Raises:
            OSError: the address is not this machine's, or is taken.
        """
        server = await asyncio.start_server(self._met, host, port)
        self._servers.append(server)
        return server

    def close(self) -> None:
        """Accept no more connections."""
        for server in self._servers:
            server.close()

    def _met(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A task of our own: asyncio's own prints a traceback where it is cancelled (Python 3.11).
        answering = asyncio.ensure_future(self._answer(reader, writer))
        self._answering.add(answering)
        answering.add_done_callback(self._answering.discard)
