"""What sampled gradients say of a job, from samples to the point that models are fitted to."""

import pytest

from brain.errors import Undetermined
from brain.models.efficiency import NoiseScale
from brain.models.fitting import Point
from tests.virtual import Laptop, scaling_by

#: Gradients of 32 examples against those of 64: a noise scale of 64 examples.
NORMS = {
    **{"gns_steps": 3, "gns_small_batch": 32, "gns_small_square": 6.0},
    **{"gns_big_batch": 64, "gns_big_square": 4.0},
}


def measured(**also: object) -> Laptop:
    """A job of two replicas that was measured for a minute, with more than its steps."""
    laptop = Laptop(scaling_by(0.9), cpus=2).start()
    laptop.live(60)
    assert laptop.size == 2
    laptop.also = also
    laptop.live(40)
    return laptop


def test_a_measured_noise_scale_reaches_the_models() -> None:
    sight = measured(**NORMS).sight
    assert isinstance(sight.noise, NoiseScale)
    assert isinstance(sight.present, Point)
    assert sight.present.noise_scale == sight.noise.examples == pytest.approx(64.0)


def test_without_one_efficiency_is_unknown_and_the_reason_is_the_probes() -> None:
    sight = measured(gns_unavailable="parameters are sharded (FSDP or tensor parallelism)").sight
    assert isinstance(sight.present, Point)
    assert sight.present.noise_scale is None
    assert isinstance(sight.noise, Undetermined)
    assert "sharded" in str(sight.noise)


def test_what_was_measured_of_gradients_outlives_its_world() -> None:
    laptop = measured(**NORMS)
    laptop.also = {"gns_unavailable": "one worker without accumulation"}
    sight = laptop.wait(3600).train(30).sight
    assert isinstance(sight.noise, NoiseScale)
    assert sight.noise.examples == pytest.approx(64.0)


def test_the_wait_for_gradients_is_no_computing() -> None:
    point = measured(exchange_wait_seconds=0.03).sight.present
    assert isinstance(point, Point)
    assert point.compute_seconds == pytest.approx(point.step_seconds - 0.03)


def test_an_exchange_that_nobody_measured_leaves_computing_unknown() -> None:
    point = measured().sight.present
    assert isinstance(point, Point)
    assert point.compute_seconds is None
