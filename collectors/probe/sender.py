"""Sends the probe's events to the agent immediately, and the probe's samples to the collector."""

from __future__ import annotations

import _thread
import collections
import json
import os
import signal
import socket
import threading
import time

from .files import DeclaredCheckpoint
from .measures import samples

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .observing import Probe

#: Version of the messages.
VERSION = 1
#: Most samples that are kept while no collector listens.
UNSENT = 256
#: Seconds between checks of a declared checkpoint, and between attempts to send unsent messages.
LOOK_SECONDS = 0.25
#: Seconds between attempts while a receiver's queue is full; some queues hold ten datagrams.
BUSY_SECONDS = 0.01


class Sender:
    """Sends events and samples; a separate thread makes samples from windows, without blocking."""

    def __init__(self, probe: Probe) -> None:
        self.probe = probe
        self.agent = probe.config.get("agent")
        self.collector = probe.config.get("collector")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.setblocking(False)
        self.handed: collections.deque[tuple[Any, ...]] = collections.deque()
        self.unsent: collections.deque[bytes] = collections.deque()  # samples for the collector
        self.untold: collections.deque[bytes] = collections.deque(
            maxlen=UNSENT
        )  # events for the agent
        self.dropped = 0
        self.wake = threading.Event()
        self.lock = threading.Lock()
        # Reentrant: a signal handler of the script may load a file while we tell something.
        self.telling = threading.RLock()
        self.declared = DeclaredCheckpoint(
            probe.config.get("checkpoint") if probe.rank == 0 else None
        )
        self._new_source()

    def _new_source(self) -> None:
        self.source = os.urandom(8).hex()
        self.sequence = 0
        self.measured_us = 0

    def start(self) -> None:
        """Start the thread; called at the first step, so that scripts without steps have no extra
        thread.
        """
        # No signal comes to it: a script may block one in all of its own threads and wait for it.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        # Not a ``Thread``: a script may wait for all that ``threading`` knows.
        _thread.start_new_thread(self._run, ())
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def hand(self, measured: tuple[Any, ...]) -> None:
        """Queue a measurement; this costs the script's thread one append."""
        self.handed.append(measured)
        self.wake.set()

    def tell(self, event: str, **fields: Any) -> None:
        """Send an event to the agent now; if the agent is busy, the thread sends it later."""
        if self.agent is None:
            return
        probe = self.probe
        head = {"v": VERSION, "rank": probe.rank, "local_rank": probe.local_rank}
        fields.update(head, epoch=probe.config["epoch"], event=event, met=probe.met)
        self.untold.append(json.dumps(fields).encode())
        with self.telling:
            self._drain(self.untold, self.agent)

    def told_save(self, path: str) -> None:
        """Record that the probe's hooks saw a save, so that the change of a declared checkpoint is
        not reported again.
        """
        self.declared.seen(path)

    def flush_window(self) -> None:
        """Make samples from queued measurements now, because later ones belong to another world."""
        with self.lock:
            self._encode_handed()

    def flush(self) -> None:
        """Send the remaining messages at exit; wait at most a second for busy receivers."""
        until = time.monotonic() + 1.0
        while self._turn() and time.monotonic() < until:
            time.sleep(BUSY_SECONDS)

    def _run(self) -> None:
        probe = self.probe
        busy = False
        while probe.armed:
            rest = self.unsent or self.untold or self.dropped or self.declared.path
            self.wake.wait(BUSY_SECONDS if busy else LOOK_SECONDS if rest else None)
            self.wake.clear()
            try:
                if not probe.writing and not probe.saves:
                    step = self.declared.changed(probe.steps)
                    if step is not None:
                        probe.wrote(self.declared.path, 0, step)
                busy = self._turn()
            except Exception as error:  # noqa: BLE001 - a thread of ours must not print a traceback
                probe.failed("sender", error)

    def _turn(self) -> bool:
        """Encode and send messages; return True if a receiver's queue is full."""
        with self.lock:
            self._encode_handed()
            if self.dropped and len(self.unsent) < UNSENT:
                lost = {"where": "probe", "dropped": self.dropped}
                self.dropped = 0
                self.unsent.append(self._encode("loss", time.monotonic_ns(), lost))
            busy = self._drain(self.unsent, self.collector)
        with self.telling:
            return self._drain(self.untold, self.agent) or busy

    def _encode_handed(self) -> None:
        while self.handed:
            for kind, at_ns, fields in samples(self.handed.popleft()):
                self._keep(self._encode(kind, at_ns, fields))

    def _keep(self, line: bytes) -> None:
        self.unsent.append(line)
        if len(self.unsent) > UNSENT:
            self.unsent.popleft()
            self.dropped += 1

    def _drain(self, lines: collections.deque[bytes], address: str | None) -> bool:
        while lines and address is not None:
            try:
                self.socket.sendto(lines[0], address)
            except OSError as error:
                return isinstance(error, BlockingIOError)
            lines.popleft()
        return False

    def _encode(self, kind: str, at_ns: int, fields: dict[str, Any]) -> bytes:
        probe, config = self.probe, self.probe.config
        at_us = (time.time_ns() - (time.monotonic_ns() - at_ns)) // 1000
        if at_us < self.measured_us - 1_000_000:
            # The clock was set back; a new source keeps (source, measured_at) true and unique.
            self._new_source()
        self.measured_us = at_us = max(at_us, self.measured_us + 1)
        own = {"job": config["job"], "source": self.source}
        if kind == "loss":
            fields = dict(fields, **own)
        else:
            world = {key: config[key] for key in ("replica", "epoch", "generation")}
            place = dict(own, local_rank=probe.local_rank, rank=probe.rank, **world)
            fields = dict(fields, place=place)
        if kind == "throughput":
            world = {key: config[key] for key in ("nodes", "replicas", "accelerator")}
            fields.update(world, processes=probe.processes)
        seconds, micros = divmod(at_us, 1_000_000)
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
        fields.update(kind=kind, sequence=self.sequence, measured_at="%s.%06dZ" % (stamp, micros))
        self.sequence += 1
        return json.dumps(fields).encode()
