"""A torch without a name that the launcher relies on: workers start plain, and a line says why."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.launcher.test_gate import reached_while_held

#: Takes names from modules of torch, as another version may not have them.
SITECUSTOMIZE = """
import os, sys
from importlib.machinery import PathFinder

class Without:
    def find_spec(self, name, path=None, target=None):
        if name not in {modules}:
            return None
        spec = PathFinder.find_spec(name, path)
        execute = spec.loader.exec_module
        def exec_module(module):
            execute(module)
            for place, gone in {names}:
                if place == name:
                    delattr(module, gone)
        spec.loader.exec_module = exec_module
        return spec

sys.meta_path.insert(0, Without())
"""

TRAIN = """
import os, sys
forked = "_brain_settings" in sys.modules
import torch, torch.distributed as dist
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    optimizer.zero_grad()
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    dist.barrier()
way = "forked" if forked else "plain"
# One write: the workers share a pipe.
sys.stdout.write(f"trained {step + 1} of {dist.get_world_size()} {way}\\n")
sys.stdout.flush()
dist.barrier()
os._exit(0)  # torch 2.13 now and then aborts as it takes a group apart
"""

EARLY = "a worker that is started ahead waits while it imports torch"


def without(directory: Path, *names: tuple[str, str]) -> Path:
    """A directory for PYTHONPATH with which torch does not have these names."""
    place = directory / "other"
    place.mkdir(exist_ok=True)
    text = SITECUSTOMIZE.format(modules={module for module, _ in names}, names=names)
    (place / "sitecustomize.py").write_text(text)
    return place


def run(directory: Path, *flags: str, other: Path | None) -> "subprocess.CompletedProcess[str]":
    """Two workers of the script, as a user starts them."""
    (directory / "train.py").write_text(TRAIN)
    path = {} if other is None else {"PYTHONPATH": str(other)}
    return subprocess.run(
        [
            *(str(Path(sys.executable).with_name("brain-run")), "--nproc-per-node=2"),
            *(*flags, "train.py"),
        ],
        cwd=directory,
        env=dict(os.environ) | {"XDG_CACHE_HOME": str(directory / "cache")} | path,
        capture_output=True,
        text=True,
        timeout=120,
    )


def lines_of_ours(ended: "subprocess.CompletedProcess[str]") -> list[str]:
    """What the agent said, but for what a busy machine makes it wait for."""
    lines = ended.stderr.splitlines()
    return [each for each in lines if each.startswith("brain:") and "waiting:" not in each]


# As many more are parked, and import torch.
@pytest.mark.slow
@pytest.mark.parametrize(("preload", "processes"), [("learned", 2), ("parked", 1)])
def test_workers_start_plain_and_train_without_a_name_that_forks_need(
    preload: str, processes: int, tmp_path: Path
) -> None:
    other = without(tmp_path, ("torch.cuda", "_lazy_init"))
    flags = f"--preload={preload}", f"--nproc-per-node={processes}"
    # The second run starts plain from what the first one learned.
    for nth in ("first", "second"):
        ended = run(tmp_path, *flags, other=other)
        assert ended.returncode == 0, ended.stderr
        (told,) = lines_of_ours(ended)
        assert told.startswith("brain: nothing is imported ahead of this script: torch 2.")
        assert told.endswith(f"has no torch.cuda._lazy_init (gate: {EARLY})")
        if (preload, nth) != ("parked", "first"):  # where one may be ready too early
            assert ended.stdout == f"trained 3 of {processes} plain\n" * processes


def test_a_part_that_alone_misses_a_name_is_told_and_workers_are_forked(tmp_path: Path) -> None:
    other = without(tmp_path, ("torch.distributed.rpc.api", "_is_current_rpc_agent_set"))
    ended = run(tmp_path, other=other)
    assert ended.returncode == 0, ended.stderr
    (told,) = lines_of_ours(ended)
    assert "workers that communicate only by RPC look like independent copies" in told
    assert ended.stdout == "trained 3 of 2 forked\n" * 2


def test_nothing_is_said_where_every_name_is_there(tmp_path: Path) -> None:
    ended = run(tmp_path, other=None)
    assert lines_of_ours(ended) == []
    assert ended.stdout == "trained 3 of 2 forked\n" * 2


def test_a_worker_started_ahead_waits_as_it_imports_a_torch_without_that_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = without(tmp_path, ("torch.distributed.distributed_c10d", "_new_process_group_helper"))
    monkeypatch.setenv("PYTHONPATH", str(other))
    assert asyncio.run(reached_while_held(tmp_path, "import torch", preload="none")) == "before "
