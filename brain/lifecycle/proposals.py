"""Renews or withdraws proposals that wait for a person, if newer measurements contradict the
proposals.
"""

from dataclasses import replace
from datetime import datetime

from brain.lifecycle.desired import wished_batch
from brain.lifecycle.records import happened, move_plan
from brain.ports import Transaction
from brain.settings import Settings
from brain.types.job import JobId
from brain.types.plan import PlanKind, PlanState, ScalePlan
from brain.types.recommendation import Prediction, Recommendation
from brain.typeset import number


def outdated(plan: ScalePlan | None, measured: Prediction | None, settings: Settings) -> bool:
    """Return True if a proposal of Brain is based on a measurement that no longer holds.

    A measurement no longer holds if its interval and the present interval do not overlap, and the
    measured and the present throughput differ by more than half of ``minimum_gain``.
    """
    if plan is None or not waits_for_approval(plan):
        return False
    if plan.changes_resources:  # plans of amounts rest on use, not on throughput
        return False
    then = plan.measured
    if then is None or measured is None or then.examples_per_second <= 0:
        return False
    apart = measured.low > then.high or measured.high < then.low
    moved = abs(measured.examples_per_second / then.examples_per_second - 1)
    return apart and moved > settings.minimum_gain / 2


def renew(tx: Transaction, plan: ScalePlan, advice: Recommendation, now: datetime) -> ScalePlan:
    """Update an outdated proposal to present measurements, if Brain still advises the same size.

    The proposal's version increases, so that people approve only numbers that they have seen.
    """
    renewed = replace(
        plan,
        current=replace(advice.current, batch=wished_batch(tx, tx.jobs.get(plan.job))),
        target=advice.target,
        measured=advice.measured,
        promised=advice.predicted,
        restart_seconds=advice.restart_seconds,
        payback_seconds=advice.payback_seconds,
        explanation=advice.explanation,
        updated_at=now,
    )
    message = (
        f"{_moved(plan, advice.measured)}; the promised throughput is {_rate(advice.predicted)} "
        f"instead of {_rate(plan.promised)}"
    )
    happened(tx, "plan.renewed", message, job=plan.job, now=now, subject=plan.generation)
    return tx.plans.put(renewed)


def withdraw(
    tx: Transaction, plan: ScalePlan, measured: Prediction | None, now: datetime
) -> list[JobId]:
    """End an outdated proposal, so that Brain decides again from present measurements.

    Returns the jobs whose plans ended.
    """
    return give_way(tx, plan, _moved(plan, measured), now)


def waits_for_approval(plan: ScalePlan | None) -> bool:
    """Return True if a plan is Brain's own advice and waits for a person's decision."""
    return plan is not None and plan.state is PlanState.PROPOSED and plan.kind is PlanKind.RESIZE


def give_way(tx: Transaction, plan: ScalePlan, why: str, now: datetime) -> list[JobId]:
    """End a proposal that waits for approval, for an urgent reason.

    Proposals that only make room for this proposal end, too. Returns the jobs whose plans ended.
    """
    ended = [_end(tx, plan, f"withdrawn: {why}", now)]
    name = tx.jobs.get(plan.job).document.name
    for job, generation in plan.after:
        gives = tx.plans.get(job, generation)
        if gives.state is PlanState.PROPOSED:
            why = f"withdrawn with plan {plan.generation} of {name}, for which this plan makes room"
            ended.append(_end(tx, gives, why, now))
    return ended


def _end(tx: Transaction, plan: ScalePlan, message: str, now: datetime) -> JobId:
    outcome = replace(plan.outcome, detail=message)
    move_plan(tx, plan, PlanState.SUPERSEDED, message, now, outcome=outcome)
    return plan.job


def _moved(plan: ScalePlan, measured: Prediction | None) -> str:
    return f"the measured throughput is {_rate(measured)} now and was {_rate(plan.measured)} before"


def _rate(prediction: Prediction | None) -> str:
    return number(None if prediction is None else prediction.examples_per_second)
