"""Made-up traces of a replica's memory, with and without a leak, drawn from a seed.

Each trace has a start that levels off, a sawtooth from garbage collection, noise that persists for
minutes, and peaks (evaluations, checkpoints). A leak grows evenly, in steps, or with slowly
increasing speed; it begins with the job or later. A trace without a leak may contain a cache that
fills for hours.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

LIMIT_BYTES = 16 * 2**30
#: Minutes of a trace at most; of one without a leak half as many.
MINUTES = 24 * 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """The memory of a replica over time."""

    #: Highest use of each minute in bytes. One that leaks ends when it is above the limit.
    minutes: Floats
    leaks: bool


def traces(seed: int, count: int, *, leaks: bool) -> list[Trace]:
    """Return ``count`` traces."""
    random = np.random.default_rng([seed, leaks])
    return [_trace(random, leaks) for _ in range(count)]


def _trace(random: np.random.Generator, leaks: bool) -> Trace:
    at = np.arange(MINUTES, dtype=float)
    base, peak = random.uniform(0.2, 0.6), random.uniform(0.0, 0.08)
    use = base * (1 - 0.5 * np.exp(-at / random.uniform(1, 10)))
    use += random.uniform(0, 0.04) * (at % random.uniform(3, 40)) / 40
    use += _noise(random, random.uniform(0.001, 0.01))
    use += peak * (at % random.integers(10, 60) < 1)
    if not leaks:
        rest = 0.93 - peak - use.max()
        use += random.uniform(0, 1) * rest * (1 - np.exp(-at / random.uniform(5, 180)))
        return Trace(minutes=use[: MINUTES // 2] * LIMIT_BYTES, leaks=False)
    begin, lasts = random.choice([0.0, random.uniform(0, 600)]), np.exp(random.uniform(3.7, 6.7))
    grown = np.clip(at - begin, 0, None) / lasts
    step = lasts / random.uniform(15, 60)
    kinds = (grown, np.floor(grown * lasts / step) * step / lasts, grown**1.2)
    use += kinds[random.integers(3)] * (1 - base)
    over = np.flatnonzero(use >= 1)
    return Trace(minutes=use[: over[0] + 1 if len(over) else None] * LIMIT_BYTES, leaks=True)


def _noise(random: np.random.Generator, size: float) -> Floats:
    """Return noise of which nine tenths persist from minute to minute."""
    noise, last = np.empty(MINUTES), 0.0
    for minute, fresh in enumerate(random.normal(0, size, MINUTES)):
        noise[minute] = last = 0.9 * last + 0.436 * fresh
    return noise
