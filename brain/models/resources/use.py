"""The resource use of a job's replicas by role, which is the input of resource advice."""

import math
from dataclasses import dataclass, field, replace
from typing import Self

from brain.models.resources import cpu
from brain.models.resources.cpu import CpuUsage
from brain.models.resources.host_memory import RAISES_A_DAY
from brain.models.resources.server_memory import ServerGrowth
from brain.typeset import count, gibibytes

MIB = 2**20
#: Largest share of a device's memory to plan for: the rest is lost to fragmentation.
USABLE = 0.92
_DAY_SECONDS = 24 * 3600.0
#: Longest time between two readings that counts as observed.
_PAUSE_SECONDS = 120.0
#: Most weight of an earlier run's readings, so that long runs do not hide short ones.
_INHERITED = 120.0
#: Time after which only this run's own use counts: in general, and if earlier runs of its script
#: used the same until then.
_OWN_SECONDS, _KNOWN_SECONDS = 600.0, 300.0
#: Factor of use above which a replica took the CPU that a higher quota gave it.
_TAKEN = 1.05
#: Width of a bucket of memory use.
_BUCKET = 1.05


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryKill:
    """The record of a replica that was killed because it ran out of memory."""

    #: Epoch of the world that the kill ended; 0 in an earlier run.
    epoch: int
    at_seconds: float
    #: Memory limit that did not suffice, in bytes.
    limit_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaStop:
    """A CPU quota that stopped a replica in too many of its scheduler periods."""

    #: The quota in mCPU, and the share of periods in which it stopped the replica.
    limit_millis: float
    share: float
    at_seconds: float
    #: Mean use then, and under the lower quota that stopped it before; 0: unknown.
    used_millis: float = 0.0
    before_millis: float = 0.0

    @property
    def in_vain(self) -> bool:
        """Return True if a replica used no more CPU after its quota was raised, which shows that
        the quota delays no work.
        """
        return 0 < self.used_millis < _TAKEN * self.before_millis

    def excuses(self, limit_millis: float) -> bool:
        """Return True if this quota needs no raise because the last raise did not increase the use.

        The last raise says nothing about a lower quota.
        """
        return self.in_vain and _TAKEN * limit_millis >= self.limit_millis


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierUse:
    """Use of one replica of a role in earlier runs of a script."""

    cpu: CpuUsage = CpuUsage()
    memory: CpuUsage = CpuUsage()
    #: Largest ratio, over earlier runs, of a run's peak memory to that of its first minutes; 0:
    #: unknown.
    rise: float = 0.0
    #: Time at which a quota last stopped a replica of these runs; 0: unknown.
    stopped_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleUse:
    """Use of one replica of a role, over all worlds of a job.

    If replicas wait for each other, only the busiest replica counts; otherwise all replicas count.
    """

    role: str
    #: Histogram of CPU use in mCPU.
    cpu: CpuUsage = CpuUsage()
    #: Histogram of memory use in MiB.
    memory: CpuUsage = CpuUsage()
    #: Times of the first and newest reading; None: only earlier runs were read.
    since_seconds: float | None = None
    until_seconds: float = 0.0
    #: Seconds between readings, without pauses.
    read_seconds: float = 0.0
    #: The same, counted for each replica that does not wait for the others.
    replica_seconds: float = 0.0
    #: A replica's share of the limit of its machine or control group at the last reading.
    cpu_limit_millis: float = 0.0
    memory_limit_bytes: float = 0.0
    #: Highest use of shared memory and of temporary storage, and the capacity of each.
    shm_bytes: float = 0.0
    shm_capacity_bytes: float = 0.0
    scratch_bytes: float = 0.0
    scratch_capacity_bytes: float = 0.0
    #: Kills, oldest first.
    kills: tuple[MemoryKill, ...] = ()
    #: Highest memory use of this run, and of its first minutes, in bytes; 0: unknown.
    most_bytes: float = 0.0
    first_bytes: float = 0.0
    #: Use in earlier runs of the script, and their names.
    earlier: EarlierUse = EarlierUse()
    runs: tuple[str, ...] = ()
    #: Largest share of scheduler periods in which a quota stopped a replica, at the last readings.
    throttled: float = 0.0
    #: True if ``throttled`` may be about a replica of another role on the same node.
    mingled: bool = False
    #: Highest quota that lately stopped a replica of this role; None if none did.
    stop: QuotaStop | None = None
    #: Memory of the fullest server by the steps of this run.
    growth: ServerGrowth = field(default_factory=ServerGrowth)

    @property
    def days(self) -> float:
        """Return for how many days this run was measured; gaps between readings do not count."""
        return self.read_seconds / _DAY_SECONDS

    @property
    def replica_days(self) -> float:
        """Return the measured days, added up over all replicas that do not wait for each other."""
        return self.replica_seconds / _DAY_SECONDS

    @property
    def explored(self) -> bool:
        """Return True if this run has enough readings to reserve less CPU.

        Ten minutes are enough, or five if earlier runs or other replicas have readings, too.
        """
        told = bool(self.runs) or self.replica_seconds >= _OWN_SECONDS
        return told and self.read_seconds >= _KNOWN_SECONDS

    @property
    def rise(self) -> float:
        """Return this run's peak memory divided by its peak in the first minutes; 0 if unknown."""
        known = self.first_bytes > 0 and self.read_seconds >= _OWN_SECONDS
        return self._own_peak_bytes / self.first_bytes if known else 0.0

    @property
    def foreseen(self) -> bool:
        """Return True if earlier runs show how much memory this run will still need."""
        return self.explored and self.earlier.rise > 0 and self.first_bytes > 0

    @property
    def known_cpu(self) -> CpuUsage:
        """Return this run's CPU use; while this run has few readings, add the CPU use of earlier
        runs.
        """
        return self.cpu if self.explored else self.cpu.merged(self.earlier.cpu)

    @property
    def known_memory(self) -> CpuUsage:
        """Return this run's memory use; until this run can be forecast, add the memory use of
        earlier runs.
        """
        return self.memory if self.foreseen else self.memory.merged(self.earlier.memory)

    @property
    def peak_bytes(self) -> float:
        """Return the most memory that a replica used, or will use according to earlier runs; 0 if
        nothing was measured.
        """
        if self.foreseen:
            return max(self._own_peak_bytes, self.first_bytes * self.earlier.rise)
        return max(self._own_peak_bytes, _peak_bytes(self.earlier.memory))

    @property
    def _own_peak_bytes(self) -> float:
        """Return the highest use of this run; an old one fades."""
        return min(_peak_bytes(self.memory), self.most_bytes or math.inf)

    def memory_limit(self, reserved_bytes: float) -> float:
        """Return the bytes at which a replica is killed: its reservation or, if it has used more,
        the limit that was read.
        """
        allowed = self.memory_limit_bytes or reserved_bytes
        # The peak is the upper bound of its bucket.
        within = 0 < _peak_bytes(self.memory) <= _BUCKET * reserved_bytes
        return min(allowed, reserved_bytes) if within else allowed

    def cpu_limit(self, reserved_millis: float) -> float:
        """Return the mCPU that a replica cannot exceed: its reservation if a quota enforces it,
        else the limit that was read.
        """
        held = 0 < reserved_millis < self.cpu_limit_millis and cpu.throttles(self.throttled)
        return reserved_millis if held else self.cpu_limit_millis

    def held_down(self, limit_millis: float) -> bool:
        """Return True if a limit in mCPU restricts the CPU use, so that the use does not show the
        need.

        A high share of stopped scheduler periods usually proves this alone: use averaged over
        seconds stays below a quota that stops each burst. The use must also be near the limit in
        two cases: the share may come from another role, or the last raise (to this quota or a lower
        one) did not increase the use.
        """
        stop = self.stopped(self.until_seconds)
        unsure = self.mingled or (stop is not None and stop.excuses(limit_millis))
        share = 0.0 if unsure else self.throttled
        seen = self.known_cpu
        return limit_millis > 0 and cpu.censored(
            seen, limit_millis=limit_millis, throttled_share=share
        )

    def stopped(self, now_seconds: float) -> QuotaStop | None:
        """Return the quota that stopped a replica within the last day; None if no quota did."""
        stop = self.stop
        return stop if stop and now_seconds - stop.at_seconds <= _DAY_SECONDS else None

    def with_quota(self, limit_millis: float, used_millis: float) -> Self:
        """Return the use with a record of the quota ``limit_millis``, if it throttles replicas.

        ``used_millis`` is the mean use of the newest readings.
        """
        if not (limit_millis > 0 and cpu.throttles(self.throttled)) or self.mingled:
            return self
        stop = QuotaStop(
            limit_millis=limit_millis,
            share=self.throttled,
            at_seconds=self.until_seconds,
            used_millis=used_millis,
        )
        known = self.stopped(self.until_seconds)
        if known is not None and known.limit_millis > limit_millis:
            return self
        if known is not None:
            same = known.limit_millis == limit_millis
            stop = replace(stop, before_millis=known.before_millis if same else known.used_millis)
        return replace(self, stop=stop)

    def unresolved(self, now_seconds: float) -> str:
        """Return why a person must check the memory; empty if no check is needed.

        A check is needed if memory ran out more often in a day than Brain may raise the
        reservation.
        """
        day = [
            kill
            for kill in self.kills
            if kill.epoch and now_seconds - kill.at_seconds <= _DAY_SECONDS
        ]
        if len(day) <= RAISES_A_DAY:
            return ""
        return (
            f"memory ran out {count(len(day), 'time')} within 24 h, last at "
            f"{gibibytes(day[-1].limit_bytes)}; more memory does not help: look for a leak, "
            "or take a smaller batch or fewer loader workers"
        )

    def with_reading(
        self, *, at_seconds: float, cpu_millis: tuple[float, ...], memory_bytes: tuple[float, ...]
    ) -> Self:
        """Return the use with the replicas' use at one more instant."""
        begun = at_seconds if self.since_seconds is None else self.since_seconds
        apart = 0.0 if self.since_seconds is None else max(0.0, at_seconds - self.until_seconds)
        early = self.read_seconds < _KNOWN_SECONDS
        read = min(apart, _PAUSE_SECONDS)
        before = self.most_bytes or _peak_bytes(self.memory)
        return replace(
            self,
            most_bytes=max(before, *memory_bytes),
            first_bytes=max(self.first_bytes, *memory_bytes) if early else self.first_bytes,
            cpu=self.cpu.added(cpu_millis, at_seconds),
            memory=self.memory.added([each / MIB for each in memory_bytes], at_seconds),
            since_seconds=begun,
            until_seconds=max(self.until_seconds, at_seconds),
            read_seconds=self.read_seconds + read,
            replica_seconds=self.replica_seconds + read * len(memory_bytes),
        )

    def inheriting(self, other: "RoleUse", name: str, *, leaked: bool = False) -> Self:
        """Return the use combined with the use in an earlier run. If the earlier run's memory
        leaked, its memory and kills are left out.
        """
        known, stops = self.earlier, [stop for stop in (self.stop, other.stop) if stop is not None]
        stopped = max((known.stopped_seconds, *(stop.at_seconds for stop in stops)))
        cpu_of_both = known.cpu.merged(other.cpu, most=_INHERITED)
        earlier = replace(known, cpu=cpu_of_both, stopped_seconds=stopped)
        kills: tuple[MemoryKill, ...] = ()
        if not leaked:
            kills = tuple(replace(each, epoch=0) for each in other.kills)
            memory = known.memory.merged(other.memory, most=_INHERITED)
            earlier = replace(earlier, memory=memory, rise=max(known.rise, other.rise))
        return replace(
            self,
            earlier=earlier,
            kills=(*kills, *self.kills),
            stop=_governing(stops, stopped),
            runs=(*self.runs, name),
        )


def _governing(stops: list[QuotaStop], newest_seconds: float) -> QuotaStop | None:
    """Return the stop at the highest quota, of those within a day before the newest: an older one
    would soon be forgotten, and the newest with it.
    """
    recent = [stop for stop in stops if newest_seconds - stop.at_seconds <= _DAY_SECONDS]
    return max(recent, key=lambda stop: stop.limit_millis, default=None)


def _peak_bytes(memory: CpuUsage) -> float:
    return memory.quantile(1.0) * MIB if memory.weights else 0.0
