"""Statistical efficiency: the value of an example in a larger batch.

The efficiency follows from the gradient noise scale (McCandlish et al., *An Empirical Model of
Large-Batch Training*, 2018), as in Pollux (Qiao et al., OSDI 2021, section 3.1).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from brain.errors import Undetermined
from brain.models.fitting import MINIMUM_WINDOWS, Z90
from brain.types.telemetry import ThroughputSample

#: Bounds of the noise scale, in first batches; scales outside are estimation errors (models.md
#: section 2.8).
SMALLEST, LARGEST = 0.1, 1e4
#: Sampled steps of a world after which a measurement counts half. Chosen, not measured: a few
#: hundred steps determine a scale of about ten batches, and training changes over thousands of
#: steps.
HALF_LIFE_STEPS = 300.0
#: Power of age: a measurement at half of a job's age counts 0.5 to this power. Noise grows
#: severalfold in the first epochs, and later as slowly as the job ages.
_AGEING = 2.0
#: Age in seconds below which a job's age is ignored.
_YOUNG_SECONDS = 60.0
#: Difference of log batches at which a measurement at one batch counts 0.6 for the other.
_ALIKE = 0.5
#: Largest relative standard error of a noise scale; a scale with more counts as unknown.
LARGEST_ERROR = 0.5


def noise_scale(square: float, variance: float, batch: float) -> float:
    """Return the gradient noise scale in examples: the batch size at which noise equals signal.

        phi = batch * variance / square

    Args:
        square: Squared norm of the mean gradient.
        variance: Summed variance, around this mean, of gradients of ``batch`` examples.
        batch: Examples behind each of those gradients.

    Raises:
        Undetermined: no signal stands out from the noise, or a value is not positive and finite.

    >>> noise_scale(square=2.0, variance=8.0, batch=32)
    128.0
    """
    if not (math.isfinite(square) and math.isfinite(variance)) or batch <= 0:
        raise Undetermined("gradient statistics are not finite", code="no-noise-scale")
    if square <= 0 or variance < 0:
        raise Undetermined(
            "the mean gradient cannot be distinguished from noise; measure more sampled steps",
            code="no-noise-scale",
        )
    return batch * variance / square


def gradient_statistics(
    small_batch: float, small_square: float, big_batch: float, big_square: float
) -> tuple[float, float]:
    """Return the unbiased squared mean gradient and variance per example, from norms at two
    batches.

        |G|^2 = (B |G_B|^2 - b |G_b|^2) / (B - b),    S = (|G_b|^2 - |G_B|^2) / (1/b - 1/B)

    (McCandlish et al., appendix A.1.) Under data parallelism ``b`` is a worker's local batch size
    and ``B`` is the global batch size, so every step yields both norms. Callers average each norm
    over steps first, because the ratio of two noisy numbers is biased.

    Raises:
        Undetermined: the batches are equal, as they are with one worker and no accumulation.

    >>> gradient_statistics(8, 3.0, 32, 1.5)
    (1.0, 16.0)
    """
    if not 0 < small_batch < big_batch:
        raise Undetermined(
            "noise cannot be estimated from gradients of one batch size; accumulate, or add a "
            "worker",
            code="no-noise-scale",
        )
    square = (big_batch * big_square - small_batch * small_square) / (big_batch - small_batch)
    variance = (small_square - big_square) / (1 / small_batch - 1 / big_batch)
    return square, variance


class Norms(NamedTuple):
    """Mean squared norms of gradients at two batch sizes, over some sampled steps."""

    steps: int
    small_batch: int
    small_square: float
    big_batch: int
    big_square: float

    @property
    def statistics(self) -> tuple[float, float]:
        """Return squared mean gradient and variance per example (``gradient_statistics``)."""
        return gradient_statistics(
            self.small_batch, self.small_square, self.big_batch, self.big_square
        )


def norms_of(sample: ThroughputSample) -> Norms | None:
    """Return the gradient norms in a sample; None if the sample does not have both norms."""
    steps, small, big = sample.gns_steps, sample.gns_small_batch, sample.gns_big_batch
    if not steps or small is None or big is None or not 0 < small < big:
        return None
    if sample.gns_small_square is None or sample.gns_big_square is None:
        return None
    return Norms(steps, small, sample.gns_small_square, big, sample.gns_big_square)


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseScale:
    """Gradient noise scale in examples, with its 90 % interval."""

    examples: float
    low: float
    high: float
    #: Sampled steps of the world on which the scale rests; older steps count less.
    steps: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientSums:
    """Statistics of a job's gradients so far, small enough to be stored with its fits.

    The squared mean gradient ``s`` and variance ``v`` of each window (``gradient_statistics``) are
    summed. The weight of a window is its number of sampled steps; it halves every
    ``HALF_LIFE_STEPS``, and falls to a quarter when the job's age doubles, because noise grows with
    training. The noise scale is the ratio of the means. Its error follows from the scatter of the
    windows by the delta method. Workers of a world share the mean gradient of a step, so the
    windows of all workers at the same time count as one window.
    """

    #: Micro-batches per step of these sums, which decide the loss scale; sums of another
    #: accumulation are not added, because scripts divide their loss by it.
    accumulation: int = 0
    #: Batch of the newest sample, in examples; 0: unknown. Sums of another batch say less about
    #: this one.
    batch: float = 0.0
    #: Times of the first and of the last sample.
    since: datetime | None = None
    until: datetime | None = None
    #: Sums of w, w s, w v, and of the squares of w times 1, s, v, s s, v v, s v.
    first: tuple[float, ...] = (0.0,) * 3
    second: tuple[float, ...] = (0.0,) * 6

    def with_samples(self, samples: Sequence[ThroughputSample]) -> "GradientSums":
        """Return these sums with those ``samples`` added that are newer than all earlier samples;
        ``samples`` must be sorted by time.
        """
        fresh = [s for s in samples if self.until is None or s.measured_at > self.until]
        if not fresh:
            return self
        since, until = self.since or fresh[0].measured_at, fresh[-1].measured_at
        aged = _aged(since, self.until or until, until)
        read = [(s.accumulation, s.processes, norms_of(s), s.measured_at) for s in fresh]
        seen = [(of, max(1, ranks), norms, at) for of, ranks, norms, at in read if norms]
        if not seen:
            return replace(
                self,
                since=since,
                until=until,
                first=tuple(aged * each for each in self.first),
                second=tuple(aged**2 * each for each in self.second),
            )
        accumulation, batch = seen[-1][0], float(seen[-1][2].big_batch)
        rows = [
            (
                norms.steps,
                workers,
                _aged(since, at, until) * _alike(norms.big_batch, batch),
                *norms.statistics,
            )
            for of, workers, norms, at in seen
            if of == accumulation
        ]
        steps, workers, old, s, v = np.array(rows, dtype=np.float64).T
        weight = steps / workers
        later = np.cumsum(weight[::-1])[::-1] - weight
        decayed = weight * old * 0.5 ** (later / HALF_LIFE_STEPS)
        kept = aged * 0.5 ** (weight.sum() / HALF_LIFE_STEPS)
        kept *= (accumulation == self.accumulation) * _alike(self.batch or batch, batch)
        # The windows of one step count as one: their weights add up to that of a single window.
        whole = decayed**2 * workers
        one = np.ones_like(s)
        first = np.stack([one, s, v]) @ decayed
        second = np.stack([one, s, v, s * s, v * v, s * v]) @ whole
        return GradientSums(
            accumulation=accumulation,
            batch=batch,
            since=since,
            until=until,
            first=tuple((kept * np.array(self.first) + first).tolist()),
            second=tuple((kept**2 * np.array(self.second) + second).tolist()),
        )

    @property
    def scale(self) -> NoiseScale:
        """Return the noise scale; raise ``Undetermined`` if it is too uncertain.

        Raises:
            Undetermined: nothing was measured, or no mean gradient stands out from the noise; more
                sampled steps are needed.
        """
        weight = self.first[0]
        if weight <= 0:
            raise Undetermined("no gradient noise was measured", code="no-noise-scale")
        square, variance = self.first[1] / weight, self.first[2] / weight
        found = noise_scale(square, variance, batch=1)
        one, s, v, ss, vv, sv = (each / weight**2 for each in self.second)
        error_square = ss - 2 * square * s + square**2 * one
        error_variance = vv - 2 * variance * v + variance**2 * one
        both = sv - square * v - variance * s + square * variance * one
        relative = error_square / square**2
        if variance > 0:
            relative += error_variance / variance**2 - 2 * both / (square * variance)
        # With so few windows the scatter itself is a guess.
        error = math.sqrt(max(0.0, relative)) if one * MINIMUM_WINDOWS <= 1 else math.inf
        if error > LARGEST_ERROR:
            raise Undetermined(
                f"{weight:.0f} sampled steps are too few for the gradient noise scale; measure "
                "more of them",
                code="no-noise-scale",
            )
        band = math.exp(Z90 * error)
        return NoiseScale(examples=found, low=found / band, high=found * band, steps=weight)


def _alike(batch: float, present: float) -> float:
    """Return the weight of a measurement at another batch: noise differs between batches."""
    return math.exp(-((math.log(batch / present) / _ALIKE) ** 2) / 2)


def _aged(since: datetime, then: datetime, now: datetime) -> float:
    """Return the weight of a measurement at ``then``, in a job's life from ``since`` until
    ``now``.
    """
    # Sums of an earlier release have no time of their first sample.
    ages = [max(0.0, (at - since).total_seconds() + _YOUNG_SECONDS) for at in (then, now)]
    return float((ages[0] / ages[1]) ** _AGEING)


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseByBatch:
    """Gradient noise scale in examples, as a function of the batch size."""

    examples: float
    #: Batch at which the scale was measured.
    batch: float
    #: Power of the batch with which the scale grows; 0: the scale is the same at each batch.
    exponent: float = 0.0

    def at(self, batch: float | NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the noise scale expected at another batch size.

        >>> NoiseByBatch(examples=400.0, batch=16.0, exponent=0.5).at(64.0).item()
        800.0
        """
        ratio = np.asarray(batch, dtype=np.float64) / self.batch
        return np.asarray(self.examples * ratio**self.exponent)


