"""Resource use of a running job's replicas, summed up so that it outlives the job's samples.

``Used`` has the use by world, for estimates of other sizes, and by role, for advice on resources.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from types import MappingProxyType

from brain import wire
from brain.estimates import memory
from brain.estimates.roles import (
    Host,
    by_role,
    hosts_of,
    late,
    refusal,
    restarts,
    role_use,
    strangers,
    with_growth,
)
from brain.estimates.world_use import with_parts
from brain.lifecycle.capacity import roles_of
from brain.lifecycle.desired import standing
from brain.lifecycle.observed import RUNS, ThroughputObserved
from brain.lifecycle.records import happened
from brain.models.earlier import EarlierRun
from brain.models.estimate.past import WorldUse
from brain.models.resources.use import RoleUse
from brain.ports import StoredFit, Transaction
from brain.types.allocation import Allocation
from brain.types.estimate import Band
from brain.types.job import Job
from brain.types.plan import PlanState, ScalePlan
from brain.types.resources import NodeName, Resources
from brain.types.roles import PS, WORKER
from brain.types.telemetry import HostSample, Phase, SourceId, ThroughputSample
from brain.types.world import World

#: Kind of the stored fit; new fields of ``Used`` get defaults, another shape gets a new kind.
KIND = "usage/1"
#: Least time between two foldings of readings, which cost a turn time. The first readings are
#: folded at once, so that even a job of half a minute leaves some.
_FOLD_SECONDS, _FIRST, _BEGINNING = 15.0, 6, timedelta(minutes=1)
#: Longest time that the first folding looks back; older readings are folded already, or gone.
_LOOK_BACK = timedelta(minutes=5)
#: Most worlds that are kept, the newest.
_WORLDS = 6
#: Most kills for lack of memory that are kept.
_KILLS = 8
#: Time after which a reading that comes late is not looked for any more.
_LATE = timedelta(seconds=60)
#: Time between two readings, which each is about: one that is sooner after the first step is about
#: the start, too.
_INTERVAL = timedelta(seconds=5)
#: Seconds by which a reading may be ahead of the service's clock.
_AHEAD = timedelta(seconds=60)
_INSTANT = timedelta(microseconds=1)
#: States that a plan reaches only before it begins.
_NOT_BEGUN = frozenset(
    {PlanState.PROPOSED, PlanState.APPROVED, PlanState.REJECTED, PlanState.EXPIRED}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Used:
    """The stored sum of a job's use."""

    uses: tuple[WorldUse, ...] = ()
    #: Time of the newest reading in it.
    until: datetime | None = None
    #: Bytes of the newest checkpoint.
    checkpoint_bytes: float | None = None
    roles: tuple[RoleUse, ...] = ()
    #: Seconds after ``until`` at which leaking memory runs out, if that is near.
    memory_lasts: Band | None = None
    #: Highest sequence that was read from each collector of late.
    heard: Mapping[SourceId, int] = field(default_factory=dict)
    #: The newest world whose leak was reported.
    leak_told: int = 0
    #: Readings that are invalid or ambiguous, also by the word for why, and the reason for the
    #: last one.
    rejected: int = 0
    rejected_for: Mapping[str, int] = field(default_factory=dict)
    rejected_because: str = ""

    @property
    def leaked(self) -> bool:
        """Return True if the memory of workers leaked in any world."""
        return self.leak_told > 0

    def role(self, name: str) -> RoleUse | None:
        """Return the use of a role; None if no use of this role was measured."""
        return next((one for one in self.roles if one.role == name), None)

    @property
    def few(self) -> bool:
        """Return True if the newest world has few readings yet."""
        return not self.uses or self.uses[-1].readings < _FIRST


