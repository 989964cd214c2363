"""Dependencies of routes: the app's context, the principal, the path's job, and the body."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, TypeVar

from anyio import CapacityLimiter, to_thread
from fastapi import Depends, Query, Request, Response
from starlette.concurrency import run_in_threadpool
from starlette.types import Receive

from brain import wire
from brain.api import auth, limits, queries
from brain.api.bell import Bell
from brain.api.events import Feed
from brain.api.known_heads import KnownHeads
from brain.api.metrics import Metrics, ServiceCondition
from brain.api.relay import ScalerRelay
from brain.api.secrets import Seal
from brain.api.token_watch import Look, TokenWatch
from brain.api.views import Sparklines
from brain.api.writer import TelemetryWriter
from brain.errors import (
    BadInput,
    NotSignedIn,
    Unavailable,
    UnknownJob,
)
from brain.ports import Clock, Stores, Transaction
from brain.settings import Settings
from brain.types.job import Job
from brain.types.record import Principal, Role, Token

_log = logging.getLogger("brain.api")

T = TypeVar("T")

#: The next check of a long answer's token starts after this share of the time between two checks.
_AHEAD = 0.6
#: Methods that change nothing.
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The objects that all routes share."""

    stores: Stores
    settings: Settings
    clock: Clock
    home: Path
    bell: Bell
    feed: Feed
    sparklines: Sparklines
    relay: ScalerRelay
    seal: Seal
    metrics: Metrics
    condition: ServiceCondition
    started_at: datetime
    #: The field of ``Health``.
    submitters: str
    #: Makes the tick start immediately instead of after its pause.
    wake: Callable[[], None]
    #: Tells the tick which jobs had samples stored.
    measured: Callable[[frozenset[str]], None]
    #: Tokens of open streams.
    watch: TokenWatch
    #: Cached tokens of senders of telemetry.
    sign_ins: auth.SignIns
    #: Known heads of telemetry requests.
    heads: KnownHeads
    #: Writer of telemetry.
    writer: TelemetryWriter
    #: Threads for telemetry, so that many telemetry requests leave threads for other requests.
    telemetry_threads: CapacityLimiter
    #: Threads for sign-ins by a code. These wait for other writers, and need no token.
    sign_in_threads: CapacityLimiter
    #: Returns the seconds on a monotonic clock.
    monotonic: Callable[[], float]
    #: Request rates of clients.
    rates: limits.RequestRates
    #: Budget of bytes for request bodies in memory.
    bodies: limits.BodyBudget
    #: Accepted names in a ``Host`` header.
    hosts: frozenset[str]


async def context_of(request: Request) -> Context:
    """Return the context of the app that handles this request."""
    context: Context = request.app.state.context
    return context


Here = Annotated[Context, Depends(context_of)]


async def principal_of(request: Request, here: Here) -> Principal:
    """Authenticate the request, count it, and check that its role may use the route.

    Raises:
        NotSignedIn: the token is missing, unknown, revoked or expired, or its job has ended.
        NotAllowed: the role may not use the route, or a foreign page may have sent the request.
        Overloaded: this token has used up its request rate.
    """
    secret, route = auth.secret_in(request), route_of(request)
    key = auth.sha256(secret or "")
    here.rates.expect(key, now=here.monotonic())
    # Taken before the token is read, so that a later revocation counts as new.
    request.state.revocations = here.bell.revocations
    token = await to_thread.run_sync(auth.sign_in, here.stores, secret, here.clock())
    request.state.token, principal = token, auth.principal_of(token)
    here.rates.take(key, principal, now=here.monotonic())
    if (connection := getattr(request.state, "connection", None)) is not None:
        connection.signed_in = True
    auth.check_route(principal, route)
    queries.check(request)
    if request.method not in SAFE:
        auth.check_same_origin(request)
    return principal


def route_of(request: Request) -> str:
    """Return the method and path of the route, such as ``GET /api/v1/jobs/{job}``."""
    return f"{request.method} {request.scope['route'].path}"


def address_of(request: Request) -> str:
    """Return the client address or network under which the service counts a request.

    Behind a trusted proxy, the client's address is the one that the proxy reports.
    """
    return limits.source_of(request.client.host) if request.client else ""


Who = Annotated[Principal, Depends(principal_of)]


