"""How much a run has left to do, what it may still use for it, and what it learns from others.

Declared steps and epochs are believed once earlier runs of the job's name kept to theirs; until
then they only shorten what is expected. How long an epoch is only those runs can tell. Each run
hands what it learned of its name on to the next.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from brain import wire
from brain.errors import BadInput, UnknownJob
from brain.lifecycle.sight import Sight, points
from brain.models.efficiency import gain
from brain.models.fitting import Point, made
from brain.models.remaining import Declared, Finished, Remaining, declared, remaining
from brain.optimizer.situation import Limits
from brain.ports import StoredFit, Transaction
from brain.settings import Settings, prices_of
from brain.types.job import Job, JobDocument, JobState
from brain.types.world import World

#: Kind of the stored list of what earlier runs declared and came to, oldest first.
KIND = "finished-runs/1"
#: Runs that are handed on.
_HANDED_ON = 10
_HOUR = 3600.0


def hand_on(tx: Transaction, job: Job, now: datetime) -> None:
    """Give a job that is being submitted what earlier runs of its name learned.

    Called before the job is stored, while its name still means the run before.
    """
    try:
        before = tx.jobs.get(job.document.name, job.document.project)
    except UnknownJob:
        return
    if not before.finished:
        return
    known = [*earlier_runs(tx, before), *_came_to(tx, before)][-_HANDED_ON:]
    if known:
        parameters = wire.encode(known).decode()
        tx.fits.put(StoredFit(job=job.id, kind=KIND, parameters=parameters, fitted_at=now))


def earlier_runs(tx: Transaction, job: Job) -> tuple[Finished, ...]:
    """Runs of the job's name that ended well and had declared something, oldest first."""
    stored = tx.fits.get(job.id, KIND)
    return tuple(wire.decode(stored.parameters, list[Finished])) if stored else ()


def promised_work(job: Job, past: Sequence[Finished]) -> Declared | None:
    """What the job's document says of its work, in what can be counted."""
    return declared(job.document.steps, job.document.epochs, past)


def _came_to(tx: Transaction, run: Job) -> list[Finished]:
    """A run that came to its end, where it had declared something."""
    steps, epochs = run.document.steps, run.document.epochs
    if run.state is not JobState.SUCCEEDED or (steps is None and epochs is None):
        return []
    seen, worlds = points(tx, run), tx.worlds.of(run.id)
    done = steps_made(seen, worlds, first=first_batch(run))
    examples = examples_made(seen, worlds)
    known = Finished(steps=done, examples=examples, declared_steps=steps, declared_epochs=epochs)
    return [known] if done > 0 else []


def steps_made(
    seen: Sequence[Point], worlds: Sequence[World], *, first: float | None = None
) -> float:
    """Optimizer steps of the script so far; those made again count once.

    With the ``first`` batch of a script that is told its batch, steps of that one: a step of
    another batch is as many of them as it is worth (``gain_of``).
    """
    gains = {point.epoch: gain_of(point, first) for point in seen}
    again = sum((world.steps_redone or 0) * gains.get(world.epoch, 1.0) for world in worlds)
    return sum(steps * gain_of(point, first) for steps, point in made(seen)) - again


def gain_of(point: Point, first: float | None) -> float:
    """Steps of the first batch that one of a point is worth; 1 where the batch stays."""
    if first is None or point.examples_per_step is None:
        return 1.0
    return gain(point.examples_per_step, first_batch=first, noise=point.noise_scale)


def first_batch(job: Job) -> float | None:
    """The batch that declared steps are of, where Brain chooses others; None where it stays."""
    batch = job.document.batch
    return float(batch.global_size) if job.document.tunes and batch.global_size else None


def examples_made(seen: Sequence[Point], worlds: Sequence[World]) -> float | None:
    """The same in examples; None where a batch was not seen."""
    batches = {point.epoch: point.examples_per_step for point in seen}
    if not seen or not all(batches.values()):
        return None
    examples = sum(steps * (point.examples_per_step or 0.0) for steps, point in made(seen))
    # Steps are made again by the world after the one that lost them, with its batch.
    redone = sum((world.steps_redone or 0) * (batches.get(world.epoch) or 0.0) for world in worlds)
    return examples - redone


