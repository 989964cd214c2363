"""The whole estimate, with a sentence for each unknown value that says how to measure the value."""

from collections.abc import Sequence

from brain.errors import BadInput, Undetermined
from brain.models.estimate import pooled
from brain.models.estimate.choice import choose
from brain.models.estimate.needs import Needs
from brain.models.estimate.past import Neighbour, Past, PoolCapacity, nearest, script_of
from brain.models.estimate.sizes import PriceList, SizeQuestion, sizes
from brain.models.job import JobModel
from brain.models.terms import SAME_BATCH, terms_of
from brain.types.estimate import Estimate, EstimateQuestion, SimilarJob, SizeEstimate
from brain.types.job import JobDocument
from brain.typeset import count, number, percent

#: Numbers of a question; each must be above 0 if it is given.
_FIGURES = (
    "steps",
    "examples",
    "examples_per_epoch",
    "deadline_seconds",
    "budget",
    "accelerator_hours",
)
_PROBE = "`brain estimate --probe` measures the script for two minutes"


def estimate(
    document: JobDocument,
    question: EstimateQuestion,
    pasts: Sequence[Past],
    rooms: Sequence[PoolCapacity],
    market: PriceList,
    *,
    owner: str,
) -> Estimate:
    """Estimate the needs of a job.

    Args:
        document: The checked document of the job.
        question: Fields of the request other than the document.
        pasts: Jobs that ran, newest first; only similar jobs count.
        rooms: Capacity of each kind of accelerator that the job may use.
        market: Prices of accelerators.
        owner: The person who asks.

    Raises:
        BadInput: the work is given twice, or a number is not above 0; the error names the field.
    """
    check(question)
    neighbours = nearest(script_of(document, owner), pasts)
    alike = [one for one in neighbours if one.alike]
    model, unknown = _model(document, alike)
    work = pooled.work(document, question, alike, model)
    # Without any similar job the owner's other jobs are a better guess than none (section 3.5).
    used = alike or neighbours
    needs = Needs([one for one in used if not one.past.failed] or used)
    asked = SizeQuestion(document=document, model=model, needs=needs, work=work, market=market)
    unit = model.unit if model is not None else "examples/s"
    rows, explanation = choose(sizes(asked, rooms), market, question, unit)
    return Estimate(
        name=document.name,
        unit=unit,
        currency=market.currency,
        basis=_basis(model, alike),
        similar=tuple(_shown(one) for one in neighbours),
        work=work,
        sizes=tuple(rows),
        explanation=explanation,
        missing=tuple(_missing(asked, unknown, question, rows, rooms)),
        exploring=model is None,
    )


def check(question: EstimateQuestion) -> None:
    """Check that the fields of the question are possible and do not contradict each other.

    Raises:
        BadInput: the error names the field.
    """
    if question.steps is not None and question.examples is not None:
        raise BadInput(
            "steps and examples both give the length; give only one of them", field="steps"
        )
    for name in _FIGURES:
        value = getattr(question, name)
        # NaN is not above 0 either.
        if value is not None and not 0 < value < float("inf"):
            raise BadInput(f"{name} {value} must be above 0, and finite", field=name)
    for kind, price in question.prices.items():
        if not 0 <= price < float("inf"):
            raise BadInput(
                f"prices.{kind} {price} must be 0 or more, and finite", field=f"prices.{kind}"
            )


def _model(
    document: JobDocument, alike: Sequence[Neighbour]
) -> tuple[JobModel | None, Undetermined | None]:
    try:
        return pooled.pooled(alike, terms_of(document)), None
    except Undetermined as unknown:
        return None, unknown


def _basis(model: JobModel | None, alike: Sequence[Neighbour]) -> str:
    if model is None:
        return "defaults: no similar job was measured"
    used = [one for one in alike if one.past.points]
    names = ", ".join(dict.fromkeys(one.past.name for one in used[:3]))
    more = f" and {len(used) - 3} more" if len(used) > 3 else ""
    return f"{model.basis}, in {count(len(used), 'similar job')}: {names}{more}"


def _shown(one: Neighbour) -> SimilarJob:
    return SimilarJob(
        job=one.past.job, name=one.past.name, likeness=round(one.likeness, 3), same=one.same
    )


def _missing(
    asked: SizeQuestion,
    unknown: Undetermined | None,
    question: EstimateQuestion,
    rows: Sequence[SizeEstimate],
    rooms: Sequence[PoolCapacity],
) -> list[str]:
    """Return one sentence for each unknown, with the way to measure it."""
    found = []
    if unknown is not None:
        found.append(
            f"Throughput: {unknown}. {_PROBE}; or submit the job, and repeat the estimate after "
            "a minute."
        )
    if asked.model is not None and asked.work is None:
        found.append(_no_work(asked, question))
    if asked.model is not None and _other_batch(asked.model, asked.document):
        found.append(
            f"Batch: the similar jobs trained with {number(asked.model.present.examples_per_step)} "
            f"examples a step, but this job declares {asked.document.batch.global_size}; {_PROBE}."
        )
    unpriced = [room.accelerator for room in rooms if asked.market.price(room.accelerator) is None]
    if unpriced:
        kinds = ", ".join(unpriced)
        found.append(
            f"Cost: no hourly price is known for {kinds}; give --price {unpriced[0]}=…, or "
            "set accelerator_prices."
        )
    if leaky := asked.needs.leaky:
        found.append(f"Memory: {', '.join(leaky)} leaked memory, so their memory use is left out.")
    if starved := asked.needs.starved:
        found.append(
            f"Loading: similar jobs waited for data during {percent(starved)} of each step while "
            "their CPUs were fully used; give each replica more CPUs and loader workers before you "
            "add replicas."
        )
    found += _untried(asked, rows)
    if not rooms:
        found.append(
            "Sizes: no node has registered yet; `brain up` registers its machine within seconds."
        )
    elif asked.model is not None and not asked.needs.gradients_measured:
        found += _network(rows)
    return found


def _no_work(asked: SizeQuestion, question: EstimateQuestion) -> str:
    """Return the reason why the estimate has no time to finish."""
    assert asked.model is not None, "called only if the throughput is known and the work is not"
    if asked.model.present.examples_per_step is None and question.examples is not None:
        return (
            "Time: the batch size is unknown, so the number of examples is unknown, "
            "too; give --steps."
        )
    return (
        "Time: the document declares no `steps` and no similar job succeeded; give --steps, "
        "--examples, or `epochs` with --examples-per-epoch."
    )


def _other_batch(model: JobModel, document: JobDocument) -> bool:
    declared, seen = document.batch.global_size, model.present.examples_per_step
    if declared is None or seen is None:
        return False
    return abs(declared - seen) > SAME_BATCH * seen


def _untried(asked: SizeQuestion, rows: Sequence[SizeEstimate]) -> list[str]:
    """Return one sentence for each kind that was never measured."""
    if asked.model is None:
        return []
    kinds = dict.fromkeys(row.accelerator for row in rows)
    return [
        f"{kind}: {rows_of[0].undetermined}."
        for kind in kinds
        if (rows_of := [row for row in rows if row.accelerator == kind])
        and all(row.undetermined for row in rows_of)
    ]


def _network(rows: Sequence[SizeEstimate]) -> list[str]:
    spread = [row for row in rows if row.nodes > 1 and row.throughput is not None]
    if not spread:
        return []
    known = any(row.network_bytes_per_second is not None for row in spread)
    said = "taken from the size of the checkpoint" if known else "not known"
    return [f"Network: no similar job ran across several nodes; the gradient traffic is {said}."]
