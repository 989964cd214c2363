"""Connections of the service: limits on their number and on slow request heads, and TLS.

uvicorn speaks HTTP/1.1. The limits that it lacks are added here, at the only place that sees a
connection before its first request.
"""

import asyncio
import ssl
from collections.abc import Callable
from ipaddress import ip_address
from typing import Any

import uuid_utils
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from brain.api import limits, problems
from brain.api.known_heads import MOST_BYTES
from brain.api.limits import ClientConnection, ConnectionTable
from brain.api.metrics import Metrics
from brain.api.routes.telemetry import Tell
from brain.errors import BadInput, BrainError, Unavailable
from brain.settings import Settings, networks_of

#: Connections accepted at once: asyncio accepts all of them before this module checks any.
ACCEPTS = 16
#: Seconds for which a refused sender may go on sending, so that it reads the refusal.
_LINGER_SECONDS = 1.0
#: Most refused connections that linger at once; no other limit counts them.
_LINGERING = 64
#: Bytes of a request's head; the parser itself has no limit.
_HEAD_BYTES = 64 * 1024
#: Bytes that are parsed at once: few requests, while later ones stay unparsed.
_PARSED_BYTES = 4096


class Connections:
    """The state that all connections of a service share."""

    def __init__(
        self,
        settings: Settings,
        metrics: Metrics,
        tls: ssl.SSLContext | None,
        take: Callable[[bytes, Tell], bool | None],
        *,
        most: int,
    ) -> None:
        """``take`` takes requests without ASGI, as ``telemetry.take_directly`` does."""
        self.take = take
        self.metrics, self.tls, self.head_seconds = metrics, tls, settings.head_seconds
        #: Connections that were refused, and may still read the refusal.
        self.lingering = 0
        self._proxies = networks_of(settings.trusted_proxies)
        self._table = ConnectionTable(most=most, per_address=settings.connections_per_address)
        #: For each connection, the function that closes it to make room for another one.
        self._closing: dict[ClientConnection, Callable[[str], None]] = {}

    def protocol(self, **uvicorn: Any) -> asyncio.Protocol:
        """Return the protocol of one connection, as uvicorn asks for it."""
        made: asyncio.Protocol = _Connection(self, **uvicorn)
        return made

    def admit(self, address: str, close: Callable[[str], None]) -> ClientConnection:
        """Admit a connection, for which another may be closed.

        Raises:
            Overloaded: there are too many connections.
        """
        connection = ClientConnection(limits.source_of(address))
        proxied = any(ip_address(address) in network for network in self._proxies)
        displaced = self._table.add(connection, is_proxy=proxied)
        self._closing[connection] = close
        if displaced is not None:
            closed, limit = displaced
            self._closing[closed](limit)
        self.metrics.connections.set(len(self._table))
        return connection

    def forget(self, connection: ClientConnection) -> None:
        """Forget a connection that is closed."""
        self._table.remove(connection)
        self._closing.pop(connection, None)
        self.metrics.connections.set(len(self._table))


