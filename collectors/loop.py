"""The collector: takes probes' samples, adds the machine's readings, spools and delivers them.

    python -m collectors.loop --home H [--url U]

There is one collector per machine: the process that holds ``collector/lock``. It exits some time
after the last agent of this machine has ended and all samples are delivered.
"""

import argparse
import asyncio
import errno
import fcntl
import logging
import os
import signal
import socket
import sys
import time
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from brain import wire
from brain.errors import BadInput
from brain.types.job import JobId
from brain.types.telemetry import HostSample, LossSample, Sample
from collectors.cgroup import leave_replica
from collectors.delivery import Delivery
from collectors.gpu import find_gpus
from collectors.host import HostWatch, LiveJob
from collectors.jobs import ReplicaDirectories, hostname
from collectors.paths import Home, make_private, write_json
from collectors.spool import Spool
from collectors.stamps import Stamps

log = logging.getLogger("collectors")

#: Exit code if another collector holds the lock (EX_TEMPFAIL).
HELD = 75
#: Most bytes of a datagram; a worker's sample has about 700.
DATAGRAM_BYTES = 1 << 16
#: Errors of file systems that support no sockets.
_NO_SOCKETS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)
#: Most datagrams that are read before the loop does other work.
BURST = 200
#: Seconds for which samples wait, so that a request contains several.
GATHER_SECONDS = 0.1
#: Most seconds that the last attempt to deliver may take after SIGTERM.
LAST_SECONDS = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectorOptions:
    """Options of the collector: addresses, intervals and waiting times."""

    home: Home
    #: URL of the service; None to read ``service.json``, again after each failure.
    url: str | None = None
    #: Seconds between readings of the machine.
    host_seconds: float = 5.0
    #: Seconds from the last agent's end to the collector's, if all samples are delivered.
    linger_seconds: float = 30.0
    #: The same if samples cannot be delivered; the samples stay on disk.
    patience_seconds: float = 120.0


def is_over(*, idle_seconds: float, waiting: int, options: CollectorOptions) -> bool:
    """True if the collector must exit, because no agent has run for ``linger_seconds``. While
    samples are still ``waiting`` for delivery, the limit is ``patience_seconds`` instead.

    >>> is_over(idle_seconds=31, waiting=0, options=CollectorOptions(home=Home.at("/h")))
    True
    >>> is_over(idle_seconds=31, waiting=7, options=CollectorOptions(home=Home.at("/h")))
    False
    """
    limit = options.patience_seconds if waiting else options.linger_seconds
    return idle_seconds >= limit


class Collector:
    """One collector; everything runs on one asyncio loop."""

    def __init__(self, options: CollectorOptions, listening: socket.socket) -> None:
        self._options, self._listening = options, listening
        home = options.home
        self._spool = Spool(home.spool)
        self._jobs = ReplicaDirectories(home, node=hostname())
        leave_replica()
        self._watch = HostWatch(find_gpus())
        self._delivery = Delivery(self._spool, url=self._url, token=self._jobs.token)
        self._stamps: dict[str, Stamps] = {}
        self._arrived = asyncio.Event()
        self._stop = asyncio.Event()
        self._received = self._garbage = 0
        self._troubles: dict[str, str] = {}

    async def run(self) -> None:
        """Collect until a signal arrives or no agent is left."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        loop.add_reader(self._listening, self._receive)
        tasks = [asyncio.ensure_future(each) for each in (self._deliver(), self._observe())]
        stopped = asyncio.ensure_future(self._stop.wait())
        try:
            done, _ = await asyncio.wait([*tasks, stopped], return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in (*tasks, stopped):
                task.cancel()
            await asyncio.gather(*tasks, stopped, return_exceptions=True)
            loop.remove_reader(self._listening)
            await self._finish()

    def _url(self, job: str) -> str | None:
        return self._options.url or self._options.home.service_url() or self._jobs.url(job)

    def _receive(self) -> None:
        """Read the waiting datagrams from the socket, each of which contains one sample."""
        for _ in range(BURST):
            try:
                data = self._listening.recv(DATAGRAM_BYTES)
            except BlockingIOError:
                return
            try:
                self._keep(wire.decode_sample(data))
                self._received += 1
            except BadInput as bad:
                self._garbage += 1
                if self._garbage == 1:
                    log.warning("a datagram is not a valid sample and is dropped: %s", bad)

    def _keep(self, sample: Sample) -> None:
        # Encoded anew, so that a line of the spool is a line.
        job = sample.job if isinstance(sample, HostSample | LossSample) else sample.place.job
        if not self._spool.append(job, wire.encode_sample(sample), now=time.time()):
            self._troubles["spool"] = f"a sample of job {job!r} could not be spooled and is lost"
        self._arrived.set()

    async def _deliver(self) -> None:
        while True:
            self._arrived.clear()
            wait_seconds = await self._delivery.turn()
            try:
                async with asyncio.timeout(max(0.05, wait_seconds)):
                    await self._arrived.wait()
            except TimeoutError:
                continue
            await asyncio.sleep(GATHER_SECONDS)

    async def _observe(self) -> None:
        """Once a second, sync, report losses, read the machine if due, and write the status."""
        idle_since, read_at = time.monotonic(), 0.0
        while not self._stop.is_set():
            now = time.monotonic()
            live = self._jobs.live()
            if live:
                idle_since = now
            if now >= read_at:
                read_at = now + self._options.host_seconds
                self._measure(live)
            self._keep_house(live)
            idle_seconds = now - idle_since
            over = is_over(
                idle_seconds=idle_seconds, waiting=self._spool.waiting, options=self._options
            )
            if over:
                self._stop.set()
            await asyncio.sleep(1.0)

    def _measure(self, live: list[LiveJob]) -> None:
        for sample in self._watch.samples(live, datetime.now(UTC)):
            self._keep(sample)

    def _keep_house(self, live: list[LiveJob]) -> None:
        try:
            self._spool.sync()
            self._spool.expire(now=time.time())
            self._tell_losses()
            write_json(self._options.home.status, self.status(live))
            self._troubles.pop("disk", None)
        except OSError as full:
            if "disk" not in self._troubles:
                log.warning("samples cannot be written to the spool: %s", full)
            self._troubles["disk"] = str(full)

    def _tell_losses(self) -> None:
        for job in self._spool.losses():
            if report_losses(self._spool, job, self._stamps.setdefault(job, Stamps())):
                self._arrived.set()

    def status(self, live: list[LiveJob]) -> dict[str, Any]:
        """Return the content of ``status.json``."""
        counts, spool = self._delivery.counts, self._spool
        return {
            "v": wire.VERSION,
            "pid": os.getpid(),
            "at": datetime.now(UTC).isoformat(),
            "socket": str(self._options.home.socket),
            "live_jobs": [job.id for job in live],
            "received": self._received,
            "delivered": counts.stored,
            "duplicates": counts.duplicates,
            "rejected": counts.rejected,
            "spooled": spool.waiting,
            "spooled_bytes": spool.size_bytes,
            "dropped": spool.counts.dropped,
            "torn": spool.counts.torn + counts.unreadable,
            "garbage": self._garbage,
            "last_error": counts.last_error,
            "undelivered": self._delivery.errors(),
            "troubles": dict(self._troubles),
        }

    async def _finish(self) -> None:
        """Read the socket's last samples and try once more to deliver; the others stay on disk."""
        self._receive()
        self._delivery.hurry()
        try:
            async with asyncio.timeout(LAST_SECONDS):
                await self._delivery.turn()
        except TimeoutError:
            log.warning("%d samples were not delivered and stay in the spool", self._spool.waiting)
        await self._delivery.close()
        self._keep_house([])
        self._spool.close()


