"""A stream of messages, on either side: a 4-byte big-endian length, then msgpack written by
msgspec.
"""

import asyncio
from typing import TypeVar

import msgspec

from brain.errors import BadInput, Unavailable
from launcher.messages import (
    in_process,
    inspection,
    joining,
    ram_checkpoint,
    running,
    shards,
    witness,
)
from launcher.messages.message import Message

#: A longer message is refused.
LIMIT_BYTES = 4 * 1024 * 1024
#: Seconds that a new connection may take to introduce itself.
INTRODUCTION_SECONDS = 10.0
#: Seconds that the other end may take to read sent messages before the connection is dropped.
_CLOSE_SECONDS = 2.0

ANY = (
    joining.ANY
    | running.ANY
    | in_process.ANY
    | inspection.ANY
    | ram_checkpoint.ANY
    | shards.ANY
    | witness.ANY
)
F = TypeVar("F", bound=Message)

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(ANY)


def encoded(message: Message) -> bytes:
    """Return a message in the form that is sent."""
    body = _encoder.encode(message)
    return len(body).to_bytes(4, "big") + body


class Connection:
    """One stream of messages, on either side."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def to(cls, address: str) -> "Connection":
        """Connect to ``host:port``.

        Raises:
            Unavailable: no agent listens there.
        """
        host, _, port = address.rpartition(":")
        try:
            return cls(*await asyncio.open_connection(host.strip("[]"), int(port)))
        except (OSError, ValueError) as silent:
            raise Unavailable(f"no agent answers at {address}: {silent}") from silent

    def send(self, message: "Message | bytes") -> None:
        """Queue a message; a message to many agents is encoded once.

        On a closed connection the message is dropped, because the reader notices the end.
        """
        if not self._writer.is_closing():
            self._writer.write(message if isinstance(message, bytes) else encoded(message))

    async def receive(self, kind: type[F], *, seconds: float | None = None) -> F | None:
        """Return the next message of type ``kind``; None at the end, or if no message comes within
        ``seconds``.

        Raises:
            BadInput: the received bytes are no message of ``kind``.
        """
        try:
            async with asyncio.timeout(seconds):
                message = _decoder.decode(await self._body())
        except (asyncio.IncompleteReadError, OSError):  # a time-out is one, too
            return None
        except msgspec.DecodeError as bad:
            raise BadInput(f"not a valid message: {bad}") from bad
        if not isinstance(message, kind):
            raise BadInput(
                f"a message {type(message).__name__} is not expected here; the peer may run "
                "another version"
            )
        return message

    async def _body(self) -> bytes:
        length = int.from_bytes(await self._reader.readexactly(4), "big")
        if length > LIMIT_BYTES:
            raise BadInput(f"a message of {length} bytes is too long; at most {LIMIT_BYTES}")
        return await self._reader.readexactly(length)

    def shut(self) -> None:
        """Send queued messages, then close; the other side sees the end immediately."""
        self._writer.close()
        self._reader.feed_eof()

    def abandon(self) -> None:
        """Drop a stream whose other end does not respond."""
        self._writer.transport.abort()

    async def flush(self) -> None:
        """Wait until the other side has taken most of the sent bytes."""
        try:
            await self._writer.drain()
        except OSError:
            return

    async def close(self) -> None:
        """Send queued messages, then close the stream, without waiting for a peer that hangs."""
        self._writer.close()
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self._writer.wait_closed()
        except OSError:
            self.abandon()