class _Connection(HttpToolsProtocol):  # type: ignore[misc]
    """One connection, from before the TLS handshake to its end."""

    #: The newest request: uvicorn's, or a ``_Request``.
    cycle: Any

    def __init__(self, shared: Connections, **uvicorn: Any) -> None:
        super().__init__(**uvicorn)
        self._shared = shared
        #: None once the connection is being closed.
        self._admitted: ClientConnection | None = None
        self._timer: asyncio.TimerHandle | None = None
        #: Bytes of an incomplete head; None between requests and within bodies.
        self._head: int | None = None
        #: Bytes behind a request that waits for an earlier answer.
        self._unparsed = b""
        #: A known head, whose body is on its way, and the data with which the next request begins.
        self._known = self._first = b""
        #: Bytes that arrive after the handshake but before this class learns of its end.
        self._early = b""

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Admit or refuse the connection, and start the timer of its first head."""
        self.transport = transport
        name = transport.get_extra_info("peername")
        if not name:
            transport.abort()
            return
        try:
            self._admitted = self._shared.admit(name[0], self._displace)
        except BrainError as refused:
            self._refuse(refused)
            return
        # Given to the app with each request, so that it can record the sign-in.
        self.app_state: dict[str, Any] = {**self.app_state, "connection": self._admitted}
        self._watch_head()
        if self._shared.tls is None:
            super().connection_made(transport)
        else:
            # Nothing may be read before the handshake begins, or its bytes would be parsed as HTTP.
            transport.pause_reading()
            self._handshake = self.loop.create_task(self._secure(transport, self._shared.tls))

    async def _secure(self, plain: asyncio.Transport, tls: ssl.SSLContext) -> None:
        try:
            secured = await self.loop.start_tls(
                plain, self, tls, server_side=True, ssl_handshake_timeout=self._shared.head_seconds
            )
        except OSError:
            # The client speaks no TLS, or an unsupported version, or is gone; no answer would reach
            # it.
            secured = None
        if secured is None or self._admitted is None:
            plain.abort()
            self.connection_lost(None)
            return
        super().connection_made(secured)
        if self._early:
            self.data_received(self._early)

    def connection_lost(self, error: Exception | None) -> None:
        """Forget the connection, which is closed."""
        self._unwatch()
        self._forget()
        if self.flow is not None:
            super().connection_lost(error)

    def data_received(self, data: bytes) -> None:
        """Pass on received data, unless the sender was refused."""
        if self._admitted is None:
            return
        if self.flow is None:
            self._early += data
            return
        if self._known or self._is_between:
            self._unset_keepalive_if_required()
            data, again = self._known + data, bool(self._known)
            self._known, before, self.cycle = b"", self.cycle, _Request(self)
            taken = self._shared.take(data, self.cycle.answer)
            if taken:
                self._admitted.signed_in = True
                self._look()
                return
            self.cycle = before
            if taken is None and not again:
                self._known = data
                self._watch_head()
                return
            # Enough to recognise a later head; more bytes would stay in memory beside the body.
            self._first = data[:MOST_BYTES]
        self._unparsed += data
        self._parse()

    @property
    def _is_between(self) -> bool:
        """Return True if the next byte begins a request that may be answered at once."""
        return (
            self._head is None
            and not self._unparsed
            and (self.cycle is None or self.cycle.response_complete)
            and not self.flow.write_paused
            and not self.transport.is_closing()
        )

    def _parse_known(self) -> None:
        """Parse the head of a request whose body is late, so that the timer of bodies applies."""
        self._unparsed, self._known = self._known, b""
        self._parse()

    def _parse(self) -> None:
        """Parse the received bytes, up to the first request that waits for an earlier answer."""
        begin, data = 0, self._unparsed
        while begin < len(data) and not self.pipeline and not self.transport.is_closing():
            part = data[begin : begin + _PARSED_BYTES]
            begin += len(part)
            super().data_received(part)
            if self._head is not None:
                self._head += len(part)
                if self._head > _HEAD_BYTES:
                    self._tell(
                        BadInput(f"the request head is larger than {_HEAD_BYTES} bytes; shorten it")
                    )
                    return
        self._unparsed = data[begin:]
        if self.pipeline:
            self.flow.pause_reading()
        self._look()

    def on_message_begin(self) -> None:
        """Note that a head has begun."""
        self._head = 0
        super().on_message_begin()
        self.scope["state"]["first"], self._first = self._first, b""

    def on_headers_complete(self) -> None:
        """Note that the head is whole."""
        self._head = None
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        """End a connection whose request was answered before it was complete."""
        # The newest request is the answered one, unless others wait in the pipeline.
        unread = self.cycle.more_body and self.cycle.response_complete
        if unread and not self.transport.is_closing():
            self._linger()
            return
        super().on_response_complete()
        self._parse()

    @property
    def _within_body(self) -> bool:
        """Return True while a request's body is incomplete."""
        return self._head is None and self.cycle is not None and self.cycle.more_body

    def pause_writing(self) -> None:
        """Note that the client does not read its answer."""
        super().pause_writing()
        self._look()

    def resume_writing(self) -> None:
        """Note that the client reads again."""
        super().resume_writing()
        self._look()

    def _look(self) -> None:
        """Record what the connection waits for, and set its timer."""
        if self._admitted is None:
            return
        answered = self.cycle is None or self.cycle.response_complete
        self._admitted.waits = (
            self._within_body
            or answered
            # A client that does not read has no time limit.
            or self.flow.write_paused
            or self.transport.is_closing()
        )
        if self._head is not None and answered:
            self._watch_head()
        elif self.cycle is not None:
            self._unwatch()

    def _watch_head(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(self._shared.head_seconds, self._too_slow)

    def _unwatch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_slow(self) -> None:
        self._timer = None
        if self._known:
            self._parse_known()
        else:
            self._refuse(limits.too_slow("head", "head_seconds", self._shared.head_seconds))

    def _displace(self, limit: str) -> None:
        self._refuse(limits.displaced(limit))

    def shutdown(self) -> None:
        """Stop the connection, without waiting for the rest of a body."""
        if self._known:
            self._parse_known()
        if self._within_body and self._admitted is not None:
            self._tell(
                Unavailable("the service is stopping; send the request again after its restart")
            )
        else:
            super().shutdown()

    def _refuse(self, why: BrainError) -> None:
        """Count a refusal, and close."""
        self._shared.metrics.refusals.labels(why.limit).inc()
        self._tell(why)

    def _tell(self, why: BrainError) -> None:
        """Send the refusal, unless the client could take it for another answer, and close."""
        begun = self.cycle is None or self._head is not None or not self.cycle.response_complete
        # The client cannot read anything before the end of the handshake.
        speaks = self._shared.tls is None or self.flow is not None
        if speaks and begun and not self._answers_earlier:
            answer = problems.answer(why, str(uuid_utils.uuid7()))
            headers = [*answer.raw_headers, (b"connection", b"close")]
            lines = b"".join([b"%s: %s\r\n" % header for header in headers])
            self.transport.write(_written(answer.status_code, lines, bytes(answer.body)))
            self._linger()
        else:
            self._forget()
            self.transport.abort()

    def send_400_response(self, msg: str) -> None:
        """Refuse bytes that are not HTTP, and close."""
        if self._answers_earlier:
            self.transport.abort()
        else:
            super().send_400_response(msg)

    @property
    def _answers_earlier(self) -> bool:
        """Return True if the next answer belongs to an earlier request than the arriving one."""
        if self.pipeline or self.cycle is None or self.cycle.response_complete:
            return bool(self.pipeline)
        return self._head is not None or bool(self.cycle.response_started)

    def _linger(self) -> None:
        """Close after a delay: a client that is still sending would otherwise lose the answer."""
        self._unwatch()
        self._unset_keepalive_if_required()
        self._forget()
        if self.cycle is not None:
            # Further answers of the app are dropped.
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self._shared.lingering >= _LINGERING:
            # Closing would wait for a client that may never read.
            self.transport.abort()
            return
        if self.transport.can_write_eof():
            self.transport.write_eof()
        if self.flow is not None:
            self.flow.resume_reading()
        self._shared.lingering += 1
        self.loop.call_later(_LINGER_SECONDS, self._leave)

    def _leave(self) -> None:
        self._shared.lingering -= 1
        self.transport.abort()

    def _forget(self) -> None:
        if self._admitted is not None:
            self._shared.forget(self._admitted)
            self._admitted = None


class _Request:
    """A request that is answered without ASGI, in the form in which uvicorn keeps requests."""

    __slots__ = ("_connection", "disconnected", "keep_alive", "response_complete")
    #: The request's body is complete, and its answer is written in one piece.
    more_body = response_started = False

    def __init__(self, connection: _Connection) -> None:
        self._connection, self.keep_alive = connection, True
        self.disconnected = self.response_complete = False

    @property
    def message_event(self) -> asyncio.Event:
        """Return an event that uvicorn expects, and on which nothing waits here."""
        return asyncio.Event()

    def answer(self, status: int, lines: bytes, body: bytes) -> None:
        """Write the answer, unless the client is gone."""
        connection = self._connection
        self.response_complete = True
        # uvicorn reports a lost client only to the newest request.
        if self.disconnected or connection.transport.is_closing():
            return
        lines += b"".join(
            [b"%s: %s\r\n" % each for each in connection.server_state.default_headers]
        )
        if not self.keep_alive:
            lines += b"connection: close\r\n"
        connection.transport.write(_written(status, lines, body))
        if not self.keep_alive:
            connection.transport.close()
        connection.on_response_complete()


def _written(status: int, lines: bytes, body: bytes) -> bytes:
    """Return the bytes of an answer that no app makes."""
    return b"%s%s\r\n%s" % (STATUS_LINE[status], lines, body)