def remember(tx: Transaction, job: Job, sight: ThroughputObserved, now: datetime) -> None:
    """Add the readings since the last update to the stored use, unless that update is recent."""
    world, stored = sight.world, tx.fits.get(job.id, KIND)
    if world is None:
        return
    used = used_by(stored) if stored else inherited(tx, job)
    if (killed := with_kills(used, _size(tx, job), tx.worlds.of(job.id))) != used:
        was, unresolved = (_unresolved(one, now) for one in (used, killed))
        if unresolved and not was:
            happened(tx, "job.memory-unresolved", unresolved, job=job.id, now=now)
        used = killed
        _keep(tx, job, used, stored.fitted_at if stored else now)
    if world.stepping_at is None:
        return
    young = stored is not None and (now - stored.fitted_at).total_seconds() < _FOLD_SECONDS
    begins = now - world.stepping_at < _BEGINNING and used.few
    if young and not begins:
        return
    since = max(world.stepping_at, now - _LOOK_BACK, (used.until or world.stepping_at) + _INSTANT)
    heard = [
        reading
        for reading in tx.telemetry.hosts(job.id, since=since - _LATE)
        if world.stepping_at + _INTERVAL <= reading.measured_at <= now + _AHEAD
    ]
    readings = [reading for reading in heard if reading.measured_at >= since]
    steps = [sample for sample in sight.samples if sample.measured_at >= since]
    if readings or (steps and not young):
        saves = tx.telemetry.saves(job.id, since=now - _LOOK_BACK)
        size = float(saves[-1].size_bytes) if saves else used.checkpoint_bytes
        hosts = hosts_of(world, tx.worlds.replicas(job.id))
        coupled = waits(job)
        missed = _late(used, heard)
        kept = folded(
            used,
            readings,
            world,
            steps,
            hosts=hosts,
            coupled=coupled,
            missed=missed,
            amounts=_amounts(tx, job, readings),
        )
        kept = replace(kept, heard={one.source: one.sequence for one in heard})
        left = lasts(kept, job, world)
        kept = replace(kept, checkpoint_bytes=size, memory_lasts=left)
        if left is not None and used.leak_told != world.epoch:
            happened(tx, "job.memory-leak", memory.leak_sentence(left), job=job.id, now=now)
            kept = replace(kept, leak_told=world.epoch)
        _keep(tx, job, kept, now)


def _late(used: Used, readings: Sequence[HostSample]) -> list[HostSample]:
    """Return the readings that came after newer ones were folded."""
    if used.until is None or not used.heard:
        return []
    folded = [one for one in readings if one.measured_at <= used.until]
    return [one for one in folded if one.sequence > used.heard.get(one.source, -1)]


def waits(job: Job) -> bool:
    """Return True if a job's workers wait for each other; workers of parameter-server
    jobs do not.
    """
    return not job.document.independent and PS not in job.document.roles


def _keep(tx: Transaction, job: Job, used: Used, now: datetime) -> None:
    parameters = wire.encode(used).decode()
    tx.fits.put(StoredFit(job=job.id, kind=KIND, parameters=parameters, fitted_at=now))


def inherited(tx: Transaction, job: Job) -> Used:
    """Return the use of the newest runs of the same script, by role, as a start for a new run."""
    runs = tx.fits.get(job.id, RUNS)
    roles: dict[str, RoleUse] = {}
    for run in wire.decode(runs.parameters, list[EarlierRun]) if runs else ():
        used = used_of(tx, tx.jobs.get(run.job))
        for other in used.roles:
            mine = roles.get(other.role, RoleUse(role=other.role))
            leaked = used.leaked and other.role == WORKER
            roles[other.role] = mine.inheriting(other, run.name, leaked=leaked)
    return Used(roles=tuple(roles.values()))


def with_kills(used: Used, size: Allocation, worlds: Sequence[World]) -> Used:
    """Return ``used`` with more records of ``MemoryKill``: one for each new world that ran out of
    memory, in the role that failed first.
    """
    for role, amounts in size.amounts.items():
        known = used.role(role) or RoleUse(role=role)
        mine = [world for world in worlds if _failed(world) == role]
        if new := memory.kills(mine, known, float(amounts.memory_bytes)):
            others = [one for one in used.roles if one.role != role]
            known = replace(known, kills=(*known.kills, *new)[-_KILLS:])
            used = replace(used, roles=(known, *others))
    return used


def _failed(world: World) -> str:
    """Return the role of the replica that failed first; that of workers if unknown."""
    first = None if world.diagnosis is None else world.diagnosis.replica
    return WORKER if first is None else roles_of(world).get(first, WORKER)


def _size(tx: Transaction, job: Job) -> Allocation:
    return standing(tx.plans.effective(job.id), job)[1]


def _amounts(tx: Transaction, job: Job, readings: Sequence[HostSample]) -> Mapping[str, Resources]:
    """Return the amounts of a replica by role under which all readings were made; none if a plan
    changed them meanwhile.
    """
    plans = tx.plans.of(job.id)
    since = min((one.measured_at - _INTERVAL for one in readings), default=None)
    changing = (
        plan.state is PlanState.APPLYING or (since is not None and plan.updated_at >= since)
        for plan in plans
        if plan.changes_resources and _may_have_begun(plan)
    )
    return {} if any(changing) else standing(plans, job)[1].amounts


