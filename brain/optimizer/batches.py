"""Which batch a script is asked to take, where it asks: the best one, or one that teaches.

Another batch costs no restart. So what is better by little is worth it, and where the model cannot
tell whether another size pays, a micro-batch is tried that tells it (models.md sections 2.6, 2.8).
"""

from dataclasses import dataclass

from brain.errors import Undetermined
from brain.models.efficiency import efficiency
from brain.models.fitting import Point
from brain.models.goodput import Goodput
from brain.models.job import JobModel
from brain.models.sizes import Size
from brain.models.terms import SAME_BATCH, local_batch
from brain.optimizer.situation import Situation
from brain.optimizer.worth import blocking_trial
from brain.types.batch import BatchWish
from brain.types.job import JobState, PolicyMode
from brain.typeset import change, count, percent

#: Gain in goodput from which another batch is asked for: less is the model's own error.
LEAST_GAIN = 0.05
#: Where the global batch is free, micro-batches are multiples of it: devices like them.
_EVEN = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchChoice:
    """A batch to ask for, and why."""

    wish: BatchWish
    reason: str
    #: Replicas that it is tried for; None: it is taken for its own sake.
    trial: int | None = None


def choose_batch(
    situation: Situation, standing: BatchWish | None, *, trying: bool = False
) -> BatchChoice | None:
    """Another batch for a job that asks, or None: what stands is as good, or is not taken yet.

    Args:
        situation: Of a job; ``present`` was measured since ``standing`` was asked for.
        standing: What it is asked to take now.
        trying: That is a trial, which has an end.
    """
    model, present = situation.model, situation.present
    if not _may(situation) or model is None or not isinstance(present, Point):
        return None
    if present.examples_per_step is None or (standing and not taken(standing, present)):
        return None
    best = _best(situation, model, present)
    if best is None:
        return None
    wish, found = best
    now = situation.predict(situation.replicas).examples_per_second
    now *= _worth(model, present, present.examples_per_step, situation)
    gain = found.prediction.examples_per_second / now - 1
    if trying:
        return BatchChoice(wish=wish, reason=f"{_told(wish, present)} again: the trial is over")
    if gain >= LEAST_GAIN and wish != standing:
        reason = f"{_told(wish, present)}: {change(gain)} goodput expected"
        if wish.learning_rate_scale != 1:
            reason += f", each example worth {percent(found.efficiency)} of one of the first batch"
        return BatchChoice(wish=wish, reason=reason)
    return _trial(situation, model, standing or wish)


def taken(wish: BatchWish, present: Point) -> bool:
    """Whether the world that was measured makes the batch that is wished for."""
    local, accumulation = wish.split(present.processes)
    near = abs(local_batch(present) / local - 1) <= SAME_BATCH
    return near and present.accumulation == accumulation


def _may(situation: Situation) -> bool:
    """Whether the batch of this job is Brain's to choose, now."""
    job = situation.job
    mine = situation.mode is PolicyMode.AUTO and job.advise_only is None and job.document.tunes
    return mine and job.state is JobState.RUNNING and situation.active is None


def _best(
    situation: Situation, model: JobModel, present: Point
) -> tuple[BatchWish, Goodput] | None:
    here = Size(replicas=present.replicas, nodes=present.nodes)
    most = situation.job.document.batch.global_max
    try:
        found = model.goodput(here, most_examples=most)
    except Undetermined:
        return None
    chosen, first = found.configuration, model.first_batch or found.configuration.batch
    free = present.noise_scale is not None and most is not None
    gained = chosen.batch / first * _worth(model, present, chosen.batch, situation)
    scale = max(1.0, gained) if free else 1.0
    local, whole = round(chosen.local_batch), round(chosen.batch)
    if free and local >= 2 * _EVEN:
        local -= local % _EVEN
        whole = local * chosen.replicas * chosen.accumulation
    wish = BatchWish(
        global_size=whole,
        local_most=local,
        learning_rate_scale=round(scale, 3),
    )
    return wish, found


def _worth(model: JobModel, present: Point, batch: float, situation: Situation) -> float:
    """What an example of a batch is worth, in examples of the first one; 1 where that is fixed."""
    first, most = model.first_batch, situation.job.document.batch.global_max
    if first is None or most is None:
        return 1.0
    return float(efficiency(batch, first_batch=first, noise=present.noise_scale))


def _trial(situation: Situation, model: JobModel, standing: BatchWish) -> BatchChoice | None:
    """A micro-batch that would tell whether another size pays, where nothing else does."""
    others = [size for size in situation.sizes if situation.gain(size) is not None]
    found = blocking_trial(situation, [size for size in others if size != situation.replicas])
    if found is None:
        return None
    size, trial = found
    asked = trial.configuration
    wish = BatchWish(
        global_size=standing.global_size,
        local_most=round(asked.local_batch),
        learning_rate_scale=standing.learning_rate_scale,
    )
    if any(taken(wish, point) for point in model.points if point.replicas == situation.replicas):
        return None
    doubt = f"{percent(trial.learned)} of the doubt about {count(size, 'replica')}"
    what = f"{_micro(asked.accumulation)} of {wish.local_most} examples"
    reason = f"{what} for a while: that takes {doubt} away"
    return BatchChoice(wish=wish, reason=reason, trial=size)


def _told(wish: BatchWish, present: Point) -> str:
    local, accumulation = wish.split(present.processes)
    return f"{wish.global_size} examples a step, {_micro(accumulation)} of {local} a worker"


def _micro(accumulation: int) -> str:
    return f"{accumulation} micro-batch{'es' * (accumulation != 1)}"