class TokenMonitor:
    """Checks the token of a request whose answer takes long, so that the answer ends when the token
    becomes invalid.

    The token is checked after each revocation in this process. Every ``heartbeat_seconds`` it is
    checked for revocation by another process, for expiry, and for the end of an agent's job.
    """

    def __init__(self, here: Context, token: Token, *, revocations: int) -> None:
        """``revocations`` is the bell's number of revocations before the token was read."""
        self._here, self._token = here, token
        self._looked = (revocations, here.monotonic())

    def check(self) -> None:
        """Raise if the token is no longer valid.

        Raises:
            NotSignedIn: the token was revoked or has expired, or its job has ended.
            Unavailable: the stores cannot be read.
        """
        if not self.due():
            return
        look, now = self._here.watch.look(self._token.id), self._here.clock()
        if self._is_doubtful(look, now):
            auth.check(self._here.stores, self._token.sha256, now)
        self._looked = (look.revocations, look.at)

    async def ended(self) -> bool:
        """True if the token is no longer valid; False if the stores cannot be read."""
        if not self.due():
            return False
        try:
            await self._here.watch.looked(self._token.id)
            if not self.is_behind():
                return False
            await run_in_threadpool(self.check)
        except NotSignedIn:
            return True
        except Unavailable:
            return False
        return False

    def is_behind(self) -> bool:
        """True if ``ended`` must be called before more data is sent; use only on the event loop.

        Some time before a check is due, this method starts a check of all tokens in the background,
        so that long answers rarely wait for a check.
        """
        watch, id, (count, at) = self._here.watch, self._token.id, self._looked
        age, seconds = self._here.monotonic() - at, self._here.settings.heartbeat_seconds
        is_news = self._here.bell.revocations != count
        if not is_news and age < seconds * _AHEAD:
            return False
        look = watch.shared(id)
        if look is not None and not self._is_doubtful(look, self._here.clock()):
            self._looked = (look.revocations, look.at)
            return False
        if look is None and not is_news and age < seconds:
            watch.begin(id)
            return False
        return True

    def due(self) -> bool:
        """True if the token must be checked before more data is sent."""
        count, at = self._looked
        age = self._here.monotonic() - at
        return self._here.bell.revocations != count or age >= (
            self._here.settings.heartbeat_seconds
        )

    def _is_doubtful(self, look: Look, now: datetime) -> bool:
        end = self._token.expires_at
        return self._token.id in look.doubtful or (end is not None and end <= now)


async def token_of(request: Request, here: Here, who: Who) -> AsyncIterator[TokenMonitor]:
    """Yield the monitor of this request's token until the answer is complete."""
    token: Token = request.state.token
    with here.watch.watching(token.id):
        yield TokenMonitor(here, token, revocations=request.state.revocations)


OwnToken = Annotated[TokenMonitor, Depends(token_of)]
Project = Annotated[
    str,
    Query(description=("Project of the job, if the path contains the job's name and not its id")),
]
PageSize = Annotated[int, Query(ge=1, le=500)]


@dataclass(frozen=True, slots=True)
class JobRequest:
    """A request about one job: its principal, and the job's id or name in the path."""

    here: Context
    who: Principal
    name: str
    project: str

    def job(self, tx: Transaction, *, acting: bool = False) -> Job:
        """Return the job that the path names.

        Raises:
            UnknownJob: no job has this id or name.
            NotAllowed: the principal may not use the job.
        """
        try:
            job = tx.jobs.get(self.name, self.project)
        except UnknownJob as unknown:
            raise UnknownJob(f"{unknown}; {self._elsewhere(tx)}") from None
        auth.check_job(self.who, job, acting=acting)
        return job

    def _elsewhere(self, tx: Transaction) -> str:
        """Return the remedy for an unknown job name: other projects that have a job of this name.

        The remedy for an agent names no other projects.
        """
        others = tx.jobs.projects(self.name) if self.who.role is not Role.AGENT else ()
        if not others:
            return "`brain jobs` lists the jobs"
        return (
            f"among other projects, {', '.join(others)} {'has' if len(others) == 1 else 'have'} a "
            f"job with this name: set BRAIN_PROJECT={others[0]}, or add ?project={others[0]}"
        )

    def read(self, act: Callable[[Transaction, Job], object], *, status: int = 200) -> Response:
        """Call ``act`` with the job in a read-only transaction, and respond with the result."""
        with self.here.stores.transaction(read_only=True) as tx:
            return answer(act(tx, self.job(tx)), status=status)


