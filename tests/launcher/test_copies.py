"""By hand several workers of a script for one process are told to be copies of one program."""

import subprocess
import sys
from pathlib import Path

import pytest

PLAIN = """
import os, time, torch
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
{several}
for step in range(1, 31):
    optimizer.zero_grad()
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    time.sleep(0.02)
    if step % 5 == 0:
        torch.save({{"step": step}}, f"state.{{os.environ['RANK']}}.pt")
time.sleep(0.5)
os._exit(0)  # torch 2.13 now and then aborts as it takes a group apart
"""

GROUP = """
torch.distributed.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(model)
"""


def told(directory: Path, several: str, *flags: str) -> list[str]:
    """The lines of a run that name copies."""
    (directory / "train.py").write_text(PLAIN.format(several=several))
    run = subprocess.run(
        [str(Path(sys.executable).with_name("brain-run")), *flags, "train.py"],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.returncode == 0, run.stderr
    return [line for line in run.stderr.splitlines() if "not-distributed" in line]


def test_two_workers_of_a_script_for_one_process_are_told_once(tmp_path: Path) -> None:
    (line,) = told(tmp_path, "", "--nproc-per-node=2")

    assert line.startswith("brain: not-distributed: the 2 workers are copies of one program")
    assert "join a process group" in line


@pytest.mark.parametrize(("several", "workers"), [(GROUP, 2), ("", 1)])
def test_nothing_is_told_of_a_group_and_of_one_worker(
    several: str, workers: int, tmp_path: Path
) -> None:
    assert told(tmp_path, several, f"--nproc-per-node={workers}") == []
