"""Chooses the best or the most informative batch size for a script with ``batch.tune``.

Another batch size costs no restart, so even a small gain is worth it. If the gain of another job
size is uncertain, Brain tries a micro-batch size that reduces the uncertainty (models.md sections
2.6, 2.8).
"""

from dataclasses import dataclass, replace

from brain.errors import Undetermined
from brain.models.earlier import outgrew
from brain.models.efficiency import efficiency, gain
from brain.models.fitting import Point
from brain.models.job import JobModel
from brain.models.sizes import Size
from brain.models.terms import SAME_BATCH, Batching, local_batch
from brain.optimizer.situation import Situation
from brain.optimizer.worth import blocking_trial
from brain.types.batch import BatchWish
from brain.types.job import JobState, OptimizeMode, PolicyMode
from brain.typeset import change, count, percent

#: Least gain in goodput for which another batch is asked for: a smaller one is within the model's
#: error.
LEAST_GAIN = 0.05
#: Seconds after which the gradients of a world have shown their noise, or never will.
_SETTLED_SECONDS = 300.0
#: Gain in goodput for which a job takes another batch before it takes another size.
_MUCH_GAIN = 0.25
#: If the global batch is free, micro-batches are multiples of this, which suits devices.
_EVEN = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchChoice:
    """A batch size to request, with the reason."""

    wish: BatchWish
    reason: str
    #: Size, in replicas, for which the batch is tried; None: it is wanted for its own sake.
    trial: int | None = None


def choose_batch(
    situation: Situation,
    standing: BatchWish | None,
    *,
    trying_seconds: float | None = None,
    shared: bool = False,
) -> BatchChoice | None:
    """Return another batch size for a job; None if the present batch size is as good, or if the
    script has not adopted the last requested one yet.

    Args:
        situation: The job's situation; ``present`` was measured after ``standing`` was requested.
        standing: The batch size that Brain requests now.
        trying_seconds: Seconds for which that batch size has been on trial; None if it is not on
            trial. Only a trial has a time limit.
        shared: True if the job shares its pool. Brain then tries larger job sizes instead of other
            micro-batch sizes, because a growth costs less than a trial of minutes at each size.
    """
    model, present = situation.model, situation.present
    if not _may(situation) or model is None or not isinstance(present, Point):
        return None
    best = _best(model, present, standing)
    if best is None:
        return None
    wish, won = best
    if trying_seconds is not None:
        if _noise_unknown(model) and trying_seconds < _SETTLED_SECONDS:
            return None
        return BatchChoice(wish=wish, reason=f"{_told(wish, present)} again: the trial is over")
    if won >= LEAST_GAIN and wish != standing:
        return BatchChoice(wish=wish, reason=_reason(model, wish, won))
    asked = standing or wish
    pair = _pair(situation, asked)
    return pair if pair or shared else _trial(situation, model, asked)


def better_batch(model: JobModel, standing: BatchWish | None) -> BatchChoice | None:
    """Return a batch size with more goodput at the present job size; None if there is none."""
    best = _best(model, model.present, standing)
    if best is None or best[1] < LEAST_GAIN or best[0] == standing:
        return None
    return BatchChoice(wish=best[0], reason=_reason(model, *best))


def outgrown(situation: Situation) -> bool:
    """Return True if another batch size would gain so much at this job size that this batch size
    must be measured before Brain considers other job sizes.

    Otherwise promises for other job sizes would be based on a batch size that was never used.
    """
    model = situation.model
    best = None if model is None else _best(model, model.present, None)
    if model is None or best is None or taken(best[0], model.present):
        return False
    return best[1] >= _MUCH_GAIN


def _best(
    model: JobModel, present: Point, standing: BatchWish | None
) -> tuple[BatchWish, float] | None:
    """Return the best batch for a job's present world, and its gain in goodput over the measured
    batch.
    """
    if present.examples_per_step is None or (standing and not taken(standing, present)):
        return None
    here = Size(replicas=present.replicas, nodes=present.nodes)
    wish, found = wish_at(model, here), model.curve([here])[0]
    if wish is None or isinstance(found, Undetermined):
        return None
    now = present.rate * _worth(model, present.examples_per_step)
    return wish, found.examples_per_second * model.worth(here) / now - 1


def _reason(model: JobModel, wish: BatchWish, won: float) -> str:
    reason = f"{_told(wish, model.present)}: {change(won)} goodput expected"
    if wish.learning_rate_scale != 1:
        worth = percent(_worth(model, wish.global_size))
        reason += f", and each example is worth {worth} of an example of the first batch"
    return reason


