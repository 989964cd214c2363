"""``brain-collect --kubernetes``: reads a cluster, and sends samples, replicas and nodes to Brain.

One such collector runs per cluster, or per list of namespaces. It spools and sends samples like a
machine's collector, and reports replicas and nodes like a scaler. The collector changes nothing in
the cluster.
"""

import argparse
import asyncio
import fcntl
import logging
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2

from brain import calls, wire
from brain.client import AsyncBrainClient, TokenFile
from brain.errors import BadInput, BrainError, Conflict, NotFound, Unavailable
from brain.types.job import JobId
from brain.types.resources import PoolName
from collectors.delivery import Delivery
from collectors.loop import HELD
from collectors.paths import Home, make_private, write_json
from collectors.pods import reports
from collectors.pods.dcgm import DevicesByPod, shared
from collectors.pods.door import Door, by_kubeconfig, in_cluster
from collectors.pods.identity import Stays, looked
from collectors.pods.readings import Samples, readings
from collectors.pods.sources import SourcesRead, SourceTrouble, TelemetrySources
from collectors.spool import Spool

log = logging.getLogger("collectors")

#: Seconds between two requests about a job that Brain does not know.
_DOUBT_SECONDS = 60.0
#: Most seconds that the last attempt to deliver may take.
_LAST_SECONDS = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PodCollectorOptions:
    """Options of the pod collector: addresses, credentials and the interval between rounds."""

    home: Home
    url: str
    #: Returns Brain's token; called for each batch of samples.
    token: Callable[[], str]
    every_seconds: float = 15.0
    #: Pool in which to register nodes; None if another process registers them.
    pool: PoolName | None = None


