"""Use of a running job's replicas, summed up so that it outlives the job's samples.

``Used`` keeps it by world, for estimates of other sizes, and by role, for advice on resources.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from brain import wire
from brain.estimates import memory
from brain.lifecycle.records import happened
from brain.lifecycle.sight import RUNS, Sight
from brain.models.earlier import EarlierRun
from brain.models.estimate.past import WorldUse
from brain.models.resources.use import RoleUse
from brain.ports import StoredFit, Transaction
from brain.types.estimate import Band
from brain.types.job import Job, JobId
from brain.types.resources import NodeName
from brain.types.telemetry import HostSample, Phase, ThroughputSample
from brain.types.world import WORKER, Replica, ReplicaState, World

#: Kind of the stored fit; fields that ``Used`` gains have defaults, another shape gets a new kind.
KIND = "usage/1"
#: Readings are folded so often, so that a turn seldom pays; the first ones at once, because jobs
#: of half a minute should leave some.
_FOLD_SECONDS, _FIRST, _BEGINNING = 15.0, 6, timedelta(minutes=1)
#: A first look goes back no further; older readings are folded already, or gone.
_LOOK_BACK = timedelta(minutes=5)
#: Worlds that are kept, newest first to stay.
_WORLDS = 6
#: A reading beyond so many times its machine was not measured: what begins between two readings
#: counts in full, and shared pages count in each process.
_ABSURD = 8.0
#: Ends for want of memory that are kept.
_KILLS = 8
#: Intervals without a reading that are filled in.
_LONGEST_GAP = 60
#: Seconds that a reading may be ahead of the service.
_AHEAD = timedelta(seconds=60)
_INSTANT = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Used:
    """The sum of a job's use that is kept."""

    uses: tuple[WorldUse, ...] = ()
    #: Of the newest reading in them.
    until: datetime | None = None
    #: Of the newest checkpoint.
    checkpoint_bytes: float | None = None
    roles: tuple[RoleUse, ...] = ()
    #: Seconds after ``until`` at which memory that leaks runs out, where that is near.
    memory_lasts: Band | None = None
    #: Readings that cannot have been measured, or cannot be told apart, and why the last one.
    rejected: int = 0
    rejected_because: str = ""

    def role(self, name: str) -> RoleUse | None:
        """Return the use of a role; None where nothing of it was read."""
        return next((one for one in self.roles if one.role == name), None)

    @property
    def few(self) -> bool:
        """True if the newest world was hardly read yet."""
        return not self.uses or self.uses[-1].readings < _FIRST


def remember(tx: Transaction, job: Job, sight: Sight, now: datetime) -> None:
    """Fold the readings since the last time into the stored use, unless that is still recent."""
    world, stored = sight.world, tx.fits.get(job.id, KIND)
    if world is None:
        return
    used = used_by(stored) if stored else inherited(tx, job)
    if (killed := with_kills(used, job, tx.worlds.of(job.id))) != used:
        _tell(tx, job, used, killed, now)
        used = killed
        _keep(tx, job, used, stored.fitted_at if stored else now)
    if world.stepping_at is None:
        return
    young = stored is not None and (now - stored.fitted_at).total_seconds() < _FOLD_SECONDS
    begins = now - world.stepping_at < _BEGINNING and used.few
    if young and not begins:
        return
    since = max(world.stepping_at, now - _LOOK_BACK, (used.until or world.stepping_at) + _INSTANT)
    readings = [
        reading
        for reading in tx.telemetry.hosts(job.id, since=since)
        if reading.measured_at <= now + _AHEAD
    ]
    steps = [sample for sample in sight.samples if sample.measured_at >= since]
    if readings or (steps and not young):
        saves = tx.telemetry.saves(job.id, since=now - _LOOK_BACK)
        size = float(saves[-1].size_bytes) if saves else used.checkpoint_bytes
        hosts = hosts_of(world, tx.worlds.replicas(job.id))
        coupled = not job.document.independent
        kept = folded(used, readings, world, steps, hosts=hosts, coupled=coupled)
        kept = replace(kept, checkpoint_bytes=size, memory_lasts=lasts(kept, job, world))
        _tell(tx, job, used, kept, now)
        _keep(tx, job, kept, now)


def _keep(tx: Transaction, job: Job, used: Used, now: datetime) -> None:
    parameters = wire.encode(used).decode()
    tx.fits.put(StoredFit(job=job.id, kind=KIND, parameters=parameters, fitted_at=now))


def inherited(tx: Transaction, job: Job) -> Used:
    """Return the use of the newest runs of the same script, by role, to begin with."""
    runs = tx.fits.get(job.id, RUNS)
    roles: dict[str, RoleUse] = {}
    for run in wire.decode(runs.parameters, list[EarlierRun]) if runs else ():
        for other in used_by(tx.fits.get(JobId(run.job), KIND)).roles:
            mine = roles.get(other.role, RoleUse(role=other.role))
            roles[other.role] = mine.inheriting(other, run.name)
    return Used(roles=tuple(roles.values()))