def report_losses(spool: Spool, job: str, stamps: Stamps) -> bool:
    """Append a report of a job's dropped samples to the spool; return False if the disk is full."""
    dropped = spool.losses()[job]
    source, measured_at, sequence = stamps.next(datetime.now(UTC))
    loss = LossSample(
        job=JobId(job),
        source=source,
        measured_at=measured_at,
        sequence=sequence,
        where="spool",
        dropped=dropped,
    )
    if not spool.try_append(job, wire.encode_sample(loss), now=time.time()):
        stamps.take_back()
        return False
    spool.told(job, dropped)
    return True


def listen(home: Home) -> socket.socket:
    """Bind and return the probes' socket, in place of a socket that an ended collector left.

    No other collector uses that socket, because this collector holds the lock. On a file system
    without sockets, the path is a link to a socket on another file system.
    """
    path, local = home.socket, home.local_socket
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
    try:
        _bind(listening, path)
    except OSError as refused:
        if refused.errno not in _NO_SOCKETS or path == local:
            raise
        _bind(listening, local)
        path.symlink_to(local)
    return listening


def _bind(listening: socket.socket, path: Path) -> None:
    make_private(path.parent)
    path.unlink(missing_ok=True)
    listening.bind(str(path))


def remove(path: Path, bound: os.stat_result) -> None:
    """Remove this collector's socket, unless a later collector has replaced it."""
    with suppress(OSError):
        if os.path.samestat(path.stat(), bound):
            real = path.resolve()
            path.unlink()
            real.unlink(missing_ok=True)
            # Only the short directory of a home is empty now; agents may use it too.
            real.parent.rmdir()


def collect(options: CollectorOptions) -> int:
    """Run this machine's collector; return the exit code, which is ``HELD`` if another collector
    runs.
    """
    home = options.home
    make_private(home.root)
    make_private(home.collector)
    with home.lock.open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            log.info("another collector already runs: it holds the lock %s", home.lock)
            return HELD
        with closing(listen(home)) as listening:
            bound = home.socket.stat()
            try:
                asyncio.run(_run(options, listening))
            finally:
                remove(home.socket, bound)
    return 0


async def _run(options: CollectorOptions, listening: socket.socket) -> None:
    await Collector(options, listening).run()


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line, which ``brain-collect`` uses, too."""
    told = argparse.ArgumentParser(prog="brain-collect", description=__doc__.splitlines()[0])
    told.add_argument("--home", help="state directory; default $BRAIN_HOME, else ~/.brain")
    told.add_argument("--url", help="URL of the service; default: the one in service.json")
    told.add_argument(
        "--linger",
        type=float,
        default=30.0,
        help=("seconds to keep running after the last agent ends (30)"),
    )
    told.add_argument(
        "--patience",
        type=float,
        default=120.0,
        help=("seconds to keep running while samples are undelivered (120)"),
    )
    told.add_argument(
        "--every", type=float, default=5.0, help="seconds between readings of this machine (5)"
    )
    return told


def main(arguments: list[str] | None = None) -> int:
    """Run the collector."""
    return run(parser().parse_args(arguments))


def run(given: argparse.Namespace) -> int:
    """Run the collector with parsed arguments; return its exit code."""
    logging.basicConfig(format="%(asctime)s collector: %(message)s", level=logging.INFO)
    # One line per request is for the service's log, not for ours.
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    options = CollectorOptions(
        home=Home.at(given.home),
        url=given.url,
        linger_seconds=given.linger,
        patience_seconds=given.patience,
        host_seconds=given.every,
    )
    try:
        return collect(options)
    except (BadInput, OSError) as refused:
        log.error("%s", refused)
        return 1


if __name__ == "__main__":
    sys.exit(main())
