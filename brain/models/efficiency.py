"""Statistical efficiency: what an example of a larger batch is worth.

From the gradient noise scale (McCandlish et al., *An Empirical Model of Large-Batch Training*,
2018) as Pollux uses it (Qiao et al., OSDI 2021, section 3.1).
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from brain.errors import Undetermined
from brain.types.telemetry import ThroughputSample

#: Noise scales outside of these, in first batches, are estimation errors (models.md section 2.8).
SMALLEST, LARGEST = 0.1, 1e4


def noise_scale(square: float, variance: float, batch: float) -> float:
    """Gradient noise scale in examples: the batch at which noise and signal are alike.

        phi = batch * variance / square

    Args:
        square: Squared norm of the mean gradient.
        variance: Summed variance of gradients of ``batch`` examples around it.
        batch: Examples behind each of those gradients.

    Raises:
        Undetermined: no signal stands out of the noise, or a value is none.

    >>> noise_scale(square=2.0, variance=8.0, batch=32)
    128.0
    """
    if not (math.isfinite(square) and math.isfinite(variance)) or batch <= 0:
        raise Undetermined("gradient statistics are not finite", code="no-noise-scale")
    if square <= 0 or variance < 0:
        raise Undetermined(
            "no mean gradient stands out of the noise; more sampled steps would settle it",
            code="no-noise-scale",
        )
    return batch * variance / square


def gradient_statistics(
    small_batch: float, small_square: float, big_batch: float, big_square: float
) -> tuple[float, float]:
    """Squared mean gradient and variance per example, without bias, from norms at two batches.

        |G|^2 = (B |G_B|^2 - b |G_b|^2) / (B - b),    S = (|G_b|^2 - |G_B|^2) / (1/b - 1/B)

    (McCandlish et al., appendix A.1.) Under data parallelism ``b`` is a worker's local batch and
    ``B`` the global one: both norms pass by in every step. Average each over steps first: the
    ratio of two noisy numbers is biased.

    Raises:
        Undetermined: the batches are the same; with one worker and no accumulation they are.

    >>> gradient_statistics(8, 3.0, 32, 1.5)
    (1.0, 16.0)
    """
    if not 0 < small_batch < big_batch:
        raise Undetermined(
            "gradients of one batch size tell no noise from signal; accumulate or add a worker",
            code="no-noise-scale",
        )
    square = (big_batch * big_square - small_batch * small_square) / (big_batch - small_batch)
    variance = (small_square - big_square) / (1 / small_batch - 1 / big_batch)
    return square, variance


class Norms(NamedTuple):
    """Mean squared norms of gradients of two batches, over some sampled steps."""

    steps: int
    small_batch: int
    small_square: float
    big_batch: int
    big_square: float

    @property
    def statistics(self) -> tuple[float, float]:
        """Squared mean gradient and variance per example (``gradient_statistics``)."""
        return gradient_statistics(
            self.small_batch, self.small_square, self.big_batch, self.big_square
        )


def norms_of(sample: ThroughputSample) -> Norms | None:
    """The gradient norms that a sample carries; None where it carries none, or no pair."""
    steps, small, big = sample.gns_steps, sample.gns_small_batch, sample.gns_big_batch
    if not steps or small is None or big is None or not 0 < small < big:
        return None
    if sample.gns_small_square is None or sample.gns_big_square is None:
        return None
    return Norms(steps, small, sample.gns_small_square, big, sample.gns_big_square)


def smoothed(scales: Sequence[float], first_batch: float, *, half_life: float = 10.0) -> float:
    """Noise scale now, out of those measured so far, oldest first; noise grows as training goes.

    Exponentially weighted in logarithms, ``half_life`` in measurements, and kept within what a
    noise scale can be.

    Raises:
        Undetermined: none was measured.

    >>> round(smoothed([100.0, 400.0], first_batch=32, half_life=1.0))
    252
    """
    if not scales:
        raise Undetermined("no gradient noise was measured", code="no-noise-scale")
    age = np.arange(len(scales))[::-1]
    weight = 0.5 ** (age / half_life)
    low, high = SMALLEST * first_batch, LARGEST * first_batch
    logs = np.log(np.clip(scales, low, high))
    return float(np.exp(np.average(logs, weights=weight)))


def efficiency(
    batch: float | NDArray[np.float64], *, first_batch: float, noise: float | None
) -> NDArray[np.float64]:
    """What an example of ``batch`` brings, in examples of ``first_batch``.

        E(M) = (phi + M0) / (phi + M)        (Pollux, equation 7)

    1 where the noise scale is None: nobody knows, and then the batch must stay as it is.

    >>> efficiency(128.0, first_batch=32, noise=32.0).item()
    0.4
    >>> efficiency(128.0, first_batch=32, noise=None).item()
    1.0
    """
    size = np.asarray(batch, dtype=np.float64)
    if noise is None:
        return np.ones_like(size)
    return (noise + first_batch) / (noise + size)
