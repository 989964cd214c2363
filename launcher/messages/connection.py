"""A stream of messages, in both directions. Each message is a 4-byte big-endian length, and then
msgpack that msgspec wrote.
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

#: Longest message that is accepted.
LIMIT_BYTES = 4 * 1024 * 1024
#: Seconds within which a new connection must send its first message.
INTRODUCTION_SECONDS = 10.0
#: Seconds within which the peer must read the last messages of a connection that closes.
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
    """Return a message's length and content as bytes."""
    body = _encoder.encode(message)
    return len(body).to_bytes(4, "big") + body


class Connection:
    """One end of a stream of messages."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def to(cls, address: str) -> "Connection":
        """Connect to ``host:port``, and return the connection.

        Raises:
            Unavailable: no agent listens there.
        """
        host, _, port = address.rpartition(":")
        try:
            return cls(*await asyncio.open_connection(host.strip("[]"), int(port)))
        except (OSError, ValueError) as silent:
            raise Unavailable(f"no agent answers at {address}: {silent}") from silent

    def send(self, message: "Message | bytes") -> None:
        """Queue a message; pass bytes from ``encoded`` to send one message to many agents.

        A message on a closed connection is dropped; ``receive`` then returns None.
        """
        if not self._writer.is_closing():
            self._writer.write(message if isinstance(message, bytes) else encoded(message))

    async def receive(self, kind: type[F], *, seconds: float | None = None) -> F | None:
        """Return the next message, of type ``kind``; None if the stream has ended, or if no message
        arrives within ``seconds``.

        Raises:
            BadInput: the received bytes are not a message of type ``kind``.
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
                "another version of Brain: install the same version on both machines"
            )
        return message

    async def _body(self) -> bytes:
        length = int.from_bytes(await self._reader.readexactly(4), "big")
        if length > LIMIT_BYTES:
            raise BadInput(
                f"a message of {length} bytes is too long; a message may have at most "
                f"{LIMIT_BYTES} bytes"
            )
        return await self._reader.readexactly(length)

    def shut(self) -> None:
        """Send queued messages and close, without waiting; ``receive`` returns None afterwards."""
        self._writer.close()
        self._reader.feed_eof()

    def abandon(self) -> None:
        """Close the stream and drop queued messages, because the peer does not respond."""
        self._writer.transport.abort()

    async def flush(self) -> None:
        """Wait until the peer has taken most of the queued bytes."""
        try:
            await self._writer.drain()
        except OSError:
            return

    async def close(self) -> None:
        """Send queued messages, then close the stream; wait at most two seconds for the peer."""
        self._writer.close()
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self._writer.wait_closed()
        except OSError:
            self.abandon()
