"""Influences on a job's speed other than its size: the owner's declarations, and facts that the
points show.

Points go into the estimators of ``step_time`` as observations of configurations of data-parallel
copies; only this module makes this conversion.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from brain.models.fitting import Point
from brain.models.step_time.columns import Configuration, Observation
from brain.models.step_time.physics import SIGMA
from brain.types.job import JobDocument
from brain.typeset import count

#: Relative difference below which two batches are the same (last batches, uneven shards).
SAME_BATCH = 0.02
#: Examples that a step counts as if no batch was seen; only ratios of this value matter.
_UNSEEN_BATCH = 1024.0
#: Seconds in which the weight of a point halves: scripts change as they train (models.md section
#: 6).
HALF_LIFE_SECONDS = 6 * 3600.0


class Batching(StrEnum):
    """The rule by which a script's batch size depends on the size of its world."""

    #: Global batch kept, local batch shrinks: strong scaling.
    GLOBAL = "fixed global batch"
    #: Local batch kept, global batch grows: weak scaling.
    LOCAL = "fixed batch per worker"
    #: The batch with the most goodput at each size: the script takes the batch that Brain chooses.
    TOLD = "the best batch at each size"
    UNKNOWN = "unknown batch rule"


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedTerms:
    """The owner's declarations on which speed depends."""

    processes_per_replica: int = 1
    #: Processes that together hold one copy of the network: tensor times pipeline parallelism.
    shared: int = 1
    #: Examples per step that the script keeps, if declared.
    global_batch: float | None = None
    #: Smallest and largest local batch that a worker takes.
    smallest_local: float = 1.0
    largest_local: float = math.inf
    #: The largest one on some kinds of accelerator, instead of ``largest_local``.
    largest_local_on: tuple[tuple[str, int], ...] = ()
    #: Largest global batch that training bears, if the owner allows larger ones than the first.
    largest_batch: float | None = None
    #: True if the script takes the batch that Brain chooses, at every size.
    told: bool = False


def terms_of(document: JobDocument) -> SpeedTerms:
    """Return those declarations of a job document on which speed depends."""
    parallel, batch = document.parallelism, document.batch
    return SpeedTerms(
        processes_per_replica=document.processes_per_replica,
        shared=parallel.tensor * parallel.pipeline,
        global_batch=batch.global_size,
        smallest_local=float(batch.local_min or 1),
        largest_local=float(batch.local_max or math.inf),
        largest_local_on=tuple(sorted(batch.local_max_on.items())),
        largest_batch=None if batch.global_max is None else float(batch.global_max),
        told=document.tunes,
    )


def batching(points: Sequence[Point], declared: float | None) -> Batching:
    """Return the rule of a script's batch size, from the batch sizes measured with different
    numbers of workers.

    With only one measured number of workers, the rule depends on whether a batch size is declared.

    No rule fits exactly, because scripts round up to whole examples: 64 examples over three workers
    in two micro-batches become 66, over ten workers 70. So the rule that fits better is chosen. If
    the batch size is unknown, the rate is in steps, which measure progress only if the global batch
    size is fixed.
    """
    if any(point.examples_per_step is None for point in points):
        return Batching.GLOBAL
    newest: dict[int, float] = {}
    for point in reversed(points):
        newest.setdefault(point.processes, point.examples_per_step or 0.0)
    if len(newest) < 2:
        return Batching.UNKNOWN if declared is None else Batching.GLOBAL
    (workers, batch), (others, before) = list(newest.items())[:2]
    grew, expected = math.log(batch / before), math.log(workers / others)
    return Batching.GLOBAL if abs(grew) <= abs(grew - expected) else Batching.LOCAL


def rule(points: Sequence[Point], terms: SpeedTerms) -> Batching:
    """Return the rule that gives the batch size at sizes other than the size of the
    newest point.
    """
    if terms.told:
        seen = points[-1].examples_per_step is not None
        return Batching.TOLD if seen else Batching.GLOBAL
    return batching(points, terms.global_batch)


def unit_of(point: Point) -> str:
    """Return the unit of a point's rate: ``examples/s`` or ``steps/s``."""
    return "steps/s" if point.examples_per_step is None else "examples/s"


def unusable(point: Point, present: Point, terms: SpeedTerms) -> str | None:
    """Return the reason why a point cannot be used; None if it can."""
    if not (math.isfinite(point.step_seconds) and point.step_seconds > 0):
        return f"its step time is {point.step_seconds:g} s"
    if not (math.isfinite(point.relative_error) and point.relative_error >= 0):
        return "the error of its step time is unknown"
    if (point.examples_per_step is None) is not (present.examples_per_step is None):
        return "its rate has another unit"
    if point.examples_per_step is not None and not 0 < point.examples_per_step < math.inf:
        return f"its batch is {point.examples_per_step:g} examples"
    if point.processes < terms.shared or point.replicas < 1 or point.nodes < 1:
        return f"{count(point.processes, 'process')} hold no whole copy of the network"
    return None


def local_batch(point: Point) -> float:
    """Return the examples of one micro-batch of one worker."""
    if point.examples_per_step is None:
        return _UNSEEN_BATCH / point.processes
    return point.examples_per_step / (point.processes * point.accumulation)


def configuration(point: Point, terms: SpeedTerms) -> Configuration:
    copies = point.processes // terms.shared
    return Configuration(
        nodes=min(point.nodes, copies),
        replicas=copies,
        local_batch=local_batch(point),
        accumulation=point.accumulation,
    )


def observation(point: Point, present: Point, terms: SpeedTerms) -> Observation:
    """Return a point as an observation for the estimators; old points have a larger error.

    The variance doubles every ``HALF_LIFE_SECONDS``, so the weight halves.
    """
    age = max(0.0, (present.until - point.until).total_seconds())
    variance = (SIGMA**2 + point.relative_error**2) * 2 ** (age / HALF_LIFE_SECONDS)
    return Observation(
        configuration=configuration(point, terms),
        step_seconds=point.step_seconds,
        relative_error=math.sqrt(variance - SIGMA**2),
        compute_seconds=point.compute_seconds,
        wait_share=point.data_wait_share,
    )
