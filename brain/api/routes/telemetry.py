"""``POST /api/v1/telemetry``: a 200 answer means that the accepted samples are committed.

These requests are answered before they reach FastAPI, so that even a batch of one sample costs
little more than HTTP and the database. A batch never waits for decisions: telemetry has separate
threads and a separate writer.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import NamedTuple

import uuid_utils
from anyio import to_thread
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from brain import errors, wire
from brain.api import auth, ingest, known_heads, problems, queries, routers
from brain.api.deps import Context, note_lost, read_body
from brain.api.known_heads import Sender
from brain.api.names import check_names
from brain.api.routes.ui import HEADERS
from brain.api.writer import Outcome
from brain.clocks import beyond_latency
from brain.errors import BrainError, Overloaded, TooLarge, Unavailable
from brain.ports import SampleBatch
from brain.types.job import JobId
from brain.types.record import Principal, Role, Token
from brain.types.telemetry import Receipt

router = routers.router("telemetry")

Headers = Sequence[tuple[bytes, bytes]]
_Read = tuple[SampleBatch, ingest.Judged]
_log = logging.getLogger("brain.api")
#: Gets status, lines of headers, and body of an answer.
Tell = Callable[[int, bytes, bytes], None]

_PATH = "/api/v1/telemetry"
_ROUTE = f"POST {_PATH}"
#: Bytes of a body that is read on the event loop, in about a millisecond: a thread costs more. A
#: larger body would delay all other requests.
_SMALL_BYTES = 128 * 1024
#: Most samples of such a body: finding the reason why one is bad takes as long as ten good ones.
_FEW = 256
_HEADERS = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
_JSON = (b"content-type", b"application/json")
#: Lines of a receipt's headers: the length of its body, and the request's id.
_LINES_OF_RECEIPT = b"".join(
    [b"%s: %s\r\n" % header for header in [_JSON, *_HEADERS]]
    + [b"content-length: %d\r\nx-request-id: %s\r\n"]
)


@router.post(
    "/telemetry",
    response_model=Receipt,
    responses=problems.problems(
        errors.BadInput, errors.TooLarge, errors.UnknownVersion, Overloaded, errors.Unavailable
    ),
)
def take() -> None:
    """Store a batch; valid samples are committed, and invalid ones are returned with reasons.

    The body is JSON or NDJSON, either plain or with ``Content-Encoding`` gzip or zstd. Repeating a
    batch changes nothing.
    """
    raise AssertionError("``answer`` handles these requests; this route only describes them")


def is_for(scope: Scope) -> bool:
    """Return True for a request that ``answer`` handles."""
    asked = scope["type"], scope.get("path"), scope.get("method")
    return asked == ("http", _PATH, "POST")


async def answer(here: Context, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a batch once it is committed, or report why it was not committed."""
    request_id = str(uuid_utils.uuid7())
    try:
        receipt = await _taken(here, scope, receive)
    except Exception as failed:  # noqa: BLE001 - the sender is told, and the log
        told = _problem(here, failed, request_id)
        await _send(here, send, told.status_code, bytes(told.body), told.raw_headers, request_id)
    else:
        body = wire.encode(receipt)
        headers = [_JSON, (b"content-length", b"%d" % len(body))]
        await _send(here, send, 200, body, headers, request_id)


def take_directly(here: Context, data: bytes, tell: Tell) -> bool | None:
    """Handle a request with a known head, without ASGI; ``tell`` gets the answer once the batch is
    committed.

    Returns False for a request that has to be parsed, and None if its body is not complete yet.
    """
    begun, limit = known_heads.begun(data), here.settings.body_limit_bytes
    sender = begun and here.heads.get(begun.head)
    if not begun or not sender or begun.body_bytes > min(_SMALL_BYTES, limit):
        return False
    if len(data) == begun.head_bytes and begun.body_bytes:
        return None
    token = here.sign_ins.get(sender.hashed, here.clock())
    if token is None or len(data) != begun.head_bytes + begun.body_bytes:
        return False
    Direct(here, sender, tell).take(data[begun.head_bytes :], token)
    return True


