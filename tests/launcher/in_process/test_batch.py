"""Real agents, real processes: the batch that Brain chose is split over the world of each step."""

from collections import defaultdict
from pathlib import Path

import pytest

from brain.types.batch import BatchWish
from brain.types.world import ReplicaExit
from tests.launcher.elastic import ElasticJob, desired, eventually, job

pytestmark = pytest.mark.slow

#: For everything, on a machine that is busy with many others.
PATIENCE_SECONDS = 200.0
SCRIPT = """
import os, time
import torch
from launcher import elastic
from launcher.batch import Batch

torch.set_num_threads(1)
batch = Batch(5)  # what a newcomer must not take
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
session = elastic.join(model, optimizer)
with open(f"steps-{os.getpid()}", "w", buffering=1) as lines:
    while not os.path.exists("end"):
        with session.step():
            for _ in range(batch.accumulation):
                session.model(torch.ones(batch.local, 2)).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        made = f"{session.size} {session.steps} {batch.local * batch.accumulation}"
        renewed = session.steps % 20 == 0 and batch.renew()
        print(made, int(renewed), file=lines)
        time.sleep(0.02)
"""


def steps(it: ElasticJob) -> dict[int, list[tuple[int, ...]]]:
    """World size, step, examples, and whether ``renew`` told of a change: of each process."""
    return {
        int(file.name.rpartition("-")[2]): [
            tuple(map(int, line.split()))
            for line in file.read_text().rpartition("\n")[0].splitlines()
        ]
        for file in it.work.glob("steps-*")
    }


def trains(it: ElasticJob, first: int, size: int) -> None:
    """Wait until the first process has made 30 steps in a row in a world of ``size``."""

    def look() -> bool:
        last = steps(it)[first][-30:]
        return len(last) == 30 and all(made[0] == size for made in last)

    eventually(look, f"30 steps in a world of {size}", PATIENCE_SECONDS)


@pytest.mark.timeout(500)
def test_every_step_makes_the_global_batch_of_its_world_before_a_script_asks_again(
    tmp_path: Path,
) -> None:
    wish = BatchWish(global_size=16, local_most=8)
    with job(tmp_path, first=desired(1, batch=wish), script=SCRIPT) as it:
        it.start_and_wait()
        (first,) = eventually(lambda: steps(it), "a first worker", PATIENCE_SECONDS)
        trains(it, first, 1)
        it.brain.wishes(2, generation=1)
        it.start(generation=1)
        trains(it, first, 2)
        it.brain.wishes(1, generation=2)
        assert it.ended(1, PATIENCE_SECONDS).exit is ReplicaExit.LEFT
        trains(it, first, 1)
        (it.work / "end").touch()
        assert it.ended(0, PATIENCE_SECONDS).exit is ReplicaExit.SUCCEEDED
        made = steps(it)

    shares = defaultdict(list)
    for size, step, examples, _ in [each for of in made.values() for each in of]:
        shares[size, step].append(examples)
    assert {(size, *each) for (size, _), each in shares.items()} == {(1, 16), (2, 8, 8)}
    assert [size for size, _, _, renewed in made.pop(first) if renewed] == [2, 1]
    assert not any(renewed for of in made.values() for *_, renewed in of)
