"""What a machine says: limits of control groups, rates, shares, accelerators."""

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from brain.types.job import JobId
from brain.types.resources import NodeName, Resources
from collectors.cgroup import (
    Cgroup,
    GroupUse,
    leave_replica,
    read_cgroup,
    read_container,
    read_replica,
)
from collectors.gpu import GpuSight, NoGpus, NvidiaGpus
from collectors.host import (
    HostCounters,
    HostWatch,
    LiveJob,
    TreeReading,
    held_between,
    millis_between,
    rates_between,
    read_host,
    read_stalled,
    read_storage,
    read_tree,
    stalled_between,
)
from collectors.stamps import Stamps
from scaler.local.limits import ControlGroups

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def group(root: Path, path: str, **files: str) -> None:
    """A control group with such files; ``cpu_max`` is ``cpu.max``."""
    (root / path).mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (root / path / name.replace("_", ".", 1)).write_text(text)


def test_the_tightest_limit_above_us_counts(tmp_path: Path) -> None:
    group(tmp_path, ".", cgroup_controllers="cpu memory")
    group(tmp_path, "pod", cpu_max="150000 100000", memory_max="2000")
    group(tmp_path, "pod/job", cpu_max="max 100000", memory_max="max")
    group(tmp_path, "pod", cpu_stat="usage_usec 2500000\nuser_usec 1", memory_current="900")
    group(tmp_path, "pod", memory_stat="anon 500\ninactive_file 300")
    assert read_cgroup("0::/pod/job\n", tmp_path) == Cgroup(
        cpu_millis=1500, memory_bytes=2000, cpu_seconds=2.5, memory_used_bytes=600
    )


def test_without_limits_the_machine_is_ours(tmp_path: Path) -> None:
    group(tmp_path, ".", cgroup_controllers="cpu memory")
    group(tmp_path, "user", cpu_max="max 100000", memory_max="max")
    assert read_cgroup("0::/user\n", tmp_path) == Cgroup()


def test_version_1_is_read_too(tmp_path: Path) -> None:
    group(tmp_path, "cpu/box", cpuacct_usage="3000000000")
    (tmp_path / "cpu/box/cpu.cfs_quota_us").write_text("50000")
    (tmp_path / "cpu/box/cpu.cfs_period_us").write_text("100000")
    group(tmp_path, "memory/box", memory_stat="total_inactive_file 100")
    (tmp_path / "memory/box/memory.limit_in_bytes").write_text("4000")
    (tmp_path / "memory/box/memory.usage_in_bytes").write_text("1100")
    own = "4:cpu,cpuacct:/box\n3:memory:/box\n"
    assert read_cgroup(own, tmp_path) == Cgroup(
        cpu_millis=500, memory_bytes=4000, cpu_seconds=3.0, memory_used_bytes=1000
    )


def test_version_1_without_limit_is_no_limit(tmp_path: Path) -> None:
    group(tmp_path, "memory")
    (tmp_path / "memory/memory.limit_in_bytes").write_text("9223372036854771712")
    group(tmp_path, "cpu")
    (tmp_path / "cpu/cpu.cfs_quota_us").write_text("-1")
    assert read_cgroup("4:cpu,cpuacct:/\n3:memory:/\n", tmp_path) == Cgroup()


def test_a_hosts_path_inside_a_container_means_the_root(tmp_path: Path) -> None:
    group(tmp_path, ".", cgroup_controllers="cpu", cpu_max="200000 100000")
    assert read_cgroup("0::/system.slice/docker-1234.scope\n", tmp_path).cpu_millis == 2000


def test_limits_stand_for_the_machine() -> None:
    reading = read_host(
        Cgroup(cpu_millis=250, memory_bytes=1 << 20, cpu_seconds=7.0, memory_used_bytes=99)
    )
    assert (reading.cpu_capacity_millis, reading.memory_capacity_bytes) == (250, 1 << 20)
    assert (reading.cpu_seconds, reading.memory_bytes) == (7.0, 99)


def test_a_replica_is_read_by_the_groups_that_the_scaler_made_for_it(tmp_path: Path) -> None:
    group(tmp_path, "cpu/box/brain-0a1b2c3d-job-0", cpu_stat="nr_periods 100\nnr_throttled 25\n")
    group(tmp_path, "memory/brain-0a1b2c3d-job-0", memory_stat="total_inactive_file 100")
    (tmp_path / "memory/brain-0a1b2c3d-job-0/memory.usage_in_bytes").write_text("1100")
    own = "4:cpu:/box/brain-0a1b2c3d-job-0\n3:memory:/brain-0a1b2c3d-job-0\n2:pids:/\n"
    now = read_replica(own, tmp_path)
    assert now == GroupUse(memory_bytes=1000, periods=100, throttled=25)
    assert held_between({1: GroupUse(periods=60, throttled=15)}, {1: now}) == (1000, 0.25)
    assert held_between({}, {1: now}) == (1000, None)
    assert read_replica("4:cpu:/box\n", tmp_path) == GroupUse()
    group(tmp_path, "cpu/brain-scale.service", cpu_stat="nr_periods 100\nnr_throttled 25\n")
    assert read_replica("4:cpu:/brain-scale.service\n", tmp_path) == GroupUse()


