"""Measurements of similar jobs, combined as if they came from one job, and the work to do."""

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from brain.errors import Undetermined
from brain.models.estimate.past import Neighbour, Past
from brain.models.fitting import Z90, Point
from brain.models.job import JobModel
from brain.models.job_fit import fit
from brain.models.terms import Batching, SpeedTerms
from brain.types.estimate import Band, EstimateQuestion, Work
from brain.types.job import JobDocument
from brain.typeset import count, number, ratio

#: Standard deviation of log step time between runs of one script, and between jobs with nothing in
#: common. The first is twice the difference between two worlds of one size; the second is assumed.
_AGAIN, _APART = 0.08, 0.7
#: Standard deviation of log work between runs of one script that declared none.
_WORK = 0.5


def pooled(alike: Sequence[Neighbour], terms: SpeedTerms) -> JobModel:
    """Return one model fitted to the points of similar jobs; the less similar the jobs, the wider
    its bands.

    Within a job, older points have less weight. Between jobs age does not matter: last month's job
    is as informative about a new job as yesterday's.

    Raises:
        Undetermined: no point of the jobs can be used with ``terms``.
    """
    ages = [point.until for one in alike for point in one.past.points]
    points: list[Point] = []
    # The most similar job comes last, so that its last world is the model's present one.
    for one in sorted(alike, key=lambda each: (each.likeness, each.same_batch)):
        apart = _AGAIN + _APART * (1 - one.likeness)
        for point in _said_by(one, alike):
            counted = _counted(point, terms)
            if counted is not None:
                age = one.past.points[-1].until - point.until
                points.append(
                    replace(
                        counted,
                        until=max(ages) - age,
                        relative_error=math.hypot(point.relative_error, apart),
                        foretold=None,
                    )
                )
    if not points:
        raise Undetermined("no similar job was measured", code="no-history")
    return fit(points[-1], points[:-1], terms=terms)


def _said_by(one: Neighbour, alike: Sequence[Neighbour]) -> Sequence[Point]:
    """Return the points of a job that do not mislead about the script's batch.

    A point with another batch than the one asked about is of use only if the asked batch was seen
    with as many processes. Otherwise the script would seem to change its batch with its size.
    """
    if one.same_batch or not any(other.same_batch and other.past.points for other in alike):
        return one.past.points
    seen = {point.processes for other in alike if other.same_batch for point in other.past.points}
    return [point for point in one.past.points if point.processes in seen]


def _counted(point: Point, terms: SpeedTerms) -> Point | None:
    """Return the point in replicas of the new document; None if its processes do not fill whole
    replicas.
    """
    replicas, rest = divmod(point.processes, terms.processes_per_replica)
    if rest or not replicas:
        return None
    return replace(point, replicas=replicas, nodes=min(point.nodes, replicas))


def examples_per_step(model: JobModel, replicas: int) -> float:
    """Return the examples of a step at a size, by the script's batch rule; 1 if the batch size is
    unknown.
    """
    present = model.present
    if present.examples_per_step is None:
        return 1.0
    if model.batching is not Batching.LOCAL:
        return present.examples_per_step
    copies = replicas * model.terms.processes_per_replica
    return present.examples_per_step * copies / present.processes


def work(
    document: JobDocument,
    question: EstimateQuestion,
    alike: Sequence[Neighbour],
    model: JobModel | None,
) -> Work | None:
    """Return the work to do, in the model's unit; None if it is neither declared nor measured.

    Steps are converted to examples with the batch size of the model's present world.
    """
    batch = model.present.examples_per_step if model is not None else None
    steps = question.steps or document.steps
    if question.examples is not None:
        exact, basis = question.examples, f"{number(question.examples)} examples as asked"
        return _said(exact, basis) if batch is not None else None
    if steps is not None and question.examples_per_epoch is None:
        said = _said(steps * (batch or 1.0), f"{count(steps, 'step')} as declared")
        return replace(said, in_steps=True)
    if question.examples_per_epoch is not None and document.epochs:
        exact = document.epochs * question.examples_per_epoch
        basis = f"{count(document.epochs, 'epoch')} of {number(question.examples_per_epoch)}"
        return _said(exact, f"{basis} examples") if batch is not None else None
    return _as_before(document, alike, batch)


def _said(amount: float, basis: str) -> Work:
    return Work(amount=Band(value=amount, low=amount, high=amount), basis=basis)


def _as_before(
    document: JobDocument, alike: Sequence[Neighbour], batch: float | None
) -> Work | None:
    """Return the work of similar jobs that ended well, scaled by epochs if both declare them."""
    found = []
    for one in alike:
        done = _done(one.past, batch is None)
        if done is not None:
            epochs = (document.epochs, one.past.epochs)
            found.append(done * (epochs[0] / epochs[1] if epochs[0] and epochs[1] else 1.0))
    if not found:
        return None
    middle = median(found)
    misses = sum(math.log(amount / middle) ** 2 for amount in found)
    factor = math.exp(Z90 * math.sqrt((_WORK**2 + misses) / (1 + len(found))))
    band = Band(value=middle, low=middle / factor, high=middle * factor)
    runs = count(len(found), "similar job")
    return Work(amount=band, basis=f"as much as {runs} did, to within {ratio(factor)}")


def _done(past: Past, in_steps: bool) -> float | None:
    """Return the work of a job that ended well, in steps or in examples; None if unknown."""
    if not past.succeeded or not past.steps:
        return None
    batch = past.points[-1].examples_per_step if past.points else None
    if in_steps:
        return past.steps
    return None if batch is None else past.steps * batch
