"""What the optimizer returns: a size, the gain with its uncertainty, and an explanation."""

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
    #: True where the size was never measured and a prior carries the answer.
    exploring: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """A decision for one job: a new size, or a hold at the present one."""

    current: Allocation
    target: Allocation
    #: At the present size, as measured; None where too little was measured.
    measured: Prediction | None = None
    #: At the target; None on a hold without a model.
    predicted: Prediction | None = None
    #: What the change costs in time without training.
    restart_seconds: float | None = None
    #: Time after which the gain has paid for the restart.
    payback_seconds: float | None = None
    explanation: Explanation
    decided_at: datetime

    @property
    def hold(self) -> bool:
        """True if this is a decision not to change."""
        return self.target == self.current and not self.target.elsewhere(self.current)
