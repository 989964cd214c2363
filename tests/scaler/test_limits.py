"""Replicas are held to what they reserve: by the control groups of this machine, where it has any.

The files of version 2 are played by folders: nothing here is held by them.
"""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from brain.types.resources import Resources
from scaler.local.limits import ControlGroups, ReplicaLimits

MIB = 2**20
RESERVED = Resources(cpu_millis=500, memory_bytes=256 * MIB)
#: Takes memory step by step, and says how much it has.
GREEDY = """
import sys
held = []
while sys.stdin.readline():
    held.append(bytearray(b"1") * (32 << 20))
    print(len(held), flush=True)
"""


@pytest.fixture
def held(tmp_path: Path) -> Iterator[tuple[ControlGroups, ReplicaLimits]]:
    limits = ControlGroups(tmp_path)
    begun = limits.begin("job-0", RESERVED, RESERVED)
    if set(begun.groups) != {"memory", "cpu"}:
        limits.end(begun)
        pytest.skip(f"this machine lets nobody make control groups: {begun.unenforced}")
    yield limits, begun
    assert limits.end(begun), "a group is left behind"


@pytest.fixture
def greedy() -> Iterator["subprocess.Popen[str]"]:
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", GREEDY]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as child:
        yield child
        child.kill()


def take(child: "subprocess.Popen[str]") -> str:
    assert child.stdin
    assert child.stdout
    child.stdin.write("\n")
    child.stdin.flush()
    return child.stdout.readline().strip()


def test_a_process_that_takes_more_memory_than_it_reserves_is_ended(
    held: tuple[ControlGroups, ReplicaLimits], greedy: "subprocess.Popen[str]"
):
    limits, begun = held
    entered = limits.enter(begun, greedy.pid, RESERVED)
    taken = []
    while said := take(greedy):
        taken.append(said)
        assert len(taken) <= 8, "nothing held it to 256 MiB"
    assert greedy.wait() == -9
    assert entered.unenforced == ""
    assert len(taken) >= 5


def test_a_limit_is_raised_while_the_process_runs(
    held: tuple[ControlGroups, ReplicaLimits], greedy: "subprocess.Popen[str]"
):
    limits, begun = held
    entered = limits.enter(begun, greedy.pid, RESERVED)
    more = Resources(cpu_millis=1500, memory_bytes=1024 * MIB)
    changed = limits.change(entered, more, more, (greedy.pid,))

    assert (changed.resources, changed.unenforced) == (more, "")
    assert [take(greedy) for _ in range(10)][-1] == "10"


def test_a_limit_below_what_is_used_is_not_set_and_says_so(
    held: tuple[ControlGroups, ReplicaLimits], greedy: "subprocess.Popen[str]"
):
    limits, begun = held
    entered = limits.enter(begun, greedy.pid, RESERVED)
    for _ in range(4):
        take(greedy)
    less = Resources(cpu_millis=500, memory_bytes=64 * MIB)
    changed = limits.change(entered, less, less, (greedy.pid,))

    assert changed.resources == RESERVED
    assert changed.unenforced == (
        "memory 0.0625 GiB is too close to the replica's present use, so the earlier limit stays"
    )
    take(greedy)
    assert limits.change(changed, less, less, (greedy.pid,)) == changed, "nothing new to tell"
    assert take(greedy) == "6", "it goes on as before"


def test_a_limit_is_not_lowered_to_what_is_used_and_a_full_one_is_raised(tmp_path: Path):
    for name, text in {"memory.max": "max", "memory.current": str(250 * MIB)}.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "memory.stat").write_text("inactive_file 0\n")
    held = ReplicaLimits(
        resources=Resources(memory_bytes=1024 * MIB), groups={"memory": str(tmp_path)}
    )
    limits, less = ControlGroups(tmp_path), Resources(memory_bytes=256 * MIB)
    assert "too close to the replica's present use" in limits.change(held, less, less).unenforced
    assert (tmp_path / "memory.max").read_text() == "max"

    full = ReplicaLimits(resources=less, groups=held.groups)
    more = Resources(memory_bytes=257 * MIB)
    assert limits.change(full, more, more).resources == more


