"""The application: routes, problems and the outermost layer put together."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from threading import Semaphore

import uuid_utils
from anyio import CapacityLimiter
from anyio.to_thread import current_default_thread_limiter
from fastapi import FastAPI, Request, Response
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from brain import __version__
from brain.api import events, openapi, problems
from brain.api.deps import SAFE, Context
from brain.api.events import Bell, Feed
from brain.api.limits import BodyBudget, RequestRates
from brain.api.metrics import Condition, Metrics
from brain.api.routes import (
    access,
    fleet,
    jobs,
    logs,
    plans,
    policies,
    service,
    telemetry,
    ui,
    worlds,
)
from brain.api.routes import events as event_routes
from brain.api.secrets import Seal
from brain.errors import BrainError, NotAllowed, Unavailable
from brain.ports import Clock, Stores
from brain.settings import Settings

_log = logging.getLogger("brain.api")

#: Threads of telemetry, which are the batches that are stored at once, of sign-ins by a code, and
#: of everything else; ``brain.db.engine`` has a connection for each of them, and some to spare.
_INGESTING, _SIGNING_IN, _THREADS = 16, 2, 24
#: What browsers call a page that is not ours.
_ELSEWHERE = ("cross-site", "same-site")
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def create_app(
    stores: Stores,
    settings: Settings,
    clock: Clock,
    *,
    home: Path,
    seal: Seal,
    bell: Bell | None = None,
    condition: Condition | None = None,
    metrics: Metrics | None = None,
    wake: Callable[[], None] = lambda: None,
    measured: Callable[[frozenset[str]], None] = lambda jobs: None,
    monotonic: Callable[[], float] = time.monotonic,
) -> FastAPI:
    """Return the service's app over ``stores``.

    ``wake`` lets the tick begin at once, after something was decided; ``measured`` tells it whose
    samples came. ``bell``, ``metrics`` and ``condition`` are shared with the tick; left out, the
    app has its own.
    """
    metrics, bell = metrics or Metrics(), bell or Bell()
    context = Context(
        stores=stores,
        settings=settings,
        clock=clock,
        home=home,
        bell=bell,
        feed=Feed(bell, stores),
        seal=seal,
        metrics=metrics,
        condition=condition or Condition(metrics),
        started_at=clock(),
        wake=wake,
        measured=measured,
        ingesting=Semaphore(_INGESTING),
        telemetry_threads=CapacityLimiter(_INGESTING),
        sign_in_threads=CapacityLimiter(_SIGNING_IN),
        monotonic=monotonic,
        rates=RequestRates(settings),
        bodies=BodyBudget(settings.body_budget_bytes, body_bytes=settings.body_limit_bytes),
        hosts=_hosts(settings),
    )
    return _assembled(context)


def _assembled(context: Context) -> FastAPI:
    app = FastAPI(
        title="Brain",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        lifespan=_watching,
        generate_unique_id_function=openapi.operation_id,
    )
    app.state.context = context
    problems.install(app)
    app.add_exception_handler(Unavailable, _on_lost_stores)
    told = (jobs, plans, logs, event_routes, worlds, fleet, policies, telemetry, access, openapi)
    for part in told:
        app.include_router(part.router)
    app.include_router(service.router)
    app.include_router(service.api)
    app.router.default = ui.Dashboard(ui.directory())
    app.add_middleware(Outermost)
    return app


def _on_lost_stores(request: Request, lost: Exception) -> Response:
    """Tell it in health, too, until a write succeeds again."""
    assert isinstance(lost, Unavailable)
    context: Context = request.app.state.context
    if not context.condition.is_degraded("database"):
        _log.warning("request %s: %s", problems.request_id_of(request), lost.in_full)
    context.condition.worsen("database", f"nothing is accepted: {lost}")
    return problems.answer(lost, problems.request_id_of(request))


@asynccontextmanager
async def _watching(app: FastAPI) -> AsyncIterator[None]:
    """Ring the bell for commits of other processes, as long as the app serves."""
    context: Context = app.state.context
    current_default_thread_limiter().total_tokens = _THREADS
    task = asyncio.create_task(events.watch(context.bell, context.stores))
    yield
    context.bell.close()
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


class Outermost:
    """Gives each request an id, refuses foreign hosts and origins, adds headers, counts."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        here: Context = scope["app"].state.context
        request_id = str(uuid_utils.uuid7())
        scope.setdefault("state", {})["request_id"] = request_id

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                _add_headers(MutableHeaders(scope=message), request_id)
                status = f"{message['status'] // 100}xx"
                here.metrics.requests.labels(scope["method"], status).inc()
            await send(message)

        try:
            _check_names(here.hosts, Headers(scope=scope), scope["method"])
        except BrainError as refused:
            await problems.answer(refused, request_id)(scope, receive, sending)
            return
        await self._app(scope, receive, sending)


def _hosts(settings: Settings) -> frozenset[str]:
    """The names under which the service may be addressed."""
    configured = (name.strip().lower() for name in settings.allowed_hosts.split(","))
    return frozenset((*_LOOPBACK, settings.host.lower(), *filter(None, configured)))


def _check_names(hosts: frozenset[str], headers: Headers, method: str) -> None:
    """Refuse what a page elsewhere would send: another name's Host, another page's Origin."""
    host = headers.get("host", "")
    if _name(host) not in hosts:
        raise NotAllowed(f"Host {host!r} is not served here; name it in the setting allowed_hosts")
    origin = headers.get("origin")
    if method not in SAFE and headers.get("sec-fetch-site", "").lower() in _ELSEWHERE:
        raise NotAllowed("Sec-Fetch-Site tells of another site; requests come from our own pages")
    if method not in SAFE and origin and origin.partition("://")[2].lower() != host.lower():
        raise NotAllowed(f"Origin {origin!r} is not {host}; requests come from our own pages")


def _name(host: str) -> str:
    """The name or address in a Host header, without its port and brackets."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower()


def _add_headers(headers: MutableHeaders, request_id: str) -> None:
    headers["X-Request-Id"] = request_id
    headers.setdefault("Content-Security-Policy", ui.CONTENT_SECURITY_POLICY)
    headers.setdefault("X-Content-Type-Options", "nosniff")
    headers.setdefault("Referrer-Policy", "no-referrer")