class ClusterCollector:
    """The collector of a cluster; everything runs on one asyncio loop."""

    def __init__(
        self,
        options: PodCollectorOptions,
        sources: TelemetrySources,
        brain: AsyncBrainClient,
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._options, self._sources, self._brain, self._clock = options, sources, brain, clock
        self._spool = Spool(options.home.spool)
        self._delivery = Delivery(
            self._spool, url=lambda job: options.url, token=lambda job: options.token()
        )
        self._stays = Stays()
        self._samples = Samples()
        #: Jobs that Brain knows; and unknown jobs, with the time at which to ask Brain again.
        self._known: set[JobId] = set()
        self._strange: dict[JobId, float] = {}
        #: Jobs whose replicas an operator reports; their objects may be deleted before their pods.
        self._advised: set[JobId] = set()
        self._told: dict[JobId, object] = {}
        self._troubles: tuple[SourceTrouble, ...] = ()
        self._refused: dict[str, str] = {}

    async def run(self, stop: asyncio.Event) -> None:
        """Read the cluster until ``stop`` is set, then try once more to deliver."""
        hearing = asyncio.create_task(self._sources.hear())
        try:
            while not stop.is_set():
                await self.turn()
                try:
                    async with asyncio.timeout(self._options.every_seconds):
                        await stop.wait()
                except TimeoutError:
                    continue
        finally:
            hearing.cancel()
            await asyncio.gather(hearing, return_exceptions=True)
            await self._finish()

    async def turn(self) -> None:
        """Read the cluster once, then spool and deliver the samples."""
        found = await self._sources.look()
        now = self._clock()
        self._note(found)
        if found.pods is not None:
            if found.passed:
                # They were there, and are no more.
                seen = [*found.pods, *found.passed]
                self._stays = looked(self._stays, seen, found.jobs, now)
            self._stays = looked(self._stays, found.pods, found.jobs, now)
            await self._ask_brain()
            for sample in self._samples.of(self._readings(found)):
                self._spool.append(sample.job, wire.encode_sample(sample), now=time.time())
            await self._tell(found, now)
        self._spool.sync()
        self._spool.expire(now=time.time())
        await self._delivery.turn()
        write_json(self._options.home.status, self.status())

    def _readings(self, found: SourcesRead) -> list[Any]:
        if found.usage is None:
            return []
        whose = (
            shared(found.devices, self._stays) if found.devices else DevicesByPod(of={}, unknown={})
        )
        made = readings(found.usage, whose, self._stays, found.nodes)
        return [reading for reading in made if reading.job in self._known]

    def _note(self, found: SourcesRead) -> None:
        before = {trouble.source for trouble in self._troubles}
        for trouble in found.troubles:
            if trouble.source not in before:
                log.warning("%s: %s; remedy: %s", trouble.source, trouble.why, trouble.remedy)
        for source in sorted(before - {trouble.source for trouble in found.troubles}):
            log.info("%s: mended", source)
        self._troubles = tuple(found.troubles)

    async def _ask_brain(self) -> None:
        """Ask Brain which of the jobs with pods in this cluster it knows."""
        for job in {stay.job for stay in self._stays.all.values() if stay.job is not None}:
            if job in self._known or self._strange.get(job, 0.0) > time.monotonic():
                continue
            try:
                # Only whether it is there matters; what a newer Brain says of it need not be read.
                await self._brain.send(replace(calls.job(job), reads=bytes))
            except NotFound:
                self._strange[job] = time.monotonic() + _DOUBT_SECONDS
            except BrainError as why:
                self._refuse("jobs", why)
                return
            else:
                self._known.add(job)
                self._strange.pop(job, None)
        self._refused.pop("jobs", None)

    async def _tell(self, found: SourcesRead, now: datetime) -> None:
        """Report replicas and nodes, until Brain does not answer: each request would wait again."""
        self._advised |= {job.job for job in found.jobs.all if job.advised}
        for report in reports.reports(self._stays, self._known - self._advised, now):
            said = report.replicas, report.waiting
            if self._told.get(report.job) != said:
                if not await self._send("replicas", calls.report_replicas(report)):
                    return
                if "replicas" not in self._refused:
                    self._told[report.job] = said
        if self._options.pool is not None:
            for node in reports.nodes(found.nodes.values(), self._options.pool, now):
                if not await self._send("nodes", calls.put_node(node)):
                    return

    async def _send(self, what: str, call: Any) -> bool:
        """Send a report; return False if Brain does not answer."""
        try:
            await self._brain.send(call)
        except (NotFound, Conflict) as why:
            log.warning("%s: %s", what, why)
        except BrainError as why:
            self._refuse(what, why)
            return not isinstance(why, Unavailable)
        else:
            self._refused.pop(what, None)
        return True

    def _refuse(self, what: str, why: BrainError) -> None:
        if what not in self._refused:
            log.warning("Brain rejects %s: %s", what, why)
        self._refused[what] = str(why)

    def status(self) -> dict[str, Any]:
        """Return the content of ``status.json``."""
        counts = self._delivery.counts
        return {
            "v": wire.VERSION,
            "pid": os.getpid(),
            "at": self._clock().isoformat(),
            "live_jobs": sorted(self._known),
            "pods": reports.phases(self._stays),
            "jobs_unknown_to_brain": reports.unclaimed(self._stays, dict.fromkeys(self._known)),
            "degraded": [
                {"source": each.source, "why": each.why, "remedy": each.remedy}
                for each in self._troubles
            ],
            "refused": dict(self._refused),
            "delivered": counts.stored,
            "duplicates": counts.duplicates,
            "rejected": counts.rejected,
            "spooled": self._spool.waiting,
            "spooled_bytes": self._spool.size_bytes,
            "dropped": self._spool.counts.dropped,
            "torn": self._spool.counts.torn + counts.unreadable,
            "last_error": counts.last_error,
            "undelivered": self._delivery.errors(),
        }

    async def _finish(self) -> None:
        self._delivery.hurry()
        try:
            async with asyncio.timeout(_LAST_SECONDS):
                await self._delivery.turn()
        except TimeoutError:
            log.warning("%d samples were not delivered and stay in the spool", self._spool.waiting)
        await self._delivery.close()
        write_json(self._options.home.status, self.status())
        self._spool.close()


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``--kubernetes``."""
    told = parser.add_argument_group("of a cluster")
    told.add_argument("--kubernetes", action="store_true", help="collect from a cluster's API")
    told.add_argument(
        "--namespace",
        action="append",
        default=[],
        help=("only collect from this namespace; repeat for more"),
    )
    told.add_argument(
        "--look", type=float, default=15.0, help="seconds between readings of the cluster (15)"
    )
    told.add_argument(
        "--kubeconfig",
        help=("kubeconfig of the cluster; default: the pod's service account, else $KUBECONFIG"),
    )
    told.add_argument("--context", help="of the kubeconfig")
    told.add_argument("--prometheus", help="URL of a Prometheus that scrapes dcgm-exporter")
    told.add_argument("--prometheus-token-file", help="bearer token for Prometheus")
    told.add_argument(
        "--token-file", help=("Brain's token with the role scaler; default: $BRAIN_TOKEN")
    )
    told.add_argument("--pool", help="register the cluster's nodes in this pool")
    told.add_argument("--check", action="store_true", help="print what is missing, and exit")
    told.add_argument("--user", help="with --check: check the rights of this user")


def run(given: argparse.Namespace) -> int:
    """Run the collector of a cluster; return the exit code."""
    logging.basicConfig(format="%(asctime)s collector: %(message)s", level=logging.INFO)
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    try:
        return asyncio.run(_check(given)) if given.check else _collect(given)
    except (BrainError, OSError) as refused:
        log.error("%s", refused)
        return 1


def _collect(given: argparse.Namespace) -> int:
    if not given.url:
        raise BadInput("--kubernetes needs --url, the URL of Brain", field="url")
    home = Home.at(given.home)
    make_private(home.root)
    make_private(home.collector)
    with home.lock.open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            log.error(
                "another collector holds the lock %s; give this one another --home", home.lock
            )
            return HELD
        asyncio.run(_serve(given, home))
    return 0


async def _serve(given: argparse.Namespace, home: Home) -> None:
    token = _token(given.token_file)
    options = PodCollectorOptions(
        home=home,
        url=given.url,
        token=token,
        every_seconds=max(1.0, given.look),
        pool=PoolName(given.pool) if given.pool else None,
    )
    door, prometheus = _door(given), _prometheus(given)
    sources = TelemetrySources(door, namespaces=given.namespace, prometheus=prometheus)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        async with brain_of(given) as brain:
            await ClusterCollector(options, sources, brain).run(stop)
    finally:
        await _close(door, prometheus)


def brain_of(
    given: argparse.Namespace, transport: httpx2.AsyncBaseTransport | None = None
) -> AsyncBrainClient:
    """Return the client for reports, which reads the token's file again if Brain refuses the token.

    Raises:
        BadInput: the file cannot be read.
    """
    token: str | TokenFile = _token(given.token_file)()
    if given.token_file:
        token = TokenFile(Path(given.token_file))
    return AsyncBrainClient(given.url, token, transport)


async def _check(given: argparse.Namespace) -> int:
    from collectors.pods.check import examine, say

    door, prometheus = _door(given), _prometheus(given)
    try:
        return say(await examine(door, given.namespace, prometheus, user=given.user))
    finally:
        await _close(door, prometheus)


async def _close(door: Door, prometheus: httpx2.AsyncClient | None) -> None:
    await door.close()
    if prometheus is not None:
        await prometheus.aclose()


def _door(given: argparse.Namespace) -> Door:
    chosen = given.kubeconfig or given.context or os.environ.get("KUBECONFIG")
    if not chosen and os.environ.get("KUBERNETES_SERVICE_HOST"):
        return Door(in_cluster())
    return Door(by_kubeconfig(given.kubeconfig, given.context))


def _prometheus(given: argparse.Namespace) -> httpx2.AsyncClient | None:
    if not given.prometheus:
        return None
    headers = {}
    if given.prometheus_token_file:
        headers["Authorization"] = f"Bearer {_read(given.prometheus_token_file)}"
    return httpx2.AsyncClient(base_url=given.prometheus, headers=headers, timeout=10.0)


def _token(path: str | None) -> Callable[[], str]:
    """Return a function that reads the token each time, because a mounted Secret may change."""
    return (lambda: _read(path)) if path else (lambda: os.environ.get("BRAIN_TOKEN", ""))


def _read(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace").strip()
    except OSError as missing:
        raise BadInput(f"token file {path}: {missing}; mount the Secret", field="token") from (
            missing
        )
