"""A cache of request heads, because senders of telemetry send the same head in every request.

The requests of one sender differ only in the length and content of the body. A head that equals an
accepted head, except for the digits of the body's length, needs neither parsing nor a new sign-in.
"""

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, NamedTuple

from brain.types.record import Principal, Role

_LENGTH = b"\r\nContent-Length: "
#: Most digits of a ``Content-Length`` that this module reads.
_DIGITS = 8
#: Most heads in the cache.
_MOST = 50_000
#: Most bytes of a head in the cache; agents send about 300.
MOST_BYTES = 1024
#: A head with one of these headers is never cached, because it changes how the body is read.
_SPECIAL = ("content-encoding", "expect", "transfer-encoding", "upgrade")


class Sender(NamedTuple):
    """The sender of a request, as identified by the request's head."""

    principal: Principal
    #: SHA-256 of the bearer token.
    hashed: str
    #: Key under which the sender's requests are counted.
    rate_key: str
    content_type: str


class Begun(NamedTuple):
    """Received data that begins with a complete head."""

    #: The head without the digits of its length.
    head: bytes
    #: Number of bytes of the head, and of the body by its ``Content-Length``.
    head_bytes: int
    body_bytes: int


def begun(data: bytes) -> Begun | None:
    r"""Return the request head at the start of data; None if it is incomplete or has no length.

    >>> begun(b"POST / HTTP/1.1\r\nContent-Length: 2\r\nHost: a\r\n\r\n{}")
    Begun(head=b'POST / HTTP/1.1\r\nContent-Length: \r\nHost: a', head_bytes=47, body_bytes=2)
    """
    end = data.find(b"\r\n\r\n", 0, MOST_BYTES)
    at = data.find(_LENGTH, 0, end + 2) + len(_LENGTH)
    if end < 0 or at < len(_LENGTH):
        return None
    stop = data.index(b"\r\n", at)
    digits = data[at:stop]
    if not digits.isdigit() or len(digits) > _DIGITS:
        return None
    return Begun(data[:at] + data[stop:end], end + 4, int(digits))


class KnownHeads:
    """The senders of cached heads; used only on the event loop.

    The cache has only hashes of heads, because heads contain tokens.
    """

    def __init__(self) -> None:
        self._senders: dict[bytes, Sender] = {}

    def get(self, head: bytes) -> Sender | None:
        """Return the sender of a head; None if the head must be parsed."""
        return self._senders.get(_hash(head))

    def keep(
        self, first: bytes, scope: Mapping[str, Any], headers: Mapping[str, str], sender: Sender
    ) -> None:
        """Cache the head of an accepted request that began with ``first``, unless the head is
        special.

        A special head has a query, a repeated header, a header of ``_SPECIAL`` or a connection that
        closes. Only heads of agents are cached, because other senders may send samples of any job,
        and the service must look up each job.
        """
        request = begun(first)
        if (
            request is None
            or sender.principal.role is not Role.AGENT
            or scope["query_string"]
            or scope["http_version"] != "1.1"
            or headers.get("connection", "keep-alive").lower() != "keep-alive"
            or any(name in headers for name in _SPECIAL)
            # Of a header that comes twice, ``headers`` has one alone.
            or len(headers) != len(scope["headers"])
        ):
            return
        if len(self._senders) >= _MOST:
            self._senders.clear()
        self._senders[_hash(request.head)] = sender


def _hash(head: bytes) -> bytes:
    return blake2b(head, digest_size=32).digest()