class Direct:
    """A telemetry request that is handled without ASGI, from its complete body to its answer."""

    __slots__ = ("_batch", "_here", "_judged", "_sender", "_taken_bytes", "_tell")

    def __init__(self, here: Context, sender: Sender, tell: Tell) -> None:
        self._here, self._sender, self._tell = here, sender, tell
        self._taken_bytes = 0

    def take(self, body: bytes, token: Token) -> None:
        """Pass a batch to the writer, or refuse the batch."""
        here, sender = self._here, self._sender
        try:
            here.rates.take(sender.rate_key, sender.principal, now=here.monotonic())
            here.writer.expect()
            here.bodies.take(sender.hashed, len(body), telemetry=True)
            self._taken_bytes = len(body)
            envelope = _envelope(here, body, "", sender.content_type)
            if len(envelope.samples) <= _FEW:
                self._store(_read(here, sender.principal, envelope), token)
            else:
                beside = _read_beside(here, sender.principal, lambda: envelope)
                asyncio.ensure_future(beside).add_done_callback(partial(self._when_read, token))
        except Exception as failed:  # noqa: BLE001 - the sender is told
            self._stored(failed)

    def _when_read(self, token: Token, reading: "asyncio.Future[_Read]") -> None:
        try:
            self._store(reading.result(), token)
        except Exception as failed:  # noqa: BLE001 - the sender is told
            self._stored(failed)

    def _store(self, read: _Read, token: Token) -> None:
        self._batch, self._judged = read
        self._here.writer.put(self._batch, token, self._stored)

    def _stored(self, outcome: Outcome) -> None:
        here, request_id = self._here, str(uuid_utils.uuid7())
        here.bodies.give_back(self._sender.hashed, self._taken_bytes, telemetry=True)
        if isinstance(outcome, Exception):
            refusal = _problem(here, outcome, request_id)
            status, body = refusal.status_code, bytes(refusal.body)
            headers = _whole(refusal.raw_headers, request_id)
            lines = b"".join([b"%s: %s\r\n" % header for header in headers])
        else:
            who = self._sender.principal
            body = wire.encode(_receipt(here, who, self._batch, self._judged, outcome))
            status, lines = 200, _LINES_OF_RECEIPT % (len(body), request_id.encode())
        here.metrics.answered("POST", status)
        self._tell(status, lines, body)


def _problem(here: Context, failed: Exception, request_id: str) -> Response:
    """Return the answer to a batch that was not stored, and count or report the cause."""
    if not isinstance(failed, BrainError):
        told = {"request_id": request_id}
        _log.error("the request failed", exc_info=failed, extra=told)
        return problems.bug(request_id)
    # The frames of the traceback hold the body, and the future that they wait for holds the error.
    # This cycle would stay in memory until the next garbage collection.
    failed.__traceback__ = None
    if failed.limit:
        here.metrics.refusals.labels(failed.limit).inc()
    if isinstance(failed, Unavailable):
        note_lost(here, failed, request_id)
    return problems.answer(failed, request_id)


class _Sender(NamedTuple):
    token: Token
    principal: Principal
    hashed: str


async def _taken(here: Context, scope: Scope, receive: Receive) -> Receipt:
    # If a header occurs twice, the first one counts, as everywhere.
    headers = {
        name.decode("latin-1"): value.decode("latin-1")
        for name, value in reversed(scope["headers"])
    }
    check_names(here.hosts, headers, scope)
    sender = await _signed_in(here, scope, headers)
    if scope.get("query_string"):
        queries.check_names(Request(scope), ())
    here.writer.expect()
    with here.bodies.body(sender.hashed, telemetry=True) as add:
        declared = headers.get("content-length", "")
        whole = _is_whole(scope)
        body = await read_body(here, receive, declared, "body_limit_bytes", add, whole=whole)
        encoding = headers.get("content-encoding", "").strip().lower()
        content_type = headers.get("content-type", "")
        told = partial(_envelope, here, body, encoding, content_type)
        # A sender other than an agent may name any job in the database.
        if len(body) <= _SMALL_BYTES and not encoding and sender.principal.role is Role.AGENT:
            envelope = told()
            if len(envelope.samples) <= _FEW:
                batch, judged = _read(here, sender.principal, envelope)
            else:
                batch, judged = await _read_beside(here, sender.principal, lambda: envelope)
        else:
            batch, judged = await _read_beside(here, sender.principal, told)
        receipt = await here.writer.write(batch, sender.token)
    if first := scope.get("state", {}).pop("first", b""):
        known = Sender(sender.principal, sender.hashed, _rate_key(sender.hashed), content_type)
        here.heads.keep(first, scope, headers, known)
    return _receipt(here, sender.principal, batch, judged, receipt)


