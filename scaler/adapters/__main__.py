"""``python -m scaler.adapters``: lets Brain advise on and resize Kubeflow's PyTorchJobs and
JobSets.

The adapter runs beside ``brain-scale --kubernetes``. It needs other namespaces or other nodes,
because its jobs are in a pool of their own and a node belongs to one pool. Two adapters may run: a
Lease decides which one acts; the other only keeps its copies of the cluster's objects up to date.
"""

import argparse
import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path

from brain.client import AsyncBrainClient, BrainClient, TokenFile
from brain.errors import BadInput, BrainError
from scaler.adapters.backend import ForeignBackend
from scaler.adapters.jobset import JobSets
from scaler.adapters.kubeflow import PyTorchJobs
from scaler.adapters.mirror import Mirror
from scaler.adapters.sources import Reflected
from scaler.desired import WishFile
from scaler.kubernetes.brain import OperatorsBrain
from scaler.kubernetes.operator.operator import DEPOSED
from scaler.kubernetes.operator.probes import serving
from scaler.kubernetes.operator.starting import ServerWait
from scaler.kubernetes.runtime import ElectionTerms, Manager, served
from scaler.kubernetes.runtime.cluster import POD, Cluster, connect
from scaler.loop import Scaler
from scaler.pace import Pace

log = logging.getLogger(__name__)

_KINDS = (PyTorchJobs(), JobSets())
#: Seconds between looks. Controllers need seconds to act; a look costs the API server nothing.
PACE = Pace(look=2.0, heartbeat=10.0, repeat=30.0)
#: Seconds between reports of worlds; a changed pod brings the report forward.
_TELL_SECONDS = 10.0
#: Least seconds between requests to Brain, however many pods change.
_REST_SECONDS = 1.0
_LOOK_SECONDS = 0.25


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT; pods continue to run."""
    given = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    try:
        token = TokenFile(given.token_file)
        given.home = given.home.expanduser()
        given.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        cluster = Cluster(connect(kubeconfig=given.kubeconfig, context=given.context))
        return asyncio.run(_until_told(given, cluster, token))
    except (BrainError, OSError) as why:
        sys.stderr.write(f"scaler.adapters: {why}\n")
        return 1


async def _until_told(given: argparse.Namespace, cluster: Cluster, token: str | TokenFile) -> int:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return await serve(given, cluster, token, stop)


async def serve(
    given: argparse.Namespace, cluster: Cluster, token: str | TokenFile, stop: asyncio.Event
) -> int:
    """Follow the cluster's objects, and act while this process is the leader.

    Returns an exit code: 0 once ``stop`` is set, or ``DEPOSED`` if the process lost the lease and
    must be started again.
    """
    wait = ServerWait(cluster, stopped=stop.is_set)
    kinds = await asyncio.to_thread(
        wait.ask, lambda: [each for each in _KINDS if served(cluster, each.kind, given.namespace)]
    )
    if kinds is None:
        return 0
    if not kinds:
        names = " and ".join(f"{each.kind.kind}s ({each.kind.api_version})" for each in _KINDS)
        raise BadInput(
            f"this cluster does not serve {names}, or this account may not list them; install "
            "Kubeflow's training operator or JobSet, or grant the permissions that "
            "`brain doctor --cluster` names"
        )
    log.info("serves %s", ", ".join(str(each.kind) for each in kinds))
    terms = ElectionTerms(namespace=given.own_namespace, name="brain-adapters")
    manager = Manager(cluster, terms=terms, namespaces=given.namespace, component="brain-adapters")
    backend = ForeignBackend(
        manager.cluster, kinds, Reflected(manager, kinds, given.namespace), pool=given.pool
    )
    changed = threading.Event()
    for kind in (POD, *(each.kind for each in kinds)):
        manager.listen(kind, lambda change: changed.set())
    manager.start()
    probes = ExitStack()
    try:
        probes.enter_context(serving(given.metrics, _Probed(manager)))
        while not (manager.leading and manager.synced()):
            if await _set_within(stop, _LOOK_SECONDS):
                return 0
        log.info("leads")
        return await _act(given, token, backend, manager, stop, changed)
    finally:
        probes.close()
        await asyncio.to_thread(manager.stop)
        cluster.close()


async def _act(
    given: argparse.Namespace,
    token: str | TokenFile,
    backend: ForeignBackend,
    manager: Manager,
    stop: asyncio.Event,
    changed: threading.Event,
) -> int:
    end = threading.Event()
    with BrainClient(given.url, token) as client:
        mirror = Mirror(backend, OperatorsBrain(client, given.pool), client, clock=_now)
        async with AsyncBrainClient(given.url, token) as asking:
            file = WishFile(given.home / "wishes.json")
            scaler = Scaler(
                asking, backend, file, pool=given.pool, clock=_now, pace=PACE, apart=True
            )
            mirroring = asyncio.create_task(asyncio.to_thread(_follow, mirror, end, changed))
            work = asyncio.create_task(scaler.run())
            try:
                while not await _set_within(stop, _LOOK_SECONDS):
                    # A thread that ended by itself stops the other thread, too, and its error has
                    # to be seen.
                    for task in (work, mirroring):
                        if task.done():
                            task.result()
                    if not manager.leading:
                        log.warning(
                            "this adapter lost its lease, and exits so that it can be started again"
                        )
                        return DEPOSED
                return 0
            finally:
                end.set()
                changed.set()
                work.cancel()
                await asyncio.gather(work, mirroring, return_exceptions=True)


class _Probed:
    """The adapters' answers to probes and Prometheus."""

    def __init__(self, manager: Manager) -> None:
        self._manager = manager

    @property
    def unready(self) -> str:
        """Reason why the stores are not complete; empty if they are."""
        return self._manager.unready

    def metrics(self) -> bytes:
        """Return the metrics in Prometheus' text format."""
        return self._manager.metrics.text()


async def _set_within(event: asyncio.Event, seconds: float) -> bool:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()


def _follow(mirror: Mirror, end: threading.Event, changed: threading.Event) -> None:
    while not end.is_set():
        changed.clear()
        try:
            mirror.look()
        except BrainError as why:
            log.warning("%s", why)
        changed.wait(_TELL_SECONDS)
        end.wait(_REST_SECONDS)


def _now() -> datetime:
    return datetime.now(UTC)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m scaler.adapters", description=__doc__)
    parser.add_argument("--url", required=True, help="base URL of Brain")
    parser.add_argument(
        "--token-file", type=Path, required=True, help=("file with a token of the role scaler")
    )
    parser.add_argument("--home", type=Path, default=Path(os.environ.get("BRAIN_HOME", "~/.brain")))
    parser.add_argument("--pool", default="kubeflow")
    parser.add_argument("--namespace", action="append", default=[], help="default: all")
    parser.add_argument("--own-namespace", default="default", help="namespace of the Lease")
    parser.add_argument(
        "--metrics", metavar="HOST:PORT", help=("address that serves probes and metrics")
    )
    parser.add_argument("--kubeconfig")
    parser.add_argument("--context")
    return parser


if __name__ == "__main__":
    sys.exit(main())
