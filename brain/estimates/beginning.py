"""The amounts that a new job begins with, from earlier runs of the same script."""

from dataclasses import replace
from datetime import datetime, timedelta

from brain.estimates.history import unsubmitted
from brain.estimates.usage import KIND, used_by
from brain.lifecycle.capacity import largest
from brain.models.estimate.past import script_of
from brain.models.resources.advice import RoleSigns, advise
from brain.models.resources.use import RoleUse
from brain.ports import Transaction
from brain.settings import Settings
from brain.types.document import UNSAID
from brain.types.job import JobDocument, JobState, OptimizeMode, PolicyMode
from brain.types.resources import PoolName, Resources
from brain.types.roles import WORKER
from brain.typeset import cores, gibibytes

#: Number of newest jobs that are searched for runs of the script, of newest runs that are read, and
#: of runs whose use counts.
_ASKED, _RUNS, _HEARD = 200, 40, 6
#: Time for which a run must have been read, because a run's beginning is not typical of it.
_READ = timedelta(minutes=30)


def first_amounts(
    tx: Transaction,
    document: JobDocument,
    *,
    owner: str,
    pool: PoolName,
    settings: Settings,
    now: datetime,
) -> tuple[Resources, str] | None:
    """Return the amounts that each replica needed in earlier runs, with the reason.

    None if the document names amounts, roles or groups, if the job shares its pool or a person
    approves its changes, if no earlier run was measured for long enough, or if the amounts do not
    fit the pool.

    A run whose memory leaked does not show how much memory its script needs. If all runs leaked,
    memory is not limited, because a limit could end a run that would finish in spite of the leak.
    """
    mode = document.policy.mode or PolicyMode(settings.policy_mode)
    alone = document.optimize_mode is OptimizeMode.SINGLE_JOB and not document.roles
    alone = alone and not document.groups
    named = document.resources.memory_bytes or document.resources.cpu_millis != UNSAID.cpu_millis
    if named or mode is not PolicyMode.AUTO or not alone:
        return None
    first = document.replicas.first
    use, leaky = _earlier(tx, document, owner)
    signs = RoleSigns(
        replicas=first, coupled=not document.independent, reserved=Resources(), largest=None
    )
    found = advise(use, signs, now_seconds=now.timestamp())
    if found is None or found.cpu is None or (found.memory is None and not leaky):
        return None
    cpu, memory = round(found.cpu.target), round(found.memory.target) if found.memory else 0
    amounts = replace(document.resources, cpu_millis=cpu, memory_bytes=memory)
    fits = largest(tx, replace(unsubmitted(document, pool, now), amounts=amounts), now)
    if fits is not None and fits < first:
        return None
    needed = f"{cores(cpu)} and {gibibytes(memory)}" if memory else cores(cpu)
    without = f"; memory that leaked in {', '.join(leaky)} is left out" if leaky else ""
    return amounts, (
        f"each replica begins with {needed}, which earlier runs of its script needed "
        f"({', '.join(use.runs)}){without}; exploring: Brain corrects the amounts once it has "
        "measured their use"
    )


def _earlier(tx: Transaction, document: JobDocument, owner: str) -> tuple[RoleUse, tuple[str, ...]]:
    """Return a worker's use in the newest runs with equal influences on memory, and the names of
    those runs whose memory leaked.

    A reservation of memory is a limit, so a run that is only similar is no reason for one.
    """
    mine, use, leaky = _followed(document, owner), RoleUse(role=WORKER), list[str]()
    runs = [
        job
        for job in tx.jobs.page(after=None, size=_ASKED)
        if job.state is not JobState.FAILED and _followed(job.document, job.owner) == mine
    ][:_RUNS]
    tx.fits.read_ahead([job.id for job in runs], KIND)
    for job in runs:
        used = used_by(tx.fits.get(job.id, KIND))
        seen, name = used.role(WORKER), job.document.name
        if seen is not None and seen.days >= _READ / timedelta(days=1):
            use = use.inheriting(seen, name, leaked=used.leaked)
            leaky += [name] * used.leaked
        if len(use.runs) == _HEARD:
            break
    return use, tuple(leaky)


def _followed(document: JobDocument, owner: str) -> tuple[object, ...]:
    """Return everything on which memory depends: script, options, batch and accelerators."""
    return (
        script_of(document, owner),
        document.batch,
        document.accelerator,
        document.resources.gpus,
    )
