"""Detection of scripts that save after most steps, so that saves are part of their steps."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime

from brain.types.telemetry import SaveSample, ThroughputSample

#: Least share of a rank's steps that a save follows, as in the probe (``measures.PAUSED_STEPS``).
_MOST = 5 / 8


def save_seconds_per_step(
    samples: Sequence[ThroughputSample], saves: Sequence[SaveSample], *, since: datetime
) -> float | None:
    """Return the mean seconds of a step for which the rank that saves longest saves; None if no
    rank saves after most steps.

    Args:
        samples: Samples of one world, the oldest first.
        saves: Saves of the job, also those from before the samples.
        since: Time from which saves are complete.
    """
    steps: dict[int, int] = defaultdict(int)
    if not samples:
        return None
    since = max(since, samples[0].measured_at)
    for sample in samples:
        if sample.measured_at >= since:
            steps[sample.place.rank] += sample.steps
    saved: dict[int, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    for save in saves:
        at, rank = save.place, save.place.rank
        if save.measured_at >= since and at.epoch == samples[0].place.epoch and rank in steps:
            saved[rank][save.step] += save.save_seconds
    return max(
        (
            sum(seconds.values()) / len(seconds)
            for rank, seconds in saved.items()
            if len(seconds) >= _MOST * steps[rank]
        ),
        default=None,
    )
