"""Let a script's data loaders follow the CPUs that Brain's plans give to its replica.

    loaders = Loaders(4)                     # the workers if nothing limits the replica's CPUs
    loader = DataLoader(data, num_workers=loaders.workers, prefetch_factor=loaders.prefetch, ...)
    ...
        if step % 50 == 0 and loaders.renew():
            loader = DataLoader(data, num_workers=loaders.workers, ...)

A plan changes the CPU quota of a running replica's control group, so this module reads the quota
from the kernel's files. It uses only the standard library. Ranks may get different numbers of
workers.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

#: Most worker processes of one loader, unless the script says otherwise: each takes memory.
MOST = 16


class Loaders:
    """The number of worker processes that this rank's loader should have now."""

    def __init__(
        self,
        workers: int,
        prefetch: int = 2,
        *,
        most: int = MOST,
        environ: Mapping[str, str] | None = None,
        cpus: Callable[[], float | None] | None = None,
    ) -> None:
        """Begin with the replica's present CPUs.

        Args:
            workers: The script's own number; 0 loads in the script's process, and stays 0.
            prefetch: Batches that each of so many workers reads ahead.
            most: Most workers on however many CPUs.
            environ: The environment; None: that of this process.
            cpus: Returns the CPUs of the replica, or None without a limit; None: the kernel's.
        """
        self._own, self._ahead, self._most = workers, workers * prefetch, most
        self._environ, self._cpus = os.environ if environ is None else environ, cpus or _cpus
        self.workers = self._count()

    @property
    def prefetch(self) -> int:
        """The number of batches that each worker reads ahead.

        All workers together read as many batches ahead as with the script's own number of workers.
        """
        return max(2, -(-self._ahead // max(1, self.workers)))

    def renew(self) -> bool:
        """Read the replica's CPUs again; return True if the number of workers has changed."""
        before, self.workers = self.workers, self._count()
        return self.workers != before

    def _count(self) -> int:
        """Leave one CPU to the rank itself, which prepares batches for its device."""
        cpus = self._cpus()
        if self._own == 0 or cpus is None:
            return self._own
        mine = cpus / int(self._environ.get("LOCAL_WORLD_SIZE", 1))
        return min(self._most, max(1, int(mine) - 1))


def _cpus() -> float | None:
    """Return the CPUs that this process may use; None if it may use all of its machine."""
    allowed, present = len(os.sched_getaffinity(0)), os.cpu_count() or 1
    found = [*quotas(Path("/")), *([float(allowed)] if allowed < present else [])]
    return min(found, default=None)


def quotas(root: Path) -> Iterator[float]:
    """Yield the CPU quotas, in CPUs, of the control groups that contain this process.

    ``root`` is the directory that contains ``proc`` and ``sys``.
    """
    with suppress(OSError, ValueError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, names, path = line.split(":", 2)
            if not names or "cpu" in names.split(","):
                top = root / "sys/fs/cgroup" / names
                for group in _upwards(top, path):
                    yield from _quota(group)


def _upwards(top: Path, path: str) -> Iterator[Path]:
    """Yield a group and those around it; in a container the path may be the host's."""
    group = top / path.strip("/")
    while group != top and top in group.parents:
        yield group
        group = group.parent
    yield top


def _quota(group: Path) -> Iterator[float]:
    with suppress(OSError, ValueError):  # version 2
        quota, period = (group / "cpu.max").read_text().split()
        if quota != "max":
            yield int(quota) / int(period)
    with suppress(OSError, ValueError):  # version 1, where -1 is no limit
        quota, period = ((group / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
        if int(quota) > 0:
            yield int(quota) / int(period)
