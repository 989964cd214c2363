"""What was believed of a world before it was measured."""

from collections.abc import Sequence
from dataclasses import replace

from brain.errors import Undetermined
from brain.models.earlier import EarlierRun
from brain.models.fitting import Point
from brain.models.goodput import rate
from brain.models.job import fit
from brain.models.terms import Batching, Terms, configuration
from brain.types.recommendation import Prediction


def foretell(
    point: Point,
    earlier: Sequence[Point],
    *,
    terms: Terms | None = None,
    runs: Sequence[EarlierRun] = (),
) -> Prediction | None:
    """What worlds ``earlier`` made believe of ``point``, in a band that nothing has widened yet."""
    known = [replace(one, foretold=None) for one in earlier]
    if not known:
        return None
    try:
        model = fit(known[-1], known[:-1], terms=terms, runs=runs)
        found = model.predict(point.replicas, nodes=point.nodes, accelerator=point.accelerator)
        if model.batching is not Batching.TOLD:
            return found
        # Of the batch that it made, not of the one that would be best.
        made = rate(model.times.on(point.accelerator), configuration(point, model.terms))
    except Undetermined:
        return None
    shared = model.terms.shared
    return Prediction(
        examples_per_second=made.examples_per_second * shared,
        low=made.low * shared,
        high=made.high * shared,
        exploring=found.exploring,
    )
