"""Scores: comparisons of advice that was not followed with later measurements.

Brain only records scores. In the mode *shadow* no plan is ever applied; in other modes some plans
expire, are rejected or are superseded. The promises of these plans can still be checked. If the job
later runs at the advised size for another reason (a person's request, another plan), its throughput
is compared with the promise. If the job never runs at that size, the score stays open, and becomes
inconclusive when the job ends.
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

#: Final states of plans that were never applied.
_NOT_TAKEN = frozenset({PlanState.EXPIRED, PlanState.REJECTED, PlanState.SUPERSEDED})


def open_scores(plans: Sequence[ScalePlan]) -> list[ScalePlan]:
    """Return Brain's advice that was not followed and has no score yet."""
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
    """Score advice that was not followed, using the present world's throughput, if this world has
    the advised size.

    A score changes neither a plan's state nor the present target.

    Args:
        plans: The plans of one job.
        present: The job's present world, as measured.
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
    """End the open scores of a job that has ended and can no longer be measured."""
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
