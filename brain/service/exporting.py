"""Exports the service's spans to a collector, as configured by the standard variables ``OTEL_*``.

Imported only if the setting ``traces`` is on, because OpenTelemetry's packages are an optional
extra.
"""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import Thread

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from brain import __version__
from brain.errors import BadInput
from brain.service.serve import FLUSH_SECONDS

_log = logging.getLogger("brain.traces")

#: Variable -> the only value that Brain supports, which is also its default.
_SUPPORTED = {
    "OTEL_TRACES_EXPORTER": "otlp",
    "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
    "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf",
}


@contextmanager
def exporting(environment: Mapping[str, str]) -> Iterator[TracerProvider]:
    """Yield a tracer provider; a separate thread sends its spans from a queue, and spans are
    dropped while the queue is full.

    ``environment`` must be the environment of this process, because OpenTelemetry's SDK reads the
    process's environment itself.

    Raises:
        BadInput: a variable has a value that Brain, or the SDK, does not support.
    """
    for name, only in _SUPPORTED.items():
        if environment.get(name, "") not in ("", only):
            raise BadInput(
                f"{name} {environment[name]!r} is not supported; write {only}, or turn the setting "
                "traces off",
                field=name,
            )
    try:
        provider = TracerProvider(resource=_resource(), shutdown_on_exit=False)
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    except ValueError as bad:
        raise BadInput(f"OpenTelemetry rejects an OTEL_* variable: {bad}; correct it") from bad
    try:
        yield provider
    finally:
        _end(provider)


def _resource() -> Resource:
    """Return the description of this service; the variables ``OTEL_*`` win over our words."""
    ours = Resource.create({"service.name": "brain", "service.version": __version__})
    return ours.merge(OTELResourceDetector().detect())


def _end(provider: TracerProvider) -> None:
    """Send the last spans, without waiting long for a collector that is away."""
    last = Thread(target=provider.shutdown, name="traces", daemon=True)
    last.start()
    last.join(FLUSH_SECONDS)
    if last.is_alive():
        _log.warning(
            "the OpenTelemetry collector does not answer; the spans since the last answer are lost"
        )
