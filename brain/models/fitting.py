"""Reduction of the samples of a world to one measured point.

A synchronous job is as fast as its slowest rank: every optimizer step waits for the gradients of
all ranks. So the step time of a world is the largest of its ranks' median step times.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import ceil
from statistics import median

import numpy as np
from numpy.typing import NDArray

from brain.errors import Undetermined
from brain.types.recommendation import Prediction
from brain.types.telemetry import Phase, ThroughputSample
from brain.typeset import count

#: Fewest windows from which a standard error is more than a guess.
MINIMUM_WINDOWS = 5
#: 95 % quantile of the standard normal: half the width of a 90 % interval.
Z90 = 1.6449
#: Least share of a step that counts as computing: sampled waits may come from slower steps than the
#: median.
LEAST_COMPUTING = 0.05
#: Standard deviation of log throughput between two worlds of one size: the median over the 1 171
#: pairs of mirrored placements (2 + 1 GPUs, 1 + 2 GPUs) in the tables of Pollux and Sia.
REPEAT = 0.04

_Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """The measured throughput of one world of a job at its size."""

    epoch: int
    replicas: int
    processes: int
    accelerator: str
    #: Examples per optimizer step over all workers; None if a worker's batch was not seen.
    examples_per_step: float | None
    #: Median seconds per optimizer step of the slowest rank.
    step_seconds: float
    #: Relative standard error of that median.
    relative_error: float
    #: Optimizer steps that the point rests on: those of the rank with the fewest.
    steps: int
    #: Steps that the world had made at the end of the newest window.
    last_step: int
    until: datetime
    #: Nodes that the world spanned, and micro-batches per optimizer step.
    nodes: int = 1
    accumulation: int = 1
    #: Seconds that a micro-batch computes without waiting for others; None if not measured.
    compute_seconds: float | None = None
    #: Seconds of a step for which the rank that waits longest for data waits.
    data_wait_seconds: float = 0.0
    #: Gradient noise scale in examples; None if it is not reported.
    noise_scale: float | None = None
    #: Examples per step at which this job measured the noise scale; None if earlier runs did.
    noise_batch: float | None = None
    #: Forecast of this world's throughput from the worlds before it; None for the first.
    foretold: Prediction | None = None

    @property
    def exchange_wait_share(self) -> float | None:
        """Return the share of a step for which the slowest rank waits for gradients; None if not
        measured.
        """
        if self.compute_seconds is None:
            return None
        return 1 - self.compute_seconds * self.accumulation / self.step_seconds

    @property
    def data_wait_share(self) -> float:
        """Return the share of a step for which workers wait for data."""
        return self.data_wait_seconds / self.step_seconds

    @property
    def rate(self) -> float:
        """Return the world's examples per second, or steps per second if the batch size is
        unknown.
        """
        return (self.examples_per_step or 1.0) / self.step_seconds

    @property
    def measured(self) -> Prediction:
        """Return the rate with its 90 % interval."""
        half = Z90 * self.relative_error
        return Prediction(
            examples_per_second=self.rate,
            low=self.rate * max(0.0, 1 - half),
            high=self.rate * (1 + half),
        )


def made(points: Iterable[Point]) -> Iterator[tuple[int, Point]]:
    """Yield each point with the number of optimizer steps that its world made at the point's batch
    size.

    ``points`` has the oldest point first. A world whose batch size changed has several points; each
    of them counts the world's steps up to the next change.
    """
    before: dict[int, int] = {}
    for point in points:
        yield point.last_step - before.get(point.epoch, 0), point
        before[point.epoch] = point.last_step


def measure(
    samples: Sequence[ThroughputSample],
    *,
    minimum_steps: int,
    spread_limit: float,
    independent: bool = False,
) -> Point:
    """Return the training samples of one world, summarised as one point.

    Args:
        samples: Samples of one job and one epoch, in any order and phase.
        minimum_steps: Optimizer steps that every rank must have made.
        spread_limit: Largest relative standard error of the median that still counts.
        independent: True if workers do separate work by design, so that the examples of all workers
            count.

    Raises:
        Undetermined: there are too few steps or ranks, or they scatter too much; the
            error says what to wait for.
        ValueError: samples of different epochs were mixed.
    """
    training = [sample for sample in samples if sample.phase is Phase.TRAINING]
    if not training:
        raise Undetermined("no training step was measured in this world yet", code="no-steps")
    if len({sample.place.epoch for sample in training}) > 1:
        raise ValueError("samples of different worlds must not be mixed")
    ranks = _by_rank(training)
    newest = max(training, key=lambda sample: sample.measured_at)
    _expect_enough(ranks, newest.processes, minimum_steps)
    medians = medians_by_rank(ranks)
    step_seconds, error = max(medians.values())
    if error > spread_limit:
        raise Undetermined(
            # Rounded up, so that it is never the limit itself.
            f"step times vary: their median is known to within {ceil(1000 * error) / 10:g} %, but "
            f"{100 * spread_limit:g} % is needed; wait for more steps",
            code="scattered",
        )
    return Point(
        epoch=newest.place.epoch,
        replicas=newest.replicas,
        processes=newest.processes,
        nodes=newest.nodes,
        accumulation=newest.accumulation,
        accelerator=newest.accelerator,
        examples_per_step=_examples_per_step(ranks, copies=not independent and copies(training)),
        step_seconds=step_seconds,
        relative_error=error,
        steps=min(sum(sample.steps for sample in of) for of in ranks.values()),
        last_step=max(sample.step for sample in samples),
        until=newest.measured_at,
        compute_seconds=_compute_seconds(ranks, step_seconds, newest),
        data_wait_seconds=_data_wait_seconds(ranks, step_seconds),
    )


def medians_by_rank(
    ranks: Mapping[int, Sequence[ThroughputSample]],
) -> Mapping[int, tuple[float, float]]:
    """Return each rank's median step time, and its relative standard error.

    The slowest rank's median is the step time of the world, from which its throughput is computed.
    """
    return {rank: median_with_error(*_windows(of)) for rank, of in ranks.items()}


def median_with_error(values: _Floats, weights: _Floats) -> tuple[float, float]:
    """Return the weighted median of the windows' medians, and its relative standard error.

    Each window is one observation, weighted by its number of steps:

        s.e. = sqrt(pi / 2) * 1.4826 * MAD / sqrt(n_eff),    n_eff = (sum w)^2 / sum w^2

    with the weighted median absolute deviation as a robust scale (Hampel, 1974), the asymptotic
    factor of a median under normal errors (Kenney and Keeping, 1962) and Kish's effective sample
    size (1965). If waits come in bursts, the error is too small.

    >>> median_with_error(np.array([0.2, 0.1, 0.3]), np.array([1.0, 1.0, 1.0]))
    (0.2, 0.536...)
    """
    center = weighted_median(values, weights)
    scale = 1.4826 * weighted_median(np.abs(values - center), weights)
    effective = float(weights.sum() ** 2 / (weights**2).sum())
    return center, float(np.sqrt(np.pi / 2) * scale / np.sqrt(effective)) / center


def weighted_median(values: _Floats, weights: _Floats) -> float:
    """Return the value at which the cumulative weight reaches one half.

    >>> weighted_median(np.array([1.0, 2.0, 9.0]), np.array([1.0, 1.0, 3.0]))
    9.0
    """
    order = np.argsort(values)
    reached = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(reached, reached[-1] / 2)])


def _compute_seconds(
    ranks: Mapping[int, Sequence[ThroughputSample]], step_seconds: float, newest: ThroughputSample
) -> float | None:
    """Return the seconds that a micro-batch computes: the step less its exchange wait.

    The rank that waits least for gradients is the slowest one: the others also wait for it. None if
    a rank does not report its wait, or no gradients are exchanged.
    """
    waits = []
    for samples in ranks.values():
        told = [s.exchange_wait_seconds for s in samples if s.exchange_wait_seconds is not None]
        if not told or newest.processes < 2:
            return None
        waits.append(median(told))
    computing = max(step_seconds - min(waits), LEAST_COMPUTING * step_seconds)
    return computing / newest.accumulation


def _data_wait_seconds(
    ranks: Mapping[int, Sequence[ThroughputSample]], step_seconds: float
) -> float:
    """Return the longest wait for data of any rank, for which all ranks wait; at most a step.

    Waits are means. Bursts, as at the beginning of an epoch, do not affect the median step, so they
    are subtracted.
    """
    waits = [
        median(it.data_wait_seconds - _burst_seconds(it) for it in of) for of in ranks.values()
    ]
    return min(max(0.0, max(waits)), step_seconds)


def _burst_seconds(sample: ThroughputSample) -> float:
    return max(0.0, sample.step_seconds_mean - sample.step_seconds)


def _by_rank(samples: Sequence[ThroughputSample]) -> Mapping[int, list[ThroughputSample]]:
    ranks: dict[int, list[ThroughputSample]] = defaultdict(list)
    for sample in samples:
        ranks[sample.place.rank].append(sample)
    return ranks


def _windows(samples: Sequence[ThroughputSample]) -> tuple[_Floats, _Floats]:
    values = np.array([sample.step_seconds for sample in samples], dtype=np.float64)
    return values, np.array([sample.steps for sample in samples], dtype=np.float64)


def _expect_enough(
    ranks: Mapping[int, Sequence[ThroughputSample]], processes: int, minimum_steps: int
) -> None:
    if len(ranks) < processes:
        raise Undetermined(
            f"{len(ranks)} of {count(processes, 'rank')} have reported; wait for all",
            code="too-few-steps",
        )
    steps = min(sum(sample.steps for sample in of) for of in ranks.values())
    if steps < minimum_steps:
        raise Undetermined(
            f"{count(steps, 'step')} measured at this size, but {minimum_steps} are needed; "
            "wait for more",
            code="too-few-steps",
        )
    windows = min(len(of) for of in ranks.values())
    if windows < MINIMUM_WINDOWS:
        raise Undetermined(
            f"{count(windows, 'window')} of steps measured at this size, but {MINIMUM_WINDOWS} "
            "are needed; wait for more",
            code="too-few-steps",
        )


def copies(samples: Sequence[ThroughputSample]) -> bool:
    """Return True if the ranks train separate copies: the world has several ranks, and each rank
    reports that it met no other rank.
    """
    newest = {sample.place.rank: sample for sample in samples}
    processes = max((sample.processes for sample in newest.values()), default=1)
    told = [sample.met for sample in newest.values()]
    return processes > 1 and len(told) >= processes and all(met is False for met in told)


def _examples_per_step(
    ranks: Mapping[int, Sequence[ThroughputSample]], *, copies: bool
) -> float | None:
    """Return the sum over ranks of the usual local batch; shorter last batches of epochs do not
    count.

    If all ranks do the same work, an example counts once. None if a rank's batch was not seen.
    """
    each = []
    for samples in ranks.values():
        if any(sample.local_batch is None for sample in samples):
            return None
        batches = [(sample.local_batch or 0) * sample.accumulation for sample in samples]
        weights = [sample.steps for sample in samples]
        each.append(weighted_median(np.array(batches, float), np.array(weights, float)))
    return max(each) if copies else sum(each, 0.0)
