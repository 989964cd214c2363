"""Brain's own proposal of amounts: the advice on replicas' reservations, as a plan."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta

from brain import lifecycle
from brain.estimates.advice import advised, hindsight
from brain.lifecycle.capacity import Room, enforced, room, sized
from brain.lifecycle.observed import ThroughputObserved
from brain.models.resources import cpu
from brain.ports import Transaction
from brain.settings import Settings
from brain.types.advice import AmountAdvice, ResourceAdvice
from brain.types.allocation import Allocation
from brain.types.document import UNSAID
from brain.types.explanation import Evidence, Explanation
from brain.types.job import Job
from brain.types.plan import PlanState, ScalePlan, Verdict
from brain.types.resources import Resources
from brain.types.roles import WORKER
from brain.typeset import cores, gibibytes

#: Holds of the size during which amounts may change: nothing is wrong, and no plan is active. The
#: last three are those of rounds.
AMENABLE = frozenset(
    {
        *("at-best", "mixed-groups", "not-worth-restart", "no-checkpoint", "dwell", "flapping"),
        *("at-share", "put-off", "refused"),
    }
)
#: Time for which only a person changes amounts after a plan of amounts was rejected, and for which
#: amounts that fell short count as too small; and the factor by which more is tried then.
_CHASTENED, _WISER = timedelta(hours=24), 1.2
_UNWANTED = frozenset({PlanState.REJECTED, PlanState.EXPIRED, PlanState.FAILED})
#: Least share of an amount that is worth freeing; also the least rise of CPU if only a part of the
#: advised rise fits.
_LEAST_SAVING = _LEAST_RAISE = 0.1
#: Least share of all that a job reserves for which a plan only frees resources; also the least
#: share of a role's memory that a plan frees which is made anyway.
_LEAST_FREED = 0.02
#: Parts of a raise of CPU that are tried where the whole does not fit.
_PARTS = (0.75, 0.5, 0.25)


def propose(
    tx: Transaction,
    job: Job,
    sight: ThroughputObserved,
    *,
    settings: Settings,
    now: datetime,
    room: Room = room,
) -> ScalePlan | None:
    """Store the advice on the amounts of all roles of a job as one plan; return None if no plan is
    due.

    A plan is due if it is ``worthwhile`` and enough time has passed since the last plan of amounts.
    The job's amounts must also be enforced for every live replica, so that a change needs no
    restart.
    """
    _, current = lifecycle.standing(tx.plans.effective(job.id), job)
    if not enforced(tx, job.id, current) or _too_soon(tx, job, settings, now):
        return None
    target, changed = current, list[ResourceAdvice]()
    known = {role: advised(tx, job, settings, now, role=role) for role in current.amounts}
    held_back = any(_cpu_rises(current.of(role), found) for role, found in known.items())
    for role, found in known.items():
        aim = found and _aim(tx, job, target, role, found, now, room, keep_cpu=held_back)
        if found and aim:
            target = aim
            changed.append(found)
    if not changed or not worthwhile(current, target):
        return None
    for role in current.amounts:
        joining = advised(tx, job, settings, now, role=role, joins=True)
        if joining and (less := _less_memory(tx, job, target, joining, now)):
            target = less
            changed += [joining] if role not in {one.role for one in changed} else []
    first, *others = [explanation(found) for found in changed]
    why = replace(
        first,
        reason="; ".join([first.reason, *(other.reason for other in others)]),
        evidence=tuple(fact for one in (first, *others) for fact in one.evidence),
    )
    return lifecycle.propose_amounts(tx, job, target, why, sight.now, settings=settings, now=now)


def _less_memory(
    tx: Transaction, job: Job, target: Allocation, found: ResourceAdvice, now: datetime
) -> Allocation | None:
    """Return ``target`` with the memory that is ample for a role, if that frees a share worth
    changing in a plan that is made anyway; None if it does not.
    """
    unsure = found.exploring or found.memory_unresolved or found.memory_lasts_seconds is not None
    reserved = target.of(found.role)
    if found.memory is None or unsure:
        return None
    ample = round(max(found.memory.high, _least(tx, job, now, found.role).memory_bytes))
    if ample > (1 - _LEAST_FREED) * reserved.memory_bytes:
        return None
    return target.reserving(found.role, replace(reserved, memory_bytes=ample))


def worthwhile(current: Allocation, target: Allocation) -> bool:
    """Return True if a plan raises an amount, or frees enough of the job's total reservation."""
    if target.loosest(current).amounts != current.amounts:
        return True
    most = current.each
    freed = most - target.each
    return (
        freed.cpu_millis > _LEAST_FREED * most.cpu_millis
        or freed.memory_bytes > _LEAST_FREED * most.memory_bytes
    )


def _aim(
    tx: Transaction,
    job: Job,
    current: Allocation,
    role: str,
    found: ResourceAdvice,
    now: datetime,
    room: Room,
    *,
    keep_cpu: bool,
) -> Allocation | None:
    """Return the allocation with as much of the amounts advised for a role as fits the pool and the
    job's resource limits; None if they stay, or nothing fits.

    With ``keep_cpu`` CPU is not lowered.
    """
    reserved = current.of(role)
    whole = proposable(reserved, found, _least(tx, job, now, role))
    if keep_cpu:
        whole = replace(whole, cpu_millis=max(whole.cpu_millis, reserved.cpu_millis))
    whole = job.document.resource_limits.capped(current, role, whole)
    for amounts in _fractions(reserved, whole):
        aim = current.reserving(role, amounts)
        if amounts != reserved and room(tx, sized(job, aim), now) >= current.replicas:
            return aim
    return None


