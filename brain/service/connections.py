"""Connections of the service: limits on their number and on slow request heads, and TLS.

uvicorn implements HTTP/1.1, but not these limits. This module adds them to the protocol object of a
connection, because no other object exists before the first request.
"""

import asyncio
import ssl
from functools import partial
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from brain.api import limits, problems
from brain.api.known_heads import MOST_BYTES
from brain.api.limits import ClientConnection
from brain.errors import BadInput, BrainError, Unavailable
from brain.service.admission import Connections
from brain.service.direct import DirectRequest, refuse

#: Connections accepted at once: asyncio accepts all of them before this module checks any.
ACCEPTS = 16
#: Seconds for which a refused sender may go on sending, so that it reads the refusal.
_LINGER_SECONDS = 1.0
#: Most refused connections that linger at once; no other limit counts them.
_LINGERING = 64
#: Most bytes of a head, and of the parts of a chunked body that are not content (trailers,
#: extensions of chunks); the parser itself has no limit.
_BARE_BYTES = 64 * 1024
#: Headers of a request: each takes some 150 bytes of memory, however short it is.
_HEADERS = 200
#: Bytes that are parsed at once: they hold few requests, and later ones wait as bytes.
_PARSED_BYTES = 4096


class Connection(HttpToolsProtocol):  # type: ignore[misc]
    """One connection, from before the TLS handshake to its end."""

    #: The newest request: uvicorn's, or a ``DirectRequest``.
    cycle: Any
    #: Of its newest parsed request; None once a later one was taken without parsing.
    scope: Any
    headers: Any

    def __init__(self, shared: Connections, **uvicorn: Any) -> None:
        super().__init__(**uvicorn)
        # Bytes behind the last request are no request.
        self.parser.set_dangerous_leniencies(lenient_data_after_close=False)
        self._shared = shared
        #: None once the connection is being closed.
        self._admitted: ClientConnection | None = None
        self._timer: asyncio.TimerHandle | None = None
        #: True within a head; bytes since the head began, or the last byte of its body came.
        self._in_head, self._bare_bytes = False, 0
        #: True once the service stops.
        self._stops = False
        #: Bytes behind a request that waits for an earlier answer.
        self._unparsed = b""
        #: A known head, whose body is on its way, and the data with which the next request begins.
        self._known = self._first = b""
        #: Bytes that arrive after the handshake but before this class learns of its end.
        self._early = b""

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Admit or refuse the connection, and start the timer that limits the wait for its first
        request head.
        """
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
        # Given to the app with each request, so that it can record the sign-in, and write parts of
        # a long answer from outside its task.
        self.app_state: dict[str, Any] = {
            **self.app_state,
            "connection": self._admitted,
            "write": self.write_part,
        }
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
        # It holds this object.
        self.app_state = {}

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
            self._known, before, self.cycle = b"", self.cycle, DirectRequest(self)
            taken = self._shared.take(data, self.cycle.answer)
            if taken:
                self._admitted.signed_in = True
                # Of the last parsed request, which is over; they hold its token.
                self.scope = self.headers = None
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

    def write_part(self, part: bytes) -> bool:
        """Write one chunk of a body that the app sends in parts.

        Returns False, and writes nothing, if the client does not read, or the app has not begun to
        send the body.
        """
        cycle = self.cycle
        if (
            cycle.response_complete
            or cycle.disconnected
            or not cycle.chunked_encoding
            # The newest request is a later one.
            or self.pipeline
            or self.flow.write_paused
            or self.transport.is_closing()
        ):
            return False
        self.transport.write(part)
        return True

    @property
    def _is_between(self) -> bool:
        """Return True if the next byte begins a request that may be answered at once."""
        return (
            not self._in_head
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
        while begin < len(data) and not (
            self.pipeline or self._was_last or self.transport.is_closing()
        ):
            part = data[begin : begin + _PARSED_BYTES]
            begin += len(part)
            super().data_received(part)
            self._bare_bytes += len(part)
            if (why := self._excess) is not None:
                self._tell(BadInput(why))
                return
        self._unparsed = b"" if self._was_last else data[begin:]
        if self.pipeline:
            self.flow.pause_reading()
        self._look()

    @property
    def _excess(self) -> str | None:
        """Return the reason why a request has too much beside its body; None if it has not."""
        if self._in_head and len(self.headers) > _HEADERS:
            return f"the request head has more than {_HEADERS} headers; send fewer"
        if self._bare_bytes <= _BARE_BYTES:
            return None
        if self._in_head:
            return f"the request head is larger than {_BARE_BYTES} bytes; shorten it"
        if self._within_body:
            return (
                f"the request has {_BARE_BYTES} bytes of trailers or of extensions of a chunk; "
                "send fewer"
            )
        return None

    def on_message_begin(self) -> None:
        """Record that a request head has begun."""
        self._in_head, self._bare_bytes = True, 0
        super().on_message_begin()
        self.scope["state"]["first"], self._first = self._first, b""

    def on_header(self, name: bytes, value: bytes) -> None:
        """Store a header, but drop a trailer, which could imitate a header that a proxy checked."""
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Record that the request head is complete."""
        # Raises if the path is none.
        super().on_headers_complete()
        self._in_head, self._bare_bytes = False, 0
        if self.parser.should_upgrade():
            # The parser takes what follows for another protocol.
            self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        """Record that more of a body has arrived."""
        self._bare_bytes = 0
        super().on_body(body)

    def on_response_complete(self) -> None:
        """End the connection if a request was answered before the whole request had arrived."""
        # The newest request is the answered one, unless others wait in the pipeline.
        unread = self.cycle.more_body and self.cycle.response_complete
        if unread and not self.transport.is_closing():
            self._linger()
            return
        super().on_response_complete()
        self._parse()
        if self._stops:
            self._await_no_body()

    @property
    def _was_last(self) -> bool:
        """Return True if the connection ends with its newest request, which came whole."""
        return self.cycle is not None and not (
            self._in_head or self.cycle.keep_alive or self.cycle.more_body
        )

    @property
    def _within_body(self) -> bool:
        """Return True while a request's body is incomplete."""
        return not self._in_head and self.cycle is not None and self.cycle.more_body

    def pause_writing(self) -> None:
        """Record that the client does not read its answer."""
        super().pause_writing()
        self._look()

    def resume_writing(self) -> None:
        """Record that the client reads again."""
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
        # Empty lines, which may come before a head, end the time of keep-alive.
        timed = self.timeout_keep_alive_task is not None and not self._in_head
        if answered and not timed and not self.transport.is_closing():
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
        """End the connection once all completely received requests are answered."""
        self._stops = True
        if self._known:
            self._parse_known()
        super().shutdown()
        self._await_no_body()

    def _await_no_body(self) -> None:
        """Refuse a request whose body is incomplete, once all earlier ones are answered."""
        if self._within_body and not self.pipeline and self._admitted is not None:
            self._tell(
                Unavailable("the service is stopping; send the request again after its restart")
            )

    def _refuse(self, why: BrainError) -> None:
        """Count a refusal, and close."""
        self._shared.metrics.refusals.labels(why.limit).inc()
        self._tell(why)

    def _tell(self, why: BrainError) -> None:
        """Send the refusal, unless the client could take it for another answer, and close."""
        begun = self.cycle is None or self._in_head or not self.cycle.response_complete
        # The client cannot read anything before the end of the handshake.
        speaks = self._shared.tls is None or self.flow is not None
        if speaks and begun and not self._answers_earlier:
            refuse(self.transport, partial(problems.answer, why))
            self._linger()
        else:
            self._forget()
            self.transport.abort()

    def send_400_response(self, msg: str) -> None:
        """Refuse bytes that are not HTTP, and close."""
        if self._was_last:
            return
        if self._answers_earlier:
            self.transport.abort()
        else:
            refuse(self.transport, problems.unreadable)
            self.transport.close()

    @property
    def _answers_earlier(self) -> bool:
        """Return True if the next answer belongs to an earlier request than the arriving one."""
        if self.pipeline or self.cycle is None or self.cycle.response_complete:
            return bool(self.pipeline)
        return self._in_head or bool(self.cycle.response_started)

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
