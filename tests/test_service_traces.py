"""Spans of the service, as a collector on the network gets them."""

import json
import os
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import httpx2
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import TracerProvider

from brain import calls
from brain.errors import UnknownJob
from tests.api.app import digits
from tests.serving import eventually, service

_SERVER = 2  # the kind of a request's span


@dataclass(frozen=True)
class Seen:
    """A span that a collector got."""

    name: str
    trace: str
    id: str
    parent: str
    kind: int
    failed: bool
    attributes: dict[str, Any]
    events: list[str]


@dataclass
class Collector:
    """An OTLP collector over HTTP, and what it got."""

    url: str
    spans: list[Seen] = field(default_factory=list)
    #: Attributes of the sender.
    resource: dict[str, Any] = field(default_factory=dict)

    def take(self, body: bytes) -> None:
        """Decode a request, and keep its spans."""
        for sender in ExportTraceServiceRequest.FromString(body).resource_spans:
            self.resource = _values(sender.resource.attributes)
            for scope in sender.scope_spans:
                self.spans += map(_seen, scope.spans)

    def named(self, name: str) -> list[Seen]:
        """The spans of a name."""
        return [span for span in self.spans if span.name == name]

    def below(self, parent: Seen) -> list[str]:
        """The names of a span's children."""
        return [span.name for span in self.spans if span.parent == parent.id]


def _seen(span: Any) -> Seen:
    ids = (span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex())
    events = [event.name for event in span.events]
    failed = span.status.code == span.status.STATUS_CODE_ERROR
    return Seen(span.name, *ids, span.kind, failed, _values(span.attributes), events)


def _values(attributes: Any) -> dict[str, Any]:
    return {a.key: getattr(a.value, a.value.WhichOneof("value")) for a in attributes}


@contextmanager
def collector() -> Iterator[Collector]:
    """A collector that listens within the block."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/v1/traces"
            got.take(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        got = Collector(f"http://127.0.0.1:{server.server_port}")
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield got
        finally:
            server.shutdown()
            thread.join()


def variables(url: str, **more: str) -> dict[str, str]:
    """The environment of a service that sends its spans somewhere."""
    return {"OTEL_EXPORTER_OTLP_ENDPOINT": url} | more


def logged(path: Path) -> list[dict[str, Any]]:
    """The lines of a log, each an object."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_request_continues_the_trace_of_its_caller_and_its_log_lines_have_its_ids(
    tmp_path: Path,
) -> None:
    written, tracer = tmp_path / "service.log", TracerProvider().get_tracer("test")
    with (
        collector() as got,
        written.open("w") as log,
        service(
            tmp_path,
            "--traces",
            "--log-format=json",
            log=log,
            environment=variables(got.url, OTEL_SERVICE_NAME="brain-test"),
        ) as running,
    ):
        with running.client() as admin:
            job = admin.send(calls.submit(digits())).id
            with tracer.start_as_current_span("caller") as caller:
                admin.send(calls.job(job))
            with pytest.raises(UnknownJob):
                admin.send(calls.job("no-such-job"))
            admin.send(calls.health())
        running.stop()
    read, unknown = got.named("GET /api/v1/jobs/{job}")
    assert read.trace == f"{caller.get_span_context().trace_id:032x}"
    assert read.parent == f"{caller.get_span_context().span_id:016x}"
    told = {
        "http.request.method": "GET",
        "http.route": "/api/v1/jobs/{job}",
        "http.response.status_code": 200,
        "url.path": f"/api/v1/jobs/{job}",
    }
    assert read.attributes | told == read.attributes
    assert set(got.below(read)) == {"transaction"}
    assert (unknown.parent, unknown.attributes["http.response.status_code"]) == ("", 404)
    assert got.resource["service.name"] == "brain-test"
    assert not [span for span in got.spans if "health" in str(span.attributes.get("url.path"))]
    (line,) = [each for each in logged(written) if each.get("status") == 404]
    assert (line["request_id"], line["trace_id"], line["span_id"]) == (
        unknown.attributes["brain.request_id"],
        unknown.trace,
        unknown.id,
    )