def with_kills(used: Used, job: Job, worlds: Sequence[World]) -> Used:
    """``used`` with the worlds of ``job`` that ended for want of memory, each once."""
    known = used.role(WORKER) or RoleUse(role=WORKER)
    new = memory.kills(worlds, known, float(job.resources.memory_bytes))
    if not new:
        return used
    others = [one for one in used.roles if one.role != WORKER]
    return replace(used, roles=(replace(known, kills=(*known.kills, *new)[-_KILLS:]), *others))


def lasts(used: Used, job: Job, world: World) -> Band | None:
    """Seconds until memory that leaks runs out in a world, where that is near enough to act."""
    use = used.role(WORKER)
    seen = next((one for one in used.uses if one.epoch == world.epoch), None)
    if use is None or seen is None:
        return None
    return memory.lasts(seen, use.memory_limit(float(job.resources.memory_bytes)))


def _tell(tx: Transaction, job: Job, before: Used, after: Used, now: datetime) -> None:
    """Write down what a person should hear of at once."""
    was, use = (one.role(WORKER) for one in (before, after))
    lasts = after.memory_lasts
    if lasts is not None and before.memory_lasts is None:
        happened(tx, "job.memory-leak", memory.leak_sentence(lasts), job=job.id, now=now)
    unresolved = use.unresolved(now.timestamp()) if use else ""
    if unresolved and not (was and was.unresolved(now.timestamp())):
        happened(tx, "job.memory-unresolved", unresolved, job=job.id, now=now)


def uses_of(tx: Transaction, job: Job) -> tuple[WorldUse, ...]:
    """Return the use of replicas in a job's worlds; empty if the job reserves no accelerators."""
    if job.resources.gpus == 0:
        return ()
    return used_by(tx.fits.get(job.id, KIND)).uses


def used_by(stored: StoredFit | None) -> Used:
    """Decode the stored use of a job; an empty ``Used`` if nothing was stored."""
    return wire.decode(stored.parameters, Used) if stored is not None else Used()


@dataclass(frozen=True, slots=True)
class Host:
    """The replicas of a job on one node."""

    role: str
    count: int


def hosts_of(world: World, replicas: Sequence[Replica] = ()) -> Mapping[NodeName, Host | None]:
    """Return the replicas on each node; None where they are of several roles."""
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


def folded(
    used: Used,
    readings: Sequence[HostSample],
    world: World,
    steps: Sequence[ThroughputSample] = (),
    *,
    hosts: Mapping[NodeName, Host | None] | None = None,
    coupled: bool = True,
) -> Used:
    """``used`` with more readings and steps of ``world``, oldest first; one at least.

    Readings that cannot have been measured are counted and left out.

    Args:
        used: So far.
        readings: Of machines.
        world: That they belong to.
        steps: Of its workers.
        hosts: Replicas by node; None: those of the world alone.
        coupled: Whether its workers wait for each other.
    """
    hosts = hosts_of(world) if hosts is None else hosts
    newest = max(each[-1].measured_at for each in (readings, steps) if each)
    reasons = [_refusal(reading, hosts) for reading in readings]
    sound = [one for one, why in zip(readings, reasons, strict=True) if not why]
    refused = [why for why in reasons if why]
    others = [use for use in used.uses if use.epoch != world.epoch]
    nodes = len({member.node for member in world.members})
    use = next(
        (use for use in used.uses if use.epoch == world.epoch),
        WorldUse(epoch=world.epoch, nodes=max(1, nodes), replicas=world.replicas),
    )
    parts = _by_role(sound, hosts)
    if workers := parts.get(WORKER):
        use = _with_cpu(use, workers)
        use = _with_memory(use, workers)
        seen = [part.reading for part in workers]
        use = _with_devices(_with_network(use, seen), seen)
    training = [sample for sample in steps if sample.phase is Phase.TRAINING]
    stepped = sum(sample.steps * sample.step_seconds_mean for sample in training)
    waited = sum(sample.steps * sample.data_wait_seconds for sample in training)
    use = replace(
        use,
        readings=use.readings + len(parts.get(WORKER, ())),
        stepped_seconds=use.stepped_seconds + stepped,
        waited_seconds=use.waited_seconds + waited,
    )
    roles = {one.role: one for one in used.roles}
    for role, some in parts.items():
        before = roles.get(role, RoleUse(role=role))
        roles[role] = _role_use(before, some, busiest=coupled and role == WORKER)
    return replace(
        used,
        uses=(*others, use)[-_WORLDS:],
        until=newest,
        roles=tuple(roles.values()),
        rejected=used.rejected + len(refused),
        rejected_because=refused[-1] if refused else used.rejected_because,
    )


