"""The report card of a job: what it reserves, uses and should reserve, and what that costs."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from brain import calls, lifecycle, wire
from brain.types.job import ApprovalPolicy, JobState, OptimizeMode, PolicyMode
from brain.types.report import Grade, JobReport, ResourceLine
from brain.types.resources import Resources
from brain.typeset import number
from tests.api.app import Api
from tests.test_advice import GIB, grow, read, training, watch
from tests.virtual import QUICK, Laptop

PRICED = replace(QUICK, accelerator_prices="cpu=0.05, memory=0.01")


def card(laptop: Laptop, home: Path) -> JobReport:
    api = Api(home, stores=laptop.stores, now=laptop.now, settings=laptop.settings)
    with api.client() as client:
        return client.send(calls.report(laptop.id))


def line(report: JobReport, resource: str) -> ResourceLine:
    return next(one for one in report.lines if one.resource == resource)


def reserving(cpu_millis: int = 2000, memory_bytes: int = 7 * GIB, **fields: Any) -> Laptop:
    resources = Resources(cpu_millis=cpu_millis, memory_bytes=memory_bytes)
    return training(resources=resources, settings=PRICED, **fields)


def test_too_much_is_said_with_what_it_costs_and_the_document_for_next_time(tmp_path: Path):
    found = card(watch(reserving(), job_cpu_millis=300, job_memory_bytes=GIB), tmp_path)
    cpu, memory = line(found, "cpu"), line(found, "memory")
    assert (cpu.grade, memory.grade) == (Grade.WASTEFUL, Grade.WASTEFUL)
    assert "the reservation always sufficed, and 85 % of it went unused" in cpu.hindsight
    assert "the advised amount would suffice, with" in cpu.hindsight
    assert cpu.unused_cost_a_day == pytest.approx((2 - cpu.advised / 1000) * 0.05 * 24)
    assert found.headline.startswith("Reserve less: 0.")
    assert "which frees €" in found.headline
    assert found.cost_a_day == pytest.approx(2 * 0.05 * 24)
    next_time = wire.job_document(found.document).resources
    assert cpu.advised <= next_time.cpu_millis < cpu.advised + 50
    assert memory.advised <= next_time.memory_bytes < memory.advised + 64 * 2**20


@pytest.mark.parametrize(
    ("fields", "because"),
    [
        ({"optimize_mode": OptimizeMode.MANUAL}, "optimizeMode is manual"),
        ({"policy": ApprovalPolicy(mode=PolicyMode.APPROVE)}, "policy.mode is approve"),
    ],
)
def test_a_job_left_to_people_is_told_what_brain_would_have_done_in_the_last_day(
    fields: dict[str, Any], because: str, tmp_path: Path
):
    laptop = watch(reserving(**fields), job_cpu_millis=300, job_memory_bytes=GIB)
    found = card(laptop, tmp_path)
    cpu = line(found, "cpu")
    world = laptop.world
    assert world is not None
    hours = (laptop.now - world.formed_at).total_seconds() / 3600
    cores = round(cpu.advised) / 1000
    less = number((2 - cores) * hours)
    assert found.hindsight.startswith(f"Brain would have changed CPU 2 → {cores:.4g}, memory 7 → ")
    assert f" for each worker: {less} core-h less and " in found.hindsight
    assert " GiB-h less in the last day, €0." in found.hindsight
    assert found.hindsight.endswith(f" cheaper; Brain did not do so, because {because}")


def test_a_job_whose_amounts_brain_changes_itself_is_told_nothing_that_it_missed(tmp_path: Path):
    laptop = watch(reserving(), job_cpu_millis=300, job_memory_bytes=GIB)
    assert card(laptop, tmp_path).hindsight == ""


def test_too_little_is_said_before_anything_else(tmp_path: Path):
    laptop = read(reserving(1000, 2 * GIB), 60, job_cpu_millis=300, job_memory_bytes=3 * GIB)
    found = card(laptop, tmp_path)
    assert line(found, "memory").grade is Grade.SHORT
    assert found.headline.startswith("Reserve more: 3.")


def test_a_reservation_that_a_limit_enforced_is_not_said_to_have_sufficed(tmp_path: Path):
    laptop = read(reserving(1000, 2 * GIB), 60, job_cpu_millis=300, job_memory_bytes=2 * GIB)
    said = line(card(laptop, tmp_path), "memory").hindsight
    assert said.startswith("no reading exceeded the reservation, and 0 % of it went unused")


def test_what_fits_is_left_as_it_is(tmp_path: Path):
    laptop = read(reserving(1000, 4 * GIB), 60, job_cpu_millis=850, job_memory_bytes=3 * GIB)
    found = card(laptop, tmp_path)
    assert {one.grade for one in found.lines} == {Grade.GOOD}
    assert found.headline.startswith("The reservation fits")
    assert wire.job_document(found.document).resources == laptop.document.resources


def test_replicas_that_do_nothing_are_listed_with_their_cost(tmp_path: Path):
    laptop = read(reserving(), 660, job_cpu_millis=3, job_memory_bytes=GIB)
    found = card(laptop, tmp_path)
    (idle,) = found.idle
    assert (idle.node, idle.role, idle.replicas) == ("laptop", "worker", 1)
    assert idle.cost_a_day == pytest.approx(2 * 0.05 * 24)
    assert found.headline.startswith("1 replica on laptop did nothing")


def test_a_leak_is_the_first_thing_to_hear_of(tmp_path: Path):
    assert card(grow(reserving(memory_bytes=0), 200 * 2**20), tmp_path).headline.startswith(
        "The job leaks memory and runs out of it in"
    )


def test_a_job_that_nobody_read_says_what_is_missing(tmp_path: Path):
    found = card(training(), tmp_path)
    assert found.lines == ()
    assert found.headline == "Brain has not measured enough yet to judge the reservation."
    assert "a collector must run there" in found.missing[0]


def test_without_prices_the_report_says_how_to_set_them(tmp_path: Path):
    laptop = read(training(resources=Resources(cpu_millis=2000)), 60, job_cpu_millis=300)
    found = card(laptop, tmp_path)
    assert found.cost_a_day is None
    assert "accelerator_prices" in found.missing[0]


def test_a_job_that_ended_keeps_its_report(tmp_path: Path):
    laptop = watch(reserving(), job_cpu_millis=300, job_memory_bytes=GIB)
    with laptop.transaction() as (tx, job):
        lifecycle.end(tx, job, JobState.SUCCEEDED, "done", laptop.now)
    laptop.wait(3600)
    found = card(laptop, tmp_path)
    assert line(found, "cpu").grade is Grade.WASTEFUL
    assert found.notices == ()
