"""Advice on the resources of a running job, from its replicas' use."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from brain.estimates.memory import leak_sentence
from brain.estimates.usage import Used, used_of, waits
from brain.lifecycle.desired import reached, standing
from brain.lifecycle.nodes import expected
from brain.models.estimate.past import WorldUse
from brain.models.resources import cpu
from brain.models.resources.advice import RoleSigns, Starved, advise
from brain.models.resources.server_memory import Forecast, look_ahead
from brain.models.resources.use import RoleUse
from brain.ports import Transaction
from brain.settings import Settings
from brain.types.advice import (
    AmountAdvice,
    Notice,
    NoticeKind,
    ResourceAdvice,
    SpaceAdvice,
    Starvation,
)
from brain.types.job import Job
from brain.types.plan import PlanKind, ScalePlan, Verdict
from brain.types.resources import Resources
from brain.types.roles import WORKER
from brain.types.world import ReplicaState, World
from brain.typeset import percent, percentile

#: Time for which a run must be read before advice lowers its memory, unless growth is forecast.
_LOWER_MEMORY = timedelta(minutes=30)
#: Least age of readings at which a leak is not known any more: they are folded every 15 s, and less
#: often on a busy machine. A leak that was forgotten for a moment would get more memory.
_FRESH_SECONDS = 60.0
#: Least share of time in which an amount was too little that is worth a word.
_SHORT = 0.0005
#: Used share above which a file system counts as nearly full.
_FULL = 0.9


def advised(
    tx: Transaction,
    job: Job,
    settings: Settings,
    now: datetime,
    *,
    role: str = WORKER,
    joins: bool = False,
) -> ResourceAdvice | None:
    """Return the advice on each replica of a role; None if the role's use was never measured.

    Set ``joins`` if a plan changes amounts anyway: the advice then includes small reductions of
    memory, which alone would not be worth a plan.
    """
    return _advised(tx, job, settings, now, role, largest=_largest(tx, job, now), joins=joins)


def advised_of_many(
    tx: Transaction, job: Job, settings: Settings, now: datetime
) -> ResourceAdvice | None:
    """Return the advice on each worker of a job, with amounts that may be larger than any node has.

    This function queries only data that ``read_ahead`` has cached, so that it may be called for
    every job.
    """
    return _advised(tx, job, settings, now, WORKER, largest=None)


def _advised(
    tx: Transaction,
    job: Job,
    settings: Settings,
    now: datetime,
    role: str,
    *,
    largest: Resources | None,
    joins: bool = False,
) -> ResourceAdvice | None:
    used = used_of(tx, job)
    use = used.role(role)
    if use is None:
        return None
    world = tx.worlds.latest(job.id)
    current = _of_world(used, world) if role == WORKER else None
    fresh = now.timestamp() - use.until_seconds <= max(settings.stale_seconds, _FRESH_SECONDS)
    plans = tx.plans.effective(job.id)
    amounts = standing(plans, job)[1].amounts.get(role, Resources())
    signs = RoleSigns(
        replicas=_replicas(tx, job, world, role),
        coupled=role == WORKER and waits(job),
        reserved=amounts,
        # Amounts that neither the document nor a plan gave are those of earlier runs.
        guessed=job.amounts is not None and not any(plan.changes_resources for plan in plans),
        joins=joins,
        largest=largest,
        lasts_seconds=used.memory_lasts if current and fresh else None,
        starved=_starved(use, current, float(amounts.cpu_millis)),
        grows=_grows(use, job, settings),
    )
    found = _patient(advise(use, signs, now_seconds=now.timestamp()), use)
    if found is not None and role == WORKER and _leaked(use, plans):
        found = replace(found, memory=_not_raised(found.memory))
    return found and replace(
        found,
        rejected=used.rejected,
        rejected_for=used.rejected_for,
        rejected_because=used.rejected_because,
    )


def _grows(use: RoleUse, job: Job, settings: Settings) -> tuple[Forecast, Forecast] | None:
    """Forecast the fullest server's memory at the horizon, and at the run's end; None if unknown.

    A run without a declared end is expected to last as long again as it has.
    """
    seen = use.growth.steps
    if not (seen > 0 and use.read_seconds > 0):
        return None
    whole = max(seen, float(job.document.steps or 2 * seen))
    ahead = look_ahead(
        seen,
        whole,
        examples_per_second=seen / use.read_seconds,
        move_seconds=settings.dwell_seconds,
    )
    soon, last = use.growth.forecast(ahead), use.growth.forecast(whole)
    return None if soon is None or last is None else (soon, last)


def _patient(found: ResourceAdvice | None, use: RoleUse) -> ResourceAdvice | None:
    """Lower no reservation before enough was measured: a run's beginning is not typical."""
    if found is None:
        return None
    # For servers, and for runs like earlier ones, the advice includes the growth to come.
    grows = bool(use.growth.servers) or use.foreseen
    lowers = use.explored and (grows or timedelta(days=use.replica_days) >= _LOWER_MEMORY)
    return replace(
        found,
        cpu=found.cpu if use.explored else _kept(found.cpu),
        memory=found.memory if lowers else _kept(found.memory),
    )


