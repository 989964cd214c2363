"""Workers are bound to the CPUs near their GPU, by what ``/sys`` says of a machine."""

from pathlib import Path

import pytest

from brain.errors import BadInput
from launcher.workers.numa import bindings

GPUS = ("0000:01:00.0", "0000:02:00.0", "0000:81:00.0")


def a_machine(root: Path) -> Path:
    """Two sockets of one node each: CPUs 0-7 and 8-15, two threads a core, 4 CPUs a cache."""
    for gpu, node in zip(GPUS, ("0", "0", "1"), strict=True):
        put(root, f"bus/pci/devices/{gpu}/numa_node", node)
    put(root, "devices/system/node/possible", "0-1")
    put(root, "devices/system/node/node0/cpulist", "0-7")
    put(root, "devices/system/node/node1/cpulist", "8-15")
    for cpu in range(16):
        place = f"devices/system/cpu/cpu{cpu}"
        put(root, f"{place}/topology/thread_siblings_list", f"{cpu // 2 * 2}-{cpu // 2 * 2 + 1}")
        put(root, f"{place}/topology/physical_package_id", str(cpu // 8))
        put(root, f"{place}/cache/index0/type", "Instruction")
        put(root, f"{place}/cache/index3/type", "Unified")
        put(root, f"{place}/cache/index3/level", "3")
        put(root, f"{place}/cache/index3/shared_cpu_list", f"{cpu // 4 * 4}-{cpu // 4 * 4 + 3}")
    return root


def put(root: Path, name: str, content: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{content}\n")


def bound(mode: str, sys: Path, allowed: set[int] | None = None) -> list[tuple[int, ...]]:
    return bindings(mode, 3, GPUS, sys=a_machine(sys), allowed=allowed or set(range(16)))


def test_a_node_is_all_cpus_beside_the_gpu(tmp_path: Path) -> None:
    assert bound("node", tmp_path) == [tuple(range(8)), tuple(range(8)), tuple(range(8, 16))]


def test_only_cpus_that_we_may_use_are_given(tmp_path: Path) -> None:
    assert bound("node", tmp_path, {1, 2, 9}) == [(1, 2), (1, 2), (9,)]


def test_a_socket_is_all_its_nodes(tmp_path: Path) -> None:
    assert bound("socket", tmp_path)[0] == tuple(range(8))


def test_exclusive_shares_no_core(tmp_path: Path) -> None:
    assert bound("exclusive", tmp_path) == [(0, 1, 2, 3), (4, 5, 6, 7), tuple(range(8, 16))]


def test_gpus_of_a_node_get_different_caches(tmp_path: Path) -> None:
    assert bound("core-complex", tmp_path) == [(0, 1, 2, 3), (4, 5, 6, 7), (8, 9, 10, 11)]


def test_more_workers_than_gpus_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="sees 3 GPUs for 4 workers"):
        bindings("node", 4, GPUS, sys=a_machine(tmp_path))


def test_a_machine_that_does_not_tell_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="does not report its layout"):
        bindings("node", 1, GPUS, sys=tmp_path)
