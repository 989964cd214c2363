"""A script's loaders follow the CPUs of its replica, as the kernel has them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from launcher.loader import Loaders, quotas

ONE, FOUR = {"LOCAL_WORLD_SIZE": "1"}, {"LOCAL_WORLD_SIZE": "4"}


def machine(root: Path, **files: str) -> Path:
    """A machine whose control group of this process has these files."""
    (root / "proc/self").mkdir(parents=True)
    names = "cpu,cpuacct" if any("cfs" in name for name in files) else ""
    (root / "proc/self/cgroup").write_text(f"7:memory:/\n0:{names}:/brain/replica\n")
    group = root / "sys/fs/cgroup" / names / "brain/replica"
    group.mkdir(parents=True)
    for name, text in files.items():
        (group / name.replace("__", ".")).write_text(text)
    return group


def tightest(root: Path) -> Callable[[], float | None]:
    """The CPUs that control groups leave, on a machine where nothing else limits them."""
    return lambda: min(quotas(root), default=None)


@pytest.mark.parametrize(
    ("files", "environ", "workers"),
    [
        ({"cpu__max": "800000 100000"}, ONE, 7),
        ({"cpu__max": "800000 100000"}, FOUR, 1),
        ({"cpu__max": "9000 100000"}, ONE, 1),
        ({"cpu__max": "6400000 100000"}, ONE, 16),
        ({"cpu__max": "max 100000"}, ONE, 3),
        ({"cpu__cfs_quota_us": "450000", "cpu__cfs_period_us": "100000"}, ONE, 3),
        ({"cpu__cfs_quota_us": "-1", "cpu__cfs_period_us": "100000"}, ONE, 3),
        ({}, ONE, 3),
    ],
)
def test_loaders_are_as_many_as_the_cpus_of_a_rank_carry(
    files: dict[str, str], environ: dict[str, str], workers: int, tmp_path: Path
):
    machine(tmp_path, **files)
    assert Loaders(3, environ=environ, cpus=tightest(tmp_path)).workers == workers


def test_a_plan_that_changes_the_quota_is_told_once_and_as_much_is_read_ahead(tmp_path: Path):
    group = machine(tmp_path, cpu__max="200000 100000")
    loaders = Loaders(4, environ=ONE, cpus=tightest(tmp_path))
    assert (loaders.workers, loaders.prefetch) == (1, 8)

    (group / "cpu.max").write_text("500000 100000")
    assert (loaders.renew(), loaders.renew()) == (True, False)
    assert (loaders.workers, loaders.prefetch) == (4, 2)


def test_a_script_that_loads_in_its_own_process_goes_on_to(tmp_path: Path):
    machine(tmp_path, cpu__max="800000 100000")
    assert Loaders(0, environ=ONE, cpus=tightest(tmp_path)).workers == 0
