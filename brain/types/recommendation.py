"""The optimizer's result: a size, the gain with its uncertainty, and an explanation."""

from dataclasses import dataclass
from datetime import datetime

from brain.types.allocation import Allocation
from brain.types.explanation import Explanation


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """A throughput with its 90 % interval, in examples per second."""

    examples_per_second: float
    low: float
    high: float
    #: True if the size was never measured, so that the prediction rests on a prior.
    exploring: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """Brain's decision about one job: a new size, or no change (a *hold*)."""

    current: Allocation
    target: Allocation
    #: Measured throughput at the present size; None if too little was measured.
    measured: Prediction | None = None
    #: Predicted throughput at the target; None on a hold without a model.
    predicted: Prediction | None = None
    #: Seconds without training that the change costs.
    restart_seconds: float | None = None
    #: Seconds after which the gain has paid for the restart.
    payback_seconds: float | None = None
    explanation: Explanation
    decided_at: datetime

    @property
    def hold(self) -> bool:
        """Return True if the decision is to change nothing."""
        return self.target == self.current and not self.target.elsewhere(self.current)
