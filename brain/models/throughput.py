"""Throughput of a job at sizes it has and has not been seen at, with uncertainty."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from brain.errors import Undetermined
from brain.models.fitting import REPEAT, Z90, Point
from brain.types.recommendation import Prediction
from brain.typeset import count, number

#: Batches nearer than this to each other are the same batch (last batches, uneven shards).
SAME_BATCH = 0.02


class Batching(StrEnum):
    """What a script does with its batch when its world grows."""

    #: Global batch kept, local batch shrinks: strong scaling.
    GLOBAL = "fixed global batch"
    #: Local batch kept, global batch grows: weak scaling.
    LOCAL = "fixed batch per worker"
    UNKNOWN = "unknown batch rule"


@dataclass(frozen=True, slots=True, kw_only=True)
class Prior:
    """What is believed of a job before it was seen at two sizes, in log throughput."""

    #: Mean and standard deviation of the gain of the first doubling.
    gain: float
    gain_deviation: float
    #: The same of how much more (or, negative, less) each further doubling gains.
    bend: float
    bend_deviation: float


#: Mean and deviation over the measured tables of Pollux and Sia (6 applications on 6 kinds of
#: nodes, 36 tables of equal weight), of the log gain from one replica to two on one node, and of
#: the next doubling's less that one; batches in the upper half (geometrically) of those measured,
#: where a batch fills the device. A fixed global batch compares local batch m with m / 2, a fixed
#: local batch m with m. The unknown rule is an even mixture of both. As factors: 1.34x, 1.86x and
#: 1.58x. ``python -m benchmarks.doublings`` prints these figures; of the doublings of applications
#: that were left out, 88 to 92 % fall into the 90 % bands, of first ones over two nodes 85 %.
PRIORS = {
    Batching.GLOBAL: Prior(gain=0.29, gain_deviation=0.27, bend=-0.23, bend_deviation=0.27),
    Batching.LOCAL: Prior(gain=0.62, gain_deviation=0.15, bend=-0.05, bend_deviation=0.16),
    Batching.UNKNOWN: Prior(gain=0.455, gain_deviation=0.27, bend=-0.14, bend_deviation=0.24),
}


class Model(Protocol):
    """Predicts a job's throughput at a size."""

    @property
    def basis(self) -> str:
        """What it rests on, in one sentence."""
        ...

    def predict(self, replicas: int) -> Prediction:
        """Return the throughput at ``replicas``, in the unit of the points.

        Raises:
            Undetermined: the size is beyond what the model can know; it says what to gather.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLinear:
    """Log throughput as a bent line over doublings.

        ln g(n) = a + b x + c x (x - 1) / 2,    x = log2(n / smallest n seen)

    ``b`` is the log gain of the first doubling, ``c`` what each further one gains more. Bayesian
    linear regression with a flat ``a`` and the Gaussian ``Prior`` of ``b`` and ``c``; every
    point weighs 1 / (its relative standard error squared + REPEAT squared) (Bishop, *Pattern
    Recognition and Machine Learning*, 3.3). Intervals are 90 % and include REPEAT.

    It answers from half of the smallest to twice the largest size seen; outside of what was
    measured the prior carries the answer, which is then marked ``exploring``.
    """

    points: Sequence[Point]
    batching: Batching

    @property
    def basis(self) -> str:
        """What it rests on, in one sentence."""
        sizes = sorted({point.replicas for point in self.points})
        steps = sum(point.steps for point in self.points)
        seen = ", ".join(map(str, sizes))
        return (
            f"{count(steps, 'step')} measured at {seen} replica{'s' * (sizes != [1])}, "
            f"{self.batching}"
        )

    def predict(self, replicas: int) -> Prediction:
        """Return the throughput at ``replicas`` with its 90 % interval.

        Raises:
            Undetermined: above twice the largest or below half of the smallest size seen.
        """
        sizes = {point.replicas for point in self.points}
        if replicas > 2 * max(sizes):
            raise Undetermined(
                f"{replicas} is more than twice the largest size measured, {max(sizes)}; "
                f"measure {2 * max(sizes)} first"
            )
        if 2 * replicas < min(sizes):
            raise Undetermined(
                f"{replicas} is less than half of the smallest size measured, {min(sizes)}; "
                f"measure {-(-min(sizes) // 2)} first"
            )
        mean, covariance = self._posterior()
        features = self._features(replicas)
        center = float(features @ mean)
        spread = Z90 * math.sqrt(float(features @ covariance @ features) + REPEAT**2)
        return Prediction(
            examples_per_second=math.exp(center),
            low=math.exp(center - spread),
            high=math.exp(center + spread),
            exploring=replicas not in sizes,
        )

    def _features(self, replicas: int) -> NDArray[np.float64]:
        x = math.log2(replicas / min(point.replicas for point in self.points))
        return np.array([1.0, x, x * (x - 1) / 2])

    def _posterior(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        prior = PRIORS[self.batching]
        precision = np.diag([1e-6, prior.gain_deviation**-2, prior.bend_deviation**-2])
        weighted = precision @ np.array([0.0, prior.gain, prior.bend])
        for point in self.points:
            features, weight = (
                self._features(point.replicas),
                1 / (point.relative_error**2 + REPEAT**2),
            )
            precision += weight * np.outer(features, features)
            weighted += weight * features * math.log(point.rate)
        covariance = np.linalg.inv(precision)
        return covariance @ weighted, covariance


def fit(present: Point, earlier: Iterable[Point] = (), *, declared: float | None = None) -> Model:
    """Return the model of a job from its present world and those before.

    Args:
        present: What the world that runs now achieved.
        earlier: What other worlds achieved; those of another accelerator or batch are left out,
            because they say nothing about this one.
        declared: Global batch that the owner says the script keeps, in examples.
    """
    others = [point for point in earlier if comparable(point, present)]
    points = [*others, present]
    return LogLinear(points=tuple(points), batching=batching(points, declared))


def comparable(point: Point, present: Point) -> bool:
    """Whether two points are of one job in every respect but its size."""
    if point.accelerator != present.accelerator:
        return False
    ours, theirs = present.examples_per_step, point.examples_per_step
    if ours is None or theirs is None:
        return ours is theirs
    return _same(ours, theirs) or _same(ours / present.processes, theirs / point.processes)


def batching(points: Sequence[Point], declared: float | None) -> Batching:
    """What the script does with its batch, judged from what was seen, else from what is declared.

    Where no batch is seen the rate is in steps, which measure progress only if every step is
    worth the same: with a fixed global batch.
    """
    batches = {point.processes: point.examples_per_step for point in points}
    if any(batch is None for batch in batches.values()):
        return Batching.GLOBAL
    seen = [(processes, batch or 0.0) for processes, batch in batches.items()]
    if len(seen) < 2:
        return Batching.UNKNOWN if declared is None else Batching.GLOBAL
    (_, first), (_, second) = seen[0], seen[-1]
    return Batching.GLOBAL if _same(first, second) else Batching.LOCAL


def unit_of(point: Point) -> str:
    """The unit of a point's rate."""
    return "steps/s" if point.examples_per_step is None else "examples/s"


def describe(point: Point) -> str:
    """A batch as people name it."""
    if point.examples_per_step is None:
        return "no batch size was seen"
    return f"{number(point.examples_per_step)} examples a step"


def _same(one: float, other: float) -> bool:
    return abs(one - other) <= SAME_BATCH * max(one, other)
