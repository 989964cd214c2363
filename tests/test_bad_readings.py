"""Readings of machines that cannot be: sent by the route, counted with a reason, kept out of
use."""

import shutil
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from brain import calls
from brain.types.allocation import Bounds
from brain.types.job import BatchBounds
from brain.types.record import Role
from brain.types.resources import NodeName
from brain.types.roles import RoleSize
from brain.types.telemetry import (
    GpuReading,
    HostSample,
    ReplicaReading,
    SourceId,
    StorageReading,
)
from collectors.cgroup import read_cgroup
from collectors.host import rates_between, read_host
from tests import builders
from tests.test_advice import GIB, served, training, used
from tests.virtual import Laptop


def send(laptop: Laptop, home: Path, *readings: dict[str, Any]) -> str:
    """Send readings of one machine, five seconds apart, and return the metrics after a turn."""
    samples = []
    for fields in readings:
        laptop.train(5)
        second = int(laptop.now.timestamp())
        samples.append(builders.host(second, **({"measured_at": laptop.now} | odd(laptop, fields))))
    with served(laptop, home).client(Role.AGENT, job=laptop.id) as agent:
        receipt = agent.send(calls.telemetry(samples, sent_at=laptop.now))
    assert receipt.rejected == ()
    laptop.turn()
    api = served(laptop, home)
    return api.http(api.token(Role.ADMIN)).get("/metrics").text


def odd(laptop: Laptop, fields: dict[str, Any]) -> dict[str, Any]:
    return {"job": laptop.id, "job_cpu_millis": 300, "job_memory_bytes": GIB} | fields


def counted(metrics: str) -> dict[str, float]:
    """Readings that were ignored or corrected, by reason."""
    lines = [one for one in metrics.splitlines() if one.startswith("brain_usage_rejected{")]
    return {one.split('reason="')[1].split('"')[0]: float(one.split()[-1]) for one in lines}


def space(used_bytes: int, whole: int = GIB) -> StorageReading:
    return StorageReading(
        shm_used_bytes=used_bytes,
        shm_capacity_bytes=whole,
        scratch_used_bytes=0,
        scratch_capacity_bytes=GIB,
    )


def card(used_bytes: int) -> GpuReading:
    return GpuReading(
        index=0, name="A100", utilization=0.5, memory_used_bytes=used_bytes, memory_total_bytes=GIB
    )


@pytest.mark.parametrize(
    ("fields", "reason", "says"),
    [
        ({"job_cpu_millis": -5}, "negative", "because a counter restarted"),
        ({"job_memory_bytes": -1}, "negative", "because a counter restarted"),
        ({"job_cpu_millis": 10**9}, "absurd", "1000000000 mCPU on laptop, which has 2000"),
        ({"job_memory_bytes": 2**60}, "absurd", "bytes on laptop, which has 8000000000"),
        ({"replica_memory_bytes": 2**60}, "absurd", "bytes on laptop, which has 8000000000"),
        (
            {"replica_readings": (ReplicaReading(replica=0, cpu_millis=1, memory_bytes=-1),)},
            "negative",
            "because a counter restarted",
        ),
        ({"storage": space(-1)}, "absurd", "-1 of 1073741824 bytes in use on laptop"),
        ({"storage": space(9, whole=0)}, "absurd", "9 of 0 bytes in use on laptop"),
        ({"gpus": (card(2**50),)}, "absurd", "of 1073741824 bytes in use on laptop"),
    ],
)
def test_a_reading_that_cannot_be_is_counted_with_a_reason_and_no_histogram_has_it(
    tmp_path: Path, fields: dict[str, Any], reason: str, says: str
):
    laptop = training()
    metrics = send(laptop, tmp_path, {}, fields, {})
    known = used(laptop)
    (use,) = known.roles
    assert counted(metrics) == {reason: 1.0}
    assert says in known.rejected_because
    assert round(sum(use.cpu.weights)) == round(sum(use.memory.weights)) == 2
    assert use.memory.quantile(1.0) == pytest.approx(1024, rel=0.05)
    with served(laptop, tmp_path).client() as client:
        assert says in client.send(calls.report(laptop.id)).rejected_because


