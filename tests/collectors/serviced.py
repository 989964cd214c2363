"""Builders: a service that answers as told, a collector process, and samples to give it."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from brain import wire
from brain.types.job import JobId
from brain.types.places import probe_socket
from brain.types.telemetry import (
    Phase,
    Receipt,
    RejectedSample,
    Sample,
    SampleSource,
    SourceId,
    ThroughputSample,
)
from tests.patience import Patience

JOB = "0190aaaa"
START = datetime(2026, 1, 1, tzinfo=UTC)


def window(index: int, *, job: str = JOB, step: int | None = None) -> ThroughputSample:
    """The sample of one second of a source."""
    place = SampleSource(
        job=JobId(job),
        source=SourceId("source"),
        replica=0,
        local_rank=0,
        rank=0,
        epoch=1,
        generation=0,
    )
    return ThroughputSample(
        place=place,
        measured_at=START + timedelta(seconds=index),
        sequence=index,
        phase=Phase.TRAINING,
        nodes=1,
        replicas=1,
        processes=1,
        accelerator="cpu",
        local_batch=8,
        accumulation=1,
        steps=10,
        step=index if step is None else step,
        step_seconds=0.1,
        step_seconds_mean=0.1,
        data_wait_seconds=0.0,
        examples_per_second=80.0,
    )


class Service:
    """Keeps what it acknowledged; ``answer`` may refuse a batch with (status, problem, headers).

    Without a problem, the refusal is a page, as a proxy answers.
    """

    def __init__(self, port: int = 0) -> None:
        self.kept: dict[tuple[str, datetime], Sample] = {}
        self.tokens: set[str] = set()
        self.batches: list[int] = []
        self.answer: Callable[[list[Sample]], tuple[int, str, dict[str, str]] | None] = (
            lambda samples: None
        )
        self.reject: Callable[[Sample], str | None] = lambda sample: None
        self._server = ThreadingHTTPServer(("127.0.0.1", port), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    def take(self, samples: list[Sample]) -> Receipt:
        """Store a batch as the real one does."""
        rejected, duplicates = [], 0
        for index, sample in enumerate(samples):
            reason = self.reject(sample)
            if reason is not None:
                rejected.append(RejectedSample(index=index, reason=reason))
                continue
            key = (_source(sample), sample.measured_at)
            duplicates += key in self.kept
            self.kept[key] = sample
        stored = len(samples) - duplicates - len(rejected)
        return Receipt(stored=stored, duplicates=duplicates, rejected=tuple(rejected))

    def of(self, kind: type[Sample]) -> list[Any]:
        """What it keeps of a kind, in order."""
        kept = tuple(self.kept.values())  # a thread of the server may add to it meanwhile
        return sorted(
            (sample for sample in kept if isinstance(sample, kind)),
            key=lambda sample: sample.measured_at,
        )

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _source(sample: Sample) -> str:
    return sample.place.source if hasattr(sample, "place") else sample.source


def _handler(service: Service) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers["Content-Length"]))
            samples = [wire.decode_sample(raw) for raw in wire.decode_envelope(data).samples]
            service.tokens.add(self.headers.get("Authorization", ""))
            service.batches.append(len(samples))
            refused = service.answer(samples)
            if refused is None:
                return self.say(200, wire.encode(service.take(samples)), {})
            status, kind, headers = refused
            if not kind:
                return self.say(status, b"<html>refused</html>", headers)
            problem = {"type": f"/problems/{kind}", "title": kind, "status": status}
            return self.say(status, json.dumps(problem | {"detail": "said so"}).encode(), headers)

        def say(self, status: int, body: bytes, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in (headers | {"Content-Length": str(len(body))}).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Tests say what they want to know."""

    return Handler


@contextmanager
def service(port: int = 0) -> Iterator[Service]:
    """A service, gone at the end."""
    built = Service(port)
    try:
        yield built
    finally:
        built.close()


class Machine:
    """A state directory with a collector process, and a probe's end of its socket."""

    def __init__(self, home: Path) -> None:
        self.home = home.resolve()
        self.socket_path = probe_socket(str(self.home), os.getuid())
        self.probe = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.processes: list[subprocess.Popen[bytes]] = []
        directory = self.home / "replicas" / JOB
        directory.mkdir(parents=True)
        (directory / "token").write_text("secret-of-the-job\n")

    def agent(self, pid: int, *, replica: int = 0) -> None:
        """A replica whose agent is the process ``pid``."""
        directory = self.home / "replicas" / JOB / str(replica)
        directory.mkdir()
        stat = Path(f"/proc/{pid}/stat").read_text()
        ticks = int(stat[stat.rindex(")") + 2 :].split()[19])
        (directory / "state.json").write_text(json.dumps({"pid": pid, "started_ticks": ticks}))
        (directory / "intent.json").write_text(json.dumps({"node": "left-rack-3"}))

    def serve(self, url: str) -> None:
        """Say where the service is, as it does itself."""
        (self.home / "service.json").write_text(json.dumps({"pid": 1, "url": url}))

    def collect(self, *arguments: str) -> "subprocess.Popen[bytes]":
        """Start a collector and wait until it listens."""
        command = [sys.executable, "-m", "collectors.loop", "--home", str(self.home), *arguments]
        before = self._status_time()
        log = (self.home / "collector.log").open("ab")
        process = subprocess.Popen(command, stdout=log, stderr=log)
        log.close()
        self.processes.append(process)
        self.until(
            lambda: self._status_time() > before or process.poll() is not None,
            "the collector says how it is",
        )
        return process

    def send(self, *samples: Sample) -> None:
        """Give samples to the collector as a probe does."""
        for sample in samples:
            self.send_bytes(wire.encode_sample(sample))

    def send_bytes(self, data: bytes) -> None:
        """Give it anything."""
        self.probe.sendto(data, self.socket_path)

    def status(self) -> dict[str, Any]:
        """What the collector last said of itself."""
        return dict(json.loads((self.home / "collector" / "status.json").read_text()))

    def until(self, true: Callable[[], Any], what: str, *, seconds: float = 60) -> None:
        """Wait until a condition holds."""
        patience = Patience(seconds)
        while not true():
            said = self._log()
            assert not patience.over, f"not within {seconds} s: {what}\n{said}"
            time.sleep(0.02)

    def stop(self, process: "subprocess.Popen[bytes]") -> int:
        """End a collector in the ordinary way; return its exit code."""
        process.send_signal(signal.SIGTERM)
        return process.wait(20)

    def close(self) -> None:
        """Leave no process behind."""
        for process in self.processes:
            process.kill()
            process.wait()
        self.probe.close()

    def _status_time(self) -> int:
        path = self.home / "collector" / "status.json"
        return path.stat().st_mtime_ns if path.exists() else 0

    def _log(self) -> str:
        path = self.home / "collector.log"
        return path.read_text() if path.exists() else ""


@contextmanager
def machine(home: Path) -> Iterator[Machine]:
    """A machine, gone at the end."""
    built = Machine(home)
    try:
        yield built
    finally:
        built.close()


def renamed(sample: ThroughputSample, source: str) -> ThroughputSample:
    """The same sample of another source."""
    return replace(sample, place=replace(sample.place, source=SourceId(source)))