def _fractions(reserved: Resources, whole: Resources) -> Iterator[Resources]:
    """Yield the advised amounts, then with less and less of a raise of CPU, at last with none.

    A part of the raise is better than none where others have the processors. Running out of memory
    costs work, so more memory waits for no processors.
    """
    yield whole
    more = whole.cpu_millis - reserved.cpu_millis
    for part in _PARTS:
        if part * more >= _LEAST_RAISE * reserved.cpu_millis:
            yield replace(whole, cpu_millis=reserved.cpu_millis + round(part * more))
    yield replace(whole, cpu_millis=reserved.cpu_millis)


def proposable(
    reserved: Resources, advice: ResourceAdvice, least: Resources = Resources()
) -> Resources:
    """Return the amounts that Brain would propose for each replica.

    Early in a run, amounts are only raised. A leaking job gets no more memory, which would only
    delay its end.
    """
    if advice.memory_unresolved or advice.memory_lasts_seconds is not None:
        return reserved
    amounts = wanted(reserved, advice, least)
    return amounts.loosest(reserved) if advice.exploring else amounts


def wanted(
    reserved: Resources, advice: ResourceAdvice, least: Resources = Resources()
) -> Resources:
    """Return the amounts that each replica should reserve; amounts without a reservation stay
    unset.

    An amount that is too small is raised to the target. Memory that is too large is lowered only to
    the upper end of the advice (``high``), because a replica that runs out of memory loses its
    job's work. No amount is lowered below ``least``.
    """
    millis, memory = reserved.cpu_millis, reserved.memory_bytes
    if advice.cpu is not None and millis not in (0, UNSAID.cpu_millis):
        more = advice.cpu.target
        millis = _amount(millis, more, max(more, least.cpu_millis))
    if advice.memory is not None and memory:
        high = max(advice.memory.high, least.memory_bytes)
        memory = _amount(memory, advice.memory.target, high)
    return replace(reserved, cpu_millis=millis, memory_bytes=memory)


def _cpu_rises(reserved: Resources, advice: ResourceAdvice | None) -> bool:
    """Return True if a role gets more CPU. The use of other roles, which waited for this one, then
    understates their need.
    """
    return advice is not None and wanted(reserved, advice).cpu_millis > reserved.cpu_millis


def explanation(advice: ResourceAdvice) -> Explanation:
    """Return the explanation with low, target and high for each amount; the target may be larger
    than any node.
    """
    role = "" if advice.role == WORKER else f"{advice.role} "
    said = [(f"{role}CPU", advice.cpu, cores), (f"{role}memory", advice.memory, gibibytes)]
    facts = [fact for name, one, show in said if one for fact in _facts(name, one, show)]
    return Explanation(
        code="resources",
        reason=advice.reason,
        evidence=(*facts, Evidence(label="rests on", value=advice.basis)),
        next_step="The change applies while replicas run; then Brain verifies its effect.",
    )


def _amount(reserved: int, more: float, less: float) -> int:
    if more > reserved:
        return round(more)
    return round(less) if less <= (1 - _LEAST_SAVING) * reserved else reserved


def _facts(name: str, one: AmountAdvice, show: Callable[[float], str]) -> list[Evidence]:
    triple = f"{show(one.low)}, {show(one.target)}, {show(one.high)}"
    found = [Evidence(label=f"{name}: low, target, high", value=triple)]
    if one.uncapped != one.target:
        found.append(Evidence(label=f"{name} on larger nodes", value=show(one.uncapped)))
    if said := hindsight(one):
        found.append(Evidence(label=f"{name} in recent days", value=said))
    return found


def _too_soon(tx: Transaction, job: Job, settings: Settings, now: datetime) -> bool:
    for plan in tx.plans.of(job.id):
        if plan.changes_resources:
            unwanted = plan.state in _UNWANTED
            done = plan.outcome.verdict is not None
            if plan.outcome.verdict is Verdict.KEPT or (plan.only_raises and done):
                continue
            rest = _CHASTENED if unwanted else timedelta(seconds=settings.dwell_seconds)
            if now - plan.updated_at < rest:
                return True
    return False


def _least(tx: Transaction, job: Job, now: datetime, role: str) -> Resources:
    """Return the amounts below which those of a role are not lowered: the CPU that its busiest
    replica used in the last minute, and more than what lately proved too small.

    After a change that made a job faster, replicas use more CPU than in most of the time before.
    """
    used = lifecycle.recent_use(tx, job, now, role).cpu_millis or 0.0
    least = Resources(cpu_millis=round(cpu.MARGIN * used))
    for plan in tx.plans.of(job.id):
        short = plan.outcome.verdict is Verdict.FELL_SHORT and now - plan.updated_at < _CHASTENED
        had, has = plan.current.of(role), plan.target.of(role)
        if short and has.cpu_millis < had.cpu_millis:
            least = least.at_least(Resources(cpu_millis=round(_WISER * has.cpu_millis)))
        if short and has.memory_bytes < had.memory_bytes:
            least = least.at_least(Resources(memory_bytes=round(_WISER * has.memory_bytes)))
    return least
