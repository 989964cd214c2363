"""The contract of ``TelemetryStore``."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta, timezone
from typing import Any

import pytest

from brain.errors import BadInput
from brain.ports import SeriesBucket, Stores
from brain.series import METRICS
from brain.types.job import JobId
from brain.types.telemetry import (
    GpuReading,
    Phase,
    Receipt,
    ReplicaReading,
    Sample,
    StorageReading,
    TelemetryLosses,
)
from tests.builders import JOB, NOW, at, host, loss, save, throughput

GPU = GpuReading(
    index=0,
    name="L4",
    utilization=0.5,
    memory_used_bytes=6,
    memory_total_bytes=24,
    power_watts=40.0,
)

#: Gradients of 32 examples against those of 128: a noise scale of 64 examples.
NORMS: dict[str, Any] = {
    **{"gns_steps": 3, "gns_small_batch": 32, "gns_small_square": 4.0},
    **{"gns_big_batch": 128, "gns_big_square": 2.0},
}


def kept(stores: Stores, *samples: Sample, offset: float = 0.0) -> Receipt:
    """Commit samples of a sender whose clock is ``offset`` seconds behind."""
    with stores.transaction() as t:
        return t.telemetry.add(samples, received_at=NOW, offset_seconds=offset)


def drawn(
    stores: Stores, metric: str, *, seconds: float = 60, points: int = 1
) -> Sequence[SeriesBucket]:
    """A series from NOW on."""
    with stores.transaction() as t:
        return t.telemetry.series(JOB, metric, since=NOW, until=at(seconds), points=points)


def retired(
    stores: Stores, raw_before: float, means_before: float = -1e6, hours_before: float = -1e6
) -> int:
    """Retire, in seconds from NOW."""
    with stores.transaction() as t:
        return t.telemetry.retire(
            raw_before=at(raw_before), means_before=at(means_before), hours_before=at(hours_before)
        )


class TestTelemetryStore:
    def test_returns_every_field_as_it_was_given(self, stores: Stores) -> None:
        unseen = throughput(0, local_batch=None, examples_per_second=None, phase=Phase.WARMUP)
        own = ReplicaReading(replica=3, cpu_millis=200, memory_bytes=2**33)
        group = {"replica_memory_bytes": 2**33, "throttled_share": 0.25, "replica_readings": (own,)}
        space = StorageReading(
            shm_used_bytes=1,
            shm_capacity_bytes=64 << 20,
            scratch_used_bytes=2,
            scratch_capacity_bytes=1 << 40,
            io_stalled_share=0.25,
        )
        unavailable = ("disk: no counters",)
        machine = host(0, gpus=(GPU,), storage=space, unavailable=unavailable, **group)
        compared = throughput(
            1, exchange_wait_seconds=0.01, gns_unavailable="FSDP", sharded_bytes=2**33, **NORMS
        )
        kept(stores, unseen, compared, save(), machine)
        with stores.transaction() as t:
            assert t.telemetry.throughput(JOB, since=NOW) == [unseen, compared]
            assert t.telemetry.saves(JOB, since=NOW) == [save()]
            assert t.telemetry.hosts(JOB, since=NOW) == [machine]

    def test_absorbs_what_it_knows(self, stores: Stores) -> None:
        kept(stores, throughput(0), host(0))
        receipt = kept(stores, throughput(0), throughput(1), host(0), save(2), loss(3, sequence=4))
        assert receipt == Receipt(stored=3, duplicates=2)

    def test_absorbs_duplicates_within_a_batch(self, stores: Stores) -> None:
        receipt = kept(stores, throughput(0), throughput(0), throughput(0))
        assert receipt == Receipt(stored=1, duplicates=2)

    def test_keeps_the_first_of_two_that_share_an_identity(self, stores: Stores) -> None:
        kept(stores, throughput(0))
        kept(stores, throughput(0, step_seconds=9.0))
        with stores.transaction() as t:
            assert t.telemetry.throughput(JOB, since=NOW) == [throughput(0)]

    def test_takes_an_empty_batch(self, stores: Stores) -> None:
        assert kept(stores) == Receipt(stored=0, duplicates=0)

    def test_sorts_samples_that_came_late(self, stores: Stores) -> None:
        kept(stores, throughput(2), throughput(0, rank=1))
        kept(stores, throughput(0), throughput(1))
        with stores.transaction() as t:
            found = t.telemetry.throughput(JOB, since=NOW)
        seen = [(each.sequence, each.place.rank) for each in found]
        assert seen == [(0, 0), (0, 1), (1, 0), (2, 0)]

    def test_begins_at_the_instant_asked_for(self, stores: Stores) -> None:
        kept(stores, *(throughput(n) for n in range(3)), *(host(n) for n in range(3)))
        elsewhere = at(1).astimezone(timezone(timedelta(hours=5)))
        with stores.transaction() as t:
            found = t.telemetry.throughput(JOB, since=elsewhere)
            assert [each.sequence for each in found] == [1, 2]
            assert [each.sequence for each in t.telemetry.hosts(JOB, since=at(2))] == [2]

    def test_says_when_the_newest_was_measured(self, stores: Stores) -> None:
        kept(stores, throughput(3), throughput(1), host(5))
        with stores.transaction() as t:
            assert t.telemetry.newest(JOB) == at(3)
            assert t.telemetry.newest(JobId("another")) is None

    def test_mixes_neither_jobs_nor_epochs(self, stores: Stores) -> None:
        kept(
            stores, throughput(0), throughput(1, epoch=2), throughput(2, job="another", source="x")
        )
        with stores.transaction() as t:
            assert t.telemetry.throughput(JOB, since=NOW, epoch=2) == [throughput(1, epoch=2)]
            assert len(t.telemetry.throughput(JOB, since=NOW)) == 2

    def test_stores_a_batch_larger_than_one_statement_can_carry(self, stores: Stores) -> None:
        receipt = kept(stores, *(throughput(n) for n in range(3000)))
        assert receipt == Receipt(stored=3000, duplicates=0)


class TestInstants:
    @pytest.mark.parametrize("offset", [600.0, -600.0])
    def test_are_those_of_service_time(self, stores: Stores, offset: float) -> None:
        off = at(-offset)
        kept(stores, throughput(measured_at=off), save(measured_at=off), offset=offset)
        kept(stores, host(measured_at=off), offset=offset)
        with stores.transaction() as t:
            assert t.telemetry.throughput(JOB, since=NOW) == [throughput()]
            assert t.telemetry.saves(JOB, since=NOW) == [save()]
            assert t.telemetry.hosts(JOB, since=NOW) == [host()]
            assert not t.telemetry.throughput(JOB, since=at(0.001))

    def test_are_left_where_latency_explains_the_offset(self, stores: Stores) -> None:
        kept(stores, throughput(0), offset=0.9)
        with stores.transaction() as t:
            assert t.telemetry.throughput(JOB, since=NOW) == [throughput(0)]

    def test_know_samples_again_after_the_clock_was_set(self, stores: Stores) -> None:
        behind = [throughput(n, measured_at=at(n - 600)) for n in range(2)]
        kept(stores, *behind, offset=600.0)
        receipt = kept(stores, *behind, throughput(2), offset=0.01)
        with stores.transaction() as t:
            found = t.telemetry.throughput(JOB, since=NOW)
        assert (receipt.stored, receipt.duplicates) == (1, 2)
        assert found == [throughput(n) for n in range(3)]

    def test_sort_workers_whose_clocks_differ(self, stores: Stores) -> None:
        kept(stores, *(throughput(n, measured_at=at(n - 600)) for n in range(3)), offset=600.0)
        kept(stores, *(throughput(n, rank=1) for n in range(3)))
        with stores.transaction() as t:
            found = t.telemetry.throughput(JOB, since=NOW)
        seen = [(each.sequence, each.place.rank) for each in found]
        assert seen == [(n, rank) for n in range(3) for rank in range(2)]

    @pytest.mark.parametrize("offsets", [(600.4, 600.0), (5.0, 0.0), (0.0, 5.0), (1.2, 0.8)])
    def test_rise_however_offsets_change(
        self, stores: Stores, offsets: tuple[float, float]
    ) -> None:
        for batch, offset in enumerate(offsets):
            some = [throughput(n, measured_at=at(n / 100)) for n in range(3 * batch, 3 * batch + 3)]
            kept(stores, *some, offset=offset)
        with stores.transaction() as t:
            found = t.telemetry.throughput(JOB, since=NOW)
        assert [each.sequence for each in found] == list(range(6))
        assert len({each.measured_at for each in found}) == 6

    def test_are_what_is_retired_and_drawn_by(self, stores: Stores) -> None:
        kept(stores, throughput(0, measured_at=at(-600)), offset=600.0)
        assert retired(stores, raw_before=0) == 0
        before = drawn(stores, "replicas")
        assert retired(stores, raw_before=1) == 1
        assert [point.at for point in before] == [NOW]
        assert drawn(stores, "replicas") == before


class TestLosses:
    def test_are_none_of_a_job_never_heard_of(self, stores: Stores) -> None:
        with stores.transaction() as t:
            assert t.telemetry.losses(JOB) == TelemetryLosses(gaps=0, dropped=0)

    def test_count_the_numbers_missing_of_each_source(self, stores: Stores) -> None:
        kept(stores, throughput(0), throughput(4), throughput(2, rank=1))
        with stores.transaction() as t:
            assert t.telemetry.losses(JOB) == TelemetryLosses(gaps=3 + 2, dropped=0)

    def test_count_all_kinds_of_a_source_together(self, stores: Stores) -> None:
        kept(stores, throughput(0), save(1), throughput(2), loss(7, sequence=3))
        with stores.transaction() as t:
            assert t.telemetry.losses(JOB) == TelemetryLosses(gaps=0, dropped=7)

    def test_close_when_the_missing_ones_arrive(self, stores: Stores) -> None:
        kept(stores, throughput(0), throughput(2))
        kept(stores, throughput(1), throughput(2))
        with stores.transaction() as t:
            assert t.telemetry.losses(JOB).gaps == 0

    def test_stay_known_when_the_samples_retired(self, stores: Stores) -> None:
        kept(stores, throughput(0), throughput(3), loss(1, sequence=4))
        retired(stores, raw_before=1000)
        with stores.transaction() as t:
            assert t.telemetry.losses(JOB) == TelemetryLosses(gaps=1, dropped=1)

    def test_count_a_reported_sample_that_left_a_gap_once(self, stores: Stores) -> None:
        kept(stores, throughput(0), throughput(33), loss(32, sequence=0, source="collector"))
        with stores.transaction() as t:
            assert t.telemetry.losses(JOB) == TelemetryLosses(gaps=0, dropped=32)


class TestSeries:
    def test_refuses_a_metric_that_is_none(self, stores: Stores) -> None:
        with pytest.raises(BadInput, match="examples_per_second"):
            drawn(stores, "speed")

    def test_refuses_less_than_one_point(self, stores: Stores) -> None:
        with pytest.raises(BadInput, match="points 0"):
            drawn(stores, "replicas", points=0)

    def test_leaves_empty_buckets_out(self, stores: Stores) -> None:
        kept(stores, throughput(0), throughput(25))
        assert [point.at for point in drawn(stores, "step_seconds", points=6)] == [NOW, at(20)]

    def test_joins_what_falls_into_one_bucket(self, stores: Stores) -> None:
        kept(stores, throughput(0, step_seconds=0.1), throughput(1, step_seconds=0.3))
        (point,) = drawn(stores, "step_seconds")
        assert (point.at, point.low, point.high) == (NOW, 0.1, 0.3)
        assert point.mean == pytest.approx(0.2)

    def test_keeps_to_the_stretch_asked_for(self, stores: Stores) -> None:
        kept(stores, throughput(-1), throughput(0), throughput(59), throughput(60))
        (point,) = drawn(stores, "replicas")
        assert point.at == NOW
        assert len(drawn(stores, "replicas", seconds=61, points=61)) == 3

    def test_sums_examples_over_the_workers_of_a_world(self, stores: Stores) -> None:
        of_two = [
            throughput(0, rank=rank, processes=2, examples_per_second=100.0 * (rank + 1))
            for rank in range(2)
        ]
        kept(stores, *of_two)
        (point,) = drawn(stores, "examples_per_second")
        assert point.mean == pytest.approx(300)

    def test_does_not_halve_a_world_when_one_worker_was_not_heard(self, stores: Stores) -> None:
        kept(stores, throughput(0, processes=2, examples_per_second=100.0))
        (point,) = drawn(stores, "examples_per_second")
        assert point.mean == pytest.approx(200)

    def test_weighs_worlds_by_how_long_they_were_seen(self, stores: Stores) -> None:
        small = [throughput(n, examples_per_second=100.0) for n in range(3)]
        large = [
            throughput(3, rank=rank, source=f"b{rank}", epoch=2, processes=2, replicas=2)
            for rank in range(2)
        ]
        kept(stores, *small, *(replace(each, examples_per_second=100.0) for each in large))
        (point,) = drawn(stores, "examples_per_second")
        assert point.mean == pytest.approx((3 * 100 + 1 * 200) / 4)

    def test_counts_steps_where_no_batch_size_is_known(self, stores: Stores) -> None:
        kept(stores, throughput(0, processes=2, examples_per_second=None))
        (point,) = drawn(stores, "examples_per_second")
        assert point.mean == pytest.approx(2 * 10)

    def test_counts_only_training(self, stores: Stores) -> None:
        kept(stores, throughput(0, phase=Phase.WARMUP), throughput(1, phase=Phase.CHECKPOINT))
        assert not drawn(stores, "steps_per_second")
        assert drawn(stores, "replicas")

    def test_ignores_a_window_that_lasted_no_time(self, stores: Stores) -> None:
        kept(stores, throughput(0, step_seconds_mean=0.0), throughput(1, steps=0))
        assert not drawn(stores, "steps_per_second")

    @pytest.mark.parametrize(
        ("metric", "expected"),
        [
            ("steps_per_second", 10),
            ("step_seconds", 0.1),
            ("data_wait_share", 0.2),
            ("exchange_wait_share", 0.25),
            ("gradient_square", 4 / 3),
            ("gradient_variance", 256 / 3),
            ("examples_per_second", 320),
            ("replicas", 1),
            ("cpu_share", 0.5),
            ("memory_share", 0.5),
            ("gpu_share", 0.5),
            ("gpu_memory_share", 0.25),
        ],
    )
    def test_measures(self, stores: Stores, metric: str, expected: float) -> None:
        kept(stores, throughput(0, exchange_wait_seconds=0.025, **NORMS), host(0, gpus=(GPU,)))
        (point,) = drawn(stores, metric)
        assert (point.mean, point.low, point.high) == pytest.approx((expected,) * 3)

    def test_weighs_gradients_by_the_steps_behind_them(self, stores: Stores) -> None:
        few, many = NORMS | {"gns_steps": 1}, NORMS | {"gns_steps": 3, "gns_big_square": 3.0}
        kept(stores, throughput(0, **few), throughput(1, **many), throughput(2))
        (point,) = drawn(stores, "gradient_square")
        assert point.mean == pytest.approx((4 / 3 + 3 * 8 / 3) / 4)

    def test_has_no_gpu_share_where_there_is_no_gpu(self, stores: Stores) -> None:
        kept(stores, host(0, cpu_capacity_millis=0))
        assert not any(drawn(stores, metric) for metric in ("gpu_share", "cpu_share"))


class TestRetire:
    def test_tells_how_many_rows_went(self, stores: Stores) -> None:
        kept(stores, *(throughput(n) for n in range(3)), host(0), loss(1, sequence=9), save(0))
        assert retired(stores, raw_before=2) == 2 + 1
        assert retired(stores, raw_before=2) == 0

    @pytest.mark.parametrize("metric", METRICS)
    def test_leaves_series_as_they_were(self, stores: Stores, metric: str) -> None:
        kept(stores, *(throughput(n, step_seconds=0.1 + n / 1000, **NORMS) for n in range(180)))
        kept(stores, *(host(n, job_cpu_millis=n, gpus=(GPU,)) for n in range(180)))
        before = drawn(stores, metric, seconds=180, points=3)
        retired(stores, raw_before=97)
        after = drawn(stores, metric, seconds=180, points=3)
        assert [point.at for point in after] == [point.at for point in before]
        for was, now in zip(before, after, strict=True):
            assert (now.mean, now.low, now.high) == pytest.approx((was.mean, was.low, was.high))

    def test_joins_a_late_sample_into_its_minute(self, stores: Stores) -> None:
        kept(stores, throughput(0, step_seconds=0.1))
        retired(stores, raw_before=60)
        kept(stores, throughput(1, step_seconds=0.3))
        retired(stores, raw_before=60)
        (point,) = drawn(stores, "step_seconds")
        assert (point.at, point.low, point.high) == (NOW, 0.1, 0.3)
        assert point.mean == pytest.approx(0.2)

    def test_folds_old_minutes_into_hours(self, stores: Stores) -> None:
        kept(stores, *(throughput(s, step_seconds=0.1 + s / 1e4) for s in range(0, 7200, 600)))
        retired(stores, raw_before=7200)
        before = drawn(stores, "step_seconds", seconds=7200, points=2)
        # The second call finds an hour that the first one began.
        assert retired(stores, raw_before=7200, means_before=1800) == 3 * 5
        assert retired(stores, raw_before=7200, means_before=7200) == 9 * 5
        after = drawn(stores, "step_seconds", seconds=7200, points=2)
        assert [point.at for point in after] == [NOW, at(3600)]
        for was, now in zip(before, after, strict=True):
            assert (now.mean, now.low, now.high) == pytest.approx((was.mean, was.low, was.high))

    def test_drops_hours_that_are_old(self, stores: Stores) -> None:
        kept(stores, throughput(0), throughput(3600))
        retired(stores, raw_before=7200, means_before=7200)
        assert retired(stores, raw_before=7200, means_before=7200, hours_before=3600) == 5
        drawn_now = drawn(stores, "replicas", seconds=7200, points=2)
        assert [point.at for point in drawn_now] == [at(3600)]

    def test_keeps_saves_as_long_as_means(self, stores: Stores) -> None:
        kept(stores, save(0), save(60))
        retired(stores, raw_before=120)
        with stores.transaction() as t:
            assert len(t.telemetry.saves(JOB, since=NOW)) == 2
        assert retired(stores, raw_before=120, means_before=60) == 1