def _receipt(
    here: Context, who: Principal, batch: SampleBatch, judged: ingest.Judged, receipt: Receipt
) -> Receipt:
    """Return the answer to a batch that was stored, with its rejected samples."""
    offset = beyond_latency(batch.offset_seconds)
    here.condition.note_offset(who.name, offset, batch.received_at)
    if not judged.rejected and not receipt.rejected:
        return receipt
    rejected = [*judged.rejected, *ingest.in_batch(judged, receipt.rejected)]
    here.metrics.samples.labels("rejected").inc(len(rejected))
    return Receipt(
        stored=receipt.stored,
        duplicates=receipt.duplicates,
        rejected=tuple(sorted(rejected, key=lambda each: each.index)),
    )


def _is_whole(scope: Scope) -> bool:
    """Return True if the whole body has arrived, so that reading waits for no client."""
    connection = scope.get("state", {}).get("connection")
    return connection is not None and not connection.waits


async def _signed_in(here: Context, scope: Scope, headers: Mapping[str, str]) -> _Sender:
    secret = auth.bearer_in(headers.get("authorization", ""))
    by_cookie = None
    if not secret:
        by_cookie = Request(scope)
        secret = auth.secret_in(by_cookie) or ""
    hashed = auth.sha256(secret) if secret else ""
    key = _rate_key(hashed)
    token = here.sign_ins.get(hashed, here.clock())
    if token is None:
        here.rates.expect(key, now=here.monotonic())
        token = await to_thread.run_sync(
            auth.check, here.stores, hashed, here.clock(), limiter=here.telemetry_threads
        )
        here.sign_ins.keep(token)
    principal = auth.principal_of(token)
    here.rates.take(key, principal, now=here.monotonic())
    if (connection := scope.get("state", {}).get("connection")) is not None:
        connection.signed_in = True
    auth.check_route(principal, _ROUTE)
    if by_cookie is not None:
        auth.check_same_origin(by_cookie)
    return _Sender(token, principal, hashed)


def _rate_key(hashed: str) -> str:
    return f"{hashed}/telemetry"


def _envelope(here: Context, body: bytes, encoding: str, content_type: str) -> wire.Envelope:
    data = ingest.unpacked(body, encoding, here.settings.body_limit_bytes)
    envelope = ingest.envelope_of(data, content_type)
    if len(envelope.samples) > here.settings.batch_limit:
        raise TooLarge(
            f"the request has {len(envelope.samples)} samples, more than batch_limit "
            f"{here.settings.batch_limit}; split the batch",
            field="samples",
        )
    return envelope


async def _read_beside(here: Context, who: Principal, told: Callable[[], wire.Envelope]) -> _Read:
    """Read a batch in a thread, so that it delays no other request."""
    return await to_thread.run_sync(
        lambda: _read(here, who, told()), limiter=here.telemetry_threads
    )


def _read(here: Context, who: Principal, envelope: wire.Envelope) -> _Read:
    now = here.clock()
    parsed = ingest.parse(envelope, now=now)
    keep = timedelta(seconds=here.settings.raw_seconds)
    refused = _refused(here, who, parsed.jobs)
    judged = ingest.judge(parsed, now=now, keep=keep, refused=refused)
    batch = SampleBatch(
        samples=judged.good,
        received_at=now,
        offset_seconds=judged.offset.total_seconds(),
    )
    return batch, judged


def _refused(here: Context, who: Principal, jobs: frozenset[JobId]) -> Mapping[JobId, str]:
    """Return the jobs whose samples are not accepted from this sender, with the reason."""
    if who.role is Role.AGENT:
        # The token was made for a known job, and jobs are never deleted.
        return {
            job: (f"job {job} is not the job of this token; send the token of that job")
            for job in jobs - {who.job}
        }
    with here.stores.transaction(read_only=True) as tx:
        known = tx.jobs.known(jobs)
    return {
        job: f"job {job!r} is not the id of a job; send the id that `brain jobs` shows"
        for job in jobs - known
    }


async def _send(
    here: Context,
    send: Send,
    status: int,
    body: bytes,
    headers: Headers,
    request_id: str,
) -> None:
    here.metrics.answered("POST", status)
    whole = _whole(headers, request_id)
    await send({"type": "http.response.start", "status": status, "headers": whole})
    await send({"type": "http.response.body", "body": body})


def _whole(headers: Headers, request_id: str) -> Headers:
    return [*headers, *_HEADERS, (b"x-request-id", request_id.encode())]
