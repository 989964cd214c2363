"""Builds the application from routes, error handlers and the outermost middleware."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import uuid_utils
from anyio import CapacityLimiter
from anyio.to_thread import current_default_thread_limiter
from fastapi import FastAPI, Request, Response
from opentelemetry import trace
from opentelemetry.trace import TracerProvider
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from brain import __version__
from brain.api import events, ingest, openapi, problems, tracing
from brain.api.auth import SignIns
from brain.api.bell import Bell
from brain.api.compression import Compressing
from brain.api.deps import Context, note_lost
from brain.api.events import Feed
from brain.api.head import AnsweringHead
from brain.api.known_heads import KnownHeads
from brain.api.limits import BodyBudget, RequestRates
from brain.api.lists import ListMarks
from brain.api.metrics import Metrics, ServiceCondition
from brain.api.names import check_names, hosts_of
from brain.api.relay import ScalerRelay
from brain.api.routes import (
    access,
    bulk,
    fleet,
    jobs,
    logs,
    plans,
    policies,
    relay,
    service,
    telemetry,
    ui,
    worlds,
)
from brain.api.routes import events as event_routes
from brain.api.rows import JobRows
from brain.api.secrets import Seal
from brain.api.token_watch import TokenWatch
from brain.api.views import Sparklines
from brain.api.writer import TelemetryWriter
from brain.errors import BrainError, Unavailable
from brain.ports import Clock, SampleBatch, Stores
from brain.settings import Settings
from brain.types.telemetry import Receipt

_log = logging.getLogger("brain.api")
#: Logger of one line per request, with fields that programs can read.
REQUESTS = logging.getLogger("brain.requests")
#: Numbers of threads: for telemetry (sign-in of tokens, large batches), for sign-ins by a code, and
#: for all other requests. ``brain.db.engine`` has a connection for each thread, and a few more.
_INGESTING, _SIGNING_IN, _THREADS = 16, 2, 24
#: Most seconds that the service waits for its last commit of telemetry when it stops.
_LAST_COMMIT_SECONDS = 1.0


def create_app(
    stores: Stores,
    settings: Settings,
    clock: Clock,
    *,
    home: Path,
    seal: Seal,
    bell: Bell | None = None,
    condition: ServiceCondition | None = None,
    metrics: Metrics | None = None,
    submitters: str = "",
    wake: Callable[[], None] = lambda: None,
    measured: Callable[[frozenset[str]], None] = lambda jobs: None,
    monotonic: Callable[[], float] = time.monotonic,
    provider: TracerProvider | None = None,
) -> FastAPI:
    """Return the service's app, which uses ``stores``.

    The app calls ``wake`` to start the next tick (a turn of each pool) immediately, and
    ``measured`` to tell the tick which jobs have new samples. The app shares ``bell``, ``metrics``
    and ``condition`` with the tick, and creates those that are None. ``submitters`` becomes the
    field of this name in ``Health``. ``provider`` receives the spans of requests and of their
    transactions.
    """
    metrics, bell, sparklines = metrics or Metrics(), bell or Bell(), Sparklines()
    condition = condition or ServiceCondition(metrics)
    sign_ins = SignIns()
    context = Context(
        stores=stores if provider is None else tracing.TracedStores(stores, provider),
        settings=settings,
        clock=clock,
        home=home,
        bell=bell,
        feed=Feed(
            bell,
            stores,
            JobRows(settings, clock, sparklines),
            ListMarks(clock, condition.degraded),
        ),
        sparklines=sparklines,
        relay=ScalerRelay(bell),
        seal=seal,
        metrics=metrics,
        condition=condition,
        started_at=clock(),
        submitters=submitters,
        wake=wake,
        measured=measured,
        watch=TokenWatch(
            stores, lambda: bell.revocations, monotonic, seconds=settings.heartbeat_seconds
        ),
        sign_ins=sign_ins,
        heads=KnownHeads(),
        writer=TelemetryWriter(
            stores, clock, sign_ins, _when_stored(bell, condition, metrics, measured)
        ),
        telemetry_threads=CapacityLimiter(_INGESTING),
        sign_in_threads=CapacityLimiter(_SIGNING_IN),
        monotonic=monotonic,
        rates=RequestRates(settings),
        bodies=BodyBudget(settings.body_budget_bytes, body_bytes=settings.body_limit_bytes),
        hosts=hosts_of(settings),
    )
    return _assembled(context, provider)


def _when_stored(
    bell: Bell,
    condition: ServiceCondition,
    metrics: Metrics,
    measured: Callable[[frozenset[str]], None],
) -> Callable[[Sequence[tuple[SampleBatch, Receipt]]], None]:
    """Return the function to call after each commit of samples; it rings the bell."""

    def tell(committed: Sequence[tuple[SampleBatch, Receipt]]) -> None:
        condition.mend("database")
        metrics.samples.labels("stored").inc(sum(each.stored for _, each in committed))
        metrics.samples.labels("duplicate").inc(sum(each.duplicates for _, each in committed))
        jobs = frozenset(
            ingest.job_of(sample)
            for batch, receipt in committed
            if receipt.stored
            for sample in batch.samples
        )
        if jobs:
            bell.ring(measured=jobs)
            measured(jobs)

    return tell


def _assembled(context: Context, provider: TracerProvider | None) -> FastAPI:
    app = _App(
        title="Brain",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        lifespan=_watching,
        telemetry=tracing.of_requests(provider),
    )
    app.state.context = context
    problems.install(app)
    app.add_exception_handler(Unavailable, _on_lost_stores)
    told = (
        jobs,
        bulk,
        plans,
        logs,
        event_routes,
        worlds,
        relay,
        fleet,
        policies,
        telemetry,
        access,
    )
    for router in (*(part.router for part in (*told, openapi)), service.router, service.api):
        app.router.routes.extend(router.routes)
    app.router.default = ui.Dashboard(ui.directory())
    app.add_middleware(Compressing)
    app.add_middleware(AnsweringHead)
    app.add_middleware(Outermost)
    return app


class _App(FastAPI):
    """The application. It answers telemetry before FastAPI, whose layers take more time."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if telemetry.is_for(scope):
            await telemetry.answer(self.state.context, scope, receive, send)
        else:
            await super().__call__(scope, receive, send)