def brought(wish: BatchWish, replicas: int) -> str:
    """Return a phrase about the batch size that comes with ``replicas``, and about its learning
    rate.
    """
    size = f"{wish.global_size} examples a step with {count(replicas, 'replica')}"
    return (
        f"{size}; the script multiplies the learning rate of its first batch by "
        f"{wish.learning_rate_scale:g}"
    )


def taken(wish: BatchWish, present: Point) -> bool:
    """Return True if the measured world uses the requested batch size."""
    local, accumulation = wish.split(present.processes)
    near = abs(local_batch(present) / local - 1) <= SAME_BATCH
    return near and present.accumulation == accumulation


def _may(situation: Situation) -> bool:
    """Return True if Brain may choose the batch of this job now."""
    job = situation.job
    mine = situation.mode is PolicyMode.AUTO and job.advise_only is None and job.document.tunes
    mine = mine and job.document.optimize_mode is not OptimizeMode.MANUAL
    return mine and job.state is JobState.RUNNING and situation.active is None


def wish_at(model: JobModel | None, size: Size) -> BatchWish | None:
    """Return the best batch size at a job size; None if the script has no ``batch.tune``."""
    if model is None or model.batching is not Batching.TOLD:
        return None
    try:
        chosen = model.runs(size)
    except Undetermined:
        return None
    assert chosen is not None, "its batch is known"
    first, noise = model.first_batch or chosen.batch, model.noise
    free = noise is not None and model.terms.largest_batch is not None
    scale = gain(chosen.batch, first_batch=first, noise=noise) if free else 1.0
    local, whole = round(chosen.local_batch), round(chosen.batch)
    even = local - local % _EVEN
    if free and local >= 2 * _EVEN and even * chosen.replicas * chosen.accumulation >= first:
        local, whole = even, even * chosen.replicas * chosen.accumulation
    return BatchWish(
        global_size=whole,
        local_most=local,
        learning_rate_scale=round(max(1.0, scale), 3),
    )


def _worth(model: JobModel, batch: float) -> float:
    """Return the worth of an example of ``batch``, in examples of the first batch.

    The worth is 1 if the batch is fixed.
    """
    first = model.first_batch
    if first is None or model.terms.largest_batch is None:
        return 1.0
    return float(efficiency(batch, first_batch=first, noise=model.noise))


def _pair(situation: Situation, standing: BatchWish) -> BatchChoice | None:
    """Return two micro-batches for a lone worker, so that its gradient noise can be measured.

    One micro-batch per step does not show gradient noise, without which no other batch can be
    judged.
    """
    model = situation.model
    if model is None or not unsettled(situation):
        return None
    present = model.present
    if present.processes > 1 or present.accumulation > 1:
        return None
    wish = replace(standing, local_most=-(-standing.global_size // 2))
    if wish.local_most < model.terms.smallest_local or wish.local_most == standing.global_size:
        return None
    reason = f"2 micro-batches of {wish.local_most} examples, so that gradient noise is measured"
    return BatchChoice(wish=wish, reason=reason, trial=present.replicas)


def unsettled(situation: Situation) -> bool:
    """Return True if Brain may choose larger batch sizes once the gradient noise is measured."""
    model = situation.model
    if model is None or not _noise_unknown(model):
        return False
    if model.present.processes == 1 and not _tried_in_vain(model):
        return True
    return situation.world_age_seconds < _SETTLED_SECONDS


def _noise_unknown(model: JobModel) -> bool:
    first, largest = model.first_batch, model.terms.largest_batch or 0
    free = model.batching is Batching.TOLD and first is not None and largest > first
    return free and model.present.noise_scale is None


def _tried_in_vain(model: JobModel) -> bool:
    """Return True if micro-batches showed no noise lately; they are tried again once the job's
    work has doubled.
    """
    points = model.points
    vain = [at for at, p in enumerate(points) if p.accumulation > 1 and p.noise_scale is None]
    return bool(vain) and not outgrew(points, points[: vain[-1] + 1], model.first_batch)


def _trial(situation: Situation, model: JobModel, standing: BatchWish) -> BatchChoice | None:
    """Return a micro-batch that would tell the gain of another size, if nothing else does."""
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
    doubt = f"{percent(trial.learned)} of the uncertainty about {count(size, 'replica')}"
    what = f"{_micro(asked.accumulation)} of {wish.local_most} examples"
    reason = f"{what} for two minutes, because this trial removes {doubt}"
    return BatchChoice(wish=wish, reason=reason, trial=size)


def _told(wish: BatchWish, present: Point) -> str:
    local, accumulation = wish.split(present.processes)
    return f"{wish.global_size} examples a step, {_micro(accumulation)} of {local} a worker"


def _micro(accumulation: int) -> str:
    return f"{accumulation} micro-batch{'es' * (accumulation != 1)}"
