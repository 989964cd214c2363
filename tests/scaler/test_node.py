"""What this machine offers, read from files as kernels write them."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from scaler.local.node import answering, cpu_millis, measure, memory_bytes

GIB = 2**30


def machine(root: Path, *, cgroup: str, gib: int = 16, **files: str) -> Path:
    """A root with ``/proc`` and the cgroup files of ``files`` (path with ``__`` for ``/``)."""
    written = {
        "proc/meminfo": f"MemTotal:       {gib * 2**20} kB\nMemFree:  1 kB\n",
        "proc/self/cgroup": cgroup,
    } | {f"sys/fs/cgroup/{name.replace('__', '/')}": text for name, text in files.items()}
    for name, text in written.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_without_limits_it_is_affinity_and_memory(tmp_path: Path):
    root = machine(tmp_path, cgroup="0::/\n")

    assert (cpu_millis(root, affinity=6), memory_bytes(root)) == (6000, 16 * GIB)


@pytest.mark.parametrize(
    ("affinity", "quota", "millis"),
    [
        pytest.param(8, "150000 100000", 1500, id="quota-below-affinity"),
        pytest.param(1, "150000 100000", 1000, id="affinity-below-quota"),
        pytest.param(8, "max 100000", 8000, id="no-quota"),
    ],
)
def test_version_2_quota(tmp_path: Path, affinity: int, quota: str, millis: int):
    root = machine(tmp_path, cgroup="0::/a/b\n", **{"a__b__cpu.max": quota})

    assert cpu_millis(root, affinity=affinity) == millis


def test_the_tightest_limit_on_the_way_up_counts(tmp_path: Path):
    root = machine(
        tmp_path,
        cgroup="0::/a/b\n",
        **{
            "a__b__memory.max": f"{8 * GIB}\n",
            "a__memory.max": f"{4 * GIB}\n",
            "a__b__cpu.max": "max 100000\n",
            "a__cpu.max": "250000 100000\n",
        },
    )

    assert (cpu_millis(root, affinity=8), memory_bytes(root)) == (2500, 4 * GIB)


def test_version_1_controllers(tmp_path: Path):
    root = machine(
        tmp_path,
        cgroup="4:memory:/box\n1:cpu,cpuacct:/box\n",
        **{
            "cpu,cpuacct__box__cpu.cfs_quota_us": "50000\n",
            "cpu,cpuacct__box__cpu.cfs_period_us": "100000\n",
            "memory__box__memory.limit_in_bytes": f"{2 * GIB}\n",
        },
    )

    assert (cpu_millis(root, affinity=8), memory_bytes(root)) == (500, 2 * GIB)


def test_version_1_says_unlimited_with_a_large_number(tmp_path: Path):
    root = machine(
        tmp_path,
        cgroup="4:memory:/\n1:cpu:/\n",
        **{
            "cpu__cpu.cfs_quota_us": "-1\n",
            "cpu__cpu.cfs_period_us": "100000\n",
            "memory__memory.limit_in_bytes": "9223372036854771712\n",
        },
    )

    assert (cpu_millis(root, affinity=2), memory_bytes(root)) == (2000, 16 * GIB)


def test_in_a_container_the_mount_itself_has_the_limit(tmp_path: Path):
    root = machine(tmp_path, cgroup="0::/docker/of/the/host\n", **{"memory.max": f"{3 * GIB}\n"})

    assert memory_bytes(root) == 3 * GIB


def test_slots_replace_what_the_cpus_say():
    offered = measure(slots=5)

    assert (offered.capacity.cpu_millis, offered.slots) == (5000, 5)


def test_this_machine_offers_something():
    offered = measure(environment={})

    assert 0 < offered.capacity.cpu_millis <= 1000 * len(os.sched_getaffinity(0))
    assert offered.capacity.memory_bytes > 2**26
    assert (offered.accelerator == "cpu") == (offered.capacity.gpus == 0)


class NvmlError(Exception):
    """What pynvml raises."""


def nvml(*, gpus: int, lost: tuple[int, ...] = (), gone: bool = False) -> Any:
    """A driver; ``lost`` GPUs fell off the bus, and a driver that is ``gone`` answers nothing."""

    def count() -> int:
        if gone:
            raise NvmlError("Driver Not Loaded")
        return gpus

    def handle(index: int) -> int:
        if index in lost:
            raise NvmlError("GPU is lost")
        return index

    return SimpleNamespace(
        NVMLError=NvmlError,
        nvmlDeviceGetCount=count,
        nvmlDeviceGetHandleByIndex=handle,
        nvmlDeviceGetName=lambda device: "NVIDIA H200",
    )


@pytest.mark.parametrize(
    ("driver", "visible", "names"),
    [
        pytest.param(nvml(gpus=2), None, ("0", "1"), id="both-answer"),
        pytest.param(nvml(gpus=3, lost=(0,)), None, ("1", "2"), id="the-first-is-lost"),
        pytest.param(
            nvml(gpus=3, lost=(2,)), "2,GPU-8f1e", ("GPU-8f1e",), id="a-named-one-is-lost"
        ),
        pytest.param(nvml(gpus=1, lost=(0,)), None, (), id="the-only-one-is-lost"),
        pytest.param(nvml(gpus=1, gone=True), None, (), id="the-driver-is-lost"),
    ],
)
def test_a_gpu_that_is_lost_takes_only_itself_from_jobs(
    driver: Any, visible: str | None, names: tuple[str, ...]
):
    assert answering(driver, visible) == (names, "NVIDIA H200" if names else "cpu")


LOST_FIRST = """
class NVMLError(Exception): pass
def nvmlInit(): pass
def nvmlDeviceGetCount(): return 3
def nvmlDeviceGetHandleByIndex(index):
    if index == 0: raise NVMLError("GPU is lost")
    return index
def nvmlDeviceGetName(device): return "NVIDIA H200"
def nvmlShutdown(): raise NVMLError("Driver Not Loaded")
"""


def test_a_machine_whose_first_gpu_is_lost_offers_its_processors_and_the_others(tmp_path: Path):
    (tmp_path / "pynvml.py").write_text(LOST_FIRST)
    lines = "from scaler.local.node import measure; it = measure(environment={})"
    found = subprocess.run(
        [sys.executable, "-c", f"{lines}; print(it.gpus, it.capacity.cpu_millis > 0)"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout == "('1', '2') True\n"