def _on_lost_stores(request: Request, lost: Exception) -> Response:
    """Answer with the problem, and mark the stores as lost until a write succeeds again."""
    assert isinstance(lost, Unavailable)
    note_lost(request.app.state.context, lost, problems.request_id_of(request))
    return problems.answer(lost, problems.request_id_of(request))


@asynccontextmanager
async def _watching(app: FastAPI) -> AsyncIterator[None]:
    """Ring the bell for commits of other processes while the app serves."""
    context: Context = app.state.context
    current_default_thread_limiter().total_tokens = _THREADS
    task = asyncio.create_task(events.watch(context.bell, context.stores))
    yield
    context.bell.close()
    await run_in_threadpool(context.writer.close, _LAST_COMMIT_SECONDS)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


class Outermost:
    """Gives each request an id, refuses foreign hosts and origins, adds headers, counts requests,
    and answers with a problem document if an unexpected exception occurs.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward a request to the app, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        here: Context = scope["app"].state.context
        request_id, began = str(uuid_utils.uuid7()), here.monotonic()
        scope.setdefault("state", {})["request_id"] = request_id
        # Never reset, because the server's own lines come later; each request has its own task.
        problems.REQUEST_ID.set(request_id)
        span = trace.get_current_span()
        span.set_attribute("brain.request_id", request_id)
        begun = False

        async def sending(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                _add_headers(MutableHeaders(scope=message), request_id)
                here.metrics.answered(scope["method"], message["status"])
                _note(scope, message["status"], here.monotonic() - began)
            await send(message)

        try:
            check_names(here.hosts, Headers(scope=scope), scope)
            await self._app(scope, receive, sending)
        except Exception as failed:
            if begun:
                raise  # The server ends the connection, so that nobody takes the answer for whole.
            if isinstance(failed, BrainError):
                told = problems.answer(failed, request_id)
            else:
                _log.exception("the request failed")
                span.record_exception(failed)
                told = problems.bug(request_id)
            await told(scope, receive, sending)


def _note(scope: Scope, status: int, seconds: float) -> None:
    """Log a request once its answer begins; ``seconds`` have passed since the request arrived."""
    if not REQUESTS.isEnabledFor(logging.INFO):
        return
    method, path, client = scope["method"], scope["path"], scope.get("client")
    told = {
        "request_id": scope["state"]["request_id"],
        "method": method,
        "path": path,
        "route": getattr(scope.get("route"), "path", ""),
        "status": status,
        "seconds": round(seconds, 6),
        "client": client[0] if client else "",
    }
    REQUESTS.info("%s %s %d", method, path, status, extra=told)


def _add_headers(headers: MutableHeaders, request_id: str) -> None:
    headers["X-Request-Id"] = request_id
    for name, value in ui.HEADERS.items():
        headers.setdefault(name, value)
