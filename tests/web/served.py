"""The real service as a process of its own, over a database that a test may write to."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from brain import calls
from brain.api.pages import LARGEST
from brain.client import BrainClient
from brain.db import SqlStores, prepare
from brain.errors import BrainError
from brain.ports import Stores
from tests.forks import Fork
from tests.patience import Patience
from tests.serving import begin
from tests.web import seed

#: A lease of hours, so that one held by another Brain is not taken for a wrong clock.
LEASE = "--lease-seconds=36000"
#: Seconds in which the service must answer after its start, and be gone after SIGTERM.
STARTING, STOPPING = 120.0, 60.0


@dataclass
class Served:
    """A service on a home directory; it can be stopped and started again on its port."""

    home: Path
    port: int = 0
    #: As a user starts it, for whoever measures it.
    cold: bool = False
    _process: "Fork | subprocess.Popen[bytes] | None" = field(default=None, repr=False)

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def admin(self) -> str:
        """The administrator's token."""
        return (self.home / "admin.token").read_text().strip()

    def client(self, token: str = "") -> BrainClient:
        """A client with the administrator's or another token."""
        return BrainClient(self.url, token or self.admin)

    @contextmanager
    def stores(self) -> Iterator[Stores]:
        """The service's database, as another process of ours would write to it."""
        with closing(SqlStores(f"sqlite:///{self.home / 'brain.db'}")) as stores:
            yield stores

    def processor_seconds(self) -> float:
        """Seconds of processor that it used so far (Linux)."""
        assert self._process is not None
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def start(self) -> None:
        """Start it and wait until it answers."""
        record = self.home / "service.json"
        record.unlink(missing_ok=True)
        with (self.home / "test.log").open("ab") as log:
            flags = (f"--home={self.home}", f"--port={self.port}", "--heartbeat-seconds=2", LEASE)
            self._process = begin(*flags, output=log, errors=log, cold=self.cold)
        patience = Patience(STARTING)
        while not self._answers(record):
            if self._process.poll() is not None or patience.over:
                raise AssertionError(
                    f"the service did not answer within {STARTING:g} s:\n"
                    + (self.home / "test.log").read_text()
                )
            time.sleep(0.05)

    def stop(self) -> None:
        """End it with SIGTERM, and with SIGKILL if that takes too long."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOPPING)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise AssertionError(f"the service was not gone after {STOPPING:g} s") from None
        finally:
            self._process = None

    def _answers(self, record: Path) -> bool:
        try:
            self.port = int(json.loads(record.read_text())["url"].rsplit(":", 1)[1])
            with self.client() as client:
                client.send(calls.health())
        except (BrainError, OSError, ValueError):
            return False
        return True


@contextmanager
def with_many_plans(home: Path) -> Iterator[Served]:
    """A service whose job digits has one page of expired plans above its four others."""
    url = f"sqlite:///{home / 'brain.db'}"
    prepare(url)
    with closing(SqlStores(url)) as stores:
        seed.fleet(stores, datetime.now(UTC))
        seed.expired(stores, above=4, count=LARGEST)
    running = Served(home)
    running.start()
    try:
        yield running
    finally:
        running.stop()
