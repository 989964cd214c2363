"""Plans that change the amounts that replicas reserve: how Brain proposes such a plan, and how it
checks the plan's promise.

A plan of amounts promises that the job runs as well as before: each replica stays within its
memory, CPU quotas stop it no more often, and throughput is not lower.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from brain.errors import Undetermined
from brain.lifecycle.capacity import roles_of
from brain.lifecycle.desired import wished_batch
from brain.lifecycle.observed import ThroughputObserved, achieved
from brain.lifecycle.plans import draft, stored
from brain.models.fitting import Point
from brain.ports import Transaction
from brain.settings import Settings
from brain.types.allocation import Allocation
from brain.types.diagnosis import FailureKind
from brain.types.explanation import Explanation
from brain.types.job import Job
from brain.types.plan import PlanKind, ScalePlan
from brain.types.recommendation import Prediction
from brain.types.resources import Resources
from brain.types.roles import WORKER
from brain.types.telemetry import HostSample, ReplicaReading
from brain.types.world import ReplicaState, World
from brain.typeset import number, percent

_GIB = 2**30
#: Time over which use is measured, before a change and now.
RECENT = timedelta(seconds=60)
#: Readings of each machine that a verdict needs.
READINGS = 3
#: Share of its memory above which a replica is short of it.
FULL = 0.95
#: Largest growth of the share of stopped scheduler periods: quotas also stop bursts on which
#: nothing waits.
_STOPS = 0.05

#: Time after a plan began within which a replica's report may still be about earlier amounts.
_HEARD = timedelta(seconds=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaUse:
    """Resource use of the busiest replica of a job; a field is None if it was not measured."""

    #: The most memory, in bytes.
    memory_bytes: float | None = None
    #: Mean processors in use.
    cpu_millis: float | None = None
    #: Mean share of scheduler periods in which the CPU quota stopped the replica.
    throttled: float | None = None
    #: Readings of the machine with the fewest.
    readings: int = 0


def propose_amounts(
    tx: Transaction,
    job: Job,
    target: Allocation,
    explanation: Explanation,
    measured: Prediction | None,
    *,
    settings: Settings,
    now: datetime,
) -> ScalePlan:
    """Store Brain's advice on the amounts of each replica, as a plan that promises the present
    throughput.

    Raises:
        Conflict: another plan is active, or another Brain stored this generation first.
    """
    given = {"measured": measured, "promised": measured}
    target = replace(target, batch=wished_batch(tx, job))
    plan = draft(tx, job, PlanKind.RESIZE, target, explanation, settings=settings, now=now, **given)
    return stored(tx, job, plan, settings=settings, now=now)


def recent_use(tx: Transaction, job: Job, now: datetime, role: str = WORKER) -> ReplicaUse:
    """Return the use of the busiest replica of a role in the last minute."""
    world = tx.worlds.latest(job.id)
    begun = now - RECENT if world is None else max(world.formed_at, now - RECENT)
    return use_in(tx.telemetry.hosts(job.id, since=begun), world, role)


def fell_short(
    tx: Transaction, job: Job, plan: ScalePlan, sight: ThroughputObserved, settings: Settings
) -> tuple[str, Point | Undetermined]:
    """Return a phrase about those amounts of a plan that are too small; return also the throughput.

    The phrase is empty if the amounts suffice. The throughput is measured from the time when the
    plan was applied, because a plan of amounts forms no world. The throughput is ``Undetermined``
    until use and throughput were measured for long enough, and if a world ran out of memory. If a
    plan lowers an amount, memory that the plan kept or raised is not checked: undoing the plan
    would give no replica more memory, and would only delay the next raise.
    """
    applied = plan.updated_at
    if out := ran_out(tx, plan):
        return out, Undetermined("the world was lost")
    hosts = tx.telemetry.hosts(plan.job, since=applied - RECENT)
    since = [one for one in hosts if one.measured_at > applied]
    earlier = [one for one in hosts if one.measured_at <= applied]
    # A size that Brain chose promises a throughput, which shows a shortage of CPU as well.
    promises = plan.kind is PlanKind.RESIZE and not plan.in_place
    checked, found = plan.lowers_cpu and not promises, []
    for role, reserved in plan.target.amounts.items():
        after = use_in(since, sight.world, role)
        if after.readings < READINGS:
            return "", Undetermined(
                "there are too few readings of the job's machines since the change"
            )
        before = use_in(earlier, sight.world, role) if checked else after
        less = plan.only_raises or reserved.memory_bytes < plan.current.of(role).memory_bytes
        asked = reserved if less else replace(reserved, memory_bytes=0)
        found.append(shortage(asked, before, after))
    samples = [one for one in sight.samples if one.measured_at > applied]
    present = achieved(samples, settings, independent=job.document.independent)
    return " and ".join(dict.fromkeys(filter(None, found))), present


def ran_out(tx: Transaction, plan: ScalePlan) -> str:
    """Return a clause about the world that ran out of memory after a plan was applied; empty if no
    world did.
    """
    for world in tx.worlds.of(plan.job):
        why = world.diagnosis
        ended = world.ended_at is not None and world.ended_at >= plan.updated_at
        if ended and why is not None and why.kind is FailureKind.MEMORY:
            return f"world {world.epoch} ran out of memory"
    return ""


def shortage(reserved: Resources, before: ReplicaUse, after: ReplicaUse) -> str:
    """Return a phrase about the amounts in ``reserved`` that are too small; empty if all suffice.

    Memory is too small if a replica used more than 95 % of it after the plan. CPU is too small if a
    quota throttled a replica more often after the plan than before it.
    """
    said = []
    used, most = after.memory_bytes, reserved.memory_bytes
    if used is not None and most and used > FULL * most:
        said.append(f"a replica uses {number(used / _GIB)} of {number(most / _GIB)} GiB")
    stopped, usual = after.throttled or 0.0, before.throttled or 0.0
    if stopped > usual + _STOPS:
        said.append(
            f"a CPU quota throttled a replica in {percent(stopped)} of its scheduler periods, and "
            "in "
            f"{percent(usual)} before the change"
        )
    return " and ".join(said)


def refused(tx: Transaction, plan: ScalePlan, now: datetime) -> str:
    """Return the reason why a live replica refused a plan's amounts; empty if it accepted them or
    has not answered.
    """
    if not plan.changes_resources or now - plan.updated_at < _HEARD:
        return ""
    live = [r for r in tx.worlds.replicas(plan.job) if r.state is not ReplicaState.EXITED]
    roles = roles_of(tx.worlds.latest(plan.job))
    kept = [
        one
        for one in live
        if one.resources != plan.target.of(roles.get(one.id, WORKER)) and one.unenforced
    ]
    return f"replica {kept[0].id} did not get its new amounts: {kept[0].unenforced}" if kept else ""


def overused(tx: Transaction, plan: ScalePlan, now: datetime) -> str | None:
    """Return the reason why a plan must not be applied: a replica now uses too much of the memory
    that the plan would leave it.

    The result is None if every amount of memory that the plan lowers still suffices for the present
    use.
    """
    job = tx.jobs.get(plan.job)
    for role, amounts in plan.target.amounts.items():
        asked, used = amounts.memory_bytes, recent_use(tx, job, now, role).memory_bytes or 0.0
        if 0 < asked < plan.current.of(role).memory_bytes and used > FULL * asked:
            return (
                f"plan {plan.generation} leaves each replica {number(asked / _GIB)} GiB, too "
                "little for the "
                f"{number(used / _GIB)} GiB that a replica uses now; reject the plan"
            )
    return None


def use_in(samples: Sequence[HostSample], world: World | None, role: str) -> ReplicaUse:
    roles = roles_of(world)
    own = _use_of([r for r, each in roles.items() if each == role], samples)
    if own.readings or any(each != WORKER for each in roles.values()):
        return own
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


def _use_of(replicas: Collection[int], samples: Sequence[HostSample]) -> ReplicaUse:
    """Return the use of a role's replicas from the readings of each replica, because other roles
    may share their machines; an empty ``ReplicaUse`` if a replica was not read.
    """
    read: dict[int, list[ReplicaReading]] = {replica: [] for replica in replicas}
    for one in (reading for sample in samples for reading in sample.replica_readings):
        if one.replica in read:
            read[one.replica].append(one)
    if not read or not all(read.values()):
        return ReplicaUse()
    stops = [
        one.throttled_share
        for one in samples
        if one.throttled_share is not None
        and any(reading.replica in read for reading in one.replica_readings)
    ]
    return ReplicaUse(
        memory_bytes=max(float(one.memory_bytes) for some in read.values() for one in some),
        cpu_millis=max(sum(one.cpu_millis for one in some) / len(some) for some in read.values()),
        throttled=sum(stops) / len(stops) if stops else None,
        readings=min(map(len, read.values())),
    )