async def asking(here: Here, who: Who, job: str, project: Project = "default") -> JobRequest:
    """Return the request's job, as named in the path, together with the request's principal."""
    return JobRequest(here, who, job, project)


AboutJob = Annotated[JobRequest, Depends(asking)]


async def body_of(request: Request, here: Here, who: Who) -> AsyncIterator[bytes]:
    """Yield the request's body, whose bytes use the memory budget until the request is answered.

    Raises:
        TooLarge, TooSlow, Overloaded: a limit is reached; the message names it.
        BadInput: the connection ended before the end of the body.
    """
    sender = auth.sha256(auth.secret_in(request) or "")
    with here.bodies.body(sender, telemetry=False) as add:
        yield await read_body(here, *_sent(request), "body_limit_bytes", add)


async def open_body_of(request: Request, here: Here) -> bytes:
    """Return the body of a request that needs no token; raise the same errors as ``body_of``."""
    here.rates.open(address_of(request), now=here.monotonic())
    return await read_body(here, *_sent(request), "open_body_bytes", lambda count: None)


def _sent(request: Request) -> tuple[Receive, str]:
    return request.receive, request.headers.get("content-length", "")


async def read_body(
    here: Context,
    receive: Receive,
    declared: str,
    limit: str,
    add: Callable[[int], None],
    *,
    whole: bool = False,
) -> bytes:
    """Read a body of at most as many bytes as the setting named ``limit`` allows.

    ``declared`` is the ``Content-Length`` of the request. If ``whole`` is True, the body has
    already arrived and needs no timeout. Raises the same errors as ``body_of``.
    """
    most: int = getattr(here.settings, limit)
    limits.check_length(int(declared) if declared.isdecimal() else 0, limit, most)
    if whole:
        return await _received(receive, limit, most, add)
    try:
        async with asyncio.timeout(here.settings.body_seconds):
            return await _received(receive, limit, most, add)
    except TimeoutError:
        raise limits.too_slow("body", "body_seconds", here.settings.body_seconds) from None


async def _received(receive: Receive, limit: str, most: int, add: Callable[[int], None]) -> bytes:
    chunks: list[bytes] = []
    length, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            # No client is left to read an answer; a killed sender is not a bug of the service.
            raise BadInput(
                "the connection ended before the whole body arrived; send the request again"
            )
        chunk, more = message.get("body", b""), message.get("more_body", False)
        length += len(chunk)
        limits.check_length(length, limit, most)
        add(len(chunk))
        chunks.append(chunk)
    return b"".join(chunks)


Body = Annotated[bytes, Depends(body_of)]
OpenBody = Annotated[bytes, Depends(open_body_of)]


def note_lost(here: Context, lost: Unavailable, request_id: str) -> None:
    """Report in the service's health that the stores cannot be reached, until a write succeeds."""
    if not here.condition.is_degraded("database"):
        _log.warning("%s", lost.in_full, extra={"request_id": request_id})
    here.condition.worsen("database", f"Brain cannot accept samples now: {lost}")


def answer(value: object, *, status: int = 200, etag: str | None = None) -> Response:
    """Return an HTTP response with ``value`` as JSON; a response with status 204 has no body."""
    headers = {} if etag is None else {"ETag": f'"{etag}"'}
    if status == 204:
        return Response(status_code=204, headers=headers)
    return Response(wire.encode(value), status, headers=headers, media_type="application/json")


def json_body(body: bytes) -> object:
    """Return the parsed JSON of the body; an empty body counts as an empty object.

    Raises:
        BadInput: the body is not JSON, or has a value that cannot be stored.
    """
    return wire.decode_body(body) if body.strip() else {}


def asked(body: bytes, kind: type[T], who: Principal | None = None) -> T:
    """Parse the body as a value of type ``kind``.

    Unknown fields from a scaler are ignored, because the scaler may be newer than the service.

    Raises:
        UnknownField: a client other than a scaler sent an unknown field; the message names the most
            similar known field.
        BadInput: the body is not JSON, or a field is missing or of another type.
    """
    lenient = who is not None and who.role is Role.SCALER
    return (wire.convert if lenient else wire.request)(json_body(body), kind)