def _kept(amount: AmountAdvice | None) -> AmountAdvice | None:
    if amount is None or amount.target >= amount.reserved:
        return amount
    return replace(
        amount,
        target=amount.reserved,
        high=max(amount.high, amount.reserved),
        reason=f"{amount.reason}; Brain has too few readings to advise less",
    )


def _leaked(use: RoleUse, plans: Sequence[ScalePlan]) -> bool:
    """Return True if a restart freed what the highest use had leaked, and memory sufficed since."""
    restarts = (plan for plan in plans if plan.kind is PlanKind.RESTART and reached(plan))
    last = next(restarts, None)
    if last is None or last.outcome.verdict is Verdict.FELL_SHORT:
        return False
    return not any(kill.at_seconds > last.updated_at.timestamp() for kill in use.kills)


def _not_raised(memory: AmountAdvice | None) -> AmountAdvice | None:
    """Return the advice without more memory than is reserved, which a leak would fill as well."""
    if memory is None or not 0 < memory.reserved < memory.target:
        return memory
    why = (
        f"{memory.reason}; memory leaked until a restart freed it, and a larger reservation would "
        "only take longer to fill"
    )
    return replace(
        memory,
        low=min(memory.low, memory.reserved),
        target=memory.reserved,
        high=memory.reserved,
        uncapped=memory.reserved,
        above=memory.reserved_above,
        unused=memory.reserved_unused,
        reason=why,
    )


def hindsight(amount: AmountAdvice) -> str:
    """Return a sentence that says how well the reservation sufficed for the measured use, and how
    well the advised amount would have sufficed.
    """
    said = []
    if amount.reserved:
        said.append(f"{_sufficed(amount)}, and {percent(amount.reserved_unused)} of it went unused")
    if amount.changes:
        short = _short(amount.above)
        said.append(
            f"the advised amount would {f'have been too little {short}' if short else 'suffice'}, "
            f"with {percent(amount.unused)} unused"
        )
    return "; ".join(said)


def _sufficed(amount: AmountAdvice) -> str:
    if short := _short(amount.reserved_above):
        return f"the reservation was too little {short}"
    # Use that a limit holds down never exceeds it, so the readings do not show that it sufficed.
    if amount.target > amount.reserved:
        return "no reading exceeded the reservation"
    return "the reservation always sufficed"


def _short(above: float) -> str:
    """Return the share of time in which an amount was too little, as a phrase; empty if never."""
    return f"{percentile(above)} of the time" if above >= _SHORT else ""


