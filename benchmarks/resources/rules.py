"""Policies to compare with: the owner's reservation, and the rules of DLRover's Brain.

The rules are re-implemented from their description, with the constants of DLRover's code. They get
readings of replicas, which DLRover's published master never sends, and their own step counts. Two
rules are left out because neither changes how long these jobs take: the rule that takes processors
from idle servers, and the rule for workers that run out of memory, which never happens in these
jobs.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from benchmarks.resources.dlrm import GIB, Amount, Floats, Size
from benchmarks.resources.playing import MOST_REPLICAS, Reading

#: Seconds between readings, of which the rules want five before the first plan.
_READS_SECONDS = 30.0
#: Seconds after which an owner comes back to a job that ran out of memory.
_OWNER_SECONDS = 900.0


@dataclass(slots=True)
class Static:
    """The owner's reservation; once a server ran out of memory, servers get twice the memory."""

    reads_seconds: float = _READS_SECONDS
    _size: Size = field(init=False)

    def begin(self, declared: Size) -> Size:
        self._size = declared
        return declared

    def see(self, reading: Reading) -> Size:
        return self._size

    def killed(self, at: float, server: int) -> tuple[Size, float]:
        self._size = with_server(self._size, memory_bytes=2 * self._size.server.memory_bytes)
        return self._size, _OWNER_SECONDS

    def started(self, at: float) -> None:
        pass

    def stops(self, had: Size, has: Size) -> bool:
        return True


#: Seconds between plans, and readings that the first one needs.
_EVERY, _FIRST = 300.0, 5
#: Busy share of a server that is overloaded, and exhausted; of memory that is hot.
_OVERLOAD, _EXHAUSTED, _MEMORY_HOT = 0.8, 0.95, 0.9
_MOST_WORKERS, _MOST_SERVERS, _MOST_CPUS = 32, 15, 32.0
#: Seconds left up to which a job counts as short, and its workers; workers aimed at otherwise.
_SHORT, _FEW, _AIM = 1800.0, 10, 20
_FOUR = 4
_MARGIN = 1.2


@dataclass(slots=True)
class History:
    """The record of earlier jobs for the rules: CPU and memory of servers and of workers."""

    server_cpus: list[float] = field(default_factory=list)
    total_cpus: list[float] = field(default_factory=list)
    server_bytes: list[float] = field(default_factory=list)
    total_bytes: list[float] = field(default_factory=list)
    worker_cpus: list[float] = field(default_factory=list)
    worker_bytes: list[float] = field(default_factory=list)


