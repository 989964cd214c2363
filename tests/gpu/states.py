"""States on a card that are saved, and NCCL groups that are made, ended and made again."""

import time
from typing import Any

from tests.gpu.stage import Part, Stage, ended_well

_STATE = """
import os, torch
device, pieces, words = os.environ["DEVICE"], 10, int(os.environ["WORDS"])
def print_of(state):
    order = torch.arange(words, device=device)
    return [int((state[k].to(device).view(torch.int64) * order).sum()) for k in sorted(state)]
def made():
    torch.manual_seed(1)
    return {str(n): torch.randint(-2**62, 2**62, (words,), device=device) for n in range(pieces)}
"""
_SAVES = (
    _STATE
    + """
import time
state, began = made(), time.monotonic()
torch.save(state, "state.pt")
print("saved", time.monotonic() - began, flush=True)
print("kept", *print_of(state), flush=True)
"""
)
_LOADS = (
    _STATE
    + """
print("found", *print_of(torch.load("state.pt", map_location="cpu", mmap=True)), flush=True)
"""
)
_KEEPS = (
    _STATE
    + """
import time
from launcher import checkpoint
found = checkpoint.load()
if found is None:
    state, began = made(), time.monotonic()
    checkpoint.save(state, 1)
    print("saved", time.monotonic() - began, flush=True)
    print("kept", *print_of(state), flush=True)
    raise SystemExit(1)
print("found", *print_of(found), flush=True)
"""
)


def _words(stage: Stage) -> str:
    """Of eight bytes, in each of ten tensors: 10 GB on a card."""
    return str(125_000_000 if stage.card else 125_000)


def memory_checkpoint(stage: Stage) -> str:
    """10 GB on the device, saved into memory first, are the same on storage."""
    saved = ended_well(
        stage.run(_SAVES, "--memory-checkpoint", "--checkpoint=state.pt", WORDS=_words(stage))
    )
    found = ended_well(stage.run(_LOADS, "--no-probe", WORDS=_words(stage)))
    assert saved.told("kept") == found.told("found") != [], "the bytes on storage are others"
    return f"equal bytes; torch.save took {float(saved.told('saved')[0]):.2f} s"


def elastic_checkpoint(stage: Stage) -> str:
    """The same by ``launcher.checkpoint``, found by the world after a failure."""
    run = ended_well(stage.run(_KEEPS, "--max-restarts=1", WORDS=_words(stage)))
    assert run.told("kept") == run.told("found") != [], f"other bytes\n{run.output[-2000:]}"
    return f"equal bytes; save took {float(run.told('saved')[0]):.2f} s"


def alone(device: str) -> Any:
    """A session's group of one member, and the seconds that it took."""
    import torch

    from launcher.elastic.groups import RetiredGroups, build
    from launcher.elastic.store import RendezvousStore

    where = torch.device("cuda", torch.cuda.current_device()) if device == "cuda" else "cpu"
    board = RendezvousStore(lambda key, value: None, 60.0)
    began = time.monotonic()
    group = build(board, 0, 1, host="127.0.0.1", device=torch.device(where))
    RetiredGroups.hold(group)
    return group, time.monotonic() - began


def groups(stage: Stage) -> str:
    """A session's group of one: connected as it is built, ended, and built again."""
    import torch

    seconds = []
    for _ in range(2):
        group, built = alone(stage.device)
        began = time.monotonic()
        assert group.gather([7, 8]) == [[7, 8]]
        first = time.monotonic() - began
        content = torch.ones(1 << 20, device=group.device)
        group.group.allreduce([content], torch.distributed.AllreduceOptions()).wait()
        assert content.sum().item() == 1 << 20
        seconds.append((built, first))
        group.end()
        assert group.broken
    if stage.card:
        built, first = seconds[0]
        assert first < max(0.5, built), f"the first exchange took {first:.2f} s, built {built:.2f}"
    return "; ".join(f"built in {b:.2f} s, first exchange {f * 1e3:.0f} ms" for b, f in seconds)


_SESSION = """
import os, torch
from launcher import elastic
device = os.environ["DEVICE"]
model = torch.nn.Linear(8, 8).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
session = elastic.join(model, optimizer)
while session.steps < 50:
    with session.step():
        session.model(torch.ones(4, 8, device=device)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
print("steps", session.steps, session.elastic, flush=True)
"""


def session(stage: Stage) -> str:
    """A script with a session trains on the device, in a world of one."""
    run = ended_well(stage.run(_SESSION))
    assert run.told("steps") == ["50 True"], run.output[-2000:]
    return "50 steps"


PARTS = (
    Part(name="session", act=session),
    Part(name="groups", act=groups),
    Part(name="memory-checkpoint", act=memory_checkpoint, seconds=240),
    Part(name="elastic-checkpoint", act=elastic_checkpoint, seconds=240),
)