@pytest.mark.parametrize("own", ["0::/\n", "0::/kubepods/pod1/main\n"])
def test_the_quota_of_a_pods_container_is_that_of_the_group_at_its_root(
    tmp_path: Path, own: str
) -> None:
    group(tmp_path, ".", cgroup_controllers="cpu memory", cpu_max="50000 100000")
    group(tmp_path, ".", cpu_stat="usage_usec 7\nnr_periods 40\nnr_throttled 10\nthrottled_usec 9")
    assert read_container(own, tmp_path) == GroupUse(periods=40, throttled=10)


def test_the_quota_of_a_pods_container_is_read_from_version_1_too(tmp_path: Path) -> None:
    own = "4:cpu,cpuacct:/kubepods/pod1/main\n3:memory:/kubepods/pod1/main\n"
    group(tmp_path, "cpu", cpu_stat="nr_periods 40\nnr_throttled 10\nthrottled_time 9\n")
    assert read_container(own, tmp_path) == GroupUse(), "no quota, so nothing is stopped"
    (tmp_path / "cpu/cpu.cfs_quota_us").write_text("50000")
    (tmp_path / "cpu/cpu.cfs_period_us").write_text("100000")
    assert read_container(own, tmp_path) == GroupUse(periods=40, throttled=10)


def test_a_pod_reports_how_often_its_quota_stopped_it(tmp_path: Path) -> None:
    group(tmp_path, ".", cgroup_controllers="cpu memory", cpu_max="50000 100000")
    group(tmp_path, ".", cpu_stat="nr_periods 40\nnr_throttled 10\n")
    watch = HostWatch(NoGpus("none for this test"), tmp_path)
    job = LiveJob(id=JobId("j"), node=NodeName("n"), agents={3: os.getpid()}, pod=True)
    watch.samples([job], NOW)
    group(tmp_path, ".", cpu_stat="nr_periods 90\nnr_throttled 30\n")
    [read] = watch.samples([job], NOW + timedelta(seconds=5))
    assert (read.throttled_share, read.replica_memory_bytes) == (0.4, None)


def test_a_collector_leaves_the_groups_of_the_replica_that_started_it(tmp_path: Path) -> None:
    group(tmp_path, ".", cgroup_controllers="cpu memory")
    group(tmp_path, "brain-0a1b2c3d-job-0")
    leave_replica("0::/brain-0a1b2c3d-job-0\n", tmp_path)
    entered = (tmp_path / "brain-collector/cgroup.procs").read_text()
    assert entered == str(os.getpid())


def test_rates_are_differences_over_time() -> None:
    before = HostCounters(
        at_seconds=10.0,
        cpu_seconds=5.0,
        cpu_capacity_millis=2000,
        memory_bytes=1,
        memory_capacity_bytes=2,
        sent_bytes=100,
    )
    after = HostCounters(
        at_seconds=14.0,
        cpu_seconds=11.0,
        cpu_capacity_millis=2000,
        memory_bytes=1,
        memory_capacity_bytes=2,
        sent_bytes=500,
    )
    rates = rates_between(before, after)
    assert (rates["cpu_millis"], rates["network_send_bytes_per_second"]) == (1500, 100.0)


def test_a_process_that_ended_takes_nothing_back() -> None:
    before = TreeReading(cpu_seconds={(1, 0.0): 100.0, (2, 0.0): 3.0})
    after = TreeReading(cpu_seconds={(2, 0.0): 4.0, (1, 5.0): 0.5})
    assert millis_between(before, after, seconds=1.0) == 1500


def test_a_process_is_told_by_its_start_since_boot_which_no_clock_changes() -> None:
    with subprocess.Popen(["sleep", "600"]) as child:
        fields = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()
        [(pid, began)] = read_tree(child.pid).cpu_seconds
        child.kill()
    assert pid == child.pid
    assert began == pytest.approx(int(fields[19]) / os.sysconf("SC_CLK_TCK"))