def test_a_bug_is_in_its_span_and_in_a_line_with_the_id_that_the_answer_gives(
    tmp_path: Path,
) -> None:
    written = tmp_path / "service.log"
    with (
        collector() as got,
        written.open("w") as log,
        service(
            tmp_path, "--traces", "--log-format=json", log=log, environment=variables(got.url)
        ) as running,
    ):
        with closing(sqlite3.connect(tmp_path / "brain.db")) as database:
            database.execute("ALTER TABLE audit RENAME TO elsewhere")
        signed_in = {"Authorization": f"Bearer {running.token('admin')}"}
        answer = httpx2.get(f"{running.url}/api/v1/audit", headers=signed_in)
        running.stop()
    lines, told = logged(written), answer.json()
    (failed,) = got.named("GET /api/v1/audit")
    (line,) = [each for each in lines if each["message"] == "the request failed"]
    assert (answer.status_code, failed.failed, failed.events) == (500, True, ["exception"])
    assert {told["request_id"], failed.attributes["brain.request_id"]} == {line["request_id"]}
    assert line["trace_id"] == failed.trace
    assert line["exception"].startswith("Traceback")
    assert "no such table: audit" in line["exception"]
    (request,) = [each for each in lines if each["logger"] == "brain.requests"]
    assert (request["status"], request["request_id"]) == (500, answer.headers["x-request-id"])


def test_a_turn_has_a_span_and_each_job_that_it_decides_about_one_below(tmp_path: Path) -> None:
    with (
        collector() as got,
        service(
            tmp_path,
            "--traces",
            "--tick-seconds=0.1",
            environment=variables(got.url, OTEL_BSP_SCHEDULE_DELAY="100"),
        ) as running,
    ):
        with running.client() as admin:
            job = admin.send(calls.submit(digits())).id
        eventually(lambda: bool(got.named("decide")))
        running.stop()
    decided = [span for span in got.named("decide") if span.attributes["brain.job"] == job]
    turns = {span.id: span for span in got.named("turn")}
    assert decided
    assert all(span.parent in turns for span in decided)
    assert {span.attributes["brain.pool"] for span in turns.values()} == {"local"}
    assert "transaction" in got.below(decided[0])


def test_a_collector_that_does_not_answer_delays_neither_requests_nor_the_end(
    tmp_path: Path,
) -> None:
    written = tmp_path / "service.log"
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        written.open("w") as log,
        service(
            tmp_path,
            "--traces",
            log=log,
            environment=variables(
                f"http://127.0.0.1:{silent.getsockname()[1]}",
                OTEL_EXPORTER_OTLP_TIMEOUT="600",
                OTEL_BSP_MAX_QUEUE_SIZE="4",
                OTEL_BSP_MAX_EXPORT_BATCH_SIZE="2",
            ),
        ) as running,
    ):
        with running.client() as admin:
            for _ in range(20):
                admin.send(calls.jobs())
        seconds = running.stop()
    assert running.process.returncode == 0
    assert seconds < 25  # of the 30 for which the SDK would wait
    lines = written.read_text().splitlines()
    assert any("Queue full, dropping Span." in line for line in lines)
    assert lines[-1].endswith(
        "brain.traces the OpenTelemetry collector does not answer; the spans since the last "
        "answer are lost"
    )


def test_another_protocol_is_refused_by_the_name_of_its_variable(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "brain.service", f"--home={tmp_path}", "--traces"],
        env=dict(os.environ) | {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert done.stderr == (
        "brain: OTEL_EXPORTER_OTLP_PROTOCOL 'grpc' is not supported; write http/protobuf, or turn "
        "the setting traces off\n"
    )


def test_a_stream_has_no_span_and_what_it_reads_has_none(tmp_path: Path) -> None:
    with (
        collector() as got,
        service(tmp_path, "--traces", environment=variables(got.url)) as running,
    ):
        with running.client() as admin, admin.lines(calls.events()) as lines:
            next(lines)
            admin.send(calls.submit(digits()))
            next(line for line in lines if "job.Queued" in line)
        running.stop()
    (submitted,) = [span for span in got.spans if span.kind == _SERVER]
    assert submitted.name == "POST /api/v1/jobs"
    known = {span.id for span in got.spans}
    assert all(span.parent in known for span in got.named("transaction"))
