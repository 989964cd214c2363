"""The memory checkpoint under brain-run: what one world saved is what the next one begins with."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from brain.types.job import Checkpoint, Intent
from brain.types.world import MemoryCheckpoint, WorldEvent
from launcher.values.ram_checkpoint.links import SHARED
from tests.launcher.elastic import desired, job

#: Saves at step 5, fails once at step 7, saves at step 10.
UNMODIFIED = """
import os, sys, torch
state = torch.load('model.pt') if os.path.exists('model.pt') else dict(step=0)
print('from', state['step'], flush=True)
for step in range(state['step'] + 1, 11):
    if step % 5 == 0:
        torch.save(dict(step=step, weights=torch.full((1 << 19,), float(step))), 'model.tmp')
        os.replace('model.tmp', 'model.pt')
    if step == 7 and os.environ['TORCHELASTIC_RESTART_COUNT'] == '0':
        sys.exit(3)
"""
#: The same with two lines of ours, and nothing that goes to storage by itself.
API = """
import os, sys, torch
from launcher import checkpoint
state = checkpoint.load() or dict(step=0)
print('from', state['step'], sorted(os.listdir('checkpoint')) if state['step'] else '', flush=True)
for step in range(state['step'] + 1, 11):
    if step % 5 == 0:
        checkpoint.save(dict(step=step), step, storage=False)
    if step == 7 and os.environ['TORCHELASTIC_RESTART_COUNT'] == '0':
        sys.exit(3)
"""


def brain_run(script: str, directory: Path, *flags: str, **environment: str) -> str:
    """What ``brain-run`` printed, which ended well and left no memory behind."""
    path = directory / "train.py"
    path.write_text(script)
    name = f"worlds{os.getpid()}"
    command = [sys.executable, "-m", "launcher.cli", "--job", name, "--max-restarts=1"]
    ran = subprocess.run(
        [*command, "--home", str(directory / "home"), *flags, str(path)],
        cwd=directory,
        env=dict(os.environ, **environment),
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert ran.returncode == 0, ran.stderr
    assert not list(SHARED.glob(f"brain-*-{name}-*"))
    return ran.stdout


@pytest.mark.slow
def test_a_script_that_fails_goes_on_from_memory_and_ends_on_storage(tmp_path: Path) -> None:
    said = brain_run(UNMODIFIED, tmp_path, "--memory-checkpoint")
    names = sorted(name for name in os.listdir(tmp_path) if name not in ("home", "train.py"))
    assert said.split() == ["from", "0", "from", "5"]
    assert names == ["model.pt"]
    assert not (tmp_path / "model.pt").is_symlink()


def test_the_environment_asks_for_it_as_well(tmp_path: Path) -> None:
    look = "import sys; print(bool(getattr(sys.modules.get('_brain_shim'), '_shim', None)))"
    asked = brain_run(look, tmp_path, BRAIN_MEMORY_CHECKPOINT="1")
    unasked = brain_run(look, tmp_path)
    assert (asked.strip(), unasked.strip()) == ("True", "False")


def test_a_script_with_two_lines_of_ours_needs_no_flag(tmp_path: Path) -> None:
    assert brain_run(API.replace("storage=False", "storage=True"), tmp_path).startswith(
        "from 0 \nfrom 5"
    )
    assert (tmp_path / "checkpoint" / "step-10.pt").exists()


@pytest.mark.slow
def test_what_was_to_stay_in_memory_is_on_storage_before_a_failed_world_starts_anew(
    tmp_path: Path,
) -> None:
    said = brain_run(API, tmp_path, "--save_at_breakpoint")
    assert said.splitlines() == ["from 0 ", "from 5 ['step-5.pt']"]


def test_a_coordinator_tells_brain_how_far_memory_is_ahead_of_storage(tmp_path: Path) -> None:
    with job(tmp_path, "--steps=100000", "--save-every=5", first=desired(1)) as it:
        it.declares = Checkpoint(memory=True)
        it.begin(1)
        told = it.brain.told(WorldEvent.MEMORY, epoch=1)
        it.brain.wishes(0, intent=Intent.CANCEL)
        it.ended(0)
    assert [member.memory for member in told.members] == [MemoryCheckpoint()]
