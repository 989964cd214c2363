"""Measures this machine: CPUs by affinity and cgroup quota, memory by cgroup, GPUs by NVML."""

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from itertools import takewhile
from pathlib import Path
from typing import Any

from brain.types.accelerators import NVIDIA
from brain.types.resources import Resources

#: cgroup v1 writes *unlimited* as a number close to 2^63.
_UNLIMITED_BYTES = 2**60


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalMachine:
    """The capacity of this machine, and the names that select its GPUs."""

    capacity: Resources
    accelerator: str = "cpu"
    #: GPU names in the form of ``CUDA_VISIBLE_DEVICES``.
    gpus: tuple[str, ...] = ()
    #: Set if ``--slots`` replaced the measured CPUs.
    slots: int | None = None


def measure(
    *, slots: int | None = None, root: Path = Path("/"), environment: Mapping[str, str] = os.environ
) -> LocalMachine:
    """Measure this machine; if ``slots`` is given, its CPU capacity counts as ``slots`` × 1000
    mCPU.
    """
    gpus, accelerator = _gpus(environment.get(NVIDIA.visible))
    return LocalMachine(
        capacity=Resources(
            cpu_millis=cpu_millis(root) if slots is None else slots * 1000,
            memory_bytes=memory_bytes(root),
            gpus=len(gpus),
        ),
        accelerator=accelerator,
        gpus=gpus,
        slots=slots,
    )


def cpu_millis(root: Path = Path("/"), affinity: int | None = None) -> int:
    """Return the CPUs that this process may use, in thousandths, by affinity and all quotas."""
    cpus = len(os.sched_getaffinity(0)) if affinity is None else affinity
    return min([cpus * 1000, *_quotas(root)])


def memory_bytes(root: Path = Path("/")) -> int:
    """Return the bytes of memory that this process may use: the total, within every cgroup's
    limit.
    """
    fields = dict(
        line.split(":", 1) for line in (root / "proc/meminfo").read_text().splitlines() if line
    )
    total = int(fields["MemTotal"].split()[0]) * 1024
    return min([total, *_memory_limits(root)])


def _quotas(root: Path) -> Iterator[int]:
    for folder in _cgroups(root, "cpu"):
        quota, period = "max", "100000"
        with suppress(OSError, ValueError):
            quota, period = (folder / "cpu.max").read_text().split()
        with suppress(OSError):
            quota = (folder / "cpu.cfs_quota_us").read_text().strip()
            period = (folder / "cpu.cfs_period_us").read_text().strip()
        if quota.isdigit():
            yield max(1, int(quota) * 1000 // int(period))


def _memory_limits(root: Path) -> Iterator[int]:
    for folder in _cgroups(root, "memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            with suppress(OSError):
                said = (folder / name).read_text().strip()
                if said.isdigit() and int(said) < _UNLIMITED_BYTES:
                    yield int(said)


def _cgroups(root: Path, controller: str) -> Iterator[Path]:
    """Return the folders of this process's cgroup and of all above, version 2 and version 1."""
    mount = root / "sys/fs/cgroup"
    with suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers and controller not in controllers.split(","):
                continue
            top = mount / controllers if controllers else mount
            # In a container the path may be the host's, which is not mounted: then the top folder
            # has the limits.
            inner = Path(path.lstrip("/"))
            yield from (top / part for part in (inner, *inner.parents))


def _gpus(visible: str | None) -> tuple[tuple[str, ...], str]:
    """Return names and product of the NVIDIA GPUs here; a machine without GPUs is normal."""
    try:
        nvml = import_module("pynvml")
    except ImportError:
        return (), "cpu"
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return (), "cpu"
    try:
        return answering(nvml, visible)
    finally:
        with suppress(nvml.NVMLError):
            nvml.nvmlShutdown()


def answering(nvml: Any, visible: str | None) -> tuple[tuple[str, ...], str]:
    """Return names and product of the GPUs that answer; ``nvml`` is the initialised module
    ``pynvml``.

    A GPU that fell off the bus, or a driver that was lost, keeps neither the other GPUs nor the
    processors from jobs.
    """
    count, products = 0, dict[str, str]()
    with suppress(nvml.NVMLError):
        count = nvml.nvmlDeviceGetCount()
    for index in range(count):
        with suppress(nvml.NVMLError):
            device = nvml.nvmlDeviceGetHandleByIndex(index)
            products[str(index)] = nvml.nvmlDeviceGetName(device)
    if not products:
        return (), "cpu"
    lost = {str(index) for index in range(count)} - products.keys()
    names = tuple(name for name in lent(count, visible) if name not in lost)
    return names, next(iter(products.values())) if names else "cpu"


def lent(count: int, visible: str | None) -> tuple[str, ...]:
    """Return the names of the GPUs (of ``count``) that ``CUDA_VISIBLE_DEVICES`` allows; all if it
    is None.

    >>> lent(4, None), lent(4, "2,GPU-8f1e"), lent(4, "1,-1,2"), lent(4, ""), lent(0, "0")
    (('0', '1', '2', '3'), ('2', 'GPU-8f1e'), ('1',), (), ())
    """
    if visible is None or not count:
        return tuple(str(index) for index in range(count))
    # Like CUDA, stop at the first invalid name.
    names = (name.strip() for name in visible.split(","))
    return tuple(takewhile(lambda name: name not in ("", "-1"), names))
