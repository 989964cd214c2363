"""Conversion of machines' readings into the CPU and memory that replicas of each role use."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import NamedTuple

from brain.models.resources.use import RoleUse
from brain.types.resources import NodeName
from brain.types.roles import WORKER
from brain.types.telemetry import BEGAN_ANEW, HostSample, ReplicaReading
from brain.types.world import Replica, ReplicaState, World

#: Factor on its machine's capacity above which a reading is invalid. A valid reading may exceed the
#: capacity: processes that begin between two readings count in full, and shared pages count in each
#: process.
_ABSURD = 8.0


@dataclass(frozen=True, slots=True)
class Host:
    """The replicas of a job on one node."""

    role: str
    count: int


def hosts_of(world: World, replicas: Sequence[Replica] = ()) -> Mapping[NodeName, Host | None]:
    """Return the replicas on each node; None if the node's replicas have several roles."""
    members = Counter(member.node for member in world.members)
    found: dict[NodeName, Host | None] = {
        node: Host(WORKER, number) for node, number in members.items()
    }
    others = Counter(
        (replica.node, replica.role)
        for replica in replicas
        if replica.role != WORKER and replica.state is not ReplicaState.EXITED
    )
    for (node, role), number in others.items():
        found[node] = None if node in found else Host(role, number)
    return found


