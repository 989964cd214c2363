"""A minimal fan-out server: each open stream gets the bytes of each POST, and nothing more."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

_streams: set[asyncio.Queue[bytes]] = set()


async def app(
    scope: dict[str, Any],
    receive: Callable[[], Awaitable[dict[str, Any]]],
    send: Callable[[dict[str, Any]], Awaitable[None]],
) -> None:
    """Take a message and pass it on, or open a stream of all messages."""
    if scope["method"] == "POST":
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message["body"], message.get("more_body", False)
        for stream in _streams:
            stream.put_nowait(body)
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})
        return
    queue: asyncio.Queue[bytes] = asyncio.Queue()
    _streams.add(queue)
    headers = [(b"content-type", b"text/event-stream")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    while True:
        await send({"type": "http.response.body", "body": await queue.get(), "more_body": True})
