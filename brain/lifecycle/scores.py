"""Advice that was not taken, scored against what was measured later: recorded, never acted on.

In the mode *shadow* no plan is ever applied, elsewhere some expire, are rejected or overtaken.
Their promises are promises all the same: if the job later runs at the size by other means (a person
asked for it, another plan led there) its throughput is held against them, and if it never does they
stay open and end inconclusive with the job.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from brain.lifecycle.records import happened
from brain.lifecycle.verdicts import compared, kept
from brain.models.fitting import Point
from brain.ports import Transaction
from brain.settings import Settings
from brain.types.job import Job
from brain.types.plan import PlanKind, PlanState, ScalePlan, Verdict
from brain.types.recommendation import Prediction
from brain.typeset import count, resize

#: Ends of a plan that was never applied.
_NOT_TAKEN = frozenset({PlanState.EXPIRED, PlanState.REJECTED, PlanState.SUPERSEDED})


def open_scores(plans: Sequence[ScalePlan]) -> list[ScalePlan]:
    """Brain's advice that was not taken and has no score yet."""
    return [
        plan
        for plan in plans
        if plan.kind is PlanKind.RESIZE
        and not plan.in_place
        and plan.state in _NOT_TAKEN
        and plan.promised is not None
        and plan.outcome.epoch is None
        and plan.outcome.verdict is None
    ]


def score(
    tx: Transaction,
    plans: Sequence[ScalePlan],
    present: Point,
    *,
    unit: str,
    settings: Settings,
    now: datetime,
) -> None:
    """Hold what the present world achieves against advice of its size that was not taken.

    A score changes neither a plan's state nor what stands: nothing follows from it.

    Args:
        plans: Of one job.
        present: Its world as measured.
    """
    for plan in open_scores(plans):
        later = present.until > plan.created_at
        if plan.promised is None or plan.target.replicas != present.replicas or not later:
            continue
        true = kept(plan, plan.promised, present.measured, settings)
        verdict = Verdict.KEPT if true else Verdict.FELL_SHORT
        both = compared(plan, plan.promised, present.measured, unit=unit, settings=settings)
        _keep(tx, plan, verdict, f"not taken; {both}", now, measured=present.measured)


def forgo(tx: Transaction, job: Job, now: datetime) -> None:
    """End the open scores of a job that ended: they can never be measured."""
    for plan in open_scores(tx.plans.of(job.id)):
        sizes = count(plan.target.replicas, "replica")
        detail = f"{plan.outcome.detail or 'not taken'}; the job never ran with {sizes}"
        _keep(tx, plan, Verdict.INCONCLUSIVE, detail, now)


def _keep(
    tx: Transaction,
    plan: ScalePlan,
    verdict: Verdict,
    detail: str,
    now: datetime,
    *,
    measured: Prediction | None = None,
) -> None:
    outcome = replace(plan.outcome, verdict=verdict, detail=detail, measured=measured)
    tx.plans.put(replace(plan, outcome=outcome))
    message = f"{resize(plan.current.replicas, plan.target.replicas)}, {detail}: {verdict}"
    happened(tx, "plan.scored", message, job=plan.job, now=now, subject=plan.generation)
