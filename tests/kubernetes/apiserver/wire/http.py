"""HTTP around the API: paths, media types, faults, watches."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import yaml
from aiohttp import web

from tests.kubernetes.apiserver.core.access import ADMIN, Access
from tests.kubernetes.apiserver.core.api import Api
from tests.kubernetes.apiserver.documents.discovery import Discovery
from tests.kubernetes.apiserver.objects.errors import Refused, UnknownPath, bad_request
from tests.kubernetes.apiserver.wire import protobuf
from tests.kubernetes.apiserver.wire.control import PREFIX, controlled
from tests.kubernetes.apiserver.wire.faults import Fault, Faults
from tests.kubernetes.apiserver.wire.requests import Answer, Asked, answered
from tests.kubernetes.apiserver.wire.routes import Target, routed
from tests.kubernetes.apiserver.wire.watching import Watch, gone

_JSON = "application/json"


@dataclass(slots=True)
class Traffic:
    """What was asked so far: how often each thing, and how much at once."""

    #: (method, ``group/plural[/subresource]``, code) -> requests; watches not among them.
    counts: Counter[tuple[str, str, int]]
    in_flight: int = 0
    most_in_flight: int = 0
    watches: int = 0

    def reset(self) -> None:
        """Count from here."""
        self.counts.clear()
        self.most_in_flight = self.in_flight
        self.watches = 0

    def writes(self, resource: str) -> int:
        """Return how many writes to ``resource`` went through."""
        return sum(
            count
            for (method, what, code), count in self.counts.items()
            if what == resource and method != "GET" and code < 300
        )


class Http:
    """Answers requests. Everything on one event loop."""

    def __init__(self, api: Api, faults: Faults, access: Access, bookmark_seconds: float) -> None:
        self.api = api
        self.faults = faults
        self.access = access
        self.traffic = Traffic(Counter())
        self.tokens: dict[str, str] = {}
        #: Delivers the logs of a pod's container, where a kubelet keeps some.
        self.logs: Callable[[str, str, str], bytes | None] = lambda *_: None
        self._bookmark_seconds = bookmark_seconds
        self._watches: set[Watch] = set()
        self._discovery = Discovery(api.kinds)

    def application(self) -> web.Application:
        """Return the application that aiohttp serves."""
        application = web.Application(client_max_size=2**25)
        application.router.add_route("*", "/{path:.*}", self.handle)
        return application

    def end_watches(self, *, expire: bool = False) -> None:
        """End every watch; with ``expire``, forget the history first and say so (410)."""
        if expire:
            self.api.store.compact()
        for watch in tuple(self._watches):
            watch.end(gone(self.api) if expire else None)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer one request."""
        if request.path.startswith(PREFIX):
            wish = msgspec.json.decode(await request.read() or b"{}")
            return web.json_response(controlled(self, request.path, wish))
        agent = request.headers.get("User-Agent", "")
        watch = request.query.get("watch") in ("true", "1")
        if not watch:
            self.traffic.in_flight += 1
            self.traffic.most_in_flight = max(self.traffic.most_in_flight, self.traffic.in_flight)
        try:
            slow = self.faults.take("slow", request.method, request.path, agent, watch=watch)
            if slow is not None:
                await asyncio.sleep(slow.seconds)
            fault = self.faults.take("answer", request.method, request.path, agent, watch=watch)
            if fault is not None:
                return self._sent(request, faulty(fault), None)
            return await self._answer(request, agent, watch)
        finally:
            if not watch:
                self.traffic.in_flight -= 1

    async def _answer(self, request: web.Request, agent: str, watch: bool) -> web.StreamResponse:
        target: Target | None = None
        try:
            told = self._discovery.answer(request.path, request.headers.get("Accept", ""))
            if told is not None:
                return web.Response(body=told.body, content_type=None, headers=told.headers)
            found = routed(request.path, self.api.kinds)
            assert isinstance(found, Target)
            target = found
            asked = Asked(
                method=request.method,
                target=target,
                query=request.query,
                accept=request.headers.get("Accept", ""),
                media=request.content_type,
                body=_parsed(await request.read(), request.content_type),
                manager=request.query.get("fieldManager") or agent.partition("/")[0] or "unknown",
                user=self._user(request),
            )
            self._warm(target)
            if watch and request.method == "GET":
                return await self._watch(request, asked)
            if target.door == "log":
                asked.permit(self.access, "get")
                return await self._log(request, target)
            return self._sent(request, answered(self.api, self.access, asked), target)
        except Refused as refused:
            return self._sent(request, _refusal(refused), target)
        except UnknownPath:
            return web.Response(status=404, text="404 page not found\n")

    def _user(self, request: web.Request) -> str:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme != "Bearer":
            return request.headers.get("Impersonate-User", ADMIN)
        user = self.tokens.get(token)
        if user is None:
            raise Refused(401, "Unauthorized", "Unauthorized")
        return user

    def _warm(self, target: Target) -> None:
        """Answer 429 while a new definition's storage starts, as a real server does."""
        left = self.api.warming.get(target.kind.resource, 0)
        if left:
            self.api.warming[target.kind.resource] = left - 1
            raise Refused(
                429, "TooManyRequests", "storage is (re)initializing", retry_after_seconds=1
            )

    def _sent(
        self, request: web.Request, answer: Answer, target: Target | None
    ) -> web.StreamResponse:
        if target is not None:
            kind = target.kind
            what = "/".join(part for part in (kind.group, kind.plural, target.door) if part)
            self.traffic.counts[request.method, what, answer.code] += 1
        if self.faults.take("cut", request.method, request.path) is not None:
            _abort(request)
        headers = {"Content-Type": answer.media, **answer.headers}
        response = web.Response(status=answer.code, body=answer.body, headers=headers)
        for warning in answer.warnings:
            told = warning.replace('"', '\\"')
            response.headers.add("Warning", f'299 - "{told}"')
        return response

    async def _log(self, request: web.Request, target: Target) -> web.StreamResponse:
        """Send a container's output; with ``follow``, as it grows, until its pod has ended."""
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        sent, first = 0, True
        try:
            while True:
                pod = self.api.get(target.kind, target.namespace, target.name).obj
                text = self._output(request, target, pod)
                if first:
                    await response.prepare(request)
                    sent, first = tail(text, request.query.get("tailLines")), False
                await response.write(text[sent:])
                sent = len(text)
                ended = pod["status"].get("phase") in ("Succeeded", "Failed")
                if ended or request.query.get("follow") != "true":
                    break
                await asyncio.sleep(0.05)
        except Refused:
            if first:
                raise
        except ConnectionError:
            _abort(request)
        await response.write_eof()
        return response

    def _output(self, request: web.Request, target: Target, pod: dict[str, Any]) -> bytes:
        container = request.query.get("container", "")
        if pod["status"].get("phase", "Pending") == "Pending":
            said = f'container "{container}" in pod "{target.name}" is waiting to start'
            raise Refused(400, "BadRequest", said)
        return self.logs(target.namespace, target.name, container) or b""

    async def _watch(self, request: web.Request, asked: Asked) -> web.StreamResponse:
        target = asked.target
        asked.permit(self.access, "watch")
        query = asked.query
        if target.name:
            query = {**query, "fieldSelector": f"metadata.name={target.name}"}
        watch = Watch(self.api, target.kind, target.namespace, query, self._bookmark_seconds)
        if "as=Table" in asked.accept:
            watch.as_table()
        response = web.StreamResponse(headers={"Content-Type": _JSON})
        self._watches.add(watch)
        self.traffic.watches += 1
        try:
            await response.prepare(request)
            async with contextlib.aclosing(watch.chunks()) as chunks:
                async for chunk in chunks:
                    fault = None
                    if chunk:
                        fault = self.faults.take("cut", "GET", request.path, watch=True)
                    await response.write(chunk[: len(chunk) // 2] if fault else chunk)
                    if fault is not None:
                        _abort(request)
            await response.write_eof()
        except (ConnectionError, asyncio.CancelledError):
            # The watcher went away, or the server is going down.
            _abort(request)
        finally:
            self._watches.discard(watch)
        return response


def _abort(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.abort()


def _parsed(body: bytes, media: str) -> object:
    if not body:
        return None
    if "protobuf" in media:
        return protobuf.decoded(body)
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        if "yaml" not in media:
            raise bad_request(f"the object provided is unrecognized: {error}") from error
    try:
        return yaml.load(body, yaml.CSafeLoader)
    except yaml.YAMLError as error:
        raise bad_request(f"error decoding YAML: {error}") from error


def _refusal(refused: Refused) -> Answer:
    headers: dict[str, str] = {}
    if refused.retry_after_seconds is not None:
        headers["Retry-After"] = str(refused.retry_after_seconds)
    return Answer(refused.code, msgspec.json.encode(refused.status()), headers=headers)


_REASONS: Mapping[int, str] = {
    401: "Unauthorized",
    403: "Forbidden",
    409: "Conflict",
    410: "Expired",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


def faulty(fault: Fault) -> Answer:
    """Return the answer that a test wanted."""
    reason = _REASONS.get(fault.code, "")
    return _refusal(
        Refused(
            fault.code,
            reason,
            f"a fault that a test wanted: {reason}",
            retry_after_seconds=fault.retry_after_seconds,
        )
    )


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def tail(text: bytes, lines: str | None) -> int:
    """Where the last so many lines of a text begin."""
    if lines is None:
        return 0
    return len(text) - len(b"".join(text.splitlines(keepends=True)[-int(lines) :]))
