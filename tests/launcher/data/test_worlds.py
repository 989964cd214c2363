"""Worlds change under real agents, and the final checkpoint has every example once per epoch."""

from pathlib import Path

import pytest

from brain.types.world import ReplicaExit, WorldEvent
from tests.launcher.elastic import desired, eventually, job

pytestmark = pytest.mark.slow

#: For one thing on a machine that is busy with many others.
PATIENCE_SECONDS = 100.0
EXAMPLES, EPOCHS = 200, 2
SCRIPT = """
import os, time
import torch
import torch.distributed as dist
from launcher.data import Sampler, TextFile, shards

EXAMPLES, EPOCHS = 200, 2
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
weight = torch.nn.Parameter(torch.zeros(1))
optimizer = torch.optim.SGD([weight], lr=0.1)
indices = Sampler(EXAMPLES, global_batch=6, most_per_replica=3, seed=1)
lines = shards("lines", TextFile("lines.txt"), shard=7, epochs=EPOCHS, seed=1)
step, used = 0, torch.zeros(2, EPOCHS, EXAMPLES, dtype=torch.long)
if os.path.exists("counted.pt"):
    state = torch.load("counted.pt")
    step, used = state["step"], state["used"]
    indices.load_state_dict(state["indices"])
    lines.load_state_dict(state["lines"])
news = torch.zeros_like(used)

def sampled():
    # A step may have several micro-batches.
    while indices.epoch < EPOCHS:
        found = []
        for batch, micro in indices.over(indices):
            found += batch[: micro.size]
            if micro.last:
                yield indices.epoch, found
                found = []

steps = sampled()
while True:
    # While the test changes the world, only some steps train; then all do.
    hurry = torch.tensor(int(os.path.exists("hurry")))
    dist.broadcast(hurry, 0)
    trains = bool(hurry) or step % 4 == 0
    found = next(steps, None) if trains else None
    if found is not None:
        for each in found[1]:
            news[0, found[0], each] += 1
        indices.step()
    taken = lines.take(2) if trains else []
    for each in taken:
        news[1, lines.epoch, int(each.split()[1])] += 1
    left = torch.tensor(int(found is not None) + len(taken))
    dist.all_reduce(left)
    optimizer.step()
    step += 1
    time.sleep(0 if hurry else 0.02)
    over = bool(hurry) and trains and not left
    if step % 5 == 0 or over:
        dist.all_reduce(news)
        used, news = used + news, torch.zeros_like(news)
        state = {"step": step, "used": used, "indices": indices.state_dict()}
        state["lines"] = lines.state_dict()
        if rank == 0:
            torch.save(state, "counted.pt.tmp")
            os.replace("counted.pt.tmp", "counted.pt")
    if over:
        break
dist.destroy_process_group()
"""


@pytest.mark.timeout(500)
def test_a_kill_and_a_join_lose_and_repeat_no_example(tmp_path: Path) -> None:
    with job(tmp_path, first=desired(2, minimum=2), minimum=2, script=SCRIPT) as it:
        text = "".join(f"line {number}\n" for number in range(EXAMPLES))
        (it.work / "lines.txt").write_text(text)
        it.start()
        it.start()
        began = it.brain.told(WorldEvent.STEPPING, PATIENCE_SECONDS, epoch=1)
        eventually((it.work / "counted.pt").exists, "a first checkpoint", PATIENCE_SECONDS)
        first = it.coordinator()
        it.kill(first)
        it.start()
        healed = it.brain.told(WorldEvent.STEPPING, PATIENCE_SECONDS, epoch=2)
        (it.work / "hurry").touch()
        ends = [it.ended(replica, PATIENCE_SECONDS).exit for replica in (1 - first, 2)]
        used = it.checkpoint()["used"]

    assert [len(world.members) for world in (began, healed)] == [2, 2]
    assert ends == [ReplicaExit.SUCCEEDED] * 2
    assert used == [[[1] * EXAMPLES] * EPOCHS] * 2
