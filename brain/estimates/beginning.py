"""The amounts that a new job begins with, from the outcomes of similar ones."""

from dataclasses import replace
from datetime import datetime

from brain.estimates.asking import ask
from brain.estimates.history import unsubmitted
from brain.lifecycle.capacity import largest
from brain.models.estimate.past import ALIKE
from brain.ports import Transaction
from brain.settings import Settings
from brain.types.document import UNSAID
from brain.types.estimate import EstimateQuestion
from brain.types.job import JobDocument, OptimizeMode, PolicyMode
from brain.types.resources import PoolName, Resources
from brain.typeset import cores, gibibytes


def first_amounts(
    tx: Transaction,
    document: JobDocument,
    *,
    owner: str,
    pool: PoolName,
    settings: Settings,
    now: datetime,
) -> tuple[Resources, str] | None:
    """Return the amounts of each replica that ``brain estimate`` answers, with the reason; None if
    the document names amounts, a person approves changes, or no similar job was measured.
    """
    mode = document.policy.mode or PolicyMode(settings.policy_mode)
    alone = document.optimize_mode is OptimizeMode.SINGLE_JOB and not document.roles
    named = document.resources.memory_bytes or document.resources.cpu_millis != UNSAID.cpu_millis
    if named or mode is not PolicyMode.AUTO or not alone:
        return None
    found = ask(
        tx, document, EstimateQuestion(), owner=owner, pool=pool, settings=settings, now=now
    )
    rows = [row for row in found.sizes if row.chosen or row.replicas == document.replicas.first]
    row = max(rows, key=lambda row: row.chosen, default=None)
    if row is None or not found.similar or found.similar[0].likeness <= ALIKE:
        return None
    cpu, memory = row.cpu_millis, row.memory_bytes
    if cpu is None or memory is None:
        return None
    amounts = replace(
        document.resources, cpu_millis=round(cpu.value), memory_bytes=round(memory.value)
    )
    fits = largest(tx, replace(unsubmitted(document, pool, now), amounts=amounts))
    if fits is not None and fits < document.replicas.first:
        return None
    return amounts, (
        f"each replica begins with {cores(cpu.value)} and {gibibytes(memory.value)}, as similar "
        f"jobs needed ({found.similar[0].name}: {found.similar[0].same}); exploring: what it uses "
        "corrects that after ten minutes"
    )