def notices(tx: Transaction, job: Job, settings: Settings, now: datetime) -> list[Notice]:
    """Return the notices about the resources of a running job, most urgent first."""
    found = advised_of_many(tx, job, settings, now)
    if found is None:
        return []
    lasts = found.memory_lasts_seconds
    said = {
        NoticeKind.MEMORY_UNRESOLVED: found.memory_unresolved,
        NoticeKind.MEMORY_LEAK: leak_sentence(lasts) if lasts is not None else "",
        NoticeKind.SHARED_MEMORY: _nearly_full(
            found.shared_memory,
            "shared memory (/dev/shm)",
            "data loaders end with a bus error once it is full: give the container more shared "
            "memory "
            "(docker run --shm-size; on Kubernetes an emptyDir of medium Memory at /dev/shm), or "
            "take fewer loader workers",
        ),
        NoticeKind.SCRATCH: _nearly_full(
            found.scratch,
            "the storage of temporary files",
            "programs that write there fail once it is full: delete files there, or point TMPDIR "
            "elsewhere",
        ),
        NoticeKind.STARVED: found.starved_because,
    }
    return [Notice(kind, sentence) for kind, sentence in said.items() if sentence]


def _nearly_full(space: SpaceAdvice | None, name: str, remedy: str) -> str:
    """Return a sentence if a file system is nearly full; empty if it is not."""
    if space is None or space.used <= _FULL * space.capacity:
        return ""
    return f"{name} was {percent(space.used / space.capacity)} full; {remedy}"


def _of_world(used: Used, world: World | None) -> WorldUse | None:
    """Return the use of the present world; None without a world, or before the first reading."""
    if world is None or world.ended_at is not None:
        return None
    return next((use for use in used.uses if use.epoch == world.epoch), None)


def _replicas(tx: Transaction, job: Job, world: World | None, role: str) -> int:
    if role == WORKER:
        return world.replicas if world is not None else job.document.replicas.first
    replicas = tx.worlds.present(job.id)
    return sum(one.role == role and one.state is not ReplicaState.EXITED for one in replicas)


def _largest(tx: Transaction, job: Job, now: datetime) -> Resources | None:
    """Return the most processor and memory that any node has."""
    known = expected(tx.nodes.of(job.pool), now)
    nodes = [node.capacity for node in known if node.schedulable]
    if not nodes:
        return None
    return Resources(
        cpu_millis=max(node.cpu_millis for node in nodes),
        memory_bytes=max(node.memory_bytes for node in nodes),
    )


def _starved(use: RoleUse, world: WorldUse | None, reserved_millis: float) -> Starved | None:
    """Return the resource that keeps devices waiting for data, by two independent signs.

    Processors at their limit count as the cause before storage does, because busy loaders wait less
    for storage.
    """
    if world is None or not use.known_cpu.weights or not 0 < world.wait_share < 1:
        return None
    wait, limit = world.wait_share, use.cpu_limit(reserved_millis)
    full = use.held_down(limit)
    stalled = world.io_stalled_share if world.io_readings else None
    signs = cpu.LoaderSigns(data_wait_share=wait, censored=full, io_stalled_share=stalled)
    if not cpu.waits_for_data(signs) or not cpu.loader_bound(signs):
        return None
    waits = f"workers wait for data during {percent(wait)} of each step while"
    if not full:
        return Starved(
            of=Starvation.STORAGE,
            because=(
                f"{waits} their processors are idle and processes wait for storage "
                f"{percent(stalled)} of the time: storage is too slow, and more CPU or more "
                "replicas would not help. Copy the data to a local disk or into memory, or read "
                "larger files"
            ),
        )
    return Starved(
        of=Starvation.CPU,
        because=(
            f"{waits} their processors are fully used: reserve more CPU for loading before you "
            "add replicas; loaders made by launcher.loader then start more processes"
        ),
        loader_millis=cpu.loader_millis(
            used_millis=use.known_cpu.quantile(0.5),
            idle_millis=0.0,
            step_seconds=1.0,
            device_seconds=1 - wait,
        ),
    )