def test_a_job_is_charged_for_the_children_of_its_agents() -> None:
    child = "import time\nkeep = bytearray(64 << 20)\nprint(flush=True)\ntime.sleep(600)"
    script = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    agent = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, start_new_session=True
    )
    try:
        assert agent.stdout is not None
        agent.stdout.readline()
        watch = HostWatch(NoGpus("none for this test"))
        job = LiveJob(id=JobId("j"), node=NodeName("n"), agents={0: agent.pid})
        assert watch.samples([job], NOW) == [], "a first look has no rates"
        [sample] = watch.samples([job], NOW + timedelta(seconds=5))
        assert sample.job_memory_bytes > 64 << 20
        assert "gpu: none for this test" in sample.unavailable
    finally:
        os.killpg(agent.pid, 9)
        agent.wait()
        agent.stdout.close()


def test_without_psutil_the_machine_is_read_and_the_rest_is_named(tmp_path: Path) -> None:
    (tmp_path / "psutil.py").write_text("raise ImportError('not here')")
    script = "from collectors.host import read_host; r = read_host(); print(r.memory_bytes > 0)\n"
    script += "print(r.cpu_seconds > 0, *(why.split(':')[0] for why in r.unavailable))"
    told = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"PYTHONPATH": f"{tmp_path}:{Path.cwd()}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout.split("\n")
    assert told[:2] == ["True", "True network disk job share"]


def test_the_collector_starts_without_what_is_optional(tmp_path: Path) -> None:
    for name in ("psutil", "pynvml"):
        (tmp_path / f"{name}.py").write_text("raise ImportError('not here')")
    script = "import sys, collectors.cli; from collectors.gpu import find_gpus\n"
    script += "print(find_gpus().read().unavailable[0]); print('torch' in sys.modules)"
    told = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"PYTHONPATH": f"{tmp_path}:{Path.cwd()}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout
    assert "nvidia-ml-py is not installed" in told
    assert told.endswith("False\n")


class NvmlError(Exception):
    """What pynvml raises."""


def nvml(**more: Any) -> Any:
    """A driver with one device; ``more`` replaces functions."""
    blank = 0x7FFF_FFFF_FFFF_FFF4

    def refuse(*_: object) -> object:
        raise NvmlError("Not Supported")

    return SimpleNamespace(
        **{
            "NVMLError": NvmlError,
            "NVML_TEMPERATURE_GPU": 0,
            "nvmlDeviceGetCount": lambda: 1,
            "nvmlDeviceGetHandleByIndex": lambda index: index,
            "nvmlDeviceGetName": lambda device: b"NVIDIA H200",
            "nvmlDeviceGetMemoryInfo": lambda device: SimpleNamespace(used=10, total=40),
            "nvmlDeviceGetUtilizationRates": lambda device: SimpleNamespace(gpu=37),
            "nvmlDeviceGetPowerUsage": lambda device: 412_500,
            "nvmlDeviceGetTemperature": lambda device, sensor: blank,
            "refuse": refuse,
        }
        | more
    )


def test_accelerators_are_read_in_our_units() -> None:
    [reading] = NvidiaGpus(nvml()).read().readings
    assert (reading.name, reading.utilization, reading.power_watts) == ("NVIDIA H200", 0.37, 412.5)
    assert (reading.memory_used_bytes, reading.memory_total_bytes) == (10, 40)


def test_a_blank_reading_is_no_reading() -> None:
    [reading] = NvidiaGpus(nvml()).read().readings
    assert reading.temperature_celsius is None


def test_what_a_device_does_not_support_is_named() -> None:
    driver = nvml(nvmlDeviceGetUtilizationRates=nvml().refuse)
    sight = NvidiaGpus(driver).read()
    assert sight.unavailable == ("gpu 0: utilization is not supported",)
    assert len(sight.readings) == 1


def test_a_device_that_is_lost_hides_no_other() -> None:
    def handle(index: int) -> int:
        if index == 0:
            raise NvmlError("GPU is lost")
        return index

    driver = nvml(nvmlDeviceGetCount=lambda: 2, nvmlDeviceGetHandleByIndex=handle)
    sight = NvidiaGpus(driver).read()
    assert [reading.index for reading in sight.readings] == [1]
    assert sight.unavailable == ("gpu 0: GPU is lost",)


def test_a_lost_driver_is_no_error() -> None:
    sight = NvidiaGpus(nvml(nvmlDeviceGetCount=nvml().refuse)).read()
    assert sight == GpuSight(unavailable=("gpu: Not Supported",))


def test_stamps_rise_strictly_under_a_clock_that_stands() -> None:
    stamps = Stamps()
    taken = [stamps.next(NOW) for _ in range(5)]
    assert [sequence for _, _, sequence in taken] == [0, 1, 2, 3, 4]
    assert len({at for _, at, _ in taken}) == 5
    assert len({source for source, _, _ in taken}) == 1


