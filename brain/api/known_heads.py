"""A cache of parsed request heads: senders of telemetry repeat the same head in every request.

The requests of an agent differ only in length and body. So a head that equals an accepted one,
except for the digits of its length, needs neither parsing nor a new sign-in.
"""

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, NamedTuple

from brain.types.record import Principal, Role

_LENGTH = b"\r\nContent-Length: "
#: Digits of the longest length that is read here.
_DIGITS = 8
#: Most heads that are kept.
_MOST = 50_000
#: Most bytes of a head; agents send some 300.
MOST_BYTES = 1024
#: A head with one of these headers is never kept: they change how the body is read.
_SPECIAL = ("content-encoding", "expect", "transfer-encoding", "upgrade")


class Sender(NamedTuple):
    """The facts that a head gives about its sender."""

    principal: Principal
    #: Hash of the bearer token.
    hashed: str
    #: The key under which the sender's requests are counted.
    rate_key: str
    content_type: str


class Begun(NamedTuple):
    """Data that begins with a whole head."""

    #: The head without the digits of its length.
    head: bytes
    #: Bytes of the head, and those of the body that it announces.
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
    """The senders of earlier heads; used on the event loop alone.

    Only a hash of a head is stored, because heads contain tokens.
    """

    def __init__(self) -> None:
        self._senders: dict[bytes, Sender] = {}

    def get(self, head: bytes) -> Sender | None:
        """Return the sender of a head; None if it has to be parsed."""
        return self._senders.get(_hash(head))

    def keep(
        self, first: bytes, scope: Mapping[str, Any], headers: Mapping[str, str], sender: Sender
    ) -> None:
        """Store the head of an accepted request that began with ``first``, if this is allowed.

        Only heads of agents are stored, because other senders may name any job, which has to be
        looked up.
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
