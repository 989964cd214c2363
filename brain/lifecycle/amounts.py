"""What replicas use of the amounts that they reserve, and whether other amounts kept their promise.

A plan of amounts promises that a job goes on as before: each replica keeps within its memory, the
scheduler stops it no more often, and throughput is not worse.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from brain.errors import Undetermined
from brain.lifecycle.observed import ThroughputObserved, achieved
from brain.models.fitting import Point
from brain.ports import Transaction
from brain.settings import Settings
from brain.types.diagnosis import FailureKind
from brain.types.job import Job
from brain.types.plan import ScalePlan
from brain.types.resources import Resources
from brain.types.telemetry import HostSample
from brain.types.world import ReplicaState, World
from brain.typeset import number, percent

_GIB = 2**30
#: The use before a change, and of now, is that of so long.
_RECENT = timedelta(seconds=60)
#: Readings of each machine that a verdict needs.
_READINGS = 3
#: A replica that uses more of its memory is short of it.
FULL = 0.95
#: The scheduler's share of stops may grow by so much: quotas stop bursts that nobody waits for.
_STOPS = 0.05

#: What a replica lacked sooner after a plan began may be about earlier amounts.
_HEARD = timedelta(seconds=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaUse:
    """What the hungriest replica of a job used over some time; None: nobody measured it."""

    #: The most memory.
    memory_bytes: float | None = None
    #: Mean processors.
    cpu_millis: float | None = None
    #: Mean share of periods in which its quota stopped it.
    throttled: float | None = None
    #: Readings of the machine that was read least.
    readings: int = 0


def recent_use(tx: Transaction, job: Job, now: datetime) -> ReplicaUse:
    """What a replica used in the last minute."""
    world = tx.worlds.latest(job.id)
    begun = now - _RECENT if world is None else max(world.formed_at, now - _RECENT)
    return _use(tx.telemetry.hosts(job.id, since=begun), world)


def fell_short(
    tx: Transaction, job: Job, plan: ScalePlan, sight: ThroughputObserved, settings: Settings
) -> tuple[str, Point | Undetermined]:
    """Say what a plan's amounts are too small for, empty where for nothing; and the throughput.

    The throughput is that since the plan was applied: an amount changes no world. Undetermined
    until both were measured for long enough, but for a world that ran out of memory.
    """
    applied = plan.updated_at
    for world in tx.worlds.of(plan.job):
        why = world.diagnosis
        ended = world.ended_at is not None and world.ended_at >= applied
        if ended and why is not None and why.kind is FailureKind.MEMORY:
            return f"world {world.epoch} ran out of memory", Undetermined("the world was lost")
    hosts = tx.telemetry.hosts(plan.job, since=applied - _RECENT)
    after = _use([one for one in hosts if one.measured_at > applied], sight.world)
    if after.readings < _READINGS:
        return "", Undetermined("its machines were not read often enough since")
    before = _use([one for one in hosts if one.measured_at <= applied], sight.world)
    samples = [one for one in sight.samples if one.measured_at > applied]
    present = achieved(samples, settings, independent=job.document.independent)
    return shortage(plan.target.resources, before, after), present


def shortage(reserved: Resources, before: ReplicaUse, after: ReplicaUse) -> str:
    """Say what of ``reserved`` is too little, by the use before and after; empty: nothing is."""
    said = []
    used, most = after.memory_bytes, reserved.memory_bytes
    if used is not None and most and used > FULL * most:
        said.append(f"a replica uses {number(used / _GIB)} of {number(most / _GIB)} GiB")
    stopped, usual = after.throttled or 0.0, before.throttled or 0.0
    if stopped > usual + _STOPS:
        said.append(
            f"the scheduler stopped a replica in {percent(stopped)} of its periods, "
            f"{percent(usual)} before"
        )
    return " and ".join(said)


def refused(tx: Transaction, plan: ScalePlan, now: datetime) -> str:
    """Why a live replica did not take a plan's amounts; empty where it did or has yet to."""
    if not plan.changes_resources or now - plan.updated_at < _HEARD:
        return ""
    live = [r for r in tx.worlds.replicas(plan.job) if r.state is not ReplicaState.EXITED]
    kept = [one for one in live if one.resources != plan.target.resources and one.unenforced]
    return f"replica {kept[0].id} did not take it: {kept[0].unenforced}" if kept else ""


def overused(tx: Transaction, plan: ScalePlan, now: datetime) -> str | None:
    """Why a plan may not lower memory any more; None where it may, or lowers none."""
    asked = plan.target.resources.memory_bytes
    used = recent_use(tx, tx.jobs.get(plan.job), now).memory_bytes or 0.0
    if not 0 < asked < plan.current.resources.memory_bytes or used <= FULL * asked:
        return None
    return (
        f"plan {plan.generation} leaves {number(asked / _GIB)} GiB, too little for the "
        f"{number(used / _GIB)} GiB that a replica uses by now; reject it"
    )


def _use(samples: Sequence[HostSample], world: World | None) -> ReplicaUse:
    if not samples:
        return ReplicaUse()
    nodes = [] if world is None else [member.node for member in world.members]
    shares = {one.node: max(1, nodes.count(one.node)) for one in samples}
    by_node = {node: [one for one in samples if one.node == node] for node in shares}
    memory = [
        one.job_memory_bytes / shares[one.node]
        if one.replica_memory_bytes is None
        else float(one.replica_memory_bytes)
        for one in samples
    ]
    millis = [
        sum(one.job_cpu_millis for one in each) / len(each) / shares[node]
        for node, each in by_node.items()
    ]
    stops = [one.throttled_share for one in samples if one.throttled_share is not None]
    return ReplicaUse(
        memory_bytes=max(memory),
        cpu_millis=max(millis),
        throttled=sum(stops) / len(stops) if stops else None,
        readings=min(len(each) for each in by_node.values()),
    )