def test_a_clock_that_was_set_back_begins_a_new_source() -> None:
    stamps = Stamps()
    before, _, _ = stamps.next(NOW)
    after, at, sequence = stamps.next(NOW - timedelta(hours=1))
    assert (before != after, at, sequence) == (True, NOW - timedelta(hours=1), 0)


def test_shared_memory_that_is_taken_is_read(tmp_path: Path) -> None:
    before = read_storage(None)
    if before is None:
        pytest.skip("this machine has no /dev/shm")
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as file:
        file.write(bytes(32 << 20))
        file.flush()
        after = read_storage(0.25)
    assert after is not None
    assert after.shm_used_bytes - before.shm_used_bytes > 16 << 20
    assert after.shm_used_bytes <= after.shm_capacity_bytes
    assert after.io_stalled_share == 0.25


def test_the_pressure_of_storage_is_a_share_of_the_time(tmp_path: Path) -> None:
    (tmp_path / "io").write_text("some avg10=0.00 avg60=0.00 total=2500000\nfull total=1\n")
    after = read_stalled([tmp_path / "missing", tmp_path / "io"])
    assert after == 2.5
    assert stalled_between(0.5, after, seconds=4.0) == 0.5
    assert stalled_between(9.0, after, seconds=4.0) is None
    assert stalled_between(None, after, seconds=4.0) is None
    assert read_stalled([tmp_path / "missing"]) is None


def test_counters_that_ran_backwards_count_as_nothing_and_are_named() -> None:
    before = read_host(Cgroup())
    anew = replace(
        before, at_seconds=before.at_seconds + 5, received_bytes=before.received_bytes - 1
    )
    rates = rates_between(before, anew)
    assert rates["network_receive_bytes_per_second"] == 0
    assert "received bytes: began anew" in rates["unavailable"]


def test_a_control_group_that_disappears_lends_the_machine_no_processor_time(
    tmp_path: Path,
) -> None:
    group(tmp_path, ".", cgroup_controllers="cpu memory")
    group(tmp_path, "job", cpu_max="50000 100000", cpu_stat="usage_usec 2500000")
    before = read_host(read_cgroup("0::/job\n", tmp_path))
    shutil.rmtree(tmp_path / "job")
    after = read_host(read_cgroup("0::/job\n", tmp_path))
    rates = rates_between(before, replace(after, at_seconds=before.at_seconds + 5))
    assert rates["cpu_millis"] == 0, "else the machine's seconds since it booted"
    assert "processor: began anew" in rates["unavailable"]


def test_a_replica_whose_real_group_disappears_is_read_by_its_processes(tmp_path: Path) -> None:
    limits, amounts = ControlGroups(tmp_path), Resources(cpu_millis=500, memory_bytes=1 << 30)
    held = limits.begin("job-0", amounts, amounts)
    if set(held.groups) != {"memory", "cpu"}:
        limits.end(held)
        pytest.skip(f"this machine lets nobody make control groups: {held.unenforced}")
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as agent:
        try:
            limits.enter(held, agent.pid, amounts)
            watch = HostWatch(NoGpus("none for this test"))
            job = LiveJob(id=JobId("j"), node=NodeName("n"), agents={0: agent.pid})
            watch.samples([job], NOW)
            [inside] = watch.samples([job], NOW + timedelta(seconds=5))
            for folder in held.groups.values():
                (Path(folder).parent / "cgroup.procs").write_text(str(agent.pid))
            assert limits.end(held)
            [outside] = watch.samples([job], NOW + timedelta(seconds=10))
        finally:
            agent.kill()
    assert inside.replica_memory_bytes is not None
    assert (outside.replica_memory_bytes, outside.throttled_share) == (None, None)
    assert outside.job_memory_bytes > 0


def test_a_reading_in_a_pod_names_its_replica() -> None:
    watch, agent = HostWatch(NoGpus("none for this test")), os.getpid()
    job = LiveJob(id=JobId("j"), node=NodeName("n"), agents={3: agent}, pod=True)
    watch.samples([job], NOW)
    [read] = watch.samples([job], NOW + timedelta(seconds=5))
    assert [one.replica for one in read.replica_readings] == [3]


def test_a_control_group_that_was_made_anew_used_nothing() -> None:
    one = read_host(Cgroup(cpu_millis=250, cpu_seconds=7.0))
    other = replace(one, cpu_seconds=0.5, at_seconds=one.at_seconds + 5)
    assert rates_between(one, other)["cpu_millis"] == 0
