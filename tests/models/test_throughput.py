"""The throughput model: it recovers a truth, bears noise, and knows what it cannot know."""

import csv
import math
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

from brain.errors import Undetermined
from brain.models.fitting import REPEAT, Point
from brain.models.throughput import Batching, LogLinear, Model, fit
from tests.builders import NOW

#: One node of four T4, six applications: what ``benchmarks.doublings --write`` kept of Pollux.
DOUBLINGS = Path(__file__).parent / "doublings.csv"
#: With six tasks a true coverage of 90 % comes out above this 95 times in 100.
FEW_TASKS = 0.75


def point(replicas: int, rate: float, **fields: Any) -> Point:
    """What one world of a job with a global batch of 64 achieved."""
    batch = fields.setdefault("examples_per_step", 64.0)
    made = {
        "epoch": replicas,
        "processes": replicas,
        "accelerator": "cpu",
        "step_seconds": (batch or 1.0) / rate,
        "relative_error": 0.001,
        "steps": 100,
        "last_step": 100,
        "until": NOW,
    }
    return Point(replicas=replicas, **(made | fields))


def truth(replicas: int, *, gain: float = 0.6, bend: float = -0.1) -> float:
    """A bent line in logarithms, 320 examples per second alone."""
    x = math.log2(replicas)
    return 320 * math.exp(gain * x + bend * x * (x - 1) / 2)


def model(*points: Point) -> Model:
    return fit(points[-1], points[:-1])


def test_it_recovers_a_noise_free_truth():
    seen = model(*(point(n, truth(n)) for n in (1, 2, 4, 8)))

    assert seen.predict(16).examples_per_second == pytest.approx(truth(16), rel=0.05)
    assert seen.predict(3).examples_per_second == pytest.approx(truth(3), rel=0.02)


def test_noise_moves_it_by_no_more_than_the_noise():
    random = Random(5)
    for _ in range(50):
        noisy = [point(n, truth(n) * random.lognormvariate(0, REPEAT)) for n in (1, 2, 4, 8)]
        found = model(*noisy).predict(6).examples_per_second
        assert found == pytest.approx(truth(6), rel=4 * REPEAT)


def test_a_measured_size_is_answered_by_its_measurement():
    found = model(point(1, 320.0), point(2, 500.0)).predict(2)

    assert found.examples_per_second == pytest.approx(500.0, rel=0.02)
    assert not found.exploring
    assert found.high / found.low < 1.25


def test_from_one_size_the_prior_predicts_twice_that_size_and_says_so():
    found = fit(point(1, 320.0), declared=64).predict(2)

    assert found.exploring
    assert found.examples_per_second == pytest.approx(320 * 1.34, rel=0.01)
    assert found.low < 320 < found.high


@pytest.mark.parametrize("replicas", [3, 4, 100])
def test_beyond_twice_what_was_seen_is_undetermined(replicas: int):
    with pytest.raises(Undetermined, match="measure 2 first"):
        model(point(1, 320.0)).predict(replicas)


def test_below_half_of_what_was_seen_is_undetermined():
    with pytest.raises(Undetermined, match="measure 4 first"):
        model(point(8, 320.0)).predict(3)


def test_another_accelerator_says_nothing_about_this_one():
    found = model(point(2, 9000.0, accelerator="H100"), point(1, 320.0))

    assert found.predict(2).exploring


def test_another_batch_says_nothing_about_this_one():
    found = model(point(2, 9000.0, examples_per_step=640.0), point(1, 320.0))

    assert found.predict(2).exploring


def test_a_batch_that_grows_with_the_world_is_recognised():
    found = model(point(1, 320.0), point(2, 630.0, examples_per_step=128.0))

    assert isinstance(found, LogLinear)
    assert found.batching is Batching.LOCAL


@pytest.mark.parametrize(
    ("seen", "declared", "rule"),
    [
        ([point(1, 320.0)], None, Batching.UNKNOWN),
        ([point(1, 320.0)], 64.0, Batching.GLOBAL),
        ([point(1, 5.0, examples_per_step=None)], None, Batching.GLOBAL),
        ([point(1, 320.0), point(2, 500.0)], None, Batching.GLOBAL),
    ],
)
def test_the_batch_rule_is_what_was_seen_else_what_is_declared(
    seen: list[Point], declared: float | None, rule: Batching
):
    found = fit(seen[-1], seen[:-1], declared=declared)

    assert isinstance(found, LogLinear)
    assert found.batching is rule


def measured_doublings(batching: Batching) -> list[tuple[str, float, float | None]]:
    """Pollux's tables: task, log gain of one replica to two, log gain of the next doubling."""
    name = {Batching.GLOBAL: "global", Batching.LOCAL: "local"}[batching]
    with DOUBLINGS.open() as file:
        rows = [row for row in csv.DictReader(file) if row["batching"] == name]
    return [
        (r["task"], float(r["gain"]), float(r["next_gain"]) if r["next_gain"] else None)
        for r in rows
    ]


def coverage(found: list[tuple[str, bool]]) -> float:
    """Share that is inside, every task weighing the same."""
    sizes = Counter(task for task, _ in found)
    return sum(inside / sizes[task] for task, inside in found) / len(sizes)


def predicted(batching: Batching, replicas: int, *rates: float) -> tuple[float, float]:
    """The 90 % band at ``replicas`` after sizes 1, 2, 4 … were seen at ``rates``."""
    points = tuple(point(2**i, rate) for i, rate in enumerate(rates))
    found = LogLinear(points=points, batching=batching).predict(replicas)
    return found.low, found.high


@pytest.mark.parametrize("batching", [Batching.GLOBAL, Batching.LOCAL])
def test_the_band_of_a_first_doubling_holds_nine_in_ten_of_the_measured_ones(batching: Batching):
    low, high = predicted(batching, 2, 1.0)

    found = [(t, low <= math.exp(gain) <= high) for t, gain, _ in measured_doublings(batching)]

    assert coverage(found) >= FEW_TASKS


@pytest.mark.parametrize("batching", [Batching.GLOBAL, Batching.LOCAL])
def test_so_does_the_band_of_the_next_doubling(batching: Batching):
    found = []
    for task, gain, then in measured_doublings(batching):
        if then is not None:
            low, high = predicted(batching, 4, 1.0, math.exp(gain))
            found.append((task, low <= math.exp(gain + then) <= high))

    assert coverage(found) >= FEW_TASKS
