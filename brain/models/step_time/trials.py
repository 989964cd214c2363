"""The choice of the next configuration to measure: the one that is most informative."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from brain.models.step_time.columns import Configuration, rows
from brain.models.step_time.physics import SIGMA, log_times

if TYPE_CHECKING:
    from brain.models.step_time.ensemble import StepTime


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimeTrial:
    """A configuration that is worth a trial, and how much the trial would reduce the
    uncertainty.
    """

    configuration: Configuration
    #: Standard deviation of log step time at the question, now and after the trial.
    before: float
    after: float

    @property
    def learned(self) -> float:
        """Return the share of the variance that the trial would remove."""
        return 1 - (self.after / self.before) ** 2


def free_trials(current: Configuration, largest_local: float) -> list[Configuration]:
    """Return other micro-batch sizes at the same size and global batch size, which cost no restart.

    The local batch halves while accumulation doubles, or the reverse, as long as the local batch
    fits the device.

    >>> [(c.local_batch, c.accumulation) for c in free_trials(
    ...     Configuration(nodes=1, replicas=2, local_batch=32, accumulation=2), largest_local=64)]
    [(16.0, 4), (8.0, 8), (64.0, 1)]
    """
    share = current.local_batch * current.accumulation
    found = []
    for accumulation in (
        2 * current.accumulation,
        4 * current.accumulation,
        current.accumulation / 2,
        current.accumulation / 4,
    ):
        whole = accumulation >= 1 and accumulation == int(accumulation)
        if whole and 1 <= share / accumulation <= largest_local:
            found.append(
                Configuration(
                    nodes=current.nodes,
                    replicas=current.replicas,
                    local_batch=share / accumulation,
                    accumulation=int(accumulation),
                )
            )
    return found


def next_trial(
    model: "StepTime", question: Configuration, candidates: Sequence[Configuration]
) -> StepTimeTrial | None:
    """Return the candidate whose measurement is most informative about the step time of
    ``question``.

    The reduction follows from the physical member's posterior, linearised (MacKay,
    *Information-Based Objective Functions for Active Data Selection*, 1992): a measurement at ``c``
    lowers the variance at the question ``q`` by

        (j_q S j_c)^2 / (j_c S j_c' + sigma^2)

    with the derivatives ``j``, the posterior covariance ``S`` and the noise ``sigma``.

    None if there is no candidate. Three chosen trials are about as informative as twelve random
    ones (models.md section 2.6).
    """
    if not candidates:
        return None
    member = model.physical_
    by = log_times(member.z_, rows([question, *candidates]), member.reference_).by_step
    spread = by @ member.covariance_ @ by.T
    own = np.diag(spread)[1:] + SIGMA**2
    before = spread[0, 0] + SIGMA**2
    left = before - spread[0, 1:] ** 2 / own
    chosen = int(np.argmin(left))
    return StepTimeTrial(
        configuration=candidates[chosen],
        before=float(np.sqrt(before)),
        after=float(np.sqrt(left[chosen])),
    )
