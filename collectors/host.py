"""Reads the CPU, memory, network and disk usage of this machine and of its jobs.

The module uses ``psutil`` if it is installed. Otherwise it reads processor and memory from /proc,
and reports other counters as unavailable. Limits come from CPU affinity and the control group.
"""

import os
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from brain.types.job import JobId
from brain.types.resources import NodeName
from brain.types.telemetry import BEGAN_ANEW, HostSample, ReplicaReading, StorageReading
from collectors.cgroup import ROOT, Cgroup, GroupUse, read_cgroup, read_container, read_replica
from collectors.gpu import Gpus, GpuSight
from collectors.stamps import Stamps

try:
    import psutil
except ImportError:
    psutil = None  # type: ignore[assignment]  # no type says: a module, or none

_MISSING = "psutil is not installed; pip install 'elastic-brain[host]'"
#: A process by its pid and start time in seconds since boot: pids are reused, and clocks are set.
Process = tuple[int, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCounters:
    """Counters of the machine at one time. Memory may decrease; other counters only increase."""

    #: Time of the reading on CLOCK_MONOTONIC.
    at_seconds: float
    cpu_seconds: float
    cpu_capacity_millis: int
    memory_bytes: int
    memory_capacity_bytes: int
    received_bytes: int = 0
    sent_bytes: int = 0
    read_bytes: int = 0
    written_bytes: int = 0
    #: True if ``cpu_seconds`` is that of a control group, and not of the machine.
    grouped: bool = False
    unavailable: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeReading:
    """Usage of a tree of processes at one instant."""

    cpu_seconds: Mapping[Process, float] = field(default_factory=dict)
    memory_bytes: int = 0

    def __add__(self, other: "TreeReading") -> "TreeReading":
        return TreeReading(
            cpu_seconds={**self.cpu_seconds, **other.cpu_seconds},
            memory_bytes=self.memory_bytes + other.memory_bytes,
        )


def read_host(cgroup: Cgroup | None = None) -> HostCounters:
    """Read the machine now; limits of a control group replace the machine's."""
    limits = read_cgroup() if cgroup is None else cgroup
    affinity = 1000 * len(os.sched_getaffinity(0))
    used, total = _memory()
    received, sent, read, written, unavailable = _traffic()
    limited = limits.memory_bytes is not None and limits.memory_bytes < total
    if limited and limits.memory_used_bytes is not None:
        used = limits.memory_used_bytes
    return HostCounters(
        at_seconds=time.monotonic(),
        cpu_seconds=_cpu_seconds() if limits.cpu_seconds is None else limits.cpu_seconds,
        cpu_capacity_millis=min(affinity, limits.cpu_millis or affinity),
        memory_bytes=used,
        memory_capacity_bytes=min(total, limits.memory_bytes or total),
        received_bytes=received,
        sent_bytes=sent,
        read_bytes=read,
        written_bytes=written,
        grouped=limits.cpu_seconds is not None,
        unavailable=unavailable,
    )


def read_tree(root: int) -> TreeReading:
    """Read the process ``root`` and its descendants, except this process and processes that ended.

    Memory is the resident set, so shared pages are counted once per process.
    """
    if psutil is None:
        return TreeReading()
    cpu: dict[Process, float] = {}
    memory, booted_at = 0, psutil.boot_time()
    for process in _processes(root):
        try:
            with process.oneshot():
                times, began = process.cpu_times(), process.create_time() - booted_at
                # A clock tick is a hundredth of a second.
                cpu[process.pid, round(began, 2)] = times.user + times.system
                memory += process.memory_info().rss
        except psutil.Error:
            continue
    return TreeReading(cpu_seconds=cpu, memory_bytes=memory)


def millis_between(before: TreeReading, after: TreeReading, *, seconds: float) -> int:
    """Return the mean CPU usage of a process tree between two readings, in mCPU. If a process ended
    between the readings, its usage after the first reading is not counted.
    """
    used = sum(
        max(0.0, total - before.cpu_seconds.get(process, 0.0))
        for process, total in after.cpu_seconds.items()
    )
    return round(1000 * used / seconds)


def read_replicas(jobs: Iterable["LiveJob"], root: Path = ROOT) -> Mapping[int, GroupUse]:
    """Read the control groups of the jobs' agents, by pid; agents that ended are left out."""
    found = {}
    for pid, pod in ((pid, job.pod) for job in jobs for pid in job.agents.values()):
        with suppress(OSError):
            own = Path(f"/proc/{pid}/cgroup").read_text()
            found[pid] = (read_container if pod else read_replica)(own, root)
    return found


def held_between(
    before: Mapping[int, GroupUse], after: Mapping[int, GroupUse]
) -> tuple[int | None, float | None]:
    """Return two maxima over all replicas: the memory usage in bytes, and the share (0 to 1) of
    quota periods in which the CPU quota stopped the replica. A value is None if no replica has it.
    """
    memory = [use.memory_bytes for use in after.values() if use.memory_bytes is not None]
    shares = []
    for pid, now in after.items():
        then = before.get(pid, now)
        periods, stopped = now.periods - then.periods, now.throttled - then.throttled
        if periods > 0:
            shares.append(min(1.0, max(0, stopped) / periods))
    return max(memory, default=None), max(shares, default=None)


#: Fields of byte counters, by the field of the rate that is computed from each.
_TRAFFIC = {
    "network_receive_bytes_per_second": "received_bytes",
    "network_send_bytes_per_second": "sent_bytes",
    "disk_read_bytes_per_second": "read_bytes",
    "disk_write_bytes_per_second": "written_bytes",
}


def rates_between(before: HostCounters, after: HostCounters) -> dict[str, Any]:
    """Return the fields of a ``HostSample`` that are computed from two readings.

    If a counter decreased because a device or a control group was created again, its rate is 0 and
    ``unavailable`` lists it. The same applies to CPU usage if the control group appeared or
    disappeared.
    """
    seconds = max(1e-3, after.at_seconds - before.at_seconds)
    millis = round(1000 * (after.cpu_seconds - before.cpu_seconds) / seconds)
    anew = ["processor"] if millis < 0 or before.grouped != after.grouped else []
    rates = {}
    for rate, counter in _TRAFFIC.items():
        grown = getattr(after, counter) - getattr(before, counter)
        rates[rate] = max(0, grown) / seconds
        anew += [counter.replace("_", " ")] if grown < 0 else []
    return {
        "cpu_millis": 0 if "processor" in anew else millis,
        "cpu_capacity_millis": after.cpu_capacity_millis,
        "memory_bytes": after.memory_bytes,
        "memory_capacity_bytes": after.memory_capacity_bytes,
        "unavailable": (*after.unavailable, *(f"{each}: {BEGAN_ANEW}" for each in anew)),
        **rates,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveJob:
    """A job with agents on this machine."""

    id: JobId
    node: NodeName
    #: Pids of the job's agents, by replica.
    agents: Mapping[int, int]
    #: True: the agent is in a pod, and the node may have other pods of the job.
    pod: bool = False


#: Files with the time in which a process waited for storage: in this control group, or on the host.
_IO_PRESSURE = (Path("/sys/fs/cgroup/io.pressure"), Path("/proc/pressure/io"))


def read_stalled(files: Sequence[Path] = _IO_PRESSURE) -> float | None:
    """Return the seconds so far in which at least one process waited for storage; None if the
    kernel does not count these seconds.
    """
    for file in files:
        try:
            return int(file.read_text().split("total=")[1].split()[0]) / 1e6
        except (OSError, IndexError, ValueError):
            continue
    return None


def read_storage(stalled_share: float | None) -> StorageReading | None:
    """Read the usage of /dev/shm and of the file system for temporary files; None if either cannot
    be read.
    """
    try:
        shm, scratch = os.statvfs("/dev/shm"), os.statvfs(tempfile.gettempdir())
    except OSError:
        return None
    return StorageReading(
        shm_used_bytes=(shm.f_blocks - shm.f_bfree) * shm.f_frsize,
        shm_capacity_bytes=shm.f_blocks * shm.f_frsize,
        scratch_used_bytes=(scratch.f_blocks - scratch.f_bfree) * scratch.f_frsize,
        scratch_capacity_bytes=scratch.f_blocks * scratch.f_frsize,
        io_stalled_share=stalled_share,
    )


def stalled_between(before: float | None, after: float | None, *, seconds: float) -> float | None:
    """Return the share of the time in which a process waited for storage; None if a counter is
    missing, or was reset.
    """
    if before is None or after is None or after < before:
        return None
    return min(1.0, (after - before) / seconds)


class HostWatch:
    """Makes a ``HostSample`` for each job from two successive readings."""

    def __init__(self, gpus: Gpus, groups: Path = ROOT) -> None:
        """``groups`` is the directory at which the hierarchy of control groups is mounted."""
        self._gpus, self._groups = gpus, groups
        self._last, self._stalled = read_host(), read_stalled()
        #: Last reading of each agent's processes, by the agent's pid.
        self._trees: dict[int, TreeReading] = {}
        self._known: frozenset[JobId] = frozenset()
        self._replicas: Mapping[int, GroupUse] = {}
        self._stamps: dict[JobId, Stamps] = {}

    def samples(self, jobs: Sequence[LiveJob], now: datetime) -> list[HostSample]:
        """Return one sample for each job.

        A new job has no rates yet, so its first sample comes from the next reading.
        """
        before, self._last = self._last, read_host()
        rates = rates_between(before, self._last)
        seconds = max(1e-3, self._last.at_seconds - before.at_seconds)
        stalled, self._stalled = self._stalled, read_stalled()
        waits = stalled_between(stalled, self._stalled, seconds=seconds)
        pids = [pid for job in jobs for pid in job.agents.values()]
        trees, self._trees = self._trees, {pid: read_tree(pid) for pid in pids}
        replicas, self._replicas = self._replicas, read_replicas(jobs, self._groups)
        known = [job for job in jobs if job.id in self._known]
        self._known = frozenset(job.id for job in jobs)
        gpus = self._gpus.read() if known else GpuSight()
        rates["unavailable"] += gpus.unavailable
        storage = read_storage(waits) if known else None
        made = []
        for job in known:
            source, measured_at, sequence = self._stamps.setdefault(job.id, Stamps()).next(now)
            agents = job.agents.values()
            mine = {pid: self._replicas[pid] for pid in agents if pid in self._replicas}
            then, tree = (
                sum((of.get(pid, TreeReading()) for pid in agents), TreeReading())
                for of in (trees, self._trees)
            )
            memory, throttled = held_between(replicas, mine)
            sample = HostSample(
                job=job.id,
                source=source,
                node=job.node,
                measured_at=measured_at,
                sequence=sequence,
                job_cpu_millis=millis_between(then, tree, seconds=seconds),
                job_memory_bytes=tree.memory_bytes,
                gpus=gpus.readings,
                replica_memory_bytes=memory,
                throttled_share=throttled,
                replica_readings=tuple(
                    self._reading(replica, pid, trees, seconds)
                    for replica, pid in sorted(job.agents.items())
                    if len(job.agents) > 1 or job.pod
                ),
                storage=storage,
                **rates,
            )
            made.append(sample)
        return made

    def _reading(
        self, replica: int, pid: int, before: Mapping[int, TreeReading], seconds: float
    ) -> ReplicaReading:
        tree, group = self._trees[pid], self._replicas.get(pid, GroupUse()).memory_bytes
        return ReplicaReading(
            replica=replica,
            cpu_millis=millis_between(before.get(pid, tree), tree, seconds=seconds),
            memory_bytes=tree.memory_bytes if group is None else group,
        )


def _processes(root: int) -> list[Any]:
    """Return the process ``root`` and its descendants, without this process and its descendants."""
    try:
        process = psutil.Process(root)
        tree = [process, *process.children(recursive=True)]
    except psutil.Error:
        return []
    return [each for each in tree if each.pid != os.getpid()]


def _cpu_seconds() -> float:
    if psutil is not None:
        times = psutil.cpu_times()
        return float(sum(times[:3]) + sum(times[5:8]))
    with Path("/proc/stat").open() as file:
        ticks = [int(word) for word in file.readline().split()[1:9]]
    # user, nice, system, and irq, softirq, steal; neither idle nor waiting for disks.
    return (sum(ticks[:3]) + sum(ticks[5:8])) / os.sysconf("SC_CLK_TCK")


def _memory() -> tuple[int, int]:
    """Return the used and the total bytes of memory."""
    if psutil is not None:
        memory = psutil.virtual_memory()
        return int(memory.total - memory.available), int(memory.total)
    lines = Path("/proc/meminfo").read_text().splitlines()
    kib = {line.split(":")[0]: int(line.split()[1]) for line in lines}
    return 1024 * (kib["MemTotal"] - kib["MemAvailable"]), 1024 * kib["MemTotal"]


def _traffic() -> tuple[int, int, int, int, tuple[str, ...]]:
    """Return the bytes received, sent, read and written, and the unavailable counters."""
    if psutil is None:
        whats = ("network", "disk", "job share")
        return 0, 0, 0, 0, tuple(f"{what}: {_MISSING}" for what in whats)
    cards = [card for name, card in psutil.net_io_counters(pernic=True).items() if name != "lo"]
    received, sent = sum(card.bytes_recv for card in cards), sum(card.bytes_sent for card in cards)
    try:
        disks = psutil.disk_io_counters()
    except OSError:
        disks = None
    if disks is None:
        return received, sent, 0, 0, ("disk: no counters in /proc/diskstats",)
    return received, sent, disks.read_bytes, disks.write_bytes, ()
