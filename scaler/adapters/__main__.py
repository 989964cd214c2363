"""``python -m scaler.adapters``: Kubeflow's PyTorchJobs in a pool of Brain.

Beside ``brain-scale --kubernetes``, in other namespaces or on other nodes: a node is in one pool.
One process is enough; what it knows is in Brain and in the cluster.
"""

import argparse
import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from brain.client import AsyncBrainClient, BrainClient
from brain.errors import BrainError
from scaler.adapters.mirror import Mirror
from scaler.adapters.pytorchjob import PyTorchJobBackend
from scaler.kubernetes.brain import BrainDoor
from scaler.kubernetes.machinery.cluster import Cluster, connect
from scaler.loop import Pace, Scaler
from scaler.wishes import WishFile

log = logging.getLogger(__name__)

#: Each look lists everything anew, so looks are rare.
PACE = Pace(look=10.0, heartbeat=10.0, repeat=30.0)


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT; pods go on."""
    given = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    try:
        token = given.token_file.read_text().strip()
        given.home = given.home.expanduser()
        given.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        cluster = Cluster(connect(kubeconfig=given.kubeconfig, context=given.context))
        asyncio.run(_serve(given, cluster, token))
    except (BrainError, OSError) as why:
        sys.stderr.write(f"scaler.adapters: {why}\n")
        return 1
    return 0


async def _serve(given: argparse.Namespace, cluster: Cluster, token: str) -> None:
    backend = PyTorchJobBackend(cluster, namespaces=given.namespace, pool=given.pool)
    stop = threading.Event()
    with BrainClient(given.url, token) as client:
        mirror = Mirror(backend, BrainDoor(client, given.pool), client, clock=_now)
        mirroring = asyncio.create_task(asyncio.to_thread(_follow, mirror, stop))
        async with AsyncBrainClient(given.url, token) as asking:
            file = WishFile(given.home / "wishes.json")
            scaler = Scaler(
                asking, backend, file, pool=given.pool, clock=_now, pace=PACE, apart=True
            )
            work = asyncio.create_task(scaler.run())
            for number in (signal.SIGTERM, signal.SIGINT):
                asyncio.get_running_loop().add_signal_handler(number, work.cancel)
            await asyncio.wait([work, mirroring], return_when=asyncio.FIRST_COMPLETED)
            stop.set()
            work.cancel()
            ends = await asyncio.gather(work, mirroring, return_exceptions=True)
            # One that ended by itself takes the other along, and is to be seen.
            for end in ends:
                if isinstance(end, Exception):
                    raise end


def _follow(mirror: Mirror, stop: threading.Event) -> None:
    while not stop.is_set():
        try:
            mirror.look()
        except BrainError as why:
            log.warning("PyTorchJobs: %s", why)
        stop.wait(PACE.look)


def _now() -> datetime:
    return datetime.now(UTC)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m scaler.adapters", description=__doc__)
    parser.add_argument("--url", required=True, help="base URL of Brain")
    parser.add_argument("--token-file", type=Path, required=True, help="a token of role scaler")
    parser.add_argument("--home", type=Path, default=Path(os.environ.get("BRAIN_HOME", "~/.brain")))
    parser.add_argument("--pool", default="kubeflow")
    parser.add_argument("--namespace", action="append", default=[], help="default: all")
    parser.add_argument("--kubeconfig")
    parser.add_argument("--context")
    return parser


if __name__ == "__main__":
    sys.exit(main())
