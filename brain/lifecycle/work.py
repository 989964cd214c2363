"""The work that a run has left, its limits, and the work of earlier runs of its script.

Brain trusts declared steps and epochs once the declarations of earlier runs of the job's script
were right. Until then a declaration can only reduce the expected work. The length of an epoch is
known only from earlier runs. A run without a declaration is expected to be as long as the earlier
runs, if their lengths were alike.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from brain import wire
from brain.errors import BadInput
from brain.lifecycle.observed import ThroughputObserved, points
from brain.models.efficiency import gain
from brain.models.fitting import Point, made
from brain.models.remaining import (
    DeclaredWork,
    Finished,
    Remaining,
    as_usual,
    declared,
    remaining,
)
from brain.optimizer.situation import WorkLimits
from brain.ports import Transaction
from brain.settings import Settings, prices_of
from brain.types.job import Job, JobDocument, JobState, OptimizeMode
from brain.types.resources import Resources
from brain.types.world import World

#: Kind of the stored list of declared and actual work of earlier runs of the script, oldest first.
KIND = "finished-runs/1"
_AGAIN = "Brain assumes that the run still needs as much time as it has taken so far"
_HOUR = 3600.0


def earlier_runs(tx: Transaction, job: Job) -> tuple[Finished, ...]:
    """Return the work of earlier runs of the job's script that succeeded, oldest first."""
    stored = tx.fits.get(job.id, KIND)
    return tuple(wire.decode(stored.parameters, list[Finished])) if stored else ()


def promised_work(job: Job, past: Sequence[Finished]) -> DeclaredWork | None:
    """Return the work that the job document declares, in steps or examples."""
    return declared(job.document.steps, job.document.epochs, past)


def came_to(tx: Transaction, run: Job) -> list[Finished]:
    """Return a list with the work of a run; an empty list if the run did not succeed or made no
    step.
    """
    if run.state is not JobState.SUCCEEDED:
        return []
    seen, worlds = points(tx, run), tx.worlds.of(run.id)
    known = Finished(
        steps=steps_made(seen, worlds, first=first_batch(run)),
        examples=examples_made(seen, worlds),
        declared_steps=run.document.steps,
        declared_epochs=run.document.epochs,
    )
    return [known] if known.steps > 0 else []


def steps_made(
    seen: Sequence[Point], worlds: Sequence[World], *, first: float | None = None
) -> float:
    """Return the number of optimizer steps of the script so far, with repeated steps counted once.

    If Brain chooses the script's batch size, the result is in steps of its ``first`` batch size: a
    step with another batch size counts as many such steps as ``gain_of`` returns.
    """
    gains = {point.epoch: gain_of(point, first) for point in seen}
    again = sum((world.steps_redone or 0) * gains.get(world.epoch, 1.0) for world in worlds)
    return sum(steps * gain_of(point, first) for steps, point in made(seen)) - again


def gain_of(point: Point, first: float | None) -> float:
    """Return how many steps of the first batch size one step of the batch size of ``point``
    replaces; 1 if the batch size is fixed.
    """
    if first is None or point.examples_per_step is None:
        return 1.0
    return gain(point.examples_per_step, first_batch=first, noise=point.noise_scale)


def first_batch(job: Job) -> float | None:
    """Return the batch size in which declared steps are counted if Brain chooses other batch sizes;
    None if the batch size is fixed.
    """
    batch = job.document.batch
    return float(batch.global_size) if job.document.tunes and batch.global_size else None


def examples_made(seen: Sequence[Point], worlds: Sequence[World]) -> float | None:
    """Return the number of examples of the run so far, with repeated examples counted once; None if
    a batch size is unknown.
    """
    batches = {point.epoch: point.examples_per_step for point in seen}
    if not seen or not all(batches.values()):
        return None
    examples = sum(steps * (point.examples_per_step or 0.0) for steps, point in made(seen))
    # The world after the one that lost steps makes them again, with its own batch.
    redone = sum((world.steps_redone or 0) * (batches.get(world.epoch) or 0.0) for world in worlds)
    return examples - redone


