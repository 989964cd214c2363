"""The week of an owner: requested, used, advised and wasted, with money, by route and command."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from brain import calls
from brain.errors import BadInput
from brain.types.digest import Digest
from tests.api.app import Api
from tests.test_advice import GIB, watch
from tests.test_report import reserving
from tests.virtual import Laptop


def week(laptop: Laptop, home: Path, **asked: str) -> Digest:
    api = Api(home, stores=laptop.stores, now=laptop.now, settings=laptop.settings)
    with api.client() as client:
        return client.send(calls.digest(owner=laptop.job.owner, **asked))


def test_a_week_is_what_replicas_held_beside_use_and_advice_with_money(tmp_path: Path):
    laptop = watch(reserving(), 60, job_cpu_millis=300, job_memory_bytes=GIB)
    found = week(laptop, tmp_path)
    cpu, memory = found.lines
    held = (laptop.now - laptop.world.formed_at) / timedelta(hours=1)
    assert (found.jobs, found.unmeasured, cpu.unit, memory.unit) == (1, 0, "core-h", "GiB-h")
    assert cpu.requested == pytest.approx(2 * held)
    assert memory.requested == pytest.approx(7 * held)
    assert cpu.used == pytest.approx(0.3 * held, rel=0.05)
    assert cpu.recommended == pytest.approx(0.345 * held, rel=0.06)
    assert cpu.wasted == pytest.approx(cpu.requested - cpu.recommended)
    assert found.cost == pytest.approx((2 * 0.05 + 7 * 0.01) * held)
    assert found.wasted_cost == pytest.approx(0.05 * cpu.wasted + 0.01 * memory.wasted)
    (worst,) = found.worst
    assert worst.advice.startswith("Reserve less: 0.")
    assert worst.used_share == pytest.approx((0.15 + 1 / 7) / 2, rel=0.1)
    assert found.best == ()


def test_a_job_that_fits_is_among_the_best_and_one_of_another_owner_is_not_there(tmp_path: Path):
    laptop = watch(reserving(350, int(1.2 * GIB)), job_cpu_millis=300, job_memory_bytes=GIB)
    found = week(laptop, tmp_path)
    assert [one.name for one in found.best] == [laptop.document.name]
    assert found.worst == ()
    assert found.wasted_cost == 0
    api = Api(tmp_path, stores=laptop.stores, now=laptop.now, settings=laptop.settings)
    with api.client(name="bob") as bob:
        assert bob.send(calls.digest()) == replace(
            bob.send(calls.digest(owner="nobody")), owner="bob"
        )
        assert bob.send(calls.digest()).jobs == 0


def test_a_job_that_reserved_nothing_is_counted_as_unmeasured(tmp_path: Path):
    laptop = watch(reserving(0, 0), job_cpu_millis=300, job_memory_bytes=GIB)
    found = week(laptop, tmp_path)
    assert (found.jobs, found.unmeasured, found.lines, found.cost) == (1, 1, (), None)


def test_only_the_hours_within_the_week_count(tmp_path: Path):
    laptop = watch(reserving(), job_cpu_millis=300, job_memory_bytes=GIB)
    begun = laptop.now
    laptop.wait(7 * 86400)
    year, number, _ = begun.isocalendar()
    then = week(laptop, tmp_path, week=f"{year}-W{number:02}")
    assert then.until - then.since == timedelta(days=7)
    assert then.lines[0].requested < 2 * 24 * 7
    year, number, _ = (begun - timedelta(days=21)).isocalendar()
    assert week(laptop, tmp_path, week=f"{year}-W{number:02}").jobs == 0


@pytest.mark.parametrize(
    ("named", "says"),
    [
        ("last", "week 'last' does not exist; write it as 2026-W"),
        ("2025-W60", "does not exist"),
        ("2999-W01", "week 2999-W01 has not begun; the present one is 2026-W"),
    ],
)
def test_a_week_that_is_none_is_refused_with_the_way_to_write_it(
    api: Api, named: str, says: str
) -> None:
    with api.client() as client, pytest.raises(BadInput, match=says) as refused:
        client.send(calls.digest(week=named))
    assert refused.value.field == "week"


@pytest.fixture
def api(tmp_path: Path) -> Api:
    return Api(tmp_path)
