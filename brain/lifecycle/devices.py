"""Sizes for which a job's accelerators have enough memory, judged by the memory used so far."""

import math
from collections.abc import Sequence

from brain.lifecycle.observed import ThroughputObserved
from brain.models.estimate.past import WorldUse
from brain.models.fitting import Point
from brain.models.resources.sharding import ShardedMemory
from brain.models.terms import local_batch


def device_examples(sight: ThroughputObserved, uses: Sequence[WorldUse]) -> float | None:
    """Return the largest local batch size, in examples, that almost certainly fits into a device's
    memory according to the readings of all worlds; None if there are no readings.
    """
    read = {use.epoch: use for use in uses if use.device_bytes and use.device_total_bytes}
    points = [*sight.earlier, sight.present]
    peaks = tuple(
        (local_batch(point), read[point.epoch].device_bytes or 0.0)
        for point in points
        if isinstance(point, Point) and point.examples_per_step and point.epoch in read
    )
    capacity = min((use.device_total_bytes or math.inf for use in read.values()), default=0.0)
    if not peaks:
        return None
    from brain.models.resources.gpu_memory import safe_batch

    return safe_batch(peaks, capacity)


def sharded_memory(sight: ThroughputObserved, uses: Sequence[WorldUse]) -> ShardedMemory | None:
    """Return the measured device memory by size for a job whose workers divide the training state
    among them.

    None for other jobs, and if there are no readings.
    """
    read = [(use.replicas, use.device_bytes, use.device_total_bytes) for use in uses]
    known = [(size, used, total) for size, used, total in read if used and total]
    if not known or not sight.sharded:
        return None
    peaks = tuple((size, used) for size, used, _ in known)
    part, world = sight.sharded_bytes, sight.world
    return ShardedMemory(
        peaks=peaks,
        capacity_bytes=min(total for _, _, total in known),
        state_bytes=part * world.replicas if part and world else None,
    )