@dataclass(slots=True)
class Rules:
    """DLRover's rules for one job: at its creation, early adjustments of workers and servers, and
    while it runs.
    """

    _history: History
    reads_seconds: float = _READS_SECONDS
    _size: Size = field(init=False)
    _seen: list[Reading] = field(default_factory=list)
    _planned_at: float = 0.0
    _plans: int = 0
    #: Steps per second before the last growth of the workers.
    _before: float = 0.0

    def begin(self, declared: Size) -> Size:
        known = self._history
        if not known.total_cpus:
            each = Amount(cpus=12, memory_bytes=16 * GIB)
            self._size = Size(workers=1, servers=4, worker=each, server=each)
            return self._size
        cpus = max(known.server_cpus) + _FOUR
        total = _major(known.total_cpus)
        servers = math.ceil(1.5 * total / cpus)
        if servers > _MOST_SERVERS:
            servers, cpus = _MOST_SERVERS, total / _MOST_SERVERS
        memory = max(max(known.server_bytes), max(known.total_bytes) / servers)
        self._size = Size(
            workers=1,
            servers=servers,
            worker=Amount(
                cpus=max(12.0, max(known.worker_cpus)),
                memory_bytes=max(16 * GIB, 1.5 * max(known.worker_bytes)),
            ),
            server=Amount(cpus=cpus, memory_bytes=_MARGIN * memory),
        )
        return self._size

    def see(self, reading: Reading) -> Size:
        self._seen.append(reading)
        due = reading.at - self._planned_at >= _EVERY if self._plans else True
        if len(self._seen) < _FIRST or not due:
            return self._size
        had = self._size
        self._size = self._plan()
        self._planned_at, self._plans = reading.at, self._plans + 1
        if self._size != had:
            self._before = self._rate(_FIRST)
            self._remember()
            self._seen.clear()
        return self._size

    def killed(self, at: float, server: int) -> tuple[Size, float]:
        memory = [float(one.server_bytes.max()) for one in self._seen]
        if not memory:
            many = self._size.server.memory_bytes >= 64 * GIB
        else:
            last = self._seen[-1].server_bytes
            many = float(1 - last.mean() / last.max()) <= 0.2
        if many and self._size.servers < _MOST_SERVERS:
            self._size = replace(self._size, servers=min(_MOST_SERVERS, 2 * self._size.servers))
        else:
            twice = 2 * max([self._size.server.memory_bytes, *memory])
            self._size = with_server(self._size, memory_bytes=twice)
        self._seen.clear()
        return self._size, 0.0

    def started(self, at: float) -> None:
        pass

    def stops(self, had: Size, has: Size) -> bool:
        """Return True only if servers change: workers join and leave while other workers run."""
        return (had.servers, had.server) != (has.servers, has.server)

    def _plan(self) -> Size:
        if self._plans == 0:
            return self._workers(early=True)
        if self._plans == 1:
            return self._first_servers()
        hot = self._hot()
        return hot if hot != self._size else self._workers(early=self._plans == 2)

    def _rate(self, count: int) -> float:
        return float(np.mean([one.steps_per_second for one in self._seen[-count:]]))

    def _busy(self, count: int = 3) -> Floats:
        """Return the mean number of busy processors of each server."""
        return np.mean([one.server_cpus for one in self._seen[-count:]], axis=0)

    def _left(self) -> float:
        last = self._seen[-1]
        return (last.of_steps - last.steps) / self._rate(_FIRST)

    def _workers(self, *, early: bool) -> Size:
        size, busy = self._size, float(self._busy().max() / self._size.server.cpus)
        slower = bool(self._before) and self._rate(_FIRST) < self._before
        count = size.workers
        if busy > _EXHAUSTED:
            count = max(1, count - _FOUR)
        elif busy < _OVERLOAD and not slower:
            count = math.ceil(_OVERLOAD / max(busy, 0.01) * count)
            if early:
                most = _FEW if self._left() <= _SHORT else _MOST_WORKERS
                count = min(count, most)
            else:
                count = min(count, size.workers + _FOUR)
        used = max(float(one.worker_cpus.mean()) for one in self._seen)
        memory = max(float(one.worker_bytes.max()) for one in self._seen)
        worker = Amount(
            cpus=float(math.ceil(used + 1)), memory_bytes=memory + min(0.2 * memory, 8 * GIB)
        )
        return replace(size, workers=min(count, MOST_REPLICAS - 1 - size.servers), worker=worker)

    def _first_servers(self) -> Size:
        size, used = self._size, self._busy()
        aim = _FEW if self._left() <= _SHORT else _AIM
        cpus = max(16.0, math.ceil(used.max()) + float(_FOUR))
        total = aim / size.workers * max(float(one.server_cpus.sum()) for one in self._seen)
        servers = min(_MOST_SERVERS, max(1, math.ceil(total / cpus)))
        held = max(float(one.server_bytes.max()) for one in self._seen)
        # The rows of all servers are on as many as there will be.
        memory = _MARGIN * held * max(1.0, size.servers / servers)
        return replace(
            size, servers=servers, server=Amount(cpus=cpus, memory_bytes=max(memory, 4 * GIB))
        )

    def _hot(self) -> Size:
        size, used = self._size, self._busy()
        last = self._seen[-3:]
        server = size.server
        if float(used.max()) > _OVERLOAD * server.cpus:
            most = min(_MOST_WORKERS / size.workers, _MOST_CPUS / float(used.max()))
            server = replace(server, cpus=max(server.cpus, most * float(used.max())))
        if all(float(one.server_bytes.max()) > _MEMORY_HOT * server.memory_bytes for one in last):
            server = replace(server, memory_bytes=server.memory_bytes + 8 * GIB)
        return replace(size, server=server)

    def _remember(self) -> None:
        known, last = self._history, self._seen[-1]
        known.server_cpus.append(float(self._busy().max()))
        known.total_cpus.append(float(self._busy().sum()))
        known.server_bytes.append(float(last.server_bytes.max()))
        known.total_bytes.append(float(last.server_bytes.sum()))
        known.worker_cpus.append(float(last.worker_cpus.max()))
        known.worker_bytes.append(float(last.worker_bytes.max()))


def with_server(size: Size, **amounts: float) -> Size:
    """Return a size with other amounts of each server."""
    return replace(size, server=replace(size.server, **amounts))


def _major(values: Sequence[float]) -> float:
    """Return the mean of the middle half of the values."""
    low, high = np.quantile(values, (0.25, 0.75))
    return float(np.mean([one for one in values if low <= one <= high]))
