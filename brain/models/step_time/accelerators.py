"""Several kinds of accelerator: a model for each kind, and its ratio to the best-measured kind."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from brain.errors import Undetermined
from brain.models.step_time.columns import Observation, rows
from brain.models.step_time.physics import launch_seconds

if TYPE_CHECKING:
    from brain.models.step_time.ensemble import StepTime

#: Standard deviation between tasks of log step time on one kind of device, scaled by one ratio from
#: another kind: from the tables of Sia, after one point (``make bench-models``).
RATIO_DEVIATION = 0.25
#: Number of own points at which a kind's own model weighs as much as the scaled one (models.md 2.7:
#: a ratio is better with one point, and worse from the third own point on).
_EVEN = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerators:
    """Step times of one job on every kind of accelerator that it was measured on.

    A kind with few points borrows the curve of the kind with the most points:

        ln T_B(q) = ln T_A(q) + median over B's points of (ln T_B - ln T_A)

    and mixes it with its own model, whose weight is ``j / (j + 2)`` with ``j`` configurations
    (models.md section 2.7; the ratio is that of Sia, Jayaram Subramanya et al., SOSP 2023). A kind
    that was never measured is not predicted: without a single point on that kind, the error of a
    prediction is above 100 %.
    """

    models: "Mapping[str, StepTime]"
    #: Number of configurations measured on each kind.
    points: Mapping[str, int]
    #: Log ratio of each kind to the kind with most points.
    ratios: Mapping[str, float]
    #: The kind with most points.
    known: str

    def on(self, accelerator: str) -> "OnAccelerator":
        """Return the model for one kind of accelerator.

        Raises:
            Undetermined: the job was never measured on this kind.
        """
        if accelerator not in self.models:
            seen = ", ".join(sorted(self.models))
            raise Undetermined(
                f"never measured on {accelerator}, only on {seen}; "
                "run the job there at its smallest size for two minutes",
                code="untried-accelerator",
            )
        return OnAccelerator(job=self, accelerator=accelerator)


@dataclass(frozen=True, slots=True, kw_only=True)
class OnAccelerator:
    """Predicts step times of a job on one kind of accelerator; it has the same interface as
    ``StepTime``.
    """

    job: Accelerators
    accelerator: str

    def predict(self, X: ArrayLike, return_std: bool = False) -> Any:
        """Return log seconds per optimizer step, with their standard deviation if asked for."""
        if self.accelerator == self.job.known:
            return self.job.models[self.accelerator].predict(X, return_std=return_std)
        count = self.job.points[self.accelerator]
        weight = count / (count + _EVEN) if count > 1 else 0.0
        scaled, spread = self.job.models[self.job.known].predict(X, return_std=True)
        scaled = scaled + self.job.ratios[self.accelerator]
        own, own_spread = scaled, spread
        if weight:
            own, own_spread = self.job.models[self.accelerator].predict(X, return_std=True)
        mean = weight * own + (1 - weight) * scaled
        if not return_std:
            return mean
        borrowed = spread**2 + RATIO_DEVIATION**2
        variance = weight * own_spread**2 + (1 - weight) * borrowed
        return mean, np.sqrt(variance + weight * (1 - weight) * (own - scaled) ** 2)


def fit(
    observations: Mapping[str, Sequence[Observation]],
    *,
    widen: float = 1.0,
) -> Accelerators:
    """Fit the models to a job's observations, which are given by kind of accelerator.

    Raises:
        Undetermined: there is no observation.
    """
    seen = {kind: found for kind, found in observations.items() if found}
    if not seen:
        raise Undetermined("no configuration was measured; measure one", code="no-steps")
    from brain.models.step_time.ensemble import StepTime

    models = {
        kind: _fitted(found, StepTime(widen=widen, launch_seconds=launch_seconds(kind)))
        for kind, found in seen.items()
    }
    points = {kind: model.report_.configurations for kind, model in models.items()}
    known = max(sorted(seen), key=lambda kind: points[kind])
    ratios = {kind: _ratio(found, models[known]) for kind, found in seen.items()}
    return Accelerators(models=models, points=points, ratios=ratios, known=known)


def _fitted(observations: Sequence[Observation], model: "StepTime") -> "StepTime":
    model.fit(
        rows([one.configuration for one in observations]),
        np.log([one.step_seconds for one in observations]),
        np.array([one.relative_error for one in observations]),
        np.log([one.compute_seconds or math.nan for one in observations]),
        np.array([one.wait_share for one in observations]),
    )
    return model


def _ratio(observations: Sequence[Observation], known: "StepTime") -> float:
    """Return the median log ratio of measured step times to those predicted for the known kind."""
    measured = np.log([one.step_seconds for one in observations])
    predicted = known.predict(rows([one.configuration for one in observations]))
    return float(np.median(measured - predicted))
