"""A service or a scaler as far as ``brain up`` can tell: ``child_program.py <kind> --home … …``.

Kinds: ``service`` listens and says so; ``stubborn`` likewise, and ignores SIGTERM; ``unready``
answers 503; ``failing`` ends at once with a reason; ``scaler`` waits.
"""

import json
import os
import signal
import sys
import time
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

KIND = sys.argv[1]
HOME = Path(sys.argv[sys.argv.index("--home") + 1])


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        token = self.headers.get("Authorization") == "Bearer brn_admin"
        self.send_response(401 if not token else 503 if KIND == "unready" else 200)
        self.end_headers()

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        told = {"name": asked["name"], "code": "brn_code", "path": "/#signin=brn_code"}
        self.send_response(201)
        self.end_headers()
        self.wfile.write(json.dumps(told).encode())

    def log_message(self, format: str, *args: object) -> None:
        return


def serve() -> None:
    server = HTTPServer(("127.0.0.1", int(os.environ.get("BRAIN_PORT", "0"))), Handler)
    url = f"http://127.0.0.1:{server.server_address[1]}"
    (HOME / "admin.token").write_text("brn_admin\n")
    record = {"pid": os.getpid(), "url": url, "started_at": datetime.now(UTC).isoformat()}
    (HOME / "service.partial").write_text(json.dumps(record))
    (HOME / "service.partial").rename(HOME / "service.json")
    server.serve_forever()


print(f"{KIND} starts with {sys.argv[2:]}", flush=True)
if KIND == "failing":
    sys.exit("failing: port 127.0.0.1:8080 is taken")
if KIND == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
(HOME / f"{'scaler' if KIND == 'scaler' else 'service'}.pid").write_text(str(os.getpid()))
if KIND == "scaler":
    time.sleep(600)
serve()
