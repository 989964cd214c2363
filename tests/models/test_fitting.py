"""From samples to a measured point."""

import re
from random import Random

import pytest

from brain.errors import Undetermined
from brain.models.fitting import measure
from brain.types.telemetry import Phase, ThroughputSample
from tests.builders import throughput


def windows(count: int, *, rank: int = 0, **fields: object) -> list[ThroughputSample]:
    return [throughput(i, rank=rank, **fields) for i in range(count)]


def point(samples: list[ThroughputSample]):
    return measure(samples, minimum_steps=30, spread_limit=0.05)


def test_examples_per_second_are_the_sum_of_the_workers_over_the_slowest_rank():
    fast = windows(6, rank=0, processes=2, replicas=2, step_seconds=0.1)
    slow = windows(6, rank=1, processes=2, replicas=2, step_seconds=0.2)

    assert point(fast + slow).rate == pytest.approx((32 + 32) / 0.2)


def test_accumulation_counts_every_micro_batch():
    assert point(windows(6, accumulation=4)).examples_per_step == 128


def test_without_a_batch_size_the_rate_is_in_steps():
    found = point(windows(6, local_batch=None))

    assert (found.examples_per_step, found.rate) == (None, pytest.approx(10.0))


def test_a_short_last_batch_of_an_epoch_does_not_count():
    samples = [*windows(9), throughput(9, local_batch=5, steps=1)]

    assert point(samples).examples_per_step == 32


def test_warm_up_evaluation_and_checkpoint_are_not_fitted():
    noise = [
        throughput(i, phase=phase, step_seconds=9.0)
        for i, phase in enumerate([Phase.WARMUP, Phase.EVALUATION, Phase.CHECKPOINT])
    ]

    assert point([*noise, *windows(6)]).step_seconds == pytest.approx(0.1)


def test_a_burst_of_slow_steps_does_not_move_the_median():
    samples = [*windows(20), *(throughput(20 + i, step_seconds=3.0) for i in range(4))]

    assert point(samples).step_seconds == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("samples", "code"),
    [
        pytest.param([], "no-steps", id="nothing"),
        pytest.param(windows(6, phase=Phase.WARMUP), "no-steps", id="warm-up only"),
        pytest.param(windows(6, steps=4), "too-few-steps", id="24 steps of 30"),
        pytest.param(windows(2, steps=100), "too-few-steps", id="two windows tell no spread"),
        pytest.param(windows(6, processes=2), "too-few-steps", id="one of two ranks"),
        pytest.param(
            [throughput(i, step_seconds=0.1 * (1 + i % 3)) for i in range(6)],
            "scattered",
            id="scattered",
        ),
    ],
)
def test_what_is_not_measured_says_why(samples: list[ThroughputSample], code: str):
    with pytest.raises(Undetermined) as said:
        point(samples)

    assert said.value.code == code


def test_how_far_a_median_is_known_is_never_told_as_what_is_needed():
    samples = [throughput(i, step_seconds=0.1 * (1 + i % 3 / 20)) for i in range(12)]
    known = measure(samples, minimum_steps=30, spread_limit=1.0).relative_error

    with pytest.raises(Undetermined) as said:
        measure(samples, minimum_steps=30, spread_limit=round(known, 4) - 1e-4)

    told = re.search(r"known to within (\S+) %, but (\S+) % is needed", str(said.value))
    assert told is not None
    assert float(told[1]) > float(told[2])


def test_worlds_are_never_mixed():
    with pytest.raises(ValueError, match="different worlds"):
        point([*windows(6), throughput(9, epoch=2)])


def test_the_stated_interval_holds_the_truth_nine_times_in_ten():
    random, inside = Random(3), 0
    for _ in range(400):
        samples = [
            throughput(i, steps=5, step_seconds=0.1 * random.lognormvariate(0, 0.1))
            for i in range(40)
        ]
        measured = point(samples).measured
        inside += measured.low <= 320 <= measured.high

    assert 0.84 <= inside / 400 <= 0.96