def still_to_come(
    job: Job,
    sight: ThroughputObserved,
    worlds: Sequence[World],
    *,
    elapsed: float,
    past: Sequence[Finished],
) -> Remaining:
    """Return the training time left at the present pace.

    If no earlier run tested a declaration of this script, the result is the shorter of two times:
    one that follows from the declaration, and one from earlier runs (or else from the job's age).
    In a shared pool the declaration is used instead of the job's age, because a job that declares
    too much work harms only itself: it waits longer behind other jobs.
    """
    by_age = remaining(done=0, declared=None, work_per_second=0, elapsed_seconds=elapsed)
    said, present = promised_work(job, past), sight.present
    if not isinstance(present, Point):
        return by_age
    seen = [*sight.earlier, present]
    first = first_batch(job)
    examples, batch = examples_made(seen, worlds), present.examples_per_step
    steps = steps_made(seen, worlds, first=first)
    counted = examples is not None and batch is not None

    def progress(in_examples: bool) -> tuple[float, float]:
        """Return the work done, and the work per step."""
        if in_examples:
            return examples or 0.0, batch or 0.0
        return steps, gain_of(present, first)

    alike = first is None and counted and all(run.examples for run in past)
    done, each = progress(alike)
    usual = as_usual(
        done=done,
        works=[(run.examples or 0.0) if alike else run.steps for run in past],
        work_per_second=each / present.step_seconds,
        elapsed_seconds=elapsed,
    )
    if said is None:
        if job.document.epochs is None or usual.known:
            return usual if usual.known else by_age
        return replace(by_age, basis=f"{_AGAIN}: no run reported the length of an epoch")
    if said.in_examples and not counted:
        return (
            usual
            if usual.known
            else replace(by_age, basis=(f"{_AGAIN}: the job's batch was not measured"))
        )
    done, each = progress(said.in_examples)
    found = remaining(
        done=done,
        declared=said.expected,
        work_per_second=each / present.step_seconds,
        elapsed_seconds=elapsed,
        ratios=said.ratios,
        trusted=not said.ratios,
    )
    if said.ratios:
        return usual if usual.known and not found.known else found
    if found.known and not usual.known and job.document.optimize_mode is OptimizeMode.CLUSTER:
        return found
    untested = replace(
        by_age, basis=(f"{_AGAIN}: no earlier run shows whether declarations are right")
    )
    return min(found, usual if usual.known else untested, key=lambda one: one.seconds)


def whole(job: Job, like: Point, past: Sequence[Finished]) -> float | None:
    """Return the work of a job that has not begun, in examples; None if unknown.

    If Brain chooses the job's batch sizes, the examples are counted at the first batch size. If the
    batch size is unknown, the result is in steps.

    Args:
        job: The job.
        like: A point of an earlier run of the job's script; work is counted at this point's batch
            size.
        past: The declared and actual work of earlier runs of the job's script, oldest first.
    """
    begins = replace(like, last_step=0)
    sight = ThroughputObserved(world=None, present=begins)
    rest = still_to_come(job, sight, (), elapsed=0.0, past=past)
    first = first_batch(job)
    step = gain_of(begins, first) * (first or begins.examples_per_step or 1.0)
    return rest.seconds * step / begins.step_seconds if rest.known else None


