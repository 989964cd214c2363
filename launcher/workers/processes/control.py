"""The control file: 128 bytes that one worker and its agent share (docs/reference/protocols.md)."""

import mmap
import struct
import time
from pathlib import Path

SIZE_BYTES = 128
LAYOUT = 2
_PARK, _LEASE, _STEPS, _LAST, _SAVED, _PARKED, _FIRST, _GATE, _WAITING = range(8, 80, 8)
_LIFE, _DOING, _WAITED, _WAITS, _ASK, _HELD = range(80, 128, 8)
_U64 = struct.Struct("<Q")


class Control:
    """The agent's side of a control file; each field has one writer."""

    def __init__(self, path: Path) -> None:
        """Create the file and map it, without any request."""
        self.path = path
        self._lapsed = False
        path.write_bytes(_U64.pack(LAYOUT) + bytes(SIZE_BYTES - 8))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), SIZE_BYTES)

    def park(self, mode: int) -> None:
        """Write the request to park: 0 continue, 1 wait after the next save, 2 wait before the next
        step.
        """
        self._write(_PARK, mode)

    def lease(self, until_ns: int) -> None:
        """Write the time until which the worker may live, in CLOCK_MONOTONIC nanoseconds; 0 = no
        end.
        """
        self._lapsed = self.lapsed
        self._write(_LEASE, until_ns)

    @property
    def lapsed(self) -> bool:
        """True if the lease has expired, even if it was renewed later."""
        return self._lapsed or self.over

    @property
    def over(self) -> bool:
        """True if the lease has expired and was not renewed."""
        return 0 < self._read(_LEASE) < time.monotonic_ns()

    @property
    def held(self) -> bool:
        """True if the worker has stopped itself because its lease expired."""
        return self._read(_HELD) == 1

    def gate(self, closed: bool) -> None:
        """Hold the worker before it runs the script (a closed gate), or let it run the script."""
        self._write(_GATE, int(closed))

    @property
    def gated(self) -> bool:
        """True if the worker has started and waits until it may run the script."""
        return self._read(_WAITING) == 1

    @property
    def steps(self) -> int:
        """Return the number of optimizer steps so far."""
        return self._read(_STEPS)

    @property
    def last_step_ns(self) -> int:
        """CLOCK_MONOTONIC of the last completed step; 0 = none."""
        return self._read(_LAST)

    @property
    def saved_step(self) -> int:
        """The number of optimizer steps at the newest completed save; 0 = none."""
        return self._read(_SAVED)

    @property
    def parked(self) -> bool:
        """True if the worker is parked: it waits at a step boundary."""
        return self._read(_PARKED) == 1

    @property
    def first_step_ns(self) -> int:
        """CLOCK_MONOTONIC of the first completed step; 0 = none."""
        return self._read(_FIRST)

    @property
    def life_ns(self) -> int:
        """CLOCK_MONOTONIC of the last batch, load or save; 0 = none."""
        return self._read(_LIFE)

    @property
    def doing(self) -> int:
        """The worker's activity: 0 steps, 1 a save, 2 an evaluation."""
        return self._read(_DOING)

    @property
    def waited_ns(self) -> int:
        """Total nanoseconds for which sampled steps waited for the exchange of gradients."""
        return self._read(_WAITED)

    @property
    def waits(self) -> int:
        """Number of sampled steps that ``waited_ns`` counts."""
        return self._read(_WAITS)

    def ask(self) -> None:
        """Ask the worker to write its flight recorder's file."""
        self._write(_ASK, 1)

    def close(self) -> None:
        """Unmap the file, which is removed with its directory."""
        self._map.close()

    def _read(self, offset: int) -> int:
        return int(_U64.unpack_from(self._map, offset)[0])

    def _write(self, offset: int, value: int) -> None:
        _U64.pack_into(self._map, offset, value)