def _may_have_begun(plan: ScalePlan) -> bool:
    """Return False if no replica can have got the amounts of a plan."""
    return plan.approval is not None and plan.state not in _NOT_BEGUN


def _unresolved(used: Used, now: datetime) -> str:
    said = (one.unresolved(now.timestamp()) for one in used.roles)
    return next(filter(None, said), "")


def lasts(used: Used, job: Job, world: World) -> Band | None:
    """Return the seconds until leaking memory runs out in a world; None if that time
    is not near.
    """
    use = used.role(WORKER)
    seen = next((one for one in used.uses if one.epoch == world.epoch), None)
    if use is None or seen is None:
        return None
    return memory.lasts(seen, use.memory_limit(float(job.resources.memory_bytes)))


def uses_of(tx: Transaction, job: Job) -> tuple[WorldUse, ...]:
    """Return the use of replicas in each of a job's worlds; empty if the job reserves no
    accelerators.
    """
    if job.resources.gpus == 0:
        return ()
    return used_by(tx.fits.get(job.id, KIND)).uses


def used_of(tx: Transaction, job: Job) -> Used:
    """Return the use of a job; if the job has ended, a last world that ran out of memory counts,
    too.
    """
    used = used_by(tx.fits.get(job.id, KIND))
    return with_kills(used, _size(tx, job), tx.worlds.of(job.id)) if job.finished else used


def used_by(stored: StoredFit | None) -> Used:
    """Decode the stored use of a job; an empty ``Used`` if nothing was stored."""
    return wire.decode(stored.parameters, Used) if stored is not None else Used()


def folded(
    used: Used,
    readings: Sequence[HostSample],
    world: World,
    steps: Sequence[ThroughputSample] = (),
    *,
    hosts: Mapping[NodeName, Host | None] | None = None,
    coupled: bool = True,
    missed: Sequence[HostSample] = (),
    amounts: Mapping[str, Resources] = MappingProxyType({}),
) -> Used:
    """Return ``used`` with more readings and steps of ``world``, which are given oldest first.

    Invalid readings are counted and left out.

    Args:
        used: The use so far.
        readings: Readings of machines.
        world: The world of the readings.
        steps: Samples of the steps of the world's workers.
        hosts: Replicas by node; if None, only the world's own replicas count.
        coupled: True if the world's workers wait for each other.
        missed: Readings that came too late to be used.
        amounts: Amounts that each replica of a role had at all readings; empty if they are unknown.
    """
    hosts = hosts_of(world) if hosts is None else hosts
    newest = max(each[-1].measured_at for each in (readings, steps) if each)
    roles_of_world = roles_of(world)
    reasons = [refusal(reading, hosts) for reading in readings]
    sound = [one for one, why in zip(readings, reasons, strict=True) if not why]
    refused = [
        *filter(None, reasons),
        *strangers(sound, roles_of_world),
        *restarts(readings),
        *late(missed),
    ]
    others = [use for use in used.uses if use.epoch != world.epoch]
    nodes = len({member.node for member in world.members})
    use = next(
        (use for use in used.uses if use.epoch == world.epoch),
        WorldUse(epoch=world.epoch, nodes=max(1, nodes), replicas=world.replicas),
    )
    parts = by_role(sound, hosts, roles_of_world)
    if workers := parts.get(WORKER):
        use = with_parts(use, workers)
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
        roles[role] = role_use(
            before,
            some,
            busiest=coupled and role == WORKER,
            mingled=len(parts) > 1 and not all(part.alone for part in some),
            quota_millis=float(amounts[role].cpu_millis) if role in amounts else None,
        )
    if servers := parts.get(PS):
        made = sum(sample.steps for sample in training)
        roles[PS] = with_growth(roles[PS], servers, made)
    return replace(
        used,
        uses=(*others, use)[-_WORLDS:],
        until=newest,
        roles=tuple(roles.values()),
        rejected=used.rejected + len(refused),
        rejected_for=Counter(used.rejected_for) + Counter(one.code for one in refused),
        rejected_because=refused[-1].because if refused else used.rejected_because,
    )
