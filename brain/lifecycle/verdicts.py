"""Computes the verdicts on plans, describes them in words, and derives their consequences."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from brain.lifecycle.desired import reached
from brain.settings import Settings
from brain.types.plan import PlanKind, PlanVerdict, ScalePlan, Verdict
from brain.types.recommendation import Prediction
from brain.typeset import number, percent, quantity


class Worths(NamedTuple):
    """The value of a training example at the present batch size, and at the batch size before a
    plan.

    The unit of both values is one example at the batch size that the plan promised.
    """

    now: float = 1.0
    #: Worth of an example of the batch before the plan.
    before: float = 1.0


SAME = Worths()


def kept(
    plan: ScalePlan,
    promised: Prediction,
    measured: Prediction,
    settings: Settings,
    worths: Worths = SAME,
) -> bool:
    """Return True if throughput is within or above the promised band and, after a growth, has risen
    enough to pay for a restart.

    The second condition exists because the band of an unmeasured size is wide, and may contain
    throughputs below the present one. Plans of amounts and restarts promise the throughput that was
    measured before the plan. Such a promise is kept if the measured band reaches the promised band,
    or reaches a throughput that is below the promised one by at most half of ``minimum_gain``.
    """
    if plan.in_place or plan.kind is PlanKind.RESTART:
        # Both promise what was measured before them, whose band is narrow.
        repeats = plan.changes_resources or plan.kind is PlanKind.RESTART
        noise = settings.minimum_gain / 2 if repeats else 0.0
        least = min(promised.low, (1 - noise) * promised.examples_per_second)
        return max(measured.high, measured.examples_per_second) * worths.now >= least
    before = _before(plan, worths) * (1 + settings.minimum_gain)
    return measured.examples_per_second * worths.now >= max(promised.low, before)


def verdicts(plans: Iterable[ScalePlan]) -> dict[int, PlanVerdict]:
    """Return the verdict of each plan of one job, by generation.

    The verdict of a missed promise becomes *rolled back* only once a world of the previous size
    makes steps again, because a rollback may be frozen, wait, or fail.
    """
    found: dict[int, PlanVerdict] = {}
    following: ScalePlan | None = None
    for plan in sorted(plans, key=lambda plan: plan.generation, reverse=True):
        found[plan.generation] = _verdict(plan, following)
        if reached(plan):
            following = plan
    return found


def newest_verdict(plans: Sequence[ScalePlan]) -> PlanVerdict:
    """Return the outcome of a job's newest plan; the plans are given newest first.

    If the newest plan is the rollback of a missed promise, the result is the outcome of that
    promise.
    """
    if not plans:
        return PlanVerdict.NOT_YET
    first, *earlier = plans
    if first.kind is PlanKind.ROLLBACK and reached(first):
        undone = next((plan for plan in earlier if reached(plan)), None)
        if undone and _verdict(undone, first) is PlanVerdict.ROLLED_BACK:
            return PlanVerdict.ROLLED_BACK
    return _verdict(first, None)


def _verdict(plan: ScalePlan, following: ScalePlan | None) -> PlanVerdict:
    """Return the verdict of a plan; ``following`` is the next plan of its job that a world met."""
    if plan.active:
        return PlanVerdict.NOT_YET
    if not reached(plan):
        return PlanVerdict.NOT_APPLIED
    undone = following is not None and following.kind is PlanKind.ROLLBACK
    if plan.restores:
        return PlanVerdict.RESTORED
    if plan.outcome.verdict is Verdict.FELL_SHORT and undone:
        return PlanVerdict.ROLLED_BACK
    # A plan that another overtook, or that an early version stored, has no verdict.
    return PlanVerdict(plan.outcome.verdict or Verdict.INCONCLUSIVE)


def counted(measured: Prediction, worths: Worths) -> Prediction:
    """Return the measured throughput in examples of the promised batch size."""
    return replace(
        measured,
        examples_per_second=measured.examples_per_second * worths.now,
        low=measured.low * worths.now,
        high=measured.high * worths.now,
    )


def compared(
    plan: ScalePlan,
    promised: Prediction,
    measured: Prediction,
    *,
    unit: str,
    settings: Settings,
    worths: Worths = SAME,
) -> str:
    """Return a phrase that compares the measured throughput with the promised one, as the verdict
    does.
    """
    rate = measured.examples_per_second * worths.now
    said = f"measured {number(rate)} of {quantity(promised.examples_per_second, unit)} promised"
    if number(rate) != number(measured.examples_per_second):
        said += (
            f" ({quantity(measured.examples_per_second, unit)} at another batch size, at which an "
            f"example is worth {number(worths.now, digits=2)} of one at the promised batch size)"
        )
    if rate >= promised.low and not kept(plan, promised, measured, settings, worths):
        said += (
            f"; throughput was {number(_before(plan, worths))} before, and a larger size must add "
            f"at least {percent(settings.minimum_gain)}"
        )
    return said


def more(plan: ScalePlan, measured: Prediction, worths: Worths = SAME) -> bool:
    """Return True if a growth certainly raised throughput, perhaps by less than promised."""
    return measured.low * worths.now > _before(plan, worths) > 0


def _before(plan: ScalePlan, worths: Worths) -> float:
    """Return the throughput of a job before it grew; 0 if it is unknown or the job did not grow."""
    grew = plan.target.replicas > plan.current.replicas
    return plan.measured.examples_per_second * worths.before if grew and plan.measured else 0.0
