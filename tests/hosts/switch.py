"""A network in user space: one TAP device per host, and a thread that carries their frames.

Between any two hosts, in each direction, frames may be lost, late or few. No kernel module, no
bridge and no packet filter is needed, and all of it is gone with the process that made it.
"""

import fcntl
import heapq
import itertools
import os
import selectors
import struct
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass

_TUNSETIFF = 0x400454CA
_IFF_TAP, _IFF_NO_PI = 0x0002, 0x1000
_FRAME_BYTES = 65536


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """How frames fare on the way from one host to another."""

    up: bool = True
    delay_seconds: float = 0.0
    #: None: as many as come.
    bytes_per_second: float | None = None


class Switch:
    """Carries frames between ports until closed; ports are numbered as they were added."""

    def __init__(self) -> None:
        self._ports: dict[int, int] = {}
        self._links: dict[tuple[int, int], Link] = {}
        self._free_at: dict[tuple[int, int], float] = {}
        self._late: list[tuple[float, int, int, bytes]] = []
        self._order = itertools.count()
        self._numbers = itertools.count(1)
        self._selector = selectors.DefaultSelector()
        self._wake, self._waker = os.pipe()
        self._selector.register(self._wake, selectors.EVENT_READ)
        self._lock = threading.Lock()
        self._open = True
        self._thread = threading.Thread(target=self._carry, name="switch", daemon=True)
        self._thread.start()

    def port(self, number: int | None = None) -> tuple[int, str]:
        """Make a port; returns its number and the TAP device, which waits to be moved.

        A host that is switched on again keeps its ``number``, and its address with it.

        Raises:
            OSError: this machine does not let us.
        """
        descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        request = struct.pack("16sH22x", b"brain%d", _IFF_TAP | _IFF_NO_PI)
        try:
            answer = fcntl.ioctl(descriptor, _TUNSETIFF, request)
        except OSError:
            os.close(descriptor)
            raise
        with self._lock:
            number = next(self._numbers) if number is None else number
            self._ports[number] = descriptor
            self._selector.register(descriptor, selectors.EVENT_READ, number)
        os.write(self._waker, b"x")
        return number, answer[:16].rstrip(b"\0").decode()

    def remove(self, number: int) -> None:
        """Take a port away, and its device with it."""
        with self._lock:
            descriptor = self._ports.pop(number)
            self._selector.unregister(descriptor)
            os.close(descriptor)

    def link(self, froms: Iterable[int], tos: Iterable[int], link: Link) -> None:
        """Say how frames fare from each of ``froms`` to each of ``tos``."""
        with self._lock:
            for pair in itertools.product(list(froms), list(tos)):
                self._links[pair] = link

    def close(self) -> None:
        """Stop; every device goes."""
        self._open = False
        os.write(self._waker, b"x")
        self._thread.join()
        for number in list(self._ports):
            self.remove(number)
        self._selector.close()
        os.close(self._wake)
        os.close(self._waker)

    def _carry(self) -> None:
        while self._open:
            due = self._late[0][0] - time.monotonic() if self._late else None
            for key, _ in self._selector.select(None if due is None else max(0.0, due)):
                if key.data is None:
                    os.read(self._wake, 4096)
                else:
                    self._take(key.data)
            self._deliver_due()

    def _take(self, number: int) -> None:
        with self._lock:
            descriptor = self._ports.get(number)
            if descriptor is None:
                return
            for _ in range(64):
                try:
                    frame = os.read(descriptor, _FRAME_BYTES)
                except OSError:  # nothing more, or the host is being shut down
                    return
                self._send(number, frame)

    def _send(self, number: int, frame: bytes) -> None:
        # Hosts have their port in the last two bytes of their address; an odd first byte means all.
        to = int.from_bytes(frame[4:6], "big")
        everybody = frame[0] & 1
        for port in [p for p in self._ports if p != number] if everybody else [to]:
            link = self._links.get((number, port), Link())
            if not link.up or port not in self._ports:
                continue
            at = self._arrival(number, port, link, len(frame))
            if at is None:
                self._write(port, frame)
            else:
                heapq.heappush(self._late, (at, next(self._order), port, frame))

    def _arrival(self, number: int, port: int, link: Link, size: int) -> float | None:
        """When a frame arrives; None: now."""
        if not link.delay_seconds and link.bytes_per_second is None:
            return None
        sent = time.monotonic()
        if link.bytes_per_second is not None:
            sent = max(sent, self._free_at.get((number, port), 0.0)) + size / link.bytes_per_second
            self._free_at[number, port] = sent
        return sent + link.delay_seconds

    def _deliver_due(self) -> None:
        with self._lock:
            while self._late and self._late[0][0] <= time.monotonic():
                _, _, port, frame = heapq.heappop(self._late)
                self._write(port, frame)

    def _write(self, port: int, frame: bytes) -> None:
        try:
            os.write(self._ports[port], frame)
        except (OSError, KeyError):  # full, down, or gone: networks lose frames
            return


def mac(number: int) -> str:
    """The address of the network device at a port."""
    return f"02:00:00:00:{number >> 8:02x}:{number & 255:02x}"
