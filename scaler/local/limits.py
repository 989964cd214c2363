"""Limits a replica to its reservation, by a control group or else by CPU affinity.

    version 2   memory.max, cpu.max            below the nearest group that may have children
    version 1   memory.limit_in_bytes, cpu.cfs_quota_us     each below this process's own group
    neither     affinity to whole processors, for processes that the replica starts from then on

An rlimit cannot replace a memory limit: rlimits count address space, so they would end a replica
that uses less than it reserves.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from zlib import crc32

from brain.types.resources import Resources

#: Prefix of group names, before job and replica. The collector finds by it the groups to leave.
PREFIX = "brain-"
_PERIOD_US = 100_000
#: The kernel takes no quota below a millisecond.
_LEAST_QUOTA_US = 1_000
#: Greatest used share of a lowered limit: a replica that runs out of memory is ended.
_FULL = 0.95
#: Age of an empty group that counts as abandoned: a new group is entered within moments.
_ABANDONED_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaLimits:
    """``limits.json``: a replica's reservation, and what enforces it."""

    resources: Resources
    #: Folder of the replica's control group, by controller.
    groups: Mapping[str, str] = field(default_factory=dict)
    #: The part of the reservation that is not enforced, and why; empty if all is enforced.
    unenforced: str = ""


class ControlGroups:
    """The control groups that this process may create.

    ``root`` is the directory that contains ``proc`` and ``sys``. ``home`` is Brain's state
    directory; it distinguishes the groups of several installations.
    """

    def __init__(self, home: Path, root: Path = Path("/")) -> None:
        self._prefix = f"{PREFIX}{crc32(os.fsencode(home)):08x}-"
        self._mount = root / "sys/fs/cgroup"
        self._version2 = (self._mount / "cgroup.controllers").exists()
        self._own = root / "proc/self/cgroup"

    def begin(self, name: str, resources: Resources, hold: Resources) -> ReplicaLimits:
        """Make the groups of a replica that is about to start, and set their limits.

        ``resources`` is the reservation; ``hold`` has the amounts to enforce.
        """
        groups: dict[str, str] = {}
        for controller in ("memory", "cpu"):
            with suppress(OSError):
                if (parent := self._parent(controller)) is not None:
                    group = parent / f"{self._prefix}{name}"
                    group.mkdir(exist_ok=True)
                    groups[controller] = str(group)
        return self.change(ReplicaLimits(resources=resources, groups=groups), resources, hold)

    def made(self, held: ReplicaLimits, name: str) -> ReplicaLimits:
        """Return the record without control groups that ``begin`` does not make for ``name``.

        The record comes from a file that a job of the agent's user can also write.
        """
        own = {
            controller: group
            for controller, group in held.groups.items()
            if Path(group).is_relative_to(self._mount)
            and Path(group).name == f"{self._prefix}{name}"
            and ".." not in group
        }
        return replace(held, groups=own)

    def change(
        self, held: ReplicaLimits, resources: Resources, hold: Resources, pids: tuple[int, ...] = ()
    ) -> ReplicaLimits:
        """Set other limits; a replica that uses more memory than the new limit keeps the old one.

        ``pids`` are the replica's processes, for limits that apply to processes and not to a group.
        """
        memory, cpu = held.groups.get("memory"), held.groups.get("cpu")
        lacking: list[str] = []
        if memory is not None:
            used = _used(Path(memory))
            lowers = not 0 < held.resources.memory_bytes <= hold.memory_bytes
            if hold.memory_bytes and used > hold.memory_bytes * (_FULL if lowers else 1):
                # The message has no amount, which changes; telemetry has the replica's use.
                why = (
                    f"memory {_gib(hold.memory_bytes)} is too close to the replica's present use, "
                    "so the earlier limit stays"
                )
                return replace(held, unenforced=why)
            lacking += _put(Path(memory), "memory", *_memory_files(hold.memory_bytes))
            if lacking and resources != held.resources:  # the kernel keeps the earlier limit
                return replace(held, unenforced="; ".join(lacking))
        elif hold.memory_bytes:
            lacking.append(f"memory {_gib(hold.memory_bytes)}: {self._why('memory')}")
        if cpu is not None:
            lacking += _put(Path(cpu), "CPU", *_cpu_files(hold.cpu_millis))
        else:
            lacking += _pin(pids, hold.cpu_millis)
            if pids and hold.cpu_millis:  # a mask binds one thread and its later children
                said = (
                    f"CPU {hold.cpu_millis / 1000:g}: limited by CPU affinity, without a "
                    "control group, from the"
                )
                lacking.append(f"{said} replica's next start")
        lacking += [why for pid in pids for why in _outside(held, pid)]
        return ReplicaLimits(resources=resources, groups=held.groups, unenforced="; ".join(lacking))

    def enter(self, held: ReplicaLimits, pid: int, hold: Resources) -> ReplicaLimits:
        """Put a process that has just started, and its later children, under its limits."""
        lacking = [held.unenforced] if held.unenforced else []
        for folder in sorted(set(held.groups.values())):
            try:
                (Path(folder) / "cgroup.procs").write_text(str(pid))
            except OSError as why:
                lacking.append(f"process {pid} cannot be moved into {folder}: {why.strerror}")
        if "cpu" not in held.groups:
            _pin((pid,), hold.cpu_millis)
        return replace(held, unenforced="; ".join(lacking))

    def end(self, held: ReplicaLimits) -> bool:
        """Remove the groups; return False while a process of the replica is still in one."""
        for folder in sorted(set(held.groups.values())):
            group = Path(folder)
            with suppress(OSError):  # fails while the collector runs in it
                (group.parent / f"{PREFIX}collector").rmdir()
            try:
                group.rmdir()
            except FileNotFoundError:
                continue
            except OSError:
                return False
        return True

    def sweep(self, now: float) -> None:
        """Remove empty groups of installations that are gone; ``now`` is a Unix time in seconds."""
        for parent in {self._parent("memory"), self._parent("cpu")} - {None}:
            assert parent is not None
            for group in parent.glob(f"{PREFIX}*"):
                with suppress(OSError):  # a group in use cannot be removed
                    if now - group.stat().st_mtime > _ABANDONED_SECONDS:
                        group.rmdir()

    def _parent(self, controller: str) -> Path | None:
        """Return the group below which a replica's group may be made; None if there is none."""
        said = self._own.read_text() if self._own.exists() else ""
        for line in said.splitlines():
            _, controllers, path = line.split(":", 2)
            if self._version2 and not controllers:
                return next(_delegated(self._mount, path), None)
            if not self._version2 and controller in controllers.split(","):
                top = self._mount / controllers
                own = top / path.strip("/")
                # In a container the path may be the host's, which is not mounted.
                return next((one for one in (own, top) if one.is_dir()), None)
        return None

    def _why(self, controller: str) -> str:
        parent = self._parent(controller)
        if parent is not None and os.access(parent, os.W_OK):
            return "the replica was started without a control group; its next start creates one"
        if not self._mount.exists():
            return "this machine has no control groups, so nothing enforces the limit"
        if self._version2:
            return (
                "Brain may not create control groups here; start Brain with `systemd-run --user "
                "--scope brain up`"
            )
        return (
            f"Brain may not create control groups below its own group of {controller}; run Brain "
            "as the owner of that group"
        )


