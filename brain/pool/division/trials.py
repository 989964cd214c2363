"""Trials of a smaller size, if there are signs that the job would train as fast with it.

For a measured size, Brain uses the measurement; for an unmeasured size, the model's prediction,
whose prior assumes that jobs scale. Two signs contradict this assumption: workers wait for data, or
the measured sizes differ little in throughput. Then Brain tries half of the replicas (never fewer
in one change), and the measurement decides.
"""

from dataclasses import dataclass

from brain.models.fitting import Point
from brain.optimizer.narrowing import starves
from brain.optimizer.situation import Situation
from brain.optimizer.worth import EXPONENT
from brain.typeset import percent, ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeTrial:
    """A smaller size that may be faster than the model predicts."""

    #: Ratio of hoped to expected throughput; above 1.
    factor: float
    #: The finding that speaks for the trial, in a few words.
    why: str


def trial(situation: Situation, size: int) -> SizeTrial | None:
    """Return a trial of a smaller size that was never measured; None if nothing indicates that the
    job would train as fast with it.

    Raises:
        Undetermined: the size cannot be predicted.
    """
    predicted, present = situation.predict(size), situation.replicas
    if not predicted.exploring or not present / 2 <= size < present:
        return None
    found = [(rate / predicted.examples_per_second, why) for rate, why in _hopes(situation, size)]
    factor, why = max(found, default=(1.0, ""))
    return SizeTrial(factor=factor, why=why) if factor > 1 else None


def _hopes(situation: Situation, size: int) -> list[tuple[float, str]]:
    """Return the throughputs at ``size`` that findings suggest, each with its finding."""
    found = []
    if starves(situation) and not _paid(situation):
        # One storage serves all workers: throughput falls only once fewer workers need all of their
        # time.
        waits = min(situation.data_wait_share or 0.0, 1.0)
        kept = 1.0 if waits == 1 else min(1.0, size / situation.replicas / (1 - waits))
        found.append(
            (situation.rate * kept, f"workers wait for data during {percent(waits)} of each step")
        )
    if (flat := _flat(situation, size)) is not None:
        fewer, more, share = flat
        rate = situation.predict(fewer).examples_per_second
        found.append((rate, f"{more} replicas had {ratio(share)} of the throughput of {fewer}"))
    return found


def _paid(situation: Situation) -> bool:
    """Return True if the present size is enough faster than a measured smaller size, which shows
    that each worker loads its own data.
    """
    present, rate = situation.replicas, situation.rate
    return any(
        rate >= situation.predict(size).examples_per_second * (present / size) ** EXPONENT
        for size in _measured(situation)
        if size < present
    )


def _measured(situation: Situation) -> set[int]:
    present = situation.present
    if situation.model is None or not isinstance(present, Point):
        return set()
    points = situation.model.points
    return {point.replicas for point in points if point.accelerator == present.accelerator}


def _flat(situation: Situation, size: int) -> tuple[int, int, float] | None:
    """Return the two smallest measured sizes, and the throughput ratio of larger to smaller.

    None if the larger size paid for its replicas, or ``size`` is not below both.
    """
    sizes = _measured(situation)
    fewer, more = sorted(sizes)[:2] if len(sizes) > 1 else (0, 0)
    if not size < fewer:
        return None
    larger, smaller = situation.predict(more), situation.predict(fewer)
    share = larger.examples_per_second / smaller.examples_per_second
    return (fewer, more, share) if share < (more / fewer) ** EXPONENT else None
