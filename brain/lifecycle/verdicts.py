"""Whether a plan kept its promise."""

from typing import NamedTuple

from brain.settings import Settings
from brain.types.plan import ScalePlan
from brain.types.recommendation import Prediction


class Worths(NamedTuple):
    """What examples of one batch are worth in those of the batch that was promised."""

    now: float = 1.0
    #: Of the batch before the plan.
    before: float = 1.0


SAME = Worths()


def kept(
    plan: ScalePlan,
    promised: Prediction,
    measured: Prediction,
    settings: Settings,
    worths: Worths = SAME,
) -> bool:
    """Within the band or above it; and a growth must have brought what a restart needs.

    The band of a size that was never seen is wide: it may hold throughputs below the present.
    """
    rate = measured.examples_per_second * worths.now
    before = _before(plan, worths) * (1 + settings.minimum_gain)
    return rate >= max(promised.low, before)


def more(plan: ScalePlan, measured: Prediction, worths: Worths = SAME) -> bool:
    """Whether a growth surely brought something, though perhaps less than was promised."""
    return measured.low * worths.now > _before(plan, worths) > 0


def _before(plan: ScalePlan, worths: Worths) -> float:
    """What a job did before it grew; 0 where nobody knows, or it did not grow."""
    grew = plan.target.replicas > plan.current.replicas
    return plan.measured.examples_per_second * worths.before if grew and plan.measured else 0.0