@dataclass(frozen=True, slots=True)
class _Part:
    """A reading, and the replicas that it is of."""

    reading: HostSample
    count: int

    @property
    def cpu_millis(self) -> float:
        return self.reading.job_cpu_millis / self.count

    @property
    def memory_bytes(self) -> float:
        """By its control group where it has one: resident sets count shared pages twice."""
        group = self.reading.replica_memory_bytes
        return self.reading.job_memory_bytes / self.count if group is None else float(group)

    @property
    def at_seconds(self) -> float:
        """Beginning of its five seconds."""
        return float(int(self.reading.measured_at.timestamp()) // 5 * 5)


def _refusal(reading: HostSample, hosts: Mapping[NodeName, Host | None]) -> str:
    """Return why a reading says nothing of a replica; empty where it does."""
    cpu, memory, node = reading.job_cpu_millis, reading.job_memory_bytes, reading.node
    if hosts.get(node, Host(WORKER, 1)) is None:
        return f"replicas of several roles share {node}; use cannot be told apart"
    if cpu < 0 or memory < 0:
        return f"use on {node} is below 0; a counter began anew"
    if cpu > _ABSURD * reading.cpu_capacity_millis:
        return f"{cpu} mCPU on {node}, which has {reading.cpu_capacity_millis}"
    if memory > _ABSURD * reading.memory_capacity_bytes:
        return f"{memory} bytes on {node}, which has {reading.memory_capacity_bytes}"
    return ""


def _by_role(
    readings: Sequence[HostSample], hosts: Mapping[NodeName, Host | None]
) -> dict[str, list[_Part]]:
    """Readings by the role of their replicas; a node that nobody names has one worker."""
    found: dict[str, list[_Part]] = defaultdict(list)
    for reading in readings:
        host = hosts.get(reading.node) or Host(WORKER, 1)
        found[host.role].append(_Part(reading, host.count))
    return found


def _role_use(use: RoleUse, parts: Sequence[_Part], *, busiest: bool) -> RoleUse:
    """``use`` with more readings; ranks that wait for the slowest are as busy as the busiest."""
    instants: dict[float, list[_Part]] = defaultdict(list)
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
    return replace(
        use,
        cpu=use.cpu.compact(),
        memory=use.memory.compact(),
        cpu_limit_millis=last.reading.cpu_capacity_millis / last.count,
        memory_limit_bytes=last.reading.memory_capacity_bytes / last.count,
    )


def _with_cpu(use: WorldUse, parts: Sequence[_Part]) -> WorldUse:
    """Only the busiest node counts at each instant: ranks are alike and wait for the slowest."""
    busiest: dict[float, float] = defaultdict(float)
    for part in parts:
        busiest[part.at_seconds] = max(busiest[part.at_seconds], part.cpu_millis)
    cpu = use.cpu
    for second, millis in sorted(busiest.items()):
        cpu = cpu.added([millis], at_seconds=second)
    return replace(use, cpu=cpu.compact())


def _with_memory(use: WorldUse, parts: Sequence[_Part]) -> WorldUse:
    def longer(known: tuple[float, ...], seconds: int, most: int) -> tuple[float, ...]:
        return _maxima(known, parts, use.read_at_seconds, seconds)[-most:]

    return replace(
        use,
        memory_bytes=max(use.memory_bytes, *(part.memory_bytes for part in parts)),
        hourly_bytes=longer(use.hourly_bytes, 3600, 24),
        ten_minutely_bytes=longer(use.ten_minutely_bytes, 600, 48),
        minutely_bytes=longer(use.minutely_bytes, 60, 60),
        read_at_seconds=max(use.read_at_seconds, parts[-1].reading.measured_at.timestamp()),
    )


def _maxima(
    known: tuple[float, ...], parts: Sequence[_Part], read_at_seconds: float, seconds: int
) -> tuple[float, ...]:
    """Highest use of each interval of so many seconds; one without a reading is as the last."""
    found, last = list(known) if read_at_seconds else [], read_at_seconds // seconds
    for part in parts:
        interval = part.reading.measured_at.timestamp() // seconds
        if not found:
            found.append(part.memory_bytes)
        elif interval > last:
            missed = min(int(interval - last) - 1, _LONGEST_GAP)
            found += [found[-1]] * missed + [part.memory_bytes]
        else:
            found[-1] = max(found[-1], part.memory_bytes)
        last = max(last, interval)
    return tuple(found)


def _with_network(use: WorldUse, readings: Sequence[HostSample]) -> WorldUse:
    before, more = use.readings, len(readings)
    sent = sum(one.network_send_bytes_per_second for one in readings)
    received = sum(one.network_receive_bytes_per_second for one in readings)
    total = before + more
    return replace(
        use,
        sent_bytes_per_second=(use.sent_bytes_per_second * before + sent) / total,
        received_bytes_per_second=(use.received_bytes_per_second * before + received) / total,
    )


def _with_devices(use: WorldUse, readings: Sequence[HostSample]) -> WorldUse:
    seen = [gpu for reading in readings for gpu in reading.gpus]
    if not seen:
        return use
    used = max(gpu.memory_used_bytes for gpu in seen)
    total = max(gpu.memory_total_bytes for gpu in seen)
    return replace(
        use,
        device_bytes=max(float(used), use.device_bytes or 0.0),
        device_total_bytes=max(float(total), use.device_total_bytes or 0.0),
    )
