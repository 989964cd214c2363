"""From what a pool measured to what another job will need."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from brain import estimates, lifecycle
from brain.estimates.history import rough_points
from brain.estimates.usage import KIND, Used, folded, used_by
from brain.inmemory import MemoryStores
from brain.lifecycle.observed import points
from brain.ports import TelemetryStore, Transaction
from brain.types.allocation import Bounds
from brain.types.estimate import Estimate, EstimateQuestion
from brain.types.job import Budget, JobDocument, JobId, JobState
from brain.types.resources import Resources
from brain.types.telemetry import ThroughputSample
from tests import builders
from tests.virtual import POOL, QUICK, Laptop, scaling_by

MIB = 2**20


def measured(**fields: object) -> Laptop:
    """A job that was measured with one replica, then two."""
    laptop = Laptop(scaling_by(0.9), script_hash="a1", **fields).start()
    laptop.live(60)
    return laptop


def ask(laptop: Laptop, question: EstimateQuestion | None = None, **fields: object) -> Estimate:
    given = {"replicas": Bounds(min=1, max=2), "resources": Resources(cpu_millis=1000)}
    document: JobDocument = builders.document(script_hash="a1", **(given | fields))
    with laptop.stores.transaction(read_only=True) as tx:
        return estimates.ask(
            tx,
            document,
            question or EstimateQuestion(steps=1000),
            owner="ada",
            pool=POOL,
            settings=replace(QUICK, accelerator_prices="cpu=2"),
            now=laptop.now,
        )


def test_a_job_is_estimated_from_one_that_runs():
    answer = ask(measured())
    one, two = answer.sizes
    assert one.finish_seconds is not None
    assert one.finish_seconds.value == pytest.approx(200, rel=0.1)
    assert two.finish_seconds is not None
    assert two.finish_seconds.value == pytest.approx(200 / 2**0.9, rel=0.1)
    assert two.chosen


def test_money_is_that_of_the_settings_unless_asked_otherwise():
    laptop = measured()
    usual = ask(laptop).sizes[0].cost
    other = ask(laptop, EstimateQuestion(steps=1000, prices={"cpu": 4.0})).sizes[0].cost
    assert usual is not None
    assert other is not None
    assert other.value == pytest.approx(2 * usual.value)


def test_a_budget_of_the_document_counts_like_one_of_the_question():
    answer = ask(measured(), steps=1000, budget=Budget(cost=0.0001))
    assert not any(size.chosen for size in answer.sizes)
    assert all("budget" in size.why_not for size in answer.sizes)


def test_a_deadline_of_the_document_is_counted_from_now():
    laptop = measured()
    answer = ask(laptop, steps=1000, deadline=laptop.now + timedelta(seconds=30))
    assert all("the deadline is in" in size.why_not for size in answer.sizes)


def test_an_empty_pool_has_no_sizes_and_says_why():
    laptop = measured()
    document = builders.document(script_hash="a1")
    with laptop.stores.transaction(read_only=True) as tx:
        answer = estimates.ask(
            tx,
            document,
            EstimateQuestion(steps=10),
            owner="ada",
            pool=type(POOL)("elsewhere"),
            settings=QUICK,
            now=laptop.now,
        )
    assert answer.sizes == ()
    assert any("no node has registered" in sentence for sentence in answer.missing)


def test_what_was_done_by_a_job_that_ended_well_is_the_work_of_the_next():
    laptop = measured(steps=400)
    with laptop.stores.transaction() as tx:
        job = tx.jobs.get(laptop.id)
        lifecycle.end(tx, job, JobState.SUCCEEDED, "done", laptop.now)
    answer = ask(laptop, EstimateQuestion())
    assert answer.work is not None
    assert answer.work.amount.value == 400 * 64


def test_nothing_is_stored_by_asking():
    laptop = measured()
    with laptop.stores.transaction(read_only=True) as tx:
        before = tx.events.last_id()
    ask(laptop)
    with laptop.stores.transaction(read_only=True) as tx:
        assert tx.events.last_id() == before


def test_readings_are_shared_among_the_replicas_of_a_node():
    world = builders.world(replicas=2, stepping_at=builders.NOW)
    use = folded(Used(), [builders.host(n) for n in range(3)], world).uses[0]
    assert use.memory_bytes == 2_000_000_000
    assert 500 <= use.cpu.quantile(0.98) <= 530
    assert use.received_bytes_per_second == 10.0


def test_two_worlds_are_kept_apart_and_old_ones_let_go():
    used = Used()
    for epoch in range(1, 9):
        used = folded(used, [builders.host(epoch)], builders.world(epoch))
    assert [use.epoch for use in used.uses] == [3, 4, 5, 6, 7, 8]


def test_hours_have_a_maximum_each():
    world = builders.world()
    used = folded(Used(), [builders.host(0, job_memory_bytes=9)], world)
    later = builders.host(1, measured_at=builders.at(3600), job_memory_bytes=5)
    assert folded(used, [later], world).uses[0].hourly_bytes == (9, 5)


def test_a_running_job_leaves_what_it_used():
    laptop = Laptop(scaling_by(0.9)).start()
    laptop.train(10)
    with laptop.stores.transaction() as tx:
        seconds = [laptop.now - timedelta(seconds=2 - n) for n in range(3)]
        readings = [builders.host(n, measured_at=at) for n, at in enumerate(seconds)]
        tx.telemetry.add(readings, received_at=laptop.now)
    laptop.turn()
    with laptop.stores.transaction(read_only=True) as tx:
        used = used_by(tx.fits.get(laptop.id, KIND))
    assert used.uses[0].readings == 3


def test_readings_are_counted_once():
    laptop = Laptop(scaling_by(0.9)).start()
    laptop.train(10)
    with laptop.stores.transaction() as tx:
        tx.telemetry.add([builders.host(0, measured_at=laptop.now)], received_at=laptop.now)
    laptop.turn()
    laptop.wait(20).turn()
    with laptop.stores.transaction(read_only=True) as tx:
        used = used_by(tx.fits.get(laptop.id, KIND))
    assert used.uses[0].readings == 1


def test_a_job_too_short_to_decide_on_is_enough_to_estimate_from():
    laptop = Laptop(scaling_by(0.9), script_hash="a1").start()
    laptop.train(5)
    with laptop.stores.transaction(read_only=True) as tx:
        assert points(tx, tx.jobs.get(laptop.id)) == []
    answer = ask(laptop)
    assert answer.sizes[0].throughput is not None


def test_waiting_for_data_is_kept_with_the_world():
    laptop = Laptop(scaling_by(0.9)).start()
    laptop.train(10).turn()
    with laptop.stores.transaction(read_only=True) as tx:
        (use,) = used_by(tx.fits.get(laptop.id, KIND)).uses
    assert use.readings == 0
    assert use.stepped_seconds == pytest.approx(10, rel=0.2)
    assert 0 < use.wait_share < 1


def test_first_readings_count_at_once_though_steps_came_before_them():
    laptop = Laptop(scaling_by(0.9)).start()
    laptop.train(10).turn()
    laptop.train(2)
    with laptop.stores.transaction() as tx:
        tx.telemetry.add([builders.host(0, measured_at=laptop.now)], received_at=laptop.now)
    laptop.turn()
    with laptop.stores.transaction(read_only=True) as tx:
        used = used_by(tx.fits.get(laptop.id, KIND))
    assert used.uses[0].readings == 1


def test_without_readings_of_machines_it_is_not_stored_every_turn():
    laptop = Laptop(scaling_by(0.9)).start()
    laptop.train(10).turn()
    laptop.train(2).turn()
    with laptop.stores.transaction(read_only=True) as tx:
        stored = tx.fits.get(laptop.id, KIND)
    assert stored is not None
    assert stored.fitted_at == laptop.now - timedelta(seconds=2)


class _Reads:
    """A transaction's telemetry that counts the samples that are read."""

    def __init__(self, telemetry: TelemetryStore) -> None:
        self._telemetry, self.samples = telemetry, 0

    def newest(self, job: JobId, epoch: int | None = None) -> datetime | None:
        return self._telemetry.newest(job, epoch)

    def throughput(
        self, job: JobId, *, since: datetime, epoch: int | None = None
    ) -> Sequence[ThroughputSample]:
        found = self._telemetry.throughput(job, since=since, epoch=epoch)
        self.samples += len(found)
        return found


class _Watched:
    """A transaction whose telemetry counts what is read."""

    def __init__(self, tx: Transaction) -> None:
        self.worlds, self.telemetry = tx.worlds, _Reads(tx.telemetry)


@pytest.mark.parametrize(("every", "most"), [(1, 70), (300, 50)])
def test_of_a_long_world_no_more_samples_are_read_than_a_rough_point_needs(every: int, most: int):
    """A world of three hours, with a step each second or each five minutes; of slow steps all are
    read, after those of shorter times.
    """
    stores = MemoryStores()
    long = [
        builders.throughput(n, steps=1, step=n, step_seconds=float(every), step_seconds_mean=every)
        for n in range(0, 10_800, every)
    ]
    with stores.transaction() as tx:
        tx.worlds.put(builders.world(1, replicas=1, formed_at=builders.at(0)))
        tx.telemetry.add(long, received_at=builders.at(10_800))
    with stores.transaction(read_only=True) as tx:
        watched = _Watched(tx)
        (point,) = rough_points(watched, builders.job())  # type: ignore[arg-type]
    assert point.step_seconds == every
    assert watched.telemetry.samples < most
