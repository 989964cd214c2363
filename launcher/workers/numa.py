"""Maps GPUs to nearby CPUs for ``--numa-binding``, by the rules that torchrun documents.

This module only reads ``/sys``, whose root is an argument.
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from brain.errors import BadInput

SYS = Path("/sys")


def bindings(
    mode: str, count: int, gpus: Sequence[str], *, sys: Path = SYS, allowed: set[int] | None = None
) -> list[tuple[int, ...]]:
    """Return the CPUs of ``count`` workers; the CPUs of worker n are near GPU n.

    ``gpus`` has the PCI address of each GPU. ``mode`` is one of:

        node            all CPUs of the GPU's NUMA node
        socket          all CPUs of the GPU's socket
        exclusive       an equal share of the NUMA node's cores for each of the node's GPUs
        core-complex    the CPUs that share a last-level cache; each GPU gets a cache of its own if
                        there are enough

    Raises:
        BadInput: there are fewer GPUs than workers, or the machine does not report its layout.
    """
    if count > len(gpus):
        raise BadInput(
            f"--numa-binding={mode} binds each worker near the GPU of its local rank, but torch "
            f"sees {len(gpus)} GPUs for {count} workers; drop the flag or lower --nproc-per-node",
            field="numa_binding",
        )
    machine = _Machine(sys, os.sched_getaffinity(0) if allowed is None else allowed)
    try:
        found = [machine.near(mode, index, gpus) for index in range(count)]
    except (OSError, ValueError) as untold:
        raise BadInput(
            f"--numa-binding={mode}: this machine does not report its layout ({untold}); "
            "drop the flag",
            field="numa_binding",
        ) from untold
    if not all(found):
        raise BadInput(
            f"--numa-binding={mode} leaves a worker without a CPU that this process may use; drop "
            "the flag",
            field="numa_binding",
        )
    return [tuple(sorted(cpus)) for cpus in found]


def ranges(said: str) -> set[int]:
    """Parse CPU ranges in the kernel's format, such as ``0-2,4``.

    >>> sorted(ranges("0-2,4"))
    [0, 1, 2, 4]
    """
    found: set[int] = set()
    for piece in said.strip().split(","):
        if piece:
            first, _, last = piece.partition("-")
            found |= set(range(int(first), int(last or first) + 1))
    return found


class _Machine:
    def __init__(self, sys: Path, allowed: set[int]) -> None:
        self._sys, self._allowed = sys, allowed

    def near(self, mode: str, index: int, gpus: Sequence[str]) -> set[int]:
        nodes = [self._node_of(gpu) for gpu in gpus]
        mine = nodes[index]
        sharing = [at for at, node in enumerate(nodes) if node == mine]
        match mode:
            case "node":
                return self._cpus(mine)
            case "socket":
                return self._socket(mine)
            case "exclusive":
                return self._share(mine, sharing.index(index), len(sharing))
            case "core-complex":
                return self._complex(mine, sharing.index(index))
        raise BadInput(
            f"--numa-binding={mode} is unknown; give node, socket, exclusive or core-complex",
            field="numa_binding",
        )

    def _node_of(self, gpu: str) -> int:
        # -1 where there is only one node.
        return max(int(self._text(f"bus/pci/devices/{gpu}/numa_node")), 0)

    def _cpus(self, node: int) -> set[int]:
        return ranges(self._text(f"devices/system/node/node{node}/cpulist")) & self._allowed

    def _socket(self, node: int) -> set[int]:
        mine = self._package(min(self._cpus(node)))
        nodes = ranges(self._text("devices/system/node/possible"))
        cpus = [self._cpus(each) for each in nodes]
        return set().union(*(each for each in cpus if each and self._package(min(each)) == mine))

    def _share(self, node: int, at: int, count: int) -> set[int]:
        cores = self._grouped(node, self._siblings)
        size, more = divmod(len(cores), count)
        # The first ones take what does not divide.
        first = at * size + min(at, more)
        return set().union(*cores[first : first + size + (at < more)])

    def _complex(self, node: int, at: int) -> set[int]:
        found = self._grouped(node, self._cached)
        found.sort(key=lambda cpus: (-len(cpus), min(cpus)))
        return found[at % len(found)]

    def _grouped(self, node: int, key: Callable[[int], int]) -> list[set[int]]:
        groups: dict[int, set[int]] = {}
        for cpu in self._cpus(node):
            groups.setdefault(key(cpu), set()).add(cpu)
        return [groups[first] for first in sorted(groups)]

    def _siblings(self, cpu: int) -> int:
        return min(ranges(self._text(f"devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")))

    def _cached(self, cpu: int) -> int:
        """Return the first CPU that shares the highest level of data cache with ``cpu``."""
        levels = []
        for index in sorted((self._sys / f"devices/system/cpu/cpu{cpu}/cache").glob("index[0-9]*")):
            if (index / "type").read_text().strip() in ("Unified", "Data"):
                levels.append((int((index / "level").read_text()), index / "shared_cpu_list"))
        return min(ranges(max(levels)[1].read_text()))

    def _package(self, cpu: int) -> int:
        return int(self._text(f"devices/system/cpu/cpu{cpu}/topology/physical_package_id"))

    def _text(self, path: str) -> str:
        return (self._sys / path).read_text()
