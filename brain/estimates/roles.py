"""Readings of machines as the use of replicas of a role."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from brain.models.resources.use import RoleUse
from brain.types.resources import NodeName
from brain.types.roles import WORKER
from brain.types.telemetry import HostSample, ReplicaReading
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
    """Return the replicas on each node; None if they are of several roles."""
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
        """Return the memory of control groups if known: resident sets repeat shared pages."""
        if self.own is not None:
            return float(self.own.memory_bytes)
        group = self.reading.replica_memory_bytes
        return self.reading.job_memory_bytes / self.count if group is None else float(group)

    @property
    def at_seconds(self) -> float:
        """Return the beginning of the reading's five-second interval."""
        return float(int(self.reading.measured_at.timestamp()) // 5 * 5)


def refusal(reading: HostSample, hosts: Mapping[NodeName, Host | None]) -> str:
    """Return the reason why a reading says nothing about a replica; empty if it does."""
    cpu, memory, node = reading.job_cpu_millis, reading.job_memory_bytes, reading.node
    if hosts.get(node, Host(WORKER, 1)) is None:
        return f"replicas of several roles share {node}, so the use of each role is unknown"
    if cpu < 0 or memory < 0:
        return f"use on {node} is negative, because a counter restarted"
    if cpu > _ABSURD * reading.cpu_capacity_millis:
        return f"{cpu} mCPU on {node}, which has {reading.cpu_capacity_millis}"
    if memory > _ABSURD * reading.memory_capacity_bytes:
        return f"{memory} bytes on {node}, which has {reading.memory_capacity_bytes}"
    return ""


def by_role(
    readings: Sequence[HostSample],
    hosts: Mapping[NodeName, Host | None],
    roles: Mapping[int, str] | None = None,
) -> dict[str, list[Part]]:
    """Return the readings by the role of their replicas; a node without known replicas has one
    worker.

    ``roles`` has the role of each replica of a world with several, whose replicas are read one by
    one.
    """
    found: dict[str, list[Part]] = defaultdict(list)
    for reading in readings:
        if roles and reading.replica_readings:
            for own in reading.replica_readings:
                if own.replica in roles:
                    found[roles[own.replica]].append(Part(reading, 1, own))
            continue
        host = hosts.get(reading.node) or Host(WORKER, 1)
        found[host.role].append(Part(reading, host.count))
    return found


def role_use(use: RoleUse, parts: Sequence[Part], *, busiest: bool) -> RoleUse:
    """Return ``use`` with more readings; ``busiest`` counts only each instant's busiest part."""
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
    return replace(
        use,
        throttled=last.reading.throttled_share or 0.0,
        cpu=use.cpu.compact(),
        memory=use.memory.compact(),
        cpu_limit_millis=last.reading.cpu_capacity_millis / last.count,
        memory_limit_bytes=last.reading.memory_capacity_bytes / last.count,
    )


def with_growth(use: RoleUse, parts: Sequence[Part], steps: int) -> RoleUse:
    """Return the use of servers, with the fullest server's memory after ``steps`` more steps."""
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
