"""Brain's own proposal of amounts: the advice on what replicas should reserve, made a plan."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

from brain import lifecycle
from brain.estimates.advice import advised
from brain.lifecycle.capacity import Room, provided, room
from brain.lifecycle.observed import ThroughputObserved
from brain.ports import Transaction
from brain.settings import Settings
from brain.types.advice import AmountAdvice, ResourceAdvice
from brain.types.allocation import Allocation
from brain.types.document import UNSAID
from brain.types.explanation import Evidence, Explanation
from brain.types.job import Job
from brain.types.plan import PlanState, ScalePlan, Verdict
from brain.types.resources import Resources
from brain.types.world import ReplicaState
from brain.typeset import cores, gibibytes

#: Holds of the size under which amounts may change: nothing is wrong, and nothing is under way.
AMENABLE = frozenset({"at-best", "not-worth-restart", "no-checkpoint"})
#: After amounts fell short, or nobody wanted them, only a person changes them for so long.
_CHASTENED = timedelta(hours=24)
_UNWANTED = frozenset({PlanState.REJECTED, PlanState.EXPIRED, PlanState.FAILED})
#: Less than this share is not worth taking back.
_LEAST_SAVING = 0.1


def propose(
    tx: Transaction,
    job: Job,
    sight: ThroughputObserved,
    *,
    settings: Settings,
    now: datetime,
    room: Room = room,
) -> ScalePlan | None:
    """Store the advice on a job's amounts as a plan where it differs; None where it does not.

    Only where every live replica is reported with what the job reserves, so that a change needs no
    restart, and where no plan of amounts is too recent.
    """
    _, current = lifecycle.standing(tx.plans.of(job.id), job)
    if not _settled(tx, job, current) or _too_soon(tx, job, settings, now):
        return None
    for role in current.amounts:
        found = advised(tx, job, settings, now, role=role)
        aim = found and _aim(tx, job, current, role, found, room)
        if found and aim:
            why = explanation(found)
            return lifecycle.propose_amounts(
                tx, job, aim, why, sight.now, settings=settings, now=now
            )
    return None


def _aim(
    tx: Transaction, job: Job, current: Allocation, role: str, found: ResourceAdvice, room: Room
) -> Allocation | None:
    """The size with the amounts that are advised for a role; None where they stay, or do not fit.

    More memory only puts the end of a leak off, so none is given then.
    """
    if found.exploring or found.memory_unresolved or found.memory_lasts_seconds is not None:
        return None
    reserved = current.of(role)
    whole = wanted(reserved, found)
    # Memory that runs out costs work, so it does not wait for processors that nobody has left.
    for amounts in (whole, replace(whole, cpu_millis=reserved.cpu_millis)):
        aim = current.reserving(role, amounts)
        if amounts != reserved and room(tx, replace(job, amounts=aim.each)) >= current.replicas:
            return aim
    return None


def wanted(reserved: Resources, advice: ResourceAdvice) -> Resources:
    """Return what each replica should reserve: amounts that nobody named stay as they are.

    What is too little is raised to the target; memory that is too much is lowered to what would be
    ample, because a replica that runs out of it loses its job's work.
    """
    millis, memory = reserved.cpu_millis, reserved.memory_bytes
    if advice.cpu is not None and millis not in (0, UNSAID.cpu_millis):
        millis = _amount(millis, advice.cpu.target, advice.cpu.target)
    if advice.memory is not None and memory:
        memory = _amount(memory, advice.memory.target, advice.memory.high)
    return replace(reserved, cpu_millis=millis, memory_bytes=memory)


def explanation(advice: ResourceAdvice) -> Explanation:
    """Say why: each amount as low, target and high, the target where nodes were of any size."""
    said = [("CPU", advice.cpu, cores), ("memory", advice.memory, gibibytes)]
    facts = [fact for name, one, show in said if one for fact in _facts(name, one, show)]
    return Explanation(
        code="resources",
        reason=advice.reason,
        evidence=(*facts, Evidence(label="rests on", value=advice.basis)),
        next_step="It applies while replicas run, and is verified.",
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
    return found


def _settled(tx: Transaction, job: Job, current: Allocation) -> bool:
    live = [r for r in tx.worlds.replicas(job.id) if r.state is not ReplicaState.EXITED]
    held = not any(one.unenforced for one in live)
    return bool(live) and held and provided(tx, job.id, current)


def _too_soon(tx: Transaction, job: Job, settings: Settings, now: datetime) -> bool:
    for plan in tx.plans.of(job.id):
        if plan.changes_resources:
            # A raise that was too little stands, and the next one may follow.
            short = plan.outcome.verdict is Verdict.FELL_SHORT and not plan.only_raises
            missed = short or plan.state in _UNWANTED
            rest = _CHASTENED if missed else timedelta(seconds=settings.dwell_seconds)
            if now - plan.updated_at < rest:
                return True
    return False
