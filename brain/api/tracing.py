"""Spans of requests, turns and transactions, with OpenTelemetry's API.

``brain.service.exporting`` sends the spans. Without a tracer provider, no spans exist. FastAPI
creates the spans of requests. Telemetry requests have no spans, because ingest answers them before
they reach FastAPI.
"""

from collections.abc import Iterator, MutableMapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from fastapi.telemetry import TelemetryConfig
from opentelemetry import trace
from opentelemetry.trace import StatusCode, TracerProvider

from brain import __version__
from brain.ports import Stores, Tracer, Transaction

#: Paths without spans: health, which probes request every few seconds, and the stream of events.
_LEFT_OUT = frozenset({"/api/v1/health", "/api/v1/events"})


def of_requests(provider: TracerProvider | None) -> TelemetryConfig:
    """Return a configuration with which FastAPI creates a span for each request, and no metrics."""
    return {
        "tracer_provider": provider,
        "tracing": provider is not None,
        "operation_spans": False,
        "metrics": False,
        "logs": False,
        "auto_configure": False,
        "exclude": _has_no_span,
    }


def _has_no_span(scope: MutableMapping[str, Any]) -> bool:
    # A stream ends when its client leaves, which FastAPI would report as a failure.
    path, query = scope["path"], scope.get("query_string", b"")
    follows = path.endswith("/logs") and b"follow=" in query
    return not path.startswith("/api/") or path in _LEFT_OUT or follows


def tracer_of(provider: TracerProvider) -> Tracer:
    """Return the function with which the core opens spans."""
    tracer = provider.get_tracer("brain", __version__)

    @contextmanager
    def opened(name: str, attributes: dict[str, str | int]) -> Iterator[None]:
        with tracer.start_as_current_span(name) as span:
            try:
                yield
            finally:
                span.set_attributes(attributes)
                if "error.type" in attributes:
                    span.set_status(StatusCode.ERROR)

    return opened


class TracedStores:
    """Stores that create a span for each transaction, if the current request or turn has a span."""

    def __init__(self, stores: Stores, provider: TracerProvider) -> None:
        self._stores, self._tracer = stores, provider.get_tracer("brain", __version__)

    def transaction(self, *, read_only: bool = False) -> AbstractContextManager[Transaction]:
        """Open a transaction; see ``brain.ports.Stores``."""
        opened = self._stores.transaction(read_only=read_only)
        if not trace.get_current_span().is_recording():
            return opened
        return self._traced(opened, read_only=read_only)

    @contextmanager
    def _traced(
        self, opened: AbstractContextManager[Transaction], *, read_only: bool
    ) -> Iterator[Transaction]:
        # An exception ends up in the span of the request or the turn, which knows if it is one.
        with (
            self._tracer.start_as_current_span(
                "transaction",
                attributes={"brain.read_only": read_only},
                record_exception=False,
                set_status_on_exception=False,
            ),
            opened as tx,
        ):
            yield tx

    def size_bytes(self) -> int:
        return self._stores.size_bytes()

    def close(self) -> None:
        """Leave the connections open, because the service owns them."""