def test_a_counter_that_the_collector_took_for_nothing_is_counted_and_the_rest_is_used(
    tmp_path: Path,
):
    laptop = training()
    metrics = send(laptop, tmp_path, {"unavailable": ("received bytes: began anew",)}, {})
    assert counted(metrics) == {"restarted": 1.0}
    assert round(sum(used(laptop).roles[0].cpu.weights)) == 2


def test_readings_of_a_clock_that_stepped_back_and_on_are_each_used_once(tmp_path: Path):
    laptop = training()
    now = laptop.now
    send(laptop, tmp_path, {}, {})
    back: list[HostSample] = [
        builders.host(10 + n, measured_at=now.replace(microsecond=n), **odd(laptop, {}))
        for n in (1, 2)
    ]
    with served(laptop, tmp_path).client(Role.AGENT, job=laptop.id) as agent:
        agent.send(calls.telemetry(back, sent_at=now))
    laptop.train(20).turn()
    weights = used(laptop).roles[0].cpu.weights
    assert round(sum(weights)) <= 4
    assert all(weight >= 0 for weight in weights)


def test_readings_that_come_after_newer_ones_are_counted_and_not_used(tmp_path: Path):
    """One collector's network fails for half a minute, while another's readings are used."""
    laptop = training()
    send(laptop, tmp_path, {}, {})
    before = laptop.now
    send(laptop, tmp_path, *[{}] * 6)
    held = [
        replace(
            builders.host(n, measured_at=before + timedelta(seconds=5 * n), **odd(laptop, {})),
            source=SourceId("other"),
            node=NodeName("other"),
        )
        for n in (1, 2, 3)
    ]
    with served(laptop, tmp_path).client(Role.AGENT, job=laptop.id) as agent:
        agent.send(calls.telemetry(held, sent_at=laptop.now))
    laptop.train(15)
    metrics = send(laptop, tmp_path, {})
    known = used(laptop)
    assert counted(metrics) == {"late": 3.0}
    assert known.rejected_because == "a reading of other came after newer ones were counted"
    assert counted(send(laptop.train(15), tmp_path, {})) == {"late": 3.0}, "once each"
    assert round(sum(used(laptop).roles[0].cpu.weights)) == 10


def test_a_role_that_vanishes_is_counted_and_keeps_its_histogram(tmp_path: Path):
    """A server leaves the job; its collector goes on with its readings for a while."""
    roles = {"ps": RoleSize(replicas=1)}
    laptop = training(roles=roles, replicas=Bounds(min=2, max=2), batch=BatchBounds())
    readings = tuple(ReplicaReading(replica=n, cpu_millis=200, memory_bytes=GIB) for n in (0, 1))
    laptop.train(5)
    send(laptop, tmp_path, *[{"replica_readings": readings}] * 3)
    server = used(laptop).role("ps")
    assert server is not None

    with laptop.stores.transaction() as tx:
        world = tx.worlds.latest(laptop.id)
        assert world is not None
        members = tuple(one for one in world.members if one.role != "ps")
        tx.worlds.put(replace(world, members=members))
    laptop.train(15)
    metrics = send(laptop, tmp_path, *[{"replica_readings": readings}] * 2)
    assert counted(metrics) == {"gone": 2.0}
    assert used(laptop).role("ps") == server


def test_a_control_group_that_disappears_is_counted_and_its_use_is_no_machines(tmp_path: Path):
    """Readings of a real collector whose group is removed, by the files of a group."""
    group = tmp_path / "job"
    group.mkdir()
    (tmp_path / "cgroup.controllers").write_text("cpu memory")
    (group / "cpu.max").write_text("50000 100000")
    (group / "cpu.stat").write_text("usage_usec 2500000")
    before = read_host(read_cgroup("0::/job\n", tmp_path))
    shutil.rmtree(group)
    after = read_host(read_cgroup("0::/job\n", tmp_path))
    rates = rates_between(before, replace(after, at_seconds=before.at_seconds + 5))

    laptop = training()
    told = {name: rates[name] for name in ("cpu_millis", "unavailable")}
    metrics = send(laptop, tmp_path / "home", {}, told, {})
    assert counted(metrics) == {"restarted": 1.0}
    assert used(laptop).roles[0].cpu.quantile(1.0) == pytest.approx(300, rel=0.1)
