"""Use of a running job's replicas, summed up so that it outlives the job's samples."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from brain import wire
from brain.lifecycle.sight import Sight
from brain.models.estimate.past import WorldUse
from brain.ports import StoredFit, Transaction
from brain.types.job import Job
from brain.types.resources import NodeName
from brain.types.telemetry import HostSample, Phase, ThroughputSample
from brain.types.world import World

#: Kind of the stored fit; a new shape of ``Used`` gets a new one.
KIND = "usage/1"
#: Readings are folded so often, so that a turn seldom pays; the first ones at once, because jobs
#: of half a minute should leave some.
_FOLD_SECONDS, _FIRST, _BEGINNING = 15.0, 6, timedelta(minutes=1)
#: A first look goes back no further; older readings are folded already, or gone.
_LOOK_BACK = timedelta(minutes=5)
#: Worlds that are kept, newest first to stay, and hours of memory maxima.
_WORLDS, _HOURS = 6, 24
_INSTANT = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Used:
    """The sum of a job's use that is kept."""

    uses: tuple[WorldUse, ...] = ()
    #: Of the newest reading in them.
    until: datetime | None = None
    #: Of the newest checkpoint.
    checkpoint_bytes: float | None = None

    @property
    def few(self) -> bool:
        """True if the newest world was hardly read yet."""
        return not self.uses or self.uses[-1].readings < _FIRST


def remember(tx: Transaction, job: Job, sight: Sight, now: datetime) -> None:
    """Fold the readings since the last time into the stored use, unless that is still recent."""
    world = sight.world
    if world is None or world.stepping_at is None:
        return
    stored = tx.fits.get(job.id, KIND)
    used = used_by(stored)
    young = stored is not None and (now - stored.fitted_at).total_seconds() < _FOLD_SECONDS
    begins = now - world.stepping_at < _BEGINNING and used.few
    if young and not begins:
        return
    since = max(world.stepping_at, now - _LOOK_BACK, (used.until or world.stepping_at) + _INSTANT)
    readings = tx.telemetry.hosts(job.id, since=since)
    steps = [sample for sample in sight.samples if sample.measured_at >= since]
    if readings or (steps and not young):
        saves = tx.telemetry.saves(job.id, since=now - _LOOK_BACK)
        size = float(saves[-1].size_bytes) if saves else used.checkpoint_bytes
        kept = replace(folded(used, readings, world, steps), checkpoint_bytes=size)
        parameters = wire.encode(kept).decode()
        tx.fits.put(StoredFit(job=job.id, kind=KIND, parameters=parameters, fitted_at=now))


def uses_of(tx: Transaction, job: Job) -> tuple[WorldUse, ...]:
    """Return the use of replicas in a job's worlds; empty if the job reserves no accelerators."""
    if job.resources.gpus == 0:
        return ()
    return used_by(tx.fits.get(job.id, KIND)).uses


def used_by(stored: StoredFit | None) -> Used:
    """Decode the stored use of a job; an empty ``Used`` if nothing was stored."""
    return wire.decode(stored.parameters, Used) if stored is not None else Used()


def folded(
    used: Used,
    readings: Sequence[HostSample],
    world: World,
    steps: Sequence[ThroughputSample] = (),
) -> Used:
    """``used`` with more readings and steps of ``world``, oldest first; one at least."""
    others = [use for use in used.uses if use.epoch != world.epoch]
    nodes = Counter(member.node for member in world.members)
    use = next(
        (use for use in used.uses if use.epoch == world.epoch),
        WorldUse(epoch=world.epoch, nodes=max(1, len(nodes)), replicas=world.replicas),
    )
    if readings:
        use = _with_cpu(use, readings, nodes)
        use = _with_memory(use, readings, nodes, used.until)
        use = _with_network(use, readings)
        use = _with_devices(use, readings)
    training = [sample for sample in steps if sample.phase is Phase.TRAINING]
    stepped = sum(sample.steps * sample.step_seconds_mean for sample in training)
    waited = sum(sample.steps * sample.data_wait_seconds for sample in training)
    use = replace(
        use,
        readings=use.readings + len(readings),
        stepped_seconds=use.stepped_seconds + stepped,
        waited_seconds=use.waited_seconds + waited,
    )
    newest = max(each[-1].measured_at for each in (readings, steps) if each)
    return replace(used, uses=(*others, use)[-_WORLDS:], until=newest)


def _share(reading: HostSample, nodes: Mapping[NodeName, int]) -> int:
    """Replicas that a reading is of; a node that the world does not name has one."""
    return max(1, nodes.get(reading.node, 1))


def _with_cpu(
    use: WorldUse, readings: Sequence[HostSample], nodes: Mapping[NodeName, int]
) -> WorldUse:
    """Only the busiest node counts at each instant: ranks are alike and wait for the slowest."""
    busiest: dict[int, float] = defaultdict(float)
    for reading in readings:
        second = int(reading.measured_at.timestamp()) // 5 * 5
        millis = reading.job_cpu_millis / _share(reading, nodes)
        busiest[second] = max(busiest[second], millis)
    cpu = use.cpu
    for second, millis in sorted(busiest.items()):
        cpu = cpu.added([millis], at_seconds=float(second))
    weights = tuple(round(weight, 4) for weight in cpu.weights)
    return replace(use, cpu=replace(cpu, weights=weights))


def _with_memory(
    use: WorldUse,
    readings: Sequence[HostSample],
    nodes: Mapping[NodeName, int],
    until: datetime | None,
) -> WorldUse:
    hours = list(use.hourly_bytes)
    last = until.timestamp() // 3600 if until is not None and hours else None
    peak = use.memory_bytes
    for reading in readings:
        each = reading.job_memory_bytes / _share(reading, nodes)
        peak = max(peak, each)
        hour = reading.measured_at.timestamp() // 3600
        if last is None or hour > last:
            hours.append(each)
            last = hour
        else:
            hours[-1] = max(hours[-1], each)
    return replace(use, memory_bytes=peak, hourly_bytes=tuple(hours[-_HOURS:]))


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