def gain(batch: float, *, first_batch: float, noise: float | NoiseByBatch | None) -> float:
    """Return AdaScale's gain: how many steps of ``first_batch`` one step of ``batch`` replaces.

        r = (B / M0) E(B)        (Johnson et al., *AdaScale SGD*, 2020, with E of Pollux)

    for the batch ``B`` and the first batch ``M0``.

    >>> gain(128.0, first_batch=32, noise=32.0)
    1.6
    """
    return batch / first_batch * float(efficiency(batch, first_batch=first_batch, noise=noise))


def efficiency(
    batch: float | NDArray[np.float64],
    *,
    first_batch: float,
    noise: float | NoiseByBatch | None,
) -> NDArray[np.float64]:
    """Return the value of an example in ``batch``, in examples of ``first_batch``.

        E(M) = (phi + M0) / (phi + M)        (Pollux, equation 7)

    for the batch ``M``, the first batch ``M0`` and the noise scale ``phi``.

    The value is 1 if the noise scale is None (unknown); the batch size must then not change. The
    scale is clipped to ``SMALLEST`` to ``LARGEST`` times the first batch.

    >>> efficiency(128.0, first_batch=32, noise=32.0).item()
    0.4
    >>> efficiency(128.0, first_batch=32, noise=None).item()
    1.0
    """
    size = np.asarray(batch, dtype=np.float64)
    if noise is None:
        return np.ones_like(size)
    there = noise.at(size) if isinstance(noise, NoiseByBatch) else noise
    bounded = np.clip(there, SMALLEST * first_batch, LARGEST * first_batch)
    return np.asarray((bounded + first_batch) / (bounded + size))
