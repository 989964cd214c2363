"""``brain-scale`` with another agent command: ``scaler_program.py <home> <url>``."""

import asyncio
import sys
from datetime import UTC, datetime
from pathlib import Path

from brain.client import AsyncBrainClient
from brain.types.resources import Resources
from scaler.cli import serve
from scaler.desired import WishFile
from scaler.local import LocalBackend, LocalMachine
from scaler.loop import Scaler
from tests.scaler.wished import AGENT


async def main(home: Path, url: str) -> None:
    machine = LocalMachine(capacity=Resources(cpu_millis=4000, memory_bytes=2**33))
    backend = LocalBackend(home, measure=lambda: machine, name="here", url=url, agent=AGENT)
    async with AsyncBrainClient(url, "t") as client:
        file = WishFile(home / "wishes.json")
        await serve(Scaler(client, backend, file, pool="local", clock=lambda: datetime.now(UTC)))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
