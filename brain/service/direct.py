"""Answers that are written without the ASGI app: fast answers to telemetry, and refusals."""

import asyncio
from collections.abc import Callable
from typing import Any

import uuid_utils
from starlette.responses import Response
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from brain.api.app import REQUESTS


class DirectRequest:
    """A request that is answered without ASGI; uvicorn handles it like its own request objects."""

    __slots__ = ("_connection", "disconnected", "keep_alive", "response_complete")
    #: Its body is whole, and its answer is written in one piece.
    more_body = response_started = chunked_encoding = False

    def __init__(self, connection: Any) -> None:
        self._connection, self.keep_alive = connection, True
        self.disconnected = self.response_complete = False

    @property
    def message_event(self) -> asyncio.Event:
        """Return an unused event; uvicorn expects each request to have one."""
        return asyncio.Event()

    def answer(self, status: int, lines: bytes, body: bytes) -> None:
        """Write the answer, unless the client is gone."""
        connection = self._connection
        self.response_complete = True
        # uvicorn tells the newest request alone that its client is gone.
        if self.disconnected or connection.transport.is_closing():
            return
        lines += b"".join(
            [b"%s: %s\r\n" % each for each in connection.server_state.default_headers]
        )
        if not self.keep_alive:
            lines += b"connection: close\r\n"
        connection.transport.write(written(status, lines, body))
        if not self.keep_alive:
            connection.transport.close()
        connection.on_response_complete()


def written(status: int, lines: bytes, body: bytes) -> bytes:
    """Return the bytes of an answer that is written without the app."""
    return b"%s%s\r\n%s" % (STATUS_LINE[status], lines, body)


def refuse(transport: Any, answered: Callable[[str], Response]) -> None:
    """Write a refusal as the last answer of a connection, without passing a request to the app; log
    it.
    """
    id = str(uuid_utils.uuid7())
    answer = answered(id)
    headers = [*answer.raw_headers, (b"x-request-id", id.encode()), (b"connection", b"close")]
    lines = b"".join([b"%s: %s\r\n" % header for header in headers])
    transport.write(written(answer.status_code, lines, bytes(answer.body)))
    peer = transport.get_extra_info("peername")  # None of a connection that is gone already
    told = {"request_id": id, "status": answer.status_code, "client": peer and peer[0]}
    REQUESTS.info("refused %d", answer.status_code, extra=told)
