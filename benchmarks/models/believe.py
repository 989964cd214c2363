"""Runs a checkout's own ``brain.models.job`` on problems, from standard input to standard output.

    PYTHONPATH=CHECKOUT python -P benchmarks/models/believe.py < problems.json > beliefs.json

So the same program asks two commits the same questions. It passes only arguments that the checkout
knows: a checkout without data waits gets none. Forecasts are made from world to world, as in the
service.
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from brain.errors import Undetermined
from brain.models import terms as terms_module
from brain.models.fitting import Point
from brain.models.job import JobModel
from brain.models.job_fit import fit
from brain.types.recommendation import Prediction

#: Expected examples per second, and the ends of their 90 % interval.
Band = tuple[float, float, float]
#: What the older commit calls it comes second.
_Terms: Any = getattr(terms_module, "SpeedTerms", None) or getattr(terms_module, "Terms", None)
_KNOWN = {field.name for field in fields(Point)}
_BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
_WORLD_SECONDS = 600.0


def main() -> None:
    """Answer every problem."""
    found = [dict(beliefs(problem)) for problem in json.load(sys.stdin)]
    json.dump(found, sys.stdout)


def beliefs(problem: Mapping[str, Any]) -> Iterator[tuple[str, list[Band | None]]]:
    """Return, after each number of points, the band of every size that is asked for; None if the
    model refuses.
    """
    terms = _Terms(global_batch=problem["global_batch"])
    points: list[Point] = []
    for number, given in enumerate(problem["points"], start=1):
        known = {name: value for name, value in given.items() if name in _KNOWN}
        until = _BEGIN + timedelta(seconds=number * _WORLD_SECONDS)
        present = Point(**known, until=until)
        points.append(replace(present, foretold=_foretold(points, present, terms)))
        if (asked := problem["asked"].get(str(number))) is not None:
            model = fit(points[-1], points[:-1], terms=terms)
            yield str(number), [_band(model, *size) for size in asked]


def _foretold(points: Sequence[Point], present: Point, terms: Any) -> Prediction | None:
    """Return a forecast whose band is not widened yet."""
    bare = [replace(point, foretold=None) for point in points]
    model = fit(bare[-1], bare[:-1], terms=terms) if bare else None
    return None if model is None else _predicted(model, present.replicas, present.nodes)


def _predicted(model: JobModel, replicas: int, nodes: int) -> Prediction | None:
    """Return a prediction; a surprised model answers only for sizes that it has seen."""
    try:
        return model.predict(replicas, nodes=nodes)
    except Undetermined:
        return None


def _band(model: JobModel, replicas: int, nodes: int) -> Band | None:
    found = _predicted(model, replicas, nodes)
    return None if found is None else (found.examples_per_second, found.low, found.high)


if __name__ == "__main__":
    main()
