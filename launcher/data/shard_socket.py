"""The Unix socket on which an agent's workers request shards, next to the probes' socket.

Messages are lines of JSON, ``{"n": number, "do": …}``. Each message gets an answer with the same
``n``; answers come in any order. When a connection closes, the worker that opened it has ended.
"""

import asyncio
import contextlib
import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from launcher import messages
from launcher.data.relay import ShardRelay

#: A longer line is not a worker's; states with many started shards are long.
_LINE_BYTES = messages.LIMIT_BYTES // 2
#: Requests that a worker may send; only agents send others.
_ASKED = frozenset({"open", "ask", "cut", "close"})
#: Questions that it may count up to.
_NUMBERS = 1 << 62


class ShardListener:
    """The socket on which the workers of one world request shards."""

    def __init__(self, shard_socket: "ShardSocket", path: Path) -> None:
        self._shard_socket, self._path = shard_socket, path
        self._server: asyncio.Server | None = None
        self._writers: dict[str, asyncio.StreamWriter] = {}

    async def open(self) -> None:
        """Listen at the socket.

        Raises:
            OSError: no socket can be made at the path.
        """
        self._server = await asyncio.start_unix_server(self._serve, self._path, limit=_LINE_BYTES)

    def close(self) -> None:
        """Close the socket, and report that its workers are gone."""
        if self._server is not None:
            self._server.close()
        for holder in list(self._writers):
            self._part(holder)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        holder = uuid.uuid4().hex[:12]
        self._writers[holder] = writer
        self._shard_socket.came(holder, writer)
        try:
            # A line that is none comes from nobody of ours; a reset is the end of a worker.
            with contextlib.suppress(ValueError, OSError, KeyError, TypeError):
                while line := await reader.readline():
                    self._shard_socket.said(holder, json.loads(line))
        finally:
            self._part(holder)

    def _part(self, holder: str) -> None:
        if writer := self._writers.pop(holder, None):
            self._shard_socket.parted(holder)
            writer.close()


class ShardSocket:
    """The shard sockets of one agent's workers; requests are forwarded to the coordinator."""

    def __init__(self, tell: Callable[[messages.Message], None]) -> None:
        self._tell, self._relay = tell, ShardRelay()
        self._writers: dict[str, asyncio.StreamWriter] = {}

    def way(self, path: Path) -> ShardListener:
        """Return the listener at ``path`` for the workers of one world; the caller opens it."""
        return ShardListener(self, path)

    def came(self, holder: str, writer: asyncio.StreamWriter) -> None:
        """Store that a worker has connected."""
        self._writers[holder] = writer

    def said(self, holder: str, said: dict[str, Any]) -> None:
        """Handle a worker's message.

        Raises:
            ValueError, KeyError, TypeError: the message is not one that a worker of Brain sends.
        """
        do = said["do"]
        if do == "at":
            self._relay.trained(holder, said["name"], int(said["at"]))
        elif do in _ASKED and 0 < (number := int(said.pop("n"))) < _NUMBERS:
            self._tell(self._relay.asks(holder, number, said))
        else:
            raise ValueError(f"a worker cannot request {do}")

    def parted(self, holder: str) -> None:
        """Store that a worker is gone."""
        del self._writers[holder]
        if (message := self._relay.parted(holder)) is not None:
            self._tell(message)

    def heard(self, message: messages.Answered | messages.Shared) -> None:
        """Handle the coordinator's message."""
        if isinstance(message, messages.Shared):
            self._relay.shared(message)
            return
        body = self._relay.answered(message)
        writer = self._writers.get(message.holder)
        if body is not None and writer is not None:
            writer.write(json.dumps({"n": message.number, **body}).encode() + b"\n")

    def tell_again(self) -> None:
        """Repeat to a new coordinator the messages that it may lack."""
        for message in self._relay.again():
            self._tell(message)