def limits(
    job: Job, sight: ThroughputObserved, worlds: Sequence[World], settings: Settings, now: datetime
) -> WorkLimits | None:
    """Return the time and the replica-seconds that the owner's deadline and budget leave.

    None if the job has neither limit, or the present world is not measured.
    """
    document, present = job.document, sight.present
    if not isinstance(present, Point):
        return None
    hours = _replica_hours(job, settings, present.accelerator)
    if not hours and document.deadline is None:
        return None
    assert document.steps is not None, "a job with a deadline or a budget declares its steps"
    first = first_batch(job)
    left = max(0, document.steps - steps_made([*sight.earlier, present], worlds, first=first))
    spent = spent_replica_seconds(worlds, now)
    return WorkLimits(
        work_seconds=left * present.step_seconds / gain_of(present, first),
        deadline_seconds=(document.deadline - now).total_seconds() if document.deadline else None,
        replica_seconds=min(hours) * _HOUR - spent if hours else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldStretch:
    """A world with the time in which it existed."""

    world: World
    begin: datetime
    #: Time of its first step; its end if no step was seen.
    stepping: datetime
    end: datetime


def stretches(worlds: Sequence[World], job: Job, now: datetime) -> list[WorldStretch]:
    """Return the worlds in order, each with its time span.

    A span ends when the world ended, the next world formed or the job ended, whichever came first.
    """
    found, ordered = [], sorted(worlds, key=lambda world: world.epoch)
    for place, world in enumerate(ordered):
        ends = [world.ended_at, job.finished_at, now]
        if place + 1 < len(ordered):
            ends.append(ordered[place + 1].formed_at)
        end = max(world.formed_at, min(end for end in ends if end is not None))
        stepping = end if world.stepping_at is None else min(world.stepping_at, end)
        found.append(WorldStretch(world=world, begin=world.formed_at, stepping=stepping, end=end))
    return found


def role_hours(
    worlds: Sequence[World], job: Job, since: datetime, until: datetime
) -> Mapping[str, float]:
    """Return the hours of a job's replicas between two times, by role; roles without hours are left
    out.
    """
    found: dict[str, float] = defaultdict(float)
    for one in stretches(worlds, job, until):
        seconds = max(0.0, (one.end - max(one.begin, since)).total_seconds())
        for role, number in Counter(member.role for member in one.world.members).items():
            found[role] += number * seconds / _HOUR
    return {role: hours for role, hours in found.items() if hours > 0}


def spent_replica_seconds(worlds: Sequence[World], now: datetime) -> float:
    """Return the replica-seconds of all worlds so far."""
    oldest_first = sorted(worlds, key=lambda world: world.epoch)
    ends = [*(after.formed_at for after in oldest_first[1:]), now]
    total = 0.0
    for world, end in zip(oldest_first, ends, strict=False):
        until = min(end, world.ended_at) if world.ended_at else end
        total += world.replicas * max(0.0, (until - world.formed_at).total_seconds())
    return total


def check_limits(document: JobDocument, settings: Settings, now: datetime) -> None:
    """Raise for limits that cannot be kept.

    Raises:
        BadInput: the deadline has passed, or the budget is money and nothing has a price.
    """
    if document.deadline is not None and document.deadline <= now:
        raise BadInput(
            f"deadline {document.deadline.isoformat()} has passed; give a later one",
            field="deadline",
        )
    if document.budget.cost is None:
        return
    prices, kind = prices_of(settings.accelerator_prices), document.accelerator
    if not (prices if kind is None else {kind, "*"} & set(prices)):
        raise BadInput(
            f"budget.cost {document.budget.cost:g} cannot be kept: accelerators have no price; "
            "set accelerator_prices, or give budget.acceleratorHours",
            field="budget.cost",
        )


def accelerators(each: Resources) -> float:
    """Return the number of accelerators that a replica reserves; if it reserves none, the number of
    cores.
    """
    return float(each.gpus) if each.gpus else max(each.cpu_millis, 1) / 1000


def accelerators_of(job: Job) -> float:
    """Return the number of accelerators of a job's replica: the mean, if roles reserve different
    amounts.
    """
    return accelerators(job.sized(job.document.replicas.first).each)


def _replica_hours(job: Job, settings: Settings, accelerator: str) -> list[float]:
    """Return the replica-hours that each given budget allows."""
    each, budget, found = accelerators(job.resources), job.document.budget, []
    if budget.accelerator_hours is not None:
        found.append(budget.accelerator_hours / each)
    if budget.cost is not None:
        prices = prices_of(settings.accelerator_prices)
        price = prices.get(accelerator, prices.get("*", 0.0))
        found.append(budget.cost / (price * each) if price > 0 else math.inf)
    return found
