"""Worlds change without ending processes, and the network has every example once per epoch.

The network is two tables of counters, one for what a sampler dealt out and one for shards: the
gradient of an example's counter is what the example weighs. So what was trained can be read off the
parameters, whoever has trained it.
"""

from pathlib import Path

import pytest

from brain.types.world import ReplicaExit
from launcher.data.ledger import ShardLedger, ShardTerms
from tests.launcher.elastic import desired, job

pytestmark = pytest.mark.slow

#: For everything, on a machine that is busy with many others.
PATIENCE_SECONDS = 200.0
EXAMPLES, EPOCHS = 300, 2
SCRIPT = """
import os, signal, time
import torch
from torch.utils.data import DataLoader
from launcher import elastic

EXAMPLES, EPOCHS, BATCH = 300, 2, 6
torch.set_num_threads(1)

class Counters(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.used = torch.nn.Parameter(torch.zeros(2, 9 * EPOCHS, EXAMPLES))

    def forward(self, table, epoch, examples):
        return -self.used[table, epoch, examples].sum()

model = Counters()
optimizer = torch.optim.SGD(model.parameters(), lr=float(BATCH))
sampler = elastic.Sampler(EXAMPLES, global_batch=BATCH, most_per_replica=2, seed=1)
loader = DataLoader(range(EXAMPLES), batch_sampler=sampler)
shards = elastic.shards("counted", EXAMPLES, shard=7, epochs=9 * EPOCHS)
session = elastic.join(model, optimizer, sampler=sampler)
size = 0
for epoch in session.epochs(EPOCHS):
    for examples in session.batches(loader):
        steps = session.steps
        if size != session.size:
            size, begun = session.size, steps
        with session.step() as part:
            loss = session.model(0, epoch, examples) / len(examples) * part.weight
            if part.last:
                taken = shards.take(2)
                one = session.model(1, shards.epoch, taken)
                loss = loss + one * session.size / BATCH
            dies = part.last and session.rank == 1 and steps == begun + 5
            if dies and not os.path.exists("died"):
                with open("dying", "w") as died:
                    died.write(str(session.world))
                os.replace("dying", "died")
                os.kill(os.getpid(), signal.SIGKILL)
            loss.backward()
            if part.last:
                optimizer.step()
                optimizer.zero_grad()
        if session.steps > steps:
            shards.step()
        elif part.last:
            shards.undo()
        # Until the world has changed there must be steps to change it at.
        if session.size == 2 and os.path.exists("died"):
            with open("died") as died:
                if session.world > int(died.read()):
                    open("hurry", "w").close()
        if not os.path.exists("hurry"):
            time.sleep(2.0 if epoch else 0.1)
state = {"shards": shards.state_dict()}
state["used"] = model.used.detach().round(decimals=3)
if session.rank == 0:
    torch.save(state, "counted.pt.tmp")
    os.replace("counted.pt.tmp", "counted.pt")
"""


@pytest.mark.timeout(500)
def test_a_kill_and_a_join_in_process_lose_and_repeat_no_example(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    with job(tmp_path, first=desired(2), script=SCRIPT) as it:
        it.start()
        it.start()
        ends = [it.ended(replica, PATIENCE_SECONDS).exit for replica in (0, 1)]
        state = torch.load(it.work / "counted.pt")

    assert ends == [ReplicaExit.SUCCEEDED] * 2
    assert (it.work / "died").exists()
    dealt, taken = state["used"].tolist()
    assert dealt[:EPOCHS] == [[1.0] * EXAMPLES] * EPOCHS
    assert taken == done_by(state["shards"])


def done_by(state: dict[str, object]) -> list[list[float]]:
    """What a ledger says was done, as counters."""
    terms = ShardTerms(name="counted", size=EXAMPLES, shard=7, epochs=9 * EPOCHS)
    ledger = ShardLedger.of(terms, state)
    left = [[0.0] * EXAMPLES for _ in range(terms.epochs)]
    while True:
        ledger, span = ledger.ask("w", ledger.doing["w"].span if ledger.doing else None, 0.0)
        if span is None:
            return [[1.0 - each for each in epoch] for epoch in left]
        left[span.epoch][span.start : span.stop] = [1.0] * (span.stop - span.start)
