"""Processor, memory and device memory: what is given, and what is not believed."""

import math

import numpy as np
import pytest

from brain.errors import Undetermined
from brain.models.resources import cpu, host_memory
from brain.models.resources.gpu_memory import DeviceMemory

GIB = 2**30
DAY = 24 * 3600.0


def used(*millis: float) -> cpu.CpuUsage:
    return cpu.CpuUsage().added(millis, at_seconds=0)


def test_a_quantile_is_no_more_than_a_bucket_above_what_was_used():
    usage = used(*range(100, 1100, 100))
    assert 900 <= usage.quantile(0.9) <= 900 * 1.05


def test_after_a_half_life_old_use_counts_half():
    usage = used(*[1000.0] * 3).added([100.0], at_seconds=DAY)
    # 1.5 against 1: the old is still the median; two half-lives later it is not.
    assert usage.quantile(0.5) >= 1000
    assert usage.added([100.0], at_seconds=2 * DAY).quantile(0.5) < 110


def test_weights_do_not_overflow_over_a_year():
    usage = used(500.0)
    for day in range(365):
        usage = usage.added([500.0], at_seconds=day * DAY)
    assert sum(usage.weights) == pytest.approx(2.0, abs=0.1)


def test_what_is_no_use_is_left_out():
    assert used(math.nan, -1.0, math.inf) == cpu.CpuUsage()


def test_without_use_nothing_is_requested():
    with pytest.raises(Undetermined, match="no use was measured"):
        cpu.request(cpu.CpuUsage(), share=0.98)


def test_the_more_ranks_wait_the_rarer_one_is_throttled():
    shares = [cpu.percentile(replicas) for replicas in (1, 2, 8, 1024)]
    assert shares == sorted(shares)
    assert shares[-1] == 0.995


@pytest.mark.parametrize(
    ("present", "stays"), [(1100, True), (1400, True), (1600, False), (1000, False)]
)
def test_a_request_stays_while_it_is_near(present: float, stays: bool):
    # Use of 1000 with its margin is about 1170.
    assert (cpu.request(used(*[1000.0] * 20), share=0.98, present=present) == present) is stays


def test_a_request_that_is_far_too_large_falls():
    assert cpu.request(used(*[1000.0] * 20), share=0.98, present=4000) < 1300


def test_a_recent_peak_is_covered():
    usage = used(*[100.0] * 1000, 900.0)
    assert cpu.request(usage, share=0.95, recent_peak=900.0) == 900.0


def test_use_at_its_limit_says_nothing_of_the_need_and_is_raised():
    usage = used(*[980.0] * 20)
    assert cpu.censored(usage, limit_millis=1000)
    assert cpu.raised(1000) == 1500
    assert cpu.raised(1000, loader=4000) == 4000


def test_throttling_hides_the_need_even_below_the_limit():
    assert cpu.censored(used(*[500.0] * 20), limit_millis=1000, throttled_share=0.06)


def test_a_loader_that_takes_twice_as_long_as_the_device_needs_more_than_twice_the_processor():
    given = {"used_millis": 1000, "idle_millis": 0, "device_seconds": 0.5}
    assert cpu.loader_millis(step_seconds=1.0, **given) == pytest.approx(1000 * 2 / 0.85)


def test_one_sign_is_not_enough_to_call_a_job_bound_by_its_loader():
    assert not cpu.loader_bound(cpu.LoaderSigns(data_wait_share=0.3))
    assert cpu.loader_bound(cpu.LoaderSigns(data_wait_share=0.3, censored=True))


def test_memory_that_rises_every_hour_leaks_and_its_end_is_told():
    found = host_memory.growth([GIB * (4 + hour) for hour in range(6)], limit_bytes=16 * GIB)
    assert found.significant
    assert found.bytes_per_second == pytest.approx(GIB / 3600)


def test_memory_that_goes_up_and_down_does_not_leak():
    found = host_memory.growth([4, 5, 4.2, 4.9, 4.1, 5.1], limit_bytes=16)
    assert not found.significant


def test_one_peak_among_flat_hours_is_no_growth():
    assert not host_memory.growth([4, 4, 9, 4, 4, 4], limit_bytes=16).significant


