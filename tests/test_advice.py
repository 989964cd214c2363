"""From readings of machines to advice on resources, by the turns of the service."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from brain import calls, estimates, lifecycle, wire
from brain.estimates.usage import KIND, Used, used_by, with_kills
from brain.ports import StoredFit
from brain.types.advice import ResourceAdvice, Starvation
from brain.types.allocation import Allocation
from brain.types.diagnosis import Diagnosis, FailureKind
from brain.types.job import JobState
from brain.types.record import Role
from brain.types.report import Grade
from brain.types.resources import Resources
from brain.types.roles import RoleSize
from brain.types.telemetry import StorageReading
from brain.types.world import Cause, WorldEvent
from tests import builders
from tests.api.app import Api
from tests.virtual import QUICK, Laptop, scaling_by

GIB = 2**30


def training(**document: Any) -> Laptop:
    return Laptop(scaling_by(0.9), script_hash="a1", **document).start()


def read(laptop: Laptop, seconds: int, **fields: Any) -> Laptop:
    """Let a collector read the machine every five seconds, and Brain take its turns."""
    for _ in range(seconds // 5):
        laptop.train(5)
        laptop.sequence = getattr(laptop, "sequence", 0) + 1
        reading = builders.host(laptop.sequence, job=laptop.id, measured_at=laptop.now, **fields)
        with laptop.stores.transaction() as tx:
            tx.telemetry.add([reading], received_at=laptop.now)
        laptop.turn()
    return laptop


def watch(laptop: Laptop, minutes: int = 35, **fields: Any) -> Laptop:
    """The same with a reading every two minutes: long enough to lower a reservation."""
    for _ in range(minutes // 2):
        laptop.train(1).wait(119)
        laptop.sequence = getattr(laptop, "sequence", 0) + 1
        reading = builders.host(laptop.sequence, job=laptop.id, measured_at=laptop.now, **fields)
        with laptop.stores.transaction() as tx:
            tx.telemetry.add([reading], received_at=laptop.now)
        laptop.turn()
    return laptop


def used(laptop: Laptop) -> Used:
    with laptop.stores.transaction(read_only=True) as tx:
        return used_by(tx.fits.get(laptop.id, KIND))


def advice(laptop: Laptop) -> ResourceAdvice:
    with laptop.transaction() as (tx, job):
        found = estimates.advised(tx, job, laptop.settings, laptop.now)
    assert found is not None
    return found


def lose(laptop: Laptop, kind: FailureKind = FailureKind.MEMORY) -> Laptop:
    """End the world by a failure, and have the next one formed."""
    why = Diagnosis(kind=kind, sentence="rank 0 failed", replica=0)
    laptop.wait(5).report(WorldEvent.LOST, diagnosis=why)
    epoch = (laptop.world.epoch if laptop.world else 0) + 1
    for event in (WorldEvent.FORMED, WorldEvent.STEPPING):
        laptop.report(event, epoch=epoch, size=1, cause=Cause.FAILURE)
    laptop.turn()
    return laptop


def test_a_job_that_reserves_far_too_much_is_advised_what_it_uses():
    laptop = training(resources=Resources(cpu_millis=2000, memory_bytes=7 * GIB))
    found = advice(watch(laptop, job_cpu_millis=300, job_memory_bytes=GIB))
    assert found.cpu is not None
    assert found.memory is not None
    assert found.cpu.target == pytest.approx(1.15 * 300, rel=0.06)
    assert found.memory.target == pytest.approx(1.15 * GIB, rel=0.06)
    assert not found.exploring
    assert "of this run" in found.basis


def test_no_reservation_is_lowered_by_what_a_start_used():
    laptop = training(resources=Resources(cpu_millis=2000, memory_bytes=7 * GIB))
    found = advice(read(laptop, 60, job_cpu_millis=300, job_memory_bytes=GIB))
    assert found.exploring
    assert found.cpu is not None
    assert found.memory is not None
    assert (found.cpu.target, found.memory.target) == (2000, 7 * GIB)
    assert found.cpu.reason.endswith("Brain has too few readings to advise less")
    later = advice(watch(laptop, 14, job_cpu_millis=300, job_memory_bytes=GIB))
    assert later.cpu is not None
    assert later.memory is not None
    assert (later.cpu.target < 400, later.memory.target) == (True, 7 * GIB)


def test_the_use_of_worlds_is_one_use_of_the_role():
    laptop = read(training(), 60)
    before = used(laptop).roles[0]
    after = used(read(lose(laptop, FailureKind.CODE), 30)).roles[0]
    assert sum(after.cpu.weights) > sum(before.cpu.weights)
    assert after.since_seconds == before.since_seconds


def test_a_run_begins_with_the_use_of_earlier_runs_of_its_script():
    first = read(training(), 90, job_memory_bytes=3 * GIB)
    first.live(60)
    with first.transaction() as (tx, job):
        lifecycle.end(tx, job, JobState.SUCCEEDED, "done", first.now)
    document = builders.document(name="again", script_hash="a1")
    first.id = first.submit(document, id="00000000-0000-7000-8000-000000000002")
    found = advice(read(first.start(), 30, job_memory_bytes=GIB))
    assert found.memory is not None
    assert found.memory.target == pytest.approx(1.15 * 3 * GIB, rel=0.06)
    assert found.exploring
    assert "1 earlier run of the script" in found.basis


def test_memory_that_ran_out_is_advised_more_whatever_was_seen():
    laptop = read(training(resources=Resources(memory_bytes=2 * GIB)), 30, job_memory_bytes=GIB)
    found = advice(lose(laptop)).memory
    assert found is not None
    assert found.target == pytest.approx(2.4 * GIB)
    assert "ran out of memory at 2 GiB" in found.reason


def test_a_run_that_ended_for_want_of_memory_raises_the_next_one():
    laptop = training(resources=Resources(memory_bytes=2 * GIB))
    read(laptop, 30, job_memory_bytes=GIB).live(60)
    why = Diagnosis(kind=FailureKind.MEMORY, sentence="rank 0 failed", replica=0)
    laptop.report(WorldEvent.LOST, diagnosis=why, final=True)
    assert laptop.job.finished
    again = builders.document(name="again", script_hash="a1")
    laptop.id = laptop.submit(again, id="00000000-0000-7000-8000-000000000002")
    found = advice(read(laptop.start(), 30, job_memory_bytes=GIB)).memory
    assert found is not None
    assert found.target == pytest.approx(2.4 * GIB)


def test_other_failures_raise_no_memory():
    laptop = read(training(resources=Resources(memory_bytes=2 * GIB)), 30, job_memory_bytes=GIB)
    found = advice(lose(laptop, FailureKind.DEVICE_MEMORY)).memory
    assert found is not None
    assert found.target == 2 * GIB


def test_loaders_that_wait_at_their_limit_are_starved_by_cpu():
    laptop = training()
    laptop.also = {"data_wait_seconds": 0.08}
    found = advice(read(laptop, 90, job_cpu_millis=1990))
    assert found.starved is Starvation.CPU
    assert "reserve more CPU for loading" in found.reason


def test_loaders_that_their_own_quota_stops_are_starved_though_the_machine_has_more():
    laptop = training(resources=Resources(cpu_millis=400))
    laptop.also = {"data_wait_seconds": 0.08}
    found = advice(read(laptop, 90, job_cpu_millis=395, throttled_share=0.6))
    assert found.starved is Starvation.CPU
    assert found.cpu is not None
    assert found.cpu.target > 700, "loading no longer delays computing there"


def test_a_quota_that_stops_one_node_is_seen_whichever_node_reports_last():
    laptop = training(resources=Resources(cpu_millis=400))
    seen = []
    for _ in range(9):
        read(laptop, 5, node="held", job_cpu_millis=395, throttled_share=0.6)
        read(laptop, 5, node="idle", job_cpu_millis=100, throttled_share=0.0)
        seen.append(used(laptop).role("worker"))
    assert {one.throttled for one in seen[4:] if one} == {0.6}


def storage(stalled: float = 0.0, shm_used: int = 0) -> StorageReading:
    return StorageReading(
        shm_used_bytes=shm_used,
        shm_capacity_bytes=64 << 20,
        scratch_used_bytes=GIB,
        scratch_capacity_bytes=100 * GIB,
        io_stalled_share=stalled,
    )


def test_loaders_that_wait_for_storage_are_told_apart_from_those_that_lack_cpu(tmp_path: Path):
    laptop = training()
    laptop.also = {"data_wait_seconds": 0.08}
    read(laptop, 90, job_cpu_millis=300, storage=storage(stalled=0.4))
    found = advice(laptop)
    assert found.starved is Starvation.STORAGE
    assert found.cpu is not None
    assert found.cpu.target == 1000
    told = conditions(laptop, tmp_path)["Starved"]
    assert "storage is too slow, and more CPU or more replicas would not help" in told


def test_a_job_that_waits_for_storage_is_not_given_more_replicas():
    laptop = training(settings=replace(QUICK, policy_mode="shadow"))
    laptop.also = {"data_wait_seconds": 0.08}
    read(laptop, 90, job_cpu_millis=300, storage=storage(stalled=0.4))
    why = {each.replicas: each.why_not for each in laptop.decision.explanation.alternatives}
    assert laptop.decision.target.replicas == 1
    assert "because storage is slow" in why[2]


def test_one_sign_alone_starves_nobody():
    busy = training()
    assert advice(read(busy, 60, job_cpu_millis=1990, storage=storage(0.4))).starved is None
    waits = training()
    waits.also = {"data_wait_seconds": 0.08}
    assert advice(read(waits, 60, job_cpu_millis=300, storage=storage(0.01))).starved is None


def test_shared_memory_that_is_nearly_full_is_told_with_the_remedy(tmp_path: Path):
    laptop = read(training(), 60, storage=storage(shm_used=60 << 20))
    told = conditions(laptop, tmp_path)["SharedMemoryFull"]
    assert told.startswith("shared memory (/dev/shm) was 94 % full")
    assert "--shm-size" in told
    found = advice(laptop).shared_memory
    assert found is not None
    assert found.target == pytest.approx(1.15 * (60 << 20))
    with served(laptop, tmp_path).client() as client:
        card = client.send(calls.report(laptop.id))
    line = next(one for one in card.lines if one.resource == "shared memory")
    assert line.grade is Grade.TIGHT


def grow(laptop: Laptop, bytes_a_minute: float, *, minutes: int = 24) -> Laptop:
    """Let memory of the job grow, with a reading a minute."""
    for minute in range(minutes):
        laptop.train(2).wait(58)
        laptop.sequence = getattr(laptop, "sequence", 0) + 1
        used_bytes = round(GIB + minute * bytes_a_minute)
        reading = builders.host(
            laptop.sequence, job=laptop.id, measured_at=laptop.now, job_memory_bytes=used_bytes
        )
        with laptop.stores.transaction() as tx:
            tx.telemetry.add([reading], received_at=laptop.now)
        laptop.turn()
    return laptop


def served(laptop: Laptop, home: Path) -> Api:
    """The API over what Brain knows of a laptop."""
    return Api(home, stores=laptop.stores, now=laptop.now, settings=laptop.settings)


def conditions(laptop: Laptop, home: Path) -> dict[str, str]:
    with served(laptop, home).client() as client:
        shown = client.send(calls.job(laptop.id)).job
    return {each.kind: each.reason for each in shown.conditions}


def test_a_leak_is_told_once_by_an_event_on_the_page_and_in_a_metric(tmp_path: Path):
    laptop = grow(training(), 200 * 2**20)
    told = laptop.events("job.memory-leak")
    assert len(told) == 1
    assert (
        "the job leaks memory and runs out of it in" in conditions(laptop, tmp_path)["MemoryLeak"]
    )
    api = served(laptop, tmp_path)
    metrics = api.http(api.token(Role.ADMIN)).get("/metrics").text
    lasts = next(line for line in metrics.splitlines() if "memory_lasts_seconds{" in line)
    left_minutes = (8e9 - GIB - 22 * 200 * 2**20) / (200 * 2**20)
    assert float(lasts.split()[-1]) == pytest.approx(60 * left_minutes, rel=0.15)


def test_a_leak_is_not_forgotten_between_two_foldings_of_readings():
    laptop = grow(training(settings=replace(QUICK, stale_seconds=20.0)), 200 * 2**20)
    laptop.wait(45)
    assert advice(laptop).memory_lasts_seconds is not None, "else it would get more memory"
    laptop.wait(60)
    assert advice(laptop).memory_lasts_seconds is None, "nothing is known any more"


def test_memory_that_stands_still_is_no_leak(tmp_path: Path):
    laptop = grow(training(), 0)
    assert laptop.events("job.memory-leak") == []
    assert "MemoryLeak" not in conditions(laptop, tmp_path)


def test_a_restart_ends_the_warning(tmp_path: Path):
    laptop = lose(grow(training(), 200 * 2**20), FailureKind.CODE)
    read(laptop, 30, job_memory_bytes=GIB)
    assert "MemoryLeak" not in conditions(laptop, tmp_path)


def test_memory_that_ran_out_a_fourth_time_is_left_to_a_person(tmp_path: Path):
    laptop = read(training(resources=Resources(memory_bytes=2 * GIB)), 30, job_memory_bytes=GIB)
    for _ in range(3):
        lose(laptop)
    assert "MemoryUnresolved" not in conditions(laptop, tmp_path)
    lose(laptop)
    assert "ran out 4 times within 24 h" in conditions(laptop, tmp_path)["MemoryUnresolved"]
    assert len(laptop.events("job.memory-unresolved")) == 1


def test_an_end_for_want_of_memory_is_taken_once_however_many_there_were():
    why = Diagnosis(kind=FailureKind.MEMORY, sentence="rank 0 failed", replica=0)
    lost = {"diagnosis": why, "ended_at": builders.NOW}
    worlds = [builders.world(epoch, **lost) for epoch in range(1, 11)]
    size = builders.job().document.allocation
    once = with_kills(Used(), size, worlds)
    assert with_kills(once, size, worlds) == once


def test_a_role_that_a_cluster_has_beside_the_document_reserves_what_nobody_read():
    laptop = read(training(resources=Resources(memory_bytes=2 * GIB)), 60, job_memory_bytes=GIB)
    (workers,) = used(laptop).roles
    both = wire.encode(Used(roles=(workers, replace(workers, role="ps")))).decode()
    with laptop.transaction() as (tx, job):
        tx.fits.put(StoredFit(job=job.id, kind=KIND, parameters=both, fitted_at=laptop.now))
        found = estimates.advised(tx, job, laptop.settings, laptop.now, role="ps")
    reserved = [one.memory and one.memory.reserved for one in (advice(laptop), found) if one]
    assert reserved == [2 * GIB, 0]


def test_memory_that_a_server_lacked_is_no_lack_of_workers():
    why = Diagnosis(kind=FailureKind.MEMORY, sentence="rank 1 failed", replica=1)
    world = builders.world(1, replicas=3, diagnosis=why, ended_at=builders.NOW)
    chief, server, worker = world.members
    world = replace(world, members=(chief, replace(server, role="ps"), worker))
    amounts = Resources(cpu_millis=1000, memory_bytes=2 * GIB)
    size = Allocation(replicas=3, roles=(("ps", RoleSize(resources=amounts)),))
    (only,) = with_kills(Used(), size, [world]).roles
    assert (only.role, [kill.limit_bytes for kill in only.kills]) == ("ps", [2 * GIB])


def test_readings_of_a_clock_that_is_far_ahead_are_left_out():
    laptop = read(training(), 30)
    before = used(laptop)
    ahead = builders.host(99, job=laptop.id, measured_at=laptop.now + timedelta(days=30))
    with laptop.stores.transaction() as tx:
        tx.telemetry.add([ahead], received_at=laptop.now)
    laptop.wait(20).turn()
    assert used(laptop).roles == before.roles


def test_a_reading_of_the_start_is_no_use_of_training():
    laptop = training()
    begun = laptop.world.stepping_at
    early = builders.host(99, job=laptop.id, measured_at=begun + timedelta(seconds=2))
    with laptop.stores.transaction() as tx:
        tx.telemetry.add([early], received_at=laptop.now)
    read(laptop, 30, job_cpu_millis=300)
    assert used(laptop).roles[0].cpu.quantile(1.0) == pytest.approx(300, rel=0.05)
