"""Answers HEAD requests on every route with GET: the answer has the same head and no body."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class _EnoughError(Exception):
    """Ends the work on an answer after its head was sent."""


class AnsweringHead:
    """Answers HEAD like GET, without the body; a stream ends before its first bytes."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                await send(message)
                return
            await send({"type": "http.response.body"})
            raise _EnoughError

        try:
            await self._app({**scope, "method": "GET"}, receive, sending)
        except* _EnoughError:
            # The exception comes in a group from tasks of a stream, or alone.
            pass