def test_three_hours_are_too_few_to_judge():
    with pytest.raises(Undetermined, match="four are needed"):
        host_memory.growth([1, 2, 3], limit_bytes=16)


def test_what_ran_out_gets_at_least_a_tenth_of_a_gib_more():
    assert host_memory.raised(2**20, growing=False) == 2**20 + 100 * 2**20


def test_a_peak_above_the_limit_counts_more_than_the_limit():
    assert host_memory.raised(1e9, peak_bytes=3e9, growing=False) == pytest.approx(3.6e9)


def test_two_exact_peaks_give_the_line_back():
    model = DeviceMemory().fit([[8], [32]], [6 * GIB, 12 * GIB])
    assert model.predict([[64]])[0] == pytest.approx(20 * GIB, rel=0.05)


def test_one_peak_with_the_reading_before_the_first_step_is_enough():
    model = DeviceMemory(fixed_bytes=4 * GIB).fit([[8]], [6 * GIB])
    mean, spread = model.predict([[16]], return_std=True)
    assert mean[0] == pytest.approx(8 * GIB, rel=0.05)
    assert spread[0] < 0.1 * mean[0]


def test_one_peak_alone_is_exact_where_it_was_and_wide_elsewhere():
    model = DeviceMemory().fit([[8]], [6 * GIB])
    mean, spread = model.predict([[8], [64]], return_std=True)
    assert mean[0] == pytest.approx(6 * GIB, rel=0.02)
    assert spread[1] / mean[1] > 5 * spread[0] / mean[0]


def test_a_failure_raises_what_is_expected():
    seen = [[8], [32]], [6 * GIB, 9 * GIB]
    free = DeviceMemory().fit(*seen)
    failed = DeviceMemory().fit([[8], [32], [64]], [6 * GIB, 9 * GIB, 16 * GIB], [0, 0, 1])
    assert failed.predict([[64]])[0] > free.predict([[64]])[0]


def test_a_batch_that_failed_is_never_tried_again():
    model = DeviceMemory().fit([[8], [16], [24]], [3 * GIB, 4 * GIB, 16 * GIB], [0, 0, 1])
    assert model.largest(16 * GIB) < 24 / 1.1


def test_a_batch_is_raised_by_half_at_most_while_little_is_known():
    assert DeviceMemory().fit([[8]], [4 * GIB]).largest(16 * GIB) <= 12


def test_a_known_line_is_used_up_to_the_head_room():
    batches = [[size] for size in (8, 16, 32, 64, 128)]
    model = DeviceMemory().fit(batches, [GIB * (2 + size[0] / 16) for size in batches])
    largest = model.largest(24 * GIB)
    assert 240 <= largest <= 0.92 * 24 * 16
    assert model.predict([[largest]])[0] < 0.92 * 24 * GIB


def test_truth_with_noise_is_within_the_band():
    rng, inside = np.random.default_rng(5), 0
    for _ in range(60):
        fixed, each = rng.uniform(1, 8) * GIB, rng.uniform(0.02, 0.3) * GIB
        batches = rng.choice([4, 8, 16, 24, 32], size=3, replace=False)
        peaks = (fixed + each * batches) * (1 + 0.03 * rng.standard_normal(3))
        model = DeviceMemory().fit(batches[:, None], peaks)
        mean, spread = model.predict([[48]], return_std=True)
        inside += abs(fixed + each * 48 - mean[0]) < 1.645 * spread[0]
    assert inside / 60 > 0.8


def test_nothing_seen_is_refused_with_what_to_do():
    with pytest.raises(Undetermined, match="run a step"):
        DeviceMemory().fit(np.empty((0, 1)), [])


@pytest.mark.parametrize("peak", [0.0, -1.0, math.nan])
def test_peaks_that_are_none_are_refused(peak: float):
    with pytest.raises(ValueError, match="positive number of bytes"):
        DeviceMemory().fit([[8]], [peak])


def test_it_is_cloned_as_scikit_learn_means_it():
    from sklearn.base import clone

    assert clone(DeviceMemory(fixed_bytes=3.0)).get_params() == {
        "fixed_bytes": 3.0,
        "example_bytes": None,
    }
