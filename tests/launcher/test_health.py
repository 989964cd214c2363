"""Real jobs that stand still, or fail at one step: what is found, and what follows."""

import sys
from pathlib import Path

import pytest

from brain.types.diagnosis import Diagnosis, FailureKind
from brain.types.job import Intent
from brain.types.world import ReplicaExit, WorldEvent
from tests.launcher.elastic import ElasticJob, desired, job

pytest.importorskip("torch")

SCRIPT = """
import os, threading, time
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
step = torch.load("state.pt")["step"] if os.path.exists("state.pt") else 0

def stand_still():
    held = threading.Lock()
    held.acquire()
    held.acquire()

while step < 100000:
    if step == 12 and rank == 1:
        {fault}
    optimizer.zero_grad()
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    step += 1
    time.sleep(0.02)
    if step % 5 == 0 and rank == 0:
        torch.save({{"step": step}}, "state.new")
        os.replace("state.new", "state.pt")
    if step % 5 == 0:
        dist.barrier()
"""
ONCE = """
        try:
            os.close(os.open("once", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            pass
        else:
            stand_still()
"""


def begin(it: ElasticJob, fault: str) -> None:
    """Two replicas of a script with a fault at step 12 of rank 1."""
    script = it.home / "train.py"
    script.write_text(SCRIPT.format(fault=fault.strip()))
    launcher = (sys.executable, "-m", "torch.distributed.run")
    it.command = (*launcher, str(script))
    it.start()
    it.start()
    it.brain.told(WorldEvent.STEPPING, epoch=1)


def found(it: ElasticJob, event: WorldEvent, epoch: int) -> Diagnosis:
    """What was found of a world."""
    why = it.brain.told(event, 60, epoch=epoch).diagnosis
    assert why is not None
    return why


def test_a_world_that_stands_still_is_found_with_stacks_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BRAIN_HANG_SECONDS", "10")
    with job(tmp_path, first=desired(2)) as it:
        begin(it, ONCE)
        why = found(it, WorldEvent.HUNG, 1)
        lost = found(it, WorldEvent.LOST, 1)
        healed = it.brain.told(WorldEvent.STEPPING, 60, epoch=2)
        it.brain.wishes(0, intent=Intent.CANCEL)
        assert it.ended(0).exit is ReplicaExit.CANCELLED

    assert (why.kind, why.rank, why.step) == (FailureKind.HANG, 1, 12)
    assert "train.py" in why.sentence
    assert "stand_still" in why.sentence
    assert "stand_still" in why.attachments[0].text
    assert any("all_reduce" in each.text for each in why.attachments)
    assert (lost.kind, healed.steps_redone) == (FailureKind.HANG, 2)


def test_a_bug_that_comes_back_at_its_step_ends_the_job(tmp_path: Path) -> None:
    with job(tmp_path, first=desired(2)) as it:
        begin(it, "raise ValueError('a banana')")
        first = found(it, WorldEvent.LOST, 1)
        end = it.ended(0, 60)
        last = it.brain.told(WorldEvent.LOST, 60, final=True)

    assert (first.kind, first.rank, first.step) == (FailureKind.CODE, 1, 12)
    assert first.next_step == "the workers restart in place, from the last checkpoint"
    assert (end.exit, end.exit_code, last.epoch) == (ReplicaExit.FAILED, 1, 2)
    assert "failed 2 times at step 12" in end.detail