def test_limits_of_a_group_that_a_process_is_not_in_hold_nothing_and_say_so(
    held: tuple[ControlGroups, ReplicaLimits], greedy: "subprocess.Popen[str]"
):
    limits, begun = held
    changed = limits.change(begun, RESERVED, RESERVED, (greedy.pid,))
    assert f"process {greedy.pid} is not in" in changed.unenforced

    entered = limits.enter(begun, greedy.pid, RESERVED)
    assert limits.change(entered, RESERVED, RESERVED, (greedy.pid,)).unenforced == ""


def test_memory_that_the_kernel_does_not_take_is_not_said_to_be_reserved(tmp_path: Path):
    (tmp_path / "memory.max").mkdir()
    held = ReplicaLimits(resources=RESERVED, groups={"memory": str(tmp_path)})
    more = Resources(cpu_millis=500, memory_bytes=512 * MIB)
    changed = ControlGroups(tmp_path).change(held, more, more)

    assert changed.resources == RESERVED
    assert "rejects 536870912" in changed.unenforced


def test_an_abandoned_group_is_removed_by_whoever_begins_next(tmp_path: Path):
    begun = ControlGroups(tmp_path / "gone").begin("job-0", RESERVED, RESERVED)
    if not begun.groups:
        pytest.skip(f"this machine lets nobody make control groups: {begun.unenforced}")
    made = Path(begun.groups["cpu"])
    ControlGroups(tmp_path).sweep(made.stat().st_mtime + 30)
    assert made.exists(), "one that was just made may be entered in a moment"
    ControlGroups(tmp_path).sweep(made.stat().st_mtime + 61)
    assert not made.exists()


def test_without_control_groups_it_says_what_holds_nothing(tmp_path: Path):
    begun = ControlGroups(tmp_path, root=tmp_path).begin("job-0", RESERVED, RESERVED)

    assert begun.groups == {}
    assert "memory 0.25 GiB: this machine has no control groups" in begun.unenforced
    assert "CPU 0.5: limited to 1 whole CPUs by affinity" in begun.unenforced


def test_without_control_groups_what_runs_keeps_its_processors(
    tmp_path: Path, greedy: "subprocess.Popen[str]"
):
    limits, whole = ControlGroups(tmp_path, root=tmp_path), Resources(cpu_millis=1000)
    begun = limits.begin("job-0", whole, whole)
    assert begun.unenforced == ""
    changed = limits.change(begun, whole, whole, (greedy.pid,))
    assert changed.unenforced == (
        "CPU 1: limited by CPU affinity, without a control group, from the replica's next start"
    )


def test_version_2_makes_groups_below_the_nearest_that_may_have_children(tmp_path: Path):
    user = tmp_path / "sys/fs/cgroup/user.slice"
    (user / "brain.scope").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/cgroup.controllers").write_text("cpu memory")
    (user / "cgroup.subtree_control").write_text("memory cpu")
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/user.slice/brain.scope\n")
    limits = ControlGroups(tmp_path, root=tmp_path)
    group = Path(limits.begin("job-0", RESERVED, RESERVED).groups["memory"])
    assert group.parent == user
    for name in ("memory.max", "cpu.max"):
        (group / name).write_text("max")
    both = {"memory": str(group), "cpu": str(group)}
    changed = limits.change(ReplicaLimits(resources=RESERVED, groups=both), RESERVED, RESERVED)

    assert changed.unenforced == ""
    assert (group / "memory.max").read_text() == str(256 * MIB)
    assert (group / "cpu.max").read_text() == "50000 100000"


def test_groups_that_are_not_of_a_replica_are_neither_changed_nor_removed(tmp_path: Path):
    (tmp_path / "sys/fs/cgroup/another").mkdir(parents=True)
    limits, mount = ControlGroups(tmp_path, tmp_path), tmp_path / "sys/fs/cgroup"
    own = f"{limits._prefix}job-0"
    strange = (mount / "another", tmp_path / own, mount / "x" / ".." / ".." / own)
    for group in strange:
        written = ReplicaLimits(resources=RESERVED, groups={"memory": str(group)})
        assert limits.made(written, "job-0").groups == {}
    written = ReplicaLimits(resources=RESERVED, groups={"memory": str(mount / own)})
    assert limits.made(written, "job-0") == written
    assert limits.made(written, "job-1").groups == {}
