"""Dependencies of routes: the app's context, the principal, a job of the path, and bodies."""

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

#: Part of the time between two checks of a long answer's token after which the next is prepared.
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
    #: As in ``Health``.
    submitters: str
    #: Lets the tick begin at once instead of after its pause.
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
    #: Threads for telemetry alone, so that a flood of it leaves threads for other requests.
    telemetry_threads: CapacityLimiter
    #: Threads for sign-ins by a code: each waits for its turn to write, and any client may try one.
    sign_in_threads: CapacityLimiter
    #: Seconds on a monotonic clock.
    monotonic: Callable[[], float]
    #: Request rates of clients.
    rates: limits.RequestRates
    #: Budget of bodies in memory.
    bodies: limits.BodyBudget
    #: Names that a ``Host`` header may have.
    hosts: frozenset[str]


async def context_of(request: Request) -> Context:
    """Return the context of the app that handles this request."""
    context: Context = request.app.state.context
    return context


Here = Annotated[Context, Depends(context_of)]


async def principal_of(request: Request, here: Here) -> Principal:
    """Authenticate the request, count it, and check that its role may use the route.

    Raises:
        NotSignedIn, NotAllowed: as in ``auth``.
        Overloaded: this token is used too often.
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
    """Return the route in the form that the table of roles uses."""
    return f"{request.method} {request.scope['route'].path}"


def address_of(request: Request) -> str:
    """Return the address by which a request is counted.

    Behind a trusted proxy it is the address that the proxy reports.
    """
    return limits.source_of(request.client.host) if request.client else ""


Who = Annotated[Principal, Depends(principal_of)]


class TokenMonitor:
    """The sign-in of a request with a long answer, which ends when the token does.

    The token is checked again after each revocation here, and every ``heartbeat_seconds`` for
    revocations by another service, for expiry, and for the end of an agent's job.
    """

    def __init__(self, here: Context, token: Token, *, revocations: int) -> None:
        """``revocations`` is the number of revocations before the token was read."""
        self._here, self._token = here, token
        self._looked = (revocations, here.monotonic())

    def check(self) -> None:
        """Do nothing while the token is valid.

        Raises:
            NotSignedIn: the token is no longer valid.
        """
        if not self.due():
            return
        look, now = self._here.watch.look(self._token.id), self._here.clock()
        if self._is_doubtful(look, now):
            auth.check(self._here.stores, self._token.sha256, now)
        self._looked = (look.revocations, look.at)

    async def ended(self) -> bool:
        """True if the sign-in is over; False while the stores cannot tell."""
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
        """Return True if ``ended`` must be called before more is sent; only on the event loop.

        When half of the time until a check has passed, a check of all tokens starts in the
        background, so that long answers rarely wait for it.
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
        """Return True if the token must be checked before more is sent."""
        count, at = self._looked
        age = self._here.monotonic() - at
        return self._here.bell.revocations != count or age >= (
            self._here.settings.heartbeat_seconds
        )

    def _is_doubtful(self, look: Look, now: datetime) -> bool:
        end = self._token.expires_at
        return self._token.id in look.doubtful or (end is not None and end <= now)


async def token_of(request: Request, here: Here, who: Who) -> AsyncIterator[TokenMonitor]:
    """Yield the monitor of this request's sign-in, until the answer is over."""
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
    """A request about one job: its principal, and the job's name in the path, resolved once."""

    here: Context
    who: Principal
    name: str
    project: str

    def job(self, tx: Transaction, *, acting: bool = False) -> Job:
        """Return the job of the path.

        Raises:
            UnknownJob: there is no such job.
            NotAllowed: the principal has no right to the job.
        """
        try:
            job = tx.jobs.get(self.name, self.project)
        except UnknownJob as unknown:
            raise UnknownJob(f"{unknown}; {self._elsewhere(tx)}") from None
        auth.check_job(self.who, job, acting=acting)
        return job

    def _elsewhere(self, tx: Transaction) -> str:
        """Return the remedy for a job name that the project does not have.

        An agent learns nothing of other projects.
        """
        others = tx.jobs.projects(self.name) if self.who.role is not Role.AGENT else ()
        if not others:
            return "`brain jobs` lists the jobs"
        return (
            f"{', '.join(others)} {('has' if len(others) == 1 else 'have')} a job of this name: "
            f"set BRAIN_PROJECT={others[0]}, or add ?project={others[0]}"
        )

    def read(self, act: Callable[[Transaction, Job], object], *, status: int = 200) -> Response:
        """Answer with the result of ``act`` on the job."""
        with self.here.stores.transaction(read_only=True) as tx:
            return answer(act(tx, self.job(tx)), status=status)


async def asking(here: Here, who: Who, job: str, project: Project = "default") -> JobRequest:
    """Return the job of the path, with the principal of the request."""
    return JobRequest(here, who, job, project)


AboutJob = Annotated[JobRequest, Depends(asking)]


async def body_of(request: Request, here: Here, who: Who) -> AsyncIterator[bytes]:
    """Yield the request's body, which counts towards the memory budget until the request is
    answered.

    Raises:
        TooLarge, TooSlow, Overloaded: a limit is reached; the message names it.
        BadInput: the connection ended before the end of the body.
    """
    sender = auth.sha256(auth.secret_in(request) or "")
    with here.bodies.body(sender, telemetry=False) as add:
        yield await read_body(here, *_sent(request), "body_limit_bytes", add)


async def open_body_of(request: Request, here: Here) -> bytes:
    """Yield the body of a request that needs no token; errors as in ``body_of``."""
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
    """Read a body of ``declared`` length within the setting ``limit``; errors as in ``body_of``.

    A ``whole`` body has arrived already and needs no timer.
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
    """Mark the stores as lost in the service's health, too, until a write succeeds again."""
    if not here.condition.is_degraded("database"):
        _log.warning("%s", lost.in_full, extra={"request_id": request_id})
    here.condition.worsen("database", f"Brain accepts no samples now: {lost}")


def answer(value: object, *, status: int = 200, etag: str | None = None) -> Response:
    """Return ``value`` as an HTTP response written by ``brain.wire``; status 204 has no body."""
    headers = {} if etag is None else {"ETag": f'"{etag}"'}
    if status == 204:
        return Response(status_code=204, headers=headers)
    return Response(wire.encode(value), status, headers=headers, media_type="application/json")


def json_body(body: bytes) -> object:
    """Return the body as plain values; an empty body is an empty object.

    Raises:
        BadInput: the body is not JSON.
    """
    return wire.decode(body, object) if body.strip() else {}


def asked(body: bytes, kind: type[T], who: Principal | None = None) -> T:
    """Return the request in a body. Unknown fields from a scaler are ignored, because the scaler
    may be newer.

    Raises:
        UnknownField: any other client sent an unknown field; the message names the nearest one.
        BadInput: the body is not JSON, or a field is missing or of another type.
    """
    lenient = who is not None and who.role is Role.SCALER
    return (wire.convert if lenient else wire.request)(json_body(body), kind)
