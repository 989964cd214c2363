"""The verdict on an applied plan: this module compares the plan's promise with the measurement, and
may roll the plan back.
"""

from dataclasses import replace
from datetime import datetime

from brain.lifecycle.advising import count_rollbacks
from brain.lifecycle.desired import beyond_bounds, may_act
from brain.lifecycle.plans import ROLLBACK, instead, undoing, verified
from brain.lifecycle.records import move_plan
from brain.lifecycle.verdicts import SAME, Worths, compared, counted, kept, more
from brain.ports import Transaction
from brain.settings import Settings
from brain.types.job import Job, OptimizeMode
from brain.types.plan import PlanKind, PlanState, ScalePlan, Verdict
from brain.types.recommendation import Prediction
from brain.typeset import plan_change, quantity


def judge(
    tx: Transaction,
    plan: ScalePlan,
    measured: Prediction | None,
    *,
    unit: str,
    settings: Settings,
    now: datetime,
    worths: Worths = SAME,
    short: str = "",
) -> ScalePlan:
    """Compare an applied plan's promise with the measurement, and roll the plan back if it fell
    short.

    Brain rolls back a size only if Brain proposed the size: a size that a person requested stays,
    and only the verdict is stored. Brain rolls back amounts, a person's too, if it may act on the
    job and the plan does not only raise amounts. Brain keeps a plan if the job's bounds or limits
    no longer allow the size and amounts before it. A rollback promised nothing, so only the
    throughput is stored for it.

    Args:
        worths: The values of an example before and after the plan, if the batch size changed.
        short: A phrase that says which amounts are too small; empty if none is.
    """
    both, holds = short or ("" if plan.changes_resources else "nothing was promised"), not short
    if plan.promised is not None and measured is not None:
        said = compared(plan, plan.promised, measured, unit=unit, settings=settings, worths=worths)
        both = f"{short}; {said}" if short else said
        # Larger amounts than before slow no replica down.
        holds = holds and (
            plan.only_raises or kept(plan, plan.promised, measured, settings, worths)
        )
    elif holds and not plan.changes_resources:
        if plan.restores and measured is not None:
            both = f"measured {quantity(measured.examples_per_second, unit)}"
        return verified(tx, plan, Verdict.INCONCLUSIVE, both, now, measured)
    comparable = measured and counted(measured, worths)
    if holds:
        both = both or "each replica keeps within its amounts"
        return verified(tx, plan, Verdict.KEPT, both, now, comparable)
    job = tx.jobs.get(plan.job)
    if not _undone_by_brain(job, plan, measured, worths, settings):
        return verified(tx, plan, Verdict.FELL_SHORT, both, now, comparable)
    reason = f"{plan_change(plan)} fell short: {both}"
    back = undoing(tx, job, plan, reason, settings=settings, now=now)
    back = replace(back, measured=measured, target=back.target.loosest(back.current))
    if beyond := beyond_bounds(job, back):
        both = f"{both}; Brain does not roll it back, because {beyond}"
        return verified(tx, plan, Verdict.FELL_SHORT, both, now, comparable)
    outcome = replace(plan.outcome, measured=comparable, verdict=Verdict.FELL_SHORT, detail=both)
    plan = move_plan(tx, plan, PlanState.ROLLED_BACK, f"fell short: {both}", now, outcome=outcome)
    instead(tx, job, None, back, by=ROLLBACK, settings=settings, now=now)
    # A proposal would keep resources from other jobs of the pool while it waits for a person.
    if plan.kind is PlanKind.RESIZE and job.document.optimize_mode is not OptimizeMode.CLUSTER:
        count_rollbacks(tx, plan, settings, now)
    return plan


def _undone_by_brain(
    job: Job, plan: ScalePlan, measured: Prediction | None, worths: Worths, settings: Settings
) -> bool:
    """Return True if Brain rolls back a plan that fell short without asking anyone.

    Brain rolls back plans of amounts wherever it may act, even a person's: running out of memory
    would cost the job more than the person's request is worth, and the rollback needs no restart.
    Raised amounts stay: if they are too small, the smaller amounts before the plan are too small as
    well.
    """
    if plan.kind in (PlanKind.REQUEST, PlanKind.RESIZE) and plan.in_place:
        return may_act(job, settings) and not plan.only_raises
    return plan.kind is PlanKind.RESIZE and not _left_to_the_pool(job, plan, measured, worths)


def _left_to_the_pool(
    job: Job, plan: ScalePlan, measured: Prediction | None, worths: Worths
) -> bool:
    """Return True if the next round decides about the job's size, instead of this verdict.

    The round decides if other jobs have the resources that the plan gave up, or if the job's
    throughput grew, though less than promised.
    """
    if job.document.optimize_mode is not OptimizeMode.CLUSTER or plan.changes_resources:
        return False
    fewer = plan.target.replicas < plan.current.replicas
    return fewer or (measured is not None and more(plan, measured, worths))
