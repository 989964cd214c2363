"""Agents that send telemetry over bare connections to a running service."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from brain import calls, wire
from tests.builders import throughput
from tests.serving import Service, Wire, service, wires

PATH = "POST /api/v1/telemetry"
_BEGAN = datetime.now(UTC) - timedelta(minutes=5)
Answer = tuple[int, dict[str, str], dict[str, Any]]


class Agent:
    """An agent of a job of its own, on one connection."""

    def __init__(self, running: Service, wire: Wire, name: str = "digits") -> None:
        with running.client() as admin, running.client("scaler") as scaler:
            document = {"name": name, "command": ["true"]}
            self.job = admin.send(calls.submit(document | {"replicas": {"min": 1, "max": 1}})).id
            self.secret = scaler.send(calls.mint_agent_token(self.job)).secret
        self.wire, self._number = wire, 0

    def batch(self, count: int = 1, **changes: Any) -> bytes:
        """So many samples that nobody sent before."""
        samples = []
        for _ in range(count):
            self._number += 1
            at = _BEGAN + timedelta(milliseconds=100 * self._number)
            changed = {"job": self.job, "measured_at": at} | changes
            samples.append(throughput(self._number, **changed))
        return wire.encode_batch(samples, sent_at=datetime.now(UTC))

    def head(self, length: int, **headers: str) -> None:
        """Send the head of a request, which is the same each time but for its length."""
        self.wire.head(PATH, length=length, Authorization=f"Bearer {self.secret}", **headers)

    def send(self, body: bytes, **headers: str) -> Answer:
        """Send a request, and return its answer."""
        self.head(len(body), **headers)
        self.wire.send(body)
        return self.wire.answer()


@contextmanager
def agent(home: Path, *flags: str) -> Iterator[tuple[Service, Agent]]:
    """An agent whose head the service knows."""
    with service(home, *flags) as running, wires(running, 1) as (connection,):
        known = Agent(running, connection)
        assert known.send(known.batch())[0] == 200
        yield running, known


def without_id(answer: Answer) -> tuple[int, list[str], dict[str, Any]]:
    """An answer without its id."""
    status, headers, document = answer
    named = [(name, text) for name, text in headers.items() if name not in ("x-request-id", "date")]
    return status, sorted(map(": ".join, named)), document | {"request_id": ""}
