"""Metrics over time: readings from each kind of sample, and points from readings.

Every store draws its series by these rules, in Python or in SQL, so that a chart looks the same
from every store. A reading is a value with a weight. The mean of several readings is itself a
reading, so a stored one-minute mean and a new sample can be combined in one bucket.

For metrics that are summed over a world, a worker's value is multiplied by the number of processes,
and its weight is divided by that number. The mean over workers with samples then equals the sum
over all workers, and a worker whose window ends just outside a bucket leaves no gap in the chart.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from brain.errors import BadInput
from brain.models.efficiency import norms_of
from brain.ports import SeriesBucket
from brain.types.telemetry import HostSample, Phase, Sample, ThroughputSample

MICROSECOND = timedelta(microseconds=1)


class MetricReading(NamedTuple):
    """A reading of a metric: the value of one sample, or the mean of many samples."""

    mean: float
    low: float
    high: float
    #: Weight: seconds of a world for throughput, sampled steps for gradients, samples for hosts.
    weight: float

    def joined(self, other: "MetricReading") -> "MetricReading":
        """Return one reading that combines this reading with another: the weighted mean, and the
        lowest and highest values.
        """
        weight = self.weight + other.weight
        mean = (self.mean * self.weight + other.mean * other.weight) / weight
        return MetricReading(mean, min(self.low, other.low), max(self.high, other.high), weight)


def _of_world(sample: ThroughputSample, value: float) -> MetricReading | None:
    seconds = sample.steps * sample.step_seconds_mean / max(1, sample.processes)
    return MetricReading(value, value, value, seconds) if seconds > 0 else None


def _trained(
    value: Callable[[ThroughputSample], float],
) -> Callable[[Sample], MetricReading | None]:
    def read(sample: Sample) -> MetricReading | None:
        if not isinstance(sample, ThroughputSample) or sample.phase is not Phase.TRAINING:
            return None
        return _of_world(sample, value(sample)) if sample.step_seconds_mean > 0 else None

    return read


def _waited(sample: Sample) -> MetricReading | None:
    if not isinstance(sample, ThroughputSample) or sample.phase is not Phase.TRAINING:
        return None
    if sample.exchange_wait_seconds is None or sample.step_seconds_mean <= 0:
        return None
    return _of_world(sample, sample.exchange_wait_seconds / sample.step_seconds_mean)


def _compared(part: int) -> Callable[[Sample], MetricReading | None]:
    """Return a metric: squared mean gradient (0) or variance per example (1), weighted by steps.

    There are two metrics because only their means are unbiased; the noise scale is the ratio of
    these.
    """

    def read(sample: Sample) -> MetricReading | None:
        norms = norms_of(sample) if isinstance(sample, ThroughputSample) else None
        if norms is None:
            return None
        value = norms.statistics[part]
        return MetricReading(value, value, value, float(norms.steps))

    return read


def _replicas(sample: Sample) -> MetricReading | None:
    if not isinstance(sample, ThroughputSample):
        return None
    return _of_world(sample, float(sample.replicas))


def _hosted(
    value: Callable[[HostSample], float | None],
) -> Callable[[Sample], MetricReading | None]:
    def read(sample: Sample) -> MetricReading | None:
        share = value(sample) if isinstance(sample, HostSample) else None
        return None if share is None else MetricReading(share, share, share, 1.0)

    return read


def _share(used: float, capacity: float) -> float | None:
    return used / capacity if capacity > 0 else None


def gpu_share(sample: HostSample) -> float | None:
    """Return the mean utilisation (0 to 1) of the host's accelerators; None if it has none."""
    return _share(sum(gpu.utilization for gpu in sample.gpus), len(sample.gpus))


def gpu_memory_share(sample: HostSample) -> float | None:
    """Return the used share (0 to 1) of the host's accelerator memory; None if it has none."""
    used = sum(gpu.memory_used_bytes for gpu in sample.gpus)
    return _share(used, sum(gpu.memory_total_bytes for gpu in sample.gpus))


def _examples(sample: ThroughputSample) -> float:
    seen = sample.examples_per_second
    return (1 / sample.step_seconds_mean if seen is None else seen) * sample.processes


#: Reading of each metric from one sample; None if the sample has none.
METRICS: Mapping[str, Callable[[Sample], MetricReading | None]] = {
    "examples_per_second": _trained(_examples),
    "steps_per_second": _trained(lambda sample: 1 / sample.step_seconds_mean),
    "step_seconds": _trained(lambda sample: sample.step_seconds),
    "data_wait_share": _trained(lambda it: it.data_wait_seconds / it.step_seconds_mean),
    "exchange_wait_share": _waited,
    "gradient_square": _compared(0),
    "gradient_variance": _compared(1),
    "replicas": _replicas,
    "cpu_share": _hosted(lambda it: _share(it.job_cpu_millis, it.cpu_capacity_millis)),
    "memory_share": _hosted(lambda it: _share(it.job_memory_bytes, it.memory_capacity_bytes)),
    "gpu_share": _hosted(gpu_share),
    "gpu_memory_share": _hosted(gpu_memory_share),
}


@dataclass(frozen=True, slots=True)
class Buckets:
    """Buckets of equal width, from ``since`` to ``until``; there are at most ``points`` of them."""

    since: datetime
    until: datetime
    points: int

    @property
    def width(self) -> timedelta:
        """Return the width of a bucket in whole microseconds, rounded up so that ``points`` buckets
        cover the range.
        """
        span = (self.until - self.since) // MICROSECOND
        return max(1, -(-span // self.points)) * MICROSECOND

    def index(self, at: datetime) -> int:
        return (at - self.since) // self.width

    def drawn(self, readings: Iterable[tuple[int, MetricReading]]) -> list[SeriesBucket]:
        """Return one point for each bucket that has readings; the time of a point is the beginning
        of its bucket.
        """
        joined: dict[int, MetricReading] = {}
        for index, reading in readings:
            known = joined.get(index)
            joined[index] = reading if known is None else known.joined(reading)
        return [
            SeriesBucket(at=self.since + index * self.width, mean=it.mean, low=it.low, high=it.high)
            for index, it in sorted(joined.items())
        ]


def buckets(metric: str, *, since: datetime, until: datetime, points: int) -> Buckets:
    """Return the buckets of a series.

    Raises:
        BadInput: the metric does not exist, or fewer than one point is asked for.
    """
    if metric not in METRICS:
        raise BadInput(
            f"metric {metric!r} does not exist; choose one of {', '.join(METRICS)}", field="metric"
        )
    if points < 1:
        raise BadInput(f"points {points} must be at least 1", field="points")
    return Buckets(since, until, points)