def still_to_come(
    job: Job,
    sight: Sight,
    worlds: Sequence[World],
    *,
    elapsed: float,
    past: Sequence[Finished],
) -> Remaining:
    """Training time to come at the present pace.

    Where nobody ever kept or broke a declaration of this name, the shorter of what is declared
    and what the job's age says: neither is worth a restart that only the other one pays for.
    """
    by_age = remaining(done=0, declared=None, work_per_second=0, elapsed_seconds=elapsed)
    said, present = promised_work(job, past), sight.present
    if said is None or not isinstance(present, Point):
        if job.document.epochs is not None and said is None:
            return replace(by_age, basis="as long as so far: no run told how long an epoch is")
        return by_age
    seen = [*sight.earlier, present]
    first = first_batch(job)
    done = steps_made(seen, worlds, first=first)
    pace = gain_of(present, first) / present.step_seconds
    if said.in_examples:
        examples = examples_made(seen, worlds)
        if examples is None or present.examples_per_step is None:
            return replace(by_age, basis="as long as so far: its batch was not seen")
        done, pace = examples, present.examples_per_step / present.step_seconds
    found = remaining(
        done=done,
        declared=said.expected,
        work_per_second=pace,
        elapsed_seconds=elapsed,
        ratios=said.ratios,
        trusted=not said.ratios,
    )
    if said.ratios or found.seconds <= by_age.seconds:
        return found
    return replace(by_age, basis="as long as so far: no declaration was tested")


def limits(
    job: Job, sight: Sight, worlds: Sequence[World], settings: Settings, now: datetime
) -> Limits | None:
    """What the owner's deadline and budget leave; None where there is neither, or no measure."""
    document, present = job.document, sight.present
    if not isinstance(present, Point):
        return None
    hours = _replica_hours(document, settings, present.accelerator)
    if not hours and document.deadline is None:
        return None
    assert document.steps is not None, "limits are refused without declared steps"
    first = first_batch(job)
    left = max(0, document.steps - steps_made([*sight.earlier, present], worlds, first=first))
    spent = spent_replica_seconds(worlds, now)
    return Limits(
        work_seconds=left * present.step_seconds / gain_of(present, first),
        deadline_seconds=(document.deadline - now).total_seconds() if document.deadline else None,
        replica_seconds=min(hours) * _HOUR - spent if hours else None,
    )


def spent_replica_seconds(worlds: Sequence[World], now: datetime) -> float:
    """Replicas times seconds that worlds have existed so far."""
    oldest_first = sorted(worlds, key=lambda world: world.epoch)
    ends = [*(after.formed_at for after in oldest_first[1:]), now]
    total = 0.0
    for world, end in zip(oldest_first, ends, strict=False):
        until = min(end, world.ended_at) if world.ended_at else end
        total += world.replicas * max(0.0, (until - world.formed_at).total_seconds())
    return total


def check_limits(document: JobDocument, settings: Settings, now: datetime) -> None:
    """Refuse limits that nobody can keep.

    Raises:
        BadInput: the deadline has passed, or the budget is money and nothing has a price.
    """
    if document.deadline is not None and document.deadline <= now:
        raise BadInput(
            f"deadline {document.deadline.isoformat()} has passed; give one to come",
            field="deadline",
        )
    if document.budget.cost is None:
        return
    prices, kind = prices_of(settings.accelerator_prices), document.accelerator
    if not (prices if kind is None else {kind, "*"} & set(prices)):
        raise BadInput(
            f"budget.cost {document.budget.cost:g} says nothing where accelerators have no price; "
            "set accelerator_prices, or give budget.acceleratorHours",
            field="budget.cost",
        )


def accelerators(document: JobDocument) -> float:
    """Accelerators of a replica; where it reserves none its cores."""
    each = document.resources
    return float(each.gpus) if each.gpus else max(each.cpu_millis, 1) / 1000


def _replica_hours(document: JobDocument, settings: Settings, accelerator: str) -> list[float]:
    """Replica-hours that each given budget allows."""
    each, budget, found = accelerators(document), document.budget, []
    if budget.accelerator_hours is not None:
        found.append(budget.accelerator_hours / each)
    if budget.cost is not None:
        prices = prices_of(settings.accelerator_prices)
        price = prices.get(accelerator, prices.get("*", 0.0))
        found.append(budget.cost / (price * each) if price > 0 else math.inf)
    return found
