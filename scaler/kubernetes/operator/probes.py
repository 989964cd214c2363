"""Serves an operator's liveness and readiness probes, and its metrics, over HTTP."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Protocol


class Served(Protocol):
    """The part of the operator that probes and metrics need."""

    @property
    def unready(self) -> str:
        """The reason why the operator is not ready; empty if it is ready."""

    def metrics(self) -> bytes:
        """Return the metrics in Prometheus' text format."""


@contextmanager
def serving(where: str | None, operator: Served) -> Iterator[None]:
    """Serve ``/livez``, ``/readyz`` and ``/metrics`` within the block, at ``where`` (host:port)."""
    if where is None:
        yield
        return
    host, _, port = where.rpartition(":")
    server = ThreadingHTTPServer((host or "0.0.0.0", int(port)), _handler(operator))
    thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()


def _handler(operator: Served) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            match self.path:
                case "/livez":
                    self._say(200, b"ok\n")
                case "/readyz":
                    why = operator.unready
                    self._say(503 if why else 200, f"{why or 'ok'}\n".encode())
                case "/metrics":
                    self._say(200, operator.metrics())
                case _:
                    self._say(404, b"there are /livez, /readyz and /metrics\n")

        def _say(self, code: int, body: bytes) -> None:
            self.send_response(code)
            self.send_header("Content-Type", "text/plain; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing: probes come every few seconds."""

    return Handler
