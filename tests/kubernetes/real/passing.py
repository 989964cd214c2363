"""Passes requests on to an API server, counts them, and breaks what is to break."""

import asyncio
import contextlib
import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import aiohttp
import msgspec
from aiohttp import web

from tests.kubernetes.apiserver.core.store import event_line
from tests.kubernetes.apiserver.objects.errors import Refused
from tests.kubernetes.apiserver.wire.faults import Faults
from tests.kubernetes.apiserver.wire.http import Traffic, faulty

_PATH = re.compile(
    r"^/(?:api/v1|apis/(?P<group>[^/]+)/[^/]+)(?:/namespaces/(?![^/]+/(?:status|finalize)$)[^/]+)?"
    r"/(?P<plural>[^/]+)(?:/[^/]+(?:/(?P<door>[^/]+))?)?$"
)
#: Headers of one connection, which the next one has of its own.
_OWN = frozenset({"host", "connection", "transfer-encoding", "content-length", "authorization"})
_GONE = Refused(410, "Expired", "too old resource version: a test wanted it so")


class Upstream:
    """Where requests go to, and as whom."""

    def __init__(self, url: str, headers: Mapping[str, str], ssl: Any) -> None:
        self.url, self.headers, self.ssl = url, headers, ssl


class Passing:
    """An application that answers as the API server does, but for faults. One event loop."""

    def __init__(self, upstream: Upstream, faults: Faults) -> None:
        self._upstream, self._faults = upstream, faults
        self.traffic = Traffic(Counter())
        #: token -> the user that is meant
        self.tokens: dict[str, str] = {}
        #: Told of the name of every namespace that is made.
        self.made: Callable[[str], object] = lambda name: None
        self._watches: set[asyncio.Future[bytes]] = set()

    def application(self) -> web.Application:
        """Return the application that aiohttp serves."""
        application = web.Application(client_max_size=2**25)
        application.router.add_route("*", "/{path:.*}", self._handle)
        application.cleanup_ctx.append(self._connected)
        return application

    def end_watches(self, *, expire: bool = False) -> None:
        """End every watch; with ``expire`` by telling that its past is forgotten."""
        last = event_line("ERROR", msgspec.json.encode(_GONE.status())) if expire else b""
        for watch in tuple(self._watches):
            if not watch.done():
                watch.set_result(last)

    async def _connected(self, _: web.Application) -> Any:
        limits = aiohttp.ClientTimeout(total=None, sock_connect=30)
        connector = aiohttp.TCPConnector(limit=0, ssl=self._upstream.ssl)
        async with aiohttp.ClientSession(
            connector=connector, timeout=limits, auto_decompress=False
        ) as self._session:
            yield

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        agent = request.headers.get("User-Agent", "")
        watch = request.query.get("watch") in ("true", "1")
        slow = self._faults.take("slow", request.method, request.path, agent, watch=watch)
        if slow is not None:
            await asyncio.sleep(slow.seconds)
        fault = self._faults.take("answer", request.method, request.path, agent, watch=watch)
        if fault is not None:
            answer = faulty(fault)
            self._count(request, answer.code)
            headers = {"Content-Type": answer.media, **answer.headers}
            return web.Response(status=answer.code, body=answer.body, headers=headers)
        body = await request.read()
        async with self._session.request(
            request.method,
            self._upstream.url + request.raw_path,
            data=body or None,
            headers=self._headers(request),
            skip_auto_headers=("Content-Type", "User-Agent", "Accept"),
        ) as answer:
            if watch and answer.status == 200:
                return await self._stream(request, answer)
            return await self._whole(request, answer, body)

    def _headers(self, request: web.Request) -> dict[str, str]:
        headers = {k: v for k, v in request.headers.items() if k.lower() not in _OWN}
        headers.update(self._upstream.headers)
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme == "Bearer":
            user = self.tokens.get(token, "system:anonymous")
            headers["Impersonate-User"] = user
        return headers

    async def _whole(
        self, request: web.Request, answer: aiohttp.ClientResponse, body: bytes
    ) -> web.StreamResponse:
        content = await answer.read()
        self._count(request, answer.status)
        if request.method == "POST" and request.path == "/api/v1/namespaces" and answer.ok:
            self.made(_name_of(body))
        if self._faults.take("cut", request.method, request.path) is not None:
            _abort(request)
        return web.Response(status=answer.status, body=content, headers=_kept(answer))

    async def _stream(
        self, request: web.Request, answer: aiohttp.ClientResponse
    ) -> web.StreamResponse:
        self.traffic.watches += 1
        response = web.StreamResponse(headers=_kept(answer))
        end: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._watches.add(end)
        try:
            await response.prepare(request)
            await self._lines(request, response, answer.content, end)
            await response.write_eof()
        except (ConnectionError, aiohttp.ClientError, asyncio.CancelledError):
            # One of the two ends went away.
            _abort(request)
        finally:
            self._watches.discard(end)
        return response

    async def _lines(
        self,
        request: web.Request,
        response: web.StreamResponse,
        content: aiohttp.StreamReader,
        end: "asyncio.Future[bytes]",
    ) -> None:
        """Pass on whole lines, so that what is said in between stands on a line of its own."""
        rest = b""
        while True:
            reading = asyncio.ensure_future(content.readany())
            try:
                await asyncio.wait({reading, end}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                await _left(reading)
            if end.done():
                await response.write(end.result())
                return
            chunk = reading.result()
            if not chunk:
                return
            lines, found, rest = (rest + chunk).rpartition(b"\n")
            if not found:
                continue
            if self._faults.take("cut", "GET", request.path, watch=True) is not None:
                await response.write(lines[: len(lines) // 2])
                _abort(request)
                return
            await response.write(lines + found)

    def _count(self, request: web.Request, code: int) -> None:
        found = _PATH.match(request.path)
        if found is not None:
            parts = (found["group"], found["plural"], found["door"])
            what = "/".join(part for part in parts if part)
            self.traffic.counts[request.method, what, code] += 1


def _kept(answer: aiohttp.ClientResponse) -> dict[str, str]:
    return {k: v for k, v in answer.headers.items() if k.lower() not in _OWN}


def _name_of(body: bytes) -> str:
    """Return the name of a namespace that is made here, in JSON or in protobuf."""
    found = re.search(rb"brain-[a-z0-9-]+", body)
    return found[0].decode() if found else ""


async def _left(reading: "asyncio.Future[bytes]") -> None:
    """Wait no more for what did not come."""
    if not reading.done():
        reading.cancel()
        with contextlib.suppress(asyncio.CancelledError, aiohttp.ClientError):
            await reading


def _abort(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.abort()
