"""Worlds whose workers use a card: forked, killed, prepared, parked, joined."""

import time

from tests.gpu.stage import Part, Stage, ended_well, told

#: Libraries that look at devices as they are imported: one only asks, one makes a context.
_ASKS = "import torch\nCOUNT = torch.cuda.device_count()\nTHERE = torch.cuda.is_available()\n"
_MAKES = "import os, torch\nONE = torch.ones(1, device=os.environ.get('DEVICE', 'cpu'))\n"
_FORKED = """
import os, time, {library}
import torch
began = time.monotonic()
there = torch.arange(1000, device=os.environ["DEVICE"]).sum().item()
assert there == 499500, there
print("first use", time.monotonic() - began, flush=True)
model = torch.nn.Linear(8, 8).to(os.environ["DEVICE"])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(5):
    model(torch.ones(4, 8, device=os.environ["DEVICE"])).sum().backward()
    optimizer.step()
"""


def forked(stage: Stage) -> str:
    """A worker that was forked uses the card, although a library asked for devices before."""
    stage.write("lib/asks_for_devices.py", _ASKS)
    stage.write("lib/makes_a_context.py", _MAKES)
    seconds = []
    for library in ("asks_for_devices", "makes_a_context"):
        # The first run learns what is imported, the second one has it ahead.
        for _ in range(2):
            run = ended_well(stage.run(_FORKED.format(library=library)))
            seconds += [float(each) for each in run.told("first use")]
    assert len(seconds) == 4, f"{len(seconds)} of 4 workers have used the device"
    return f"four workers used the device, at first within {max(seconds):.2f} s"


_KILLED = """
import os, signal, torch
device = os.environ["DEVICE"]
most = torch.cuda.mem_get_info()[0] if device == "cuda" else 1 << 28
held = torch.ones(int(most * 0.6), dtype=torch.uint8, device=device)
print("held", held.numel(), flush=True)
if not os.path.exists("killed"):
    open("killed", "w").close()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def killed(stage: Stage) -> str:
    """The next world has the memory of a worker that was killed."""
    run = ended_well(stage.run(_KILLED, "--max-restarts=1"))
    held = [int(each) for each in run.told("held")]
    assert len(held) == 2, f"{len(held)} worlds instead of two held memory\n{run.output[-2000:]}"
    assert held[1] >= 0.95 * held[0], f"the second world found less memory: {held} bytes"
    return f"the second world had {held[1] / 2**30:.1f} GiB, 60 % of what was free, again"


_GROWS = """
import os, time
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

device = os.environ["DEVICE"]
model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.Linear(256, 1)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
step = 0
dist.init_process_group("gloo")
if os.path.exists("state.pt"):
    state = torch.load("state.pt", map_location=device)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    step = state["step"]
size, rank = dist.get_world_size(), dist.get_rank()
print(f"loaded {step} of {size}", flush=True)
network = DDP(model)
enough = torch.zeros(1)
while not enough.item():
    network(torch.ones(16, 256, device=device)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    step += 1
    if step % 20 == 0:
        if rank == 0:
            state = dict(model=model.state_dict(), optimizer=optimizer.state_dict(), step=step)
            torch.save(state, "state.tmp")
            os.replace("state.tmp", "state.pt")
            print(f"saved {step} of {size}", flush=True)
        enough.fill_(float(os.path.exists("enough")))
        dist.all_reduce(enough, op=dist.ReduceOp.MIN)
    time.sleep(0.02)
# Torch 2.13 may hang where it takes a gloo group apart.
os._exit(0)
"""


def joined(stage: Stage) -> str:
    """A world of one grows to two ranks on one card, over gloo; its workers are prepared ahead."""
    from launcher.workers.processes.process import free_port

    meeting = f"--rdzv-endpoint=127.0.0.1:{free_port('127.0.0.1')}"
    flags = ("--nnodes=1:2", meeting, "--checkpoint=state.pt", "--nproc-per-node=1")
    with stage.started(_GROWS, *flags) as first:
        stage.until(lambda: "saved 40 of 1" in first.output, "the first world's step 40")
        with stage.started(_GROWS, *flags) as second:
            both = (first, second)

            def saved_by_two() -> bool:
                lines = [line for agent in both for line in told(agent.output, "saved")]
                return any(line.endswith("of 2") for line in lines)

            stage.until(saved_by_two, "a save of two ranks", 150)
            stage.write("enough", "")
            runs = [ended_well(agent.wait(60)) for agent in both]
    loaded, others = ([x for x in run.told("loaded") if x.endswith("of 2")] for run in runs)
    assert loaded, f"two ranks should have loaded a state\n{runs[0].output[-2000:]}"
    # A busy machine may form the world of two more than once.
    assert loaded == others, f"ranks loaded different states: {loaded}, {others}"
    step = int(loaded[0].split()[0])
    assert step >= 40, f"the world of two began at step {step}, 40 was saved"
    return f"two ranks on one device went on from step {step}, in {len(loaded)} worlds"


def parked(stage: Stage) -> str:
    """Parked workers, on a card with a context that was made ahead."""
    context = ["--park-cuda"] if stage.card else []
    script, first = _FORKED.format(library="math"), []
    for flags in ([], ["--preload=parked", *context]):
        for _ in range(2):
            began = time.monotonic()
            run = ended_well(stage.run(script, *flags))
            took = time.monotonic() - began
        first.append((float(run.told("first use")[0]), took))
    (forked_use, forked_all), (parked_use, parked_all) = first
    return (
        f"first use of the device {parked_use:.2f} s parked, {forked_use:.2f} s forked; "
        f"from start to end {parked_all:.1f} and {forked_all:.1f} s"
    )


_SEEDS = """
import os, torch
device = os.environ["DEVICE"]
drawn = torch.rand(4, device=device).tolist()
print("drawn", os.environ["RANK"], torch.initial_seed(), *drawn, flush=True)
raise SystemExit(int(os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"))
"""


def seeds(stage: Stage) -> str:
    """Two ranks and two attempts draw four different rows of random numbers on the device."""
    stage.run(_SEEDS, "--nproc-per-node=2", "--max-restarts=1")  # the second run forks
    run = ended_well(stage.run(_SEEDS, "--nproc-per-node=2", "--max-restarts=1"))
    drawn = [line.split() for line in run.told("drawn")]
    rows, given = {tuple(each[2:]) for each in drawn}, {each[1] for each in drawn}
    assert (len(rows), len(given)) == (4, 4), f"not four different rows and seeds: {drawn}"
    return "four different seeds, four different rows"


PARTS = (
    Part(name="forked", act=forked),
    Part(name="killed", act=killed),
    Part(name="joined", act=joined, seconds=240),
    Part(name="parked", act=parked),
    Part(name="seeds", act=seeds),
)
