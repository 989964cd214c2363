"""As much of Brain as a scaler talks to, answering from attributes that tests set."""

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, urlsplit

import httpx2

from brain import wire
from brain.types.job import JobId
from brain.types.resources import Node
from brain.types.world import Replica, ReplicaReport
from brain.views import DesiredJob, NewToken
from tests.scaler.wished import NOW, pool

Answer = tuple[int, bytes]


class BrainTwin:
    """Wishes out; reports and nodes in."""

    def __init__(self, *jobs: DesiredJob) -> None:
        self.reports: list[ReplicaReport] = []
        self.nodes: list[Node] = []
        self.tokens_minted = 0
        self.polls = 0
        #: Requests for the desired state, however long each waits.
        self.requests = 0
        self.environment: dict[str, str] = {}
        #: True: every request fails to connect.
        self.away = False
        #: The error that is the answer about a job's environment.
        self.refuses_environment: str | None = None
        #: So many reports meet a write of somebody else.
        self.crossed = 0
        #: States of jobs that are asked about one by one; others are unknown.
        self.states: dict[JobId, str] = {}
        self._version = 0
        self.wish(*jobs)

    def wish(self, *jobs: DesiredJob) -> None:
        """From now on these are the unfinished jobs."""
        self._version += 1
        self._wishes = pool(*jobs, version=str(self._version))

    def told(self, job: JobId) -> tuple[Replica, ...]:
        """What was last reported of a job."""
        reports = [report for report in self.reports if report.job == job]
        return reports[-1].replicas if reports else ()

    def waiting(self, job: JobId) -> str | None:
        """Why it waits, as last reported."""
        reports = [report for report in self.reports if report.job == job]
        return reports[-1].waiting if reports else None

    def answer(self, method: str, path: str, known: str | None, body: bytes) -> Answer:
        """Answer one request at once; a long poll is answered 304 until there is news."""
        path = path.removeprefix("/api/v1")
        match method, path.split("/")[1:]:
            case "GET", ["pools", _, "wishes"]:
                self.polls += 1
                same = known == self._wishes.version
                return (304, b"") if same else (200, wire.encode(self._wishes))
            case "PUT", ["nodes", _]:
                self.nodes.append(wire.decode(body, Node))
                return 204, b""
            case "POST", ["jobs", _, "replicas"] if self.crossed:
                self.crossed -= 1
                return _problem(412, "VersionMismatch", "it is at version 2")
            case "POST", ["jobs", _, "replicas"]:
                self.reports.append(wire.decode(body, ReplicaReport))
                return 204, b""
            case "POST", ["jobs", job, "token"]:
                self.tokens_minted += 1
                token = NewToken(id="1", name=job, secret=f"brn_{self.tokens_minted}")
                return 201, wire.encode(token)
            case "GET", ["jobs", _, "environment"]:
                if self.refuses_environment:
                    return _problem(422, "BadInput", self.refuses_environment)
                return 200, wire.encode(self.environment)
            case "GET", ["jobs", job] if job in self.states:
                return 200, _detail(JobId(job), self.states[JobId(job)])
        return _problem(404, "UnknownJob", f"no job {path}")

    def transport(self) -> httpx2.MockTransport:
        """For a client in the same process."""

        async def handle(request: httpx2.Request) -> httpx2.Response:
            deadline = time.monotonic() + float(request.url.params.get("wait", 0))
            self.requests += request.url.path.endswith("/wishes")
            while True:
                if self.away:
                    raise httpx2.ConnectError("connection refused")
                known = request.headers.get("If-None-Match")
                status, body = self.answer(request.method, request.url.path, known, request.content)
                if status != 304 or time.monotonic() >= deadline:
                    return httpx2.Response(status, content=body)
                await asyncio.sleep(0.01)

        return httpx2.MockTransport(handle)


@contextmanager
def served(twin: BrainTwin) -> Iterator[str]:
    """The URL at which other processes reach the twin."""

    class Handler(BaseHTTPRequestHandler):
        def handle_any(self) -> None:
            url = urlsplit(self.path)
            deadline = time.monotonic() + float(dict(parse_qsl(url.query)).get("wait", 0))
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            known = self.headers.get("If-None-Match")
            while True:
                status, content = twin.answer(self.command, url.path, known, body)
                if status != 304 or time.monotonic() >= deadline or stopping.is_set():
                    break
                time.sleep(0.02)
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_PUT = do_POST = handle_any

        def log_message(self, format: str, *args: object) -> None:
            return

        def handle(self) -> None:
            try:
                super().handle()
            except ConnectionError:
                return  # the scaler was killed, as tests do

    stopping = threading.Event()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        stopping.set()
        server.shutdown()
        server.server_close()
        thread.join()


def _problem(status: int, kind: str, detail: str) -> Answer:
    body = {"type": f"/problems/{kind}", "title": kind, "status": status, "detail": detail}
    return status, wire.encode(body)


def _detail(job: JobId, state: str) -> bytes:
    shares = ["data_wait_share", "cpu_share", "memory_share", "gpu_share", "memory"]
    times = ["finished_at", "ends_at", "telemetry_age_seconds"]
    rest = ["advise_only", "exit_code", "epoch", "throughput", "promised", "step", "progress"]
    unknown = dict.fromkeys([*shares, *times, *rest, "plan", "decision"])
    none = dict.fromkeys(["failures", "version", "replicas", "replicas_wished", "generation"], 0)
    one = dict.fromkeys(["replicas_min", "replicas_max", "unit", "processes_per_replica"], 1)
    view = {
        "id": job,
        "name": "digits",
        "project": "default",
        "owner": "ada",
        "pool": "local",
        "state": state,
        "reason": "",
        "conditions": [],
        "intent": "run",
        "mode": "auto",
        "optimize_mode": "single-job",
        "created_at": NOW,
        "updated_at": NOW,
        "resources": {},
        "unit_of_throughput": "steps/s",
        "losses": {"gaps": 0, "dropped": 0},
        "sparkline": [],
        "verdict": "not yet",
    }
    detail = {"document": {}, "world": None, "worlds": [], "replicas": []}
    return wire.encode(detail | {"job": view | unknown | none | one})