@dataclass(frozen=True, slots=True)
class Part:
    """A reading, and the replicas that it covers."""

    reading: HostSample
    count: int
    #: The one replica of a reading that covers a single one.
    own: ReplicaReading | None = None

    @property
    def cpu_millis(self) -> float:
        if self.own is not None:
            return float(self.own.cpu_millis)
        return self.reading.job_cpu_millis / self.count

    @property
    def memory_bytes(self) -> float:
        """Return the memory that one replica uses.

        It comes from the replica's own reading, or from its control group. If neither is known, it
        is an equal part of the sum of resident sets, which counts shared pages repeatedly.
        """
        if self.own is not None:
            return float(self.own.memory_bytes)
        group = self.reading.replica_memory_bytes
        return self.reading.job_memory_bytes / self.count if group is None else float(group)

    @property
    def alone(self) -> bool:
        """Return True if the reading covers only this replica; a pod's reading does."""
        return self.own is not None and len(self.reading.replica_readings) == 1

    @property
    def at_seconds(self) -> float:
        """Return the beginning of the reading's five-second interval."""
        return float(int(self.reading.measured_at.timestamp()) // 5 * 5)


class Refusal(NamedTuple):
    """The reason why a reading of a machine, or the part of it for one replica, is not used."""

    #: A word for ``/metrics``.
    code: str
    #: The reason, as the end of a sentence.
    because: str


def refusal(reading: HostSample, hosts: Mapping[NodeName, Host | None]) -> Refusal | None:
    """Return why a reading does not describe a replica; None if it does."""
    node, own = reading.node, reading.replica_readings
    if hosts.get(node, Host(WORKER, 1)) is None and not own:
        return Refusal(
            "roles", f"replicas of several roles share {node}, so the use of each role is unknown"
        )
    millis = [reading.job_cpu_millis, *(one.cpu_millis for one in own)]
    group = reading.replica_memory_bytes
    memory = [reading.job_memory_bytes, group or 0, *(one.memory_bytes for one in own)]
    if min(*millis, *memory) < 0:
        return Refusal("negative", f"use on {node} is negative, because a counter restarted")
    if max(millis) > _ABSURD * reading.cpu_capacity_millis:
        has = reading.cpu_capacity_millis
        return Refusal("absurd", f"{max(millis)} mCPU on {node}, which has {has}")
    if max(memory) > _ABSURD * reading.memory_capacity_bytes:
        has = reading.memory_capacity_bytes
        return Refusal("absurd", f"{max(memory)} bytes on {node}, which has {has}")
    return _refused_space(reading)


def _refused_space(reading: HostSample) -> Refusal | None:
    """Return the reason why a reading of storage or of accelerators cannot be; None if it can."""
    spaces = [(gpu.memory_used_bytes, gpu.memory_total_bytes) for gpu in reading.gpus]
    if (on := reading.storage) is not None:
        spaces.append((on.shm_used_bytes, on.shm_capacity_bytes))
        spaces.append((on.scratch_used_bytes, on.scratch_capacity_bytes))
    for used, whole in spaces:
        if not 0 <= used <= _ABSURD * whole:
            return Refusal("absurd", f"{used} of {whole} bytes in use on {reading.node}")
    return None


def strangers(readings: Sequence[HostSample], roles: Mapping[int, str]) -> Iterator[Refusal]:
    """Yield a refusal for each reading of a replica that is not in the world (yet, or any more)."""
    for reading in readings:
        for own in reading.replica_readings:
            if own.replica not in roles:
                why = f"replica {own.replica} on {reading.node} is not in the world"
                yield Refusal("gone", why)


def late(readings: Sequence[HostSample]) -> Iterator[Refusal]:
    """Yield a refusal for each reading that arrived after newer readings of the job were used."""
    for reading in readings:
        yield Refusal("late", f"a reading of {reading.node} came after newer ones were counted")


def restarts(readings: Sequence[HostSample]) -> Iterator[Refusal]:
    """Yield a refusal for each reading with a counter that restarted at 0; its rate is unknown."""
    for reading in readings:
        for why in reading.unavailable:
            if why.endswith(BEGAN_ANEW):
                yield Refusal("restarted", f"{why} on {reading.node}")


def by_role(
    readings: Sequence[HostSample],
    hosts: Mapping[NodeName, Host | None],
    roles: Mapping[int, str],
) -> dict[str, list[Part]]:
    """Return the readings by the role of their replicas; a node without known replicas counts as
    one worker.

    Replicas of one node that were read separately are kept separate, because a mean would hide a
    replica that its CPU quota throttles. ``roles`` has the role of each replica of the world. If
    the world has only one role, the replicas that a reading covers share the reading's limits
    evenly. A pod's reading has its own limits.
    """
    found: dict[str, list[Part]] = defaultdict(list)
    alone = len(set(roles.values())) == 1
    for reading in readings:
        host = hosts.get(reading.node) or Host(WORKER, 1)
        for own in reading.replica_readings:
            if (role := roles.get(own.replica)) is not None:
                count = len(reading.replica_readings) if alone else 1
                found[role].append(Part(reading, count, own))
        if not reading.replica_readings:
            found[host.role].append(Part(reading, host.count))
    return found


def role_use(
    use: RoleUse,
    parts: Sequence[Part],
    *,
    busiest: bool,
    mingled: bool = False,
    quota_millis: float | None = None,
) -> RoleUse:
    """Return ``use`` with more readings.

    Args:
        use: The use so far.
        parts: The readings, at least one.
        busiest: True to count only the busiest replica at each instant.
        mingled: True if replicas of other roles share the nodes.
        quota_millis: CPU that each replica reserved at all readings. If it is None (unknown),
            throttling is ignored, because it may have happened under another quota.
    """
    instants: dict[float, list[Part]] = defaultdict(list)
    for part in parts:
        instants[part.at_seconds].append(part)
    for at, some in sorted(instants.items()):
        cpu = tuple(part.cpu_millis for part in some)
        memory = tuple(part.memory_bytes for part in some)
        use = use.with_reading(
            at_seconds=at,
            cpu_millis=(max(cpu),) if busiest else cpu,
            memory_bytes=(max(memory),) if busiest else memory,
        )
    last = parts[-1]
    use = _with_storage(use, [part.reading for part in parts])
    known = mingled or quota_millis is not None
    use = replace(
        use,
        throttled=_throttled(parts) if known else 0.0,
        mingled=mingled,
        cpu=use.cpu.compact(),
        memory=use.memory.compact(),
        cpu_limit_millis=last.reading.cpu_capacity_millis / last.count,
        memory_limit_bytes=last.reading.memory_capacity_bytes / last.count,
    )
    used = fmean(max(part.cpu_millis for part in some) for some in instants.values())
    return use.with_quota(quota_millis or 0.0, used)


def _throttled(parts: Sequence[Part]) -> float:
    """Return the share of periods in which a quota stopped the replicas of a node, or of a pod.

    Of several nodes and pods, the one that is stopped most counts, because the others wait for it.
    """
    shares: dict[tuple[NodeName, int | None], list[float]] = defaultdict(list)
    for part in parts:
        if part.reading.throttled_share is not None:
            pod = part.own.replica if part.own is not None and part.alone else None
            shares[part.reading.node, pod].append(part.reading.throttled_share)
    return max(map(fmean, shares.values()), default=0.0)


def with_growth(use: RoleUse, parts: Sequence[Part], steps: int) -> RoleUse:
    """Return the use of servers with one more reading of the fullest server's memory, made after
    ``steps`` more steps.
    """
    if steps <= 0:
        return use
    held = [part.memory_bytes for part in parts if part.at_seconds == parts[-1].at_seconds]
    return replace(use, growth=use.growth.added(steps, max(held), len(held)))


def _with_storage(use: RoleUse, readings: Sequence[HostSample]) -> RoleUse:
    """Return ``use`` with the highest use of shared memory and scratch on any node."""
    seen = [reading.storage for reading in readings if reading.storage is not None]
    if not seen:
        return use
    return replace(
        use,
        shm_bytes=max(use.shm_bytes, *(float(one.shm_used_bytes) for one in seen)),
        shm_capacity_bytes=float(min(one.shm_capacity_bytes for one in seen)),
        scratch_bytes=max(use.scratch_bytes, *(float(one.scratch_used_bytes) for one in seen)),
        scratch_capacity_bytes=float(min(one.scratch_capacity_bytes for one in seen)),
    )
