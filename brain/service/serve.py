"""The running service: HTTP, the tick (turns of pools), and a shutdown within
``shutdown_seconds``.
"""

import gc
import json
import os
import resource
import signal
import socket
import ssl
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import uvicorn
from opentelemetry.trace import TracerProvider

from brain import __version__
from brain.api import tracing
from brain.api.app import create_app
from brain.api.bell import Bell
from brain.api.metrics import Metrics, ServiceCondition
from brain.api.routes import telemetry
from brain.api.secrets import Seal, write_private
from brain.ports import Stores, untraced
from brain.service.admission import Connections
from brain.service.connections import ACCEPTS, Connection
from brain.service.logs import STARTS
from brain.service.tick import Ticker
from brain.settings import Settings, networks_of

#: Part of ``shutdown_seconds`` for the last telemetry, the tick and the stores; the part for the
#: last spans, if the setting ``traces`` is on.
_RESERVED_SECONDS, FLUSH_SECONDS = 2.0, 1.0
#: Descriptors reserved for files, the database (SQLite: 3 per thread), and refused connections.
_RESERVED_DESCRIPTORS = 256
#: Most connections that one process can use.
_MOST_DESCRIPTORS = 65_536
#: Seconds that an idle connection stays open: longer than agents pause, so that they keep theirs.
_KEEP_ALIVE_SECONDS = 75

#: Thresholds of ``gc.set_threshold``: new objects per collection of the youngest generation, and
#: collections of a generation per collection of the next.
_COLLECTIONS = (20_000, 50, 100)
#: Connections that may wait to be accepted.
BACKLOG = 1024


class _Server(uvicorn.Server):  # type: ignore[misc]
    """uvicorn's server, which ends open streams first: uvicorn alone would wait for them before it
    stops anything.
    """

    bell: Bell

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen with a long queue but accept few connections at a time: uvicorn has one number for
        both.
        """
        await super().startup(sockets)
        for listener in sockets or []:
            listener.listen(BACKLOG)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End waiting requests, then stop as uvicorn does."""
        self.bell.close()
        await super().shutdown(sockets)


def serve(
    stores: Stores,
    settings: Settings,
    *,
    home: Path,
    seal: Seal,
    listener: socket.socket,
    tls: ssl.SSLContext | None,
    submitters: str = "",
    provider: TracerProvider | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT.

    ``submitters`` is a warning for ``Health`` if jobs of users are not confined on this machine,
    else empty; ``provider``, if given, receives the spans.
    """
    bell, metrics = Bell(), Metrics()
    condition = ServiceCondition(metrics)
    ticker = Ticker(
        stores if provider is None else tracing.TracedStores(stores, provider),
        settings,
        utc_now,
        home=home,
        bell=bell,
        metrics=metrics,
        condition=condition,
        trace=untraced if provider is None else tracing.tracer_of(provider),
    )
    app = create_app(
        stores,
        settings,
        utc_now,
        home=home,
        seal=seal,
        bell=bell,
        metrics=metrics,
        condition=condition,
        submitters=submitters,
        wake=ticker.hurry,
        measured=ticker.measured,
        provider=provider,
    )
    take = partial(telemetry.take_directly, app.state.context)
    connections = Connections(settings, metrics, tls, take, most=_most_connections(settings))
    server = _Server(_configuration(app, settings, connections))
    server.bell = bell
    url = _url(listener, "http" if tls is None else "https")
    record = home / "service.json"
    told = {"pid": os.getpid(), "url": url, "started_at": utc_now().isoformat()}
    write_private(record, json.dumps(told))
    STARTS.info("Brain %s listens at %s, state directory %s", __version__, url, home)
    # uvicorn raises the signal again after its end, when nothing is left to do.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    _collect_seldom()
    ticker.start()
    try:
        server.run(sockets=[listener])
    finally:
        record.unlink(missing_ok=True)
        ticker.stop(seconds=_RESERVED_SECONDS / 2)


def _most_connections(settings: Settings) -> int:
    """Return the most connections at a time, after raising the process's limit of descriptors."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _MOST_DESCRIPTORS)
    if wanted > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    possible = max(1, soft - _RESERVED_DESCRIPTORS)
    return min(settings.connections or possible, possible)


def _collect_seldom() -> None:
    """Exclude the objects of the start from garbage collection, and collect seldom: requests leave
    hardly any cycles, and a tenth of the time went into finding them.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_COLLECTIONS)


def utc_now() -> datetime:
    """Return the time of the service's clock."""
    return datetime.now(UTC)


def _configuration(app: Any, settings: Settings, connections: Connections) -> uvicorn.Config:
    reserved = _RESERVED_SECONDS + (FLUSH_SECONDS if settings.traces else 0.0)
    return uvicorn.Config(
        app,
        http=partial(Connection, connections),
        # uvloop would read the first bytes of a TLS handshake as HTTP.
        loop="uvloop" if connections.tls is None else "asyncio",
        ws="none",
        backlog=ACCEPTS,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=bool(settings.trusted_proxies),
        forwarded_allow_ips=[str(network) for network in networks_of(settings.trusted_proxies)],
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=max(0.5, settings.shutdown_seconds - reserved),
    )


def _url(listener: socket.socket, scheme: str) -> str:
    host, port = listener.getsockname()[:2]
    reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    name = f"[{reachable}]" if ":" in reachable else reachable
    return f"{scheme}://{name}:{port}"