def _delegated(mount: Path, path: str) -> Iterator[Path]:
    """Return groups, the process's own first, that give both controllers to their children.

    In version 2 only a group without processes of its own may.
    """
    group = mount / path.strip("/")
    for one in (group, *group.parents):
        if not one.is_relative_to(mount):
            return
        control = one / "cgroup.subtree_control"
        with suppress(OSError):
            missing = {"cpu", "memory"} - set(control.read_text().split())
            if missing:
                control.write_text(" ".join(f"+{name}" for name in sorted(missing)))
            if os.access(one, os.W_OK):
                yield one


def _memory_files(amount: int) -> tuple[tuple[str, str], ...]:
    return (
        ("memory.max", str(amount) if amount else "max"),
        ("memory.limit_in_bytes", str(amount or -1)),
    )


def _cpu_files(millis: int) -> tuple[tuple[str, str], ...]:
    quota = max(_LEAST_QUOTA_US, millis * _PERIOD_US // 1000) if millis else 0
    return (
        ("cpu.max", f"{quota or 'max'} {_PERIOD_US}"),
        ("cpu.cfs_quota_us", str(quota or -1)),
    )


def _put(group: Path, what: str, *files: tuple[str, str]) -> list[str]:
    """Write the file that this version of control groups has; return why that fails."""
    for name, text in files:
        if (group / name).exists():
            try:
                (group / name).write_text(text)
            except OSError as why:
                return [f"{what}: {group / name} rejects {text}: {why.strerror}"]
            return []
    return [f"{what}: {group} has no {files[0][0]}"]


def _outside(held: ReplicaLimits, pid: int) -> Iterator[str]:
    """Return groups whose limits do not hold a process, because it could not enter them."""
    for folder in sorted(set(held.groups.values())):
        with suppress(OSError):
            if str(pid) not in (Path(folder) / "cgroup.procs").read_text().split():
                yield (
                    f"process {pid} is not in control group {folder}; the replica's next start "
                    "tries again"
                )


def _used(group: Path) -> int:
    """Return bytes that the group needs: the kernel can drop inactive file pages."""
    with suppress(OSError, ValueError):
        name = "memory.current" if (group / "memory.current").exists() else "memory.usage_in_bytes"
        used = int((group / name).read_text())
        rows = (line.split() for line in (group / "memory.stat").read_text().splitlines())
        cache = {row[0]: int(row[1]) for row in rows if len(row) == 2}
        return used - cache.get("total_inactive_file", cache.get("inactive_file", 0))
    return 0


def _pin(pids: tuple[int, ...], millis: int) -> list[str]:
    """Restrict processes to a number of this process's CPUs, rounded up; 0 means all.

    Return the amounts that this does not enforce.
    """
    mine = sorted(os.sched_getaffinity(0))
    wanted = min(len(mine), -(-millis // 1000)) if millis else len(mine)
    for pid in pids:
        first = pid % len(mine)
        with suppress(OSError):
            os.sched_setaffinity(pid, [mine[(first + n) % len(mine)] for n in range(wanted)])
    if millis % 1000 == 0:
        return []
    return [
        f"CPU {millis / 1000:g}: limited to {wanted} whole CPUs by affinity, without a control "
        "group"
    ]


def _gib(amount: int) -> str:
    return f"{amount / 2**30:.3g} GiB"
