"""What is seen of a card: readings, gradient noise, the node check, and what the probe costs."""

import os
import statistics
import time
from pathlib import Path

from tests.gpu.stage import NotHere, Part, Stage, ended_well


def readings(stage: Stage) -> str:
    """NVML tells what the card does; the way to Xid errors is open, or is told to be closed."""
    from collectors.gpu import find_gpus
    from launcher.workers.processes import evidence

    gpus = find_gpus()
    if not stage.card:
        sight = gpus.read()
        assert sight.readings or sight.unavailable, "neither readings nor a reason"
        return f"no card: {'; '.join(sight.unavailable) or 'but readings'}"
    import torch

    before = gpus.read()
    if not before.readings:
        raise NotHere(f"no card can be read: {'; '.join(before.unavailable)}")
    held = torch.ones(1 << 31, dtype=torch.uint8, device="cuda")
    factor = torch.ones(4096, 4096, device="cuda")
    until, use = time.monotonic() + 3, 0.0
    while time.monotonic() < until:
        for _ in range(20):
            factor @ factor
        torch.cuda.synchronize()
        use = max(use, *(each.utilization for each in gpus.read().readings))
    # NVML counts cards as the machine does, torch as CUDA_VISIBLE_DEVICES does: any may be ours.
    grown = max(
        now.memory_used_bytes - then.memory_used_bytes
        for now, then in zip(gpus.read().readings, before.readings, strict=True)
    )
    assert grown >= 0.9 * len(held), f"2 GiB were taken, NVML saw {grown / 2**30:.2f}"
    mig = any("utilization" in each for each in before.unavailable)
    assert use > 0.2 or mig, f"a busy card was seen as {use:.0%} busy"
    card = before.readings[0]
    log = "readable" if os.access("/dev/kmsg", os.R_OK) else "closed to this user"
    return (
        f"{card.name}: {card.power_watts} W, {card.temperature_celsius} °C, {use:.0%} busy; "
        f"the kernel's log is {log}, {len(evidence.cards())} cards in /proc, "
        f"Xid errors {list(evidence.xids(0.0))}"
    )


#: Gradients of examples are N(mean, 1) in 64 dimensions, so their noise scale is 32.
_NOISE = """
import os, sys, torch, _brain_probe
from torch.utils.data import DataLoader, TensorDataset
_brain_probe.gradients.GRADIENT_STEPS = 2
_brain_probe.gradients.GRADIENT_NS = 10**12
_brain_probe.gradients.GRADIENT_PAUSE_NS = 0
device = os.environ["DEVICE"]
torch.manual_seed(0)
net = torch.nn.Linear(64, 1, bias=False).to(device)
optimizer = torch.optim.SGD(net.parameters(), lr=0.001)
rows = torch.randn(400 * 4 * 8, 64) + (2 / 64) ** 0.5
for index, (x,) in enumerate(DataLoader(TensorDataset(rows), batch_size=8)):
    (net(x.to(device)).mean() / 4).backward()
    if index % 4 == 3:
        optimizer.step()
        optimizer.zero_grad()
"""


def noise(stage: Stage) -> str:
    """Gradient noise, timed by CUDA events, is that of the same script on the CPU."""
    told = {device: _noise(stage.directory / device, device) for device in {"cpu", stage.device}}
    for device, (steps, value) in told.items():
        assert steps >= 50, f"{steps} steps were sampled on {device}"
        assert 22 < value < 45, f"the noise scale on {device} is {value:.1f}, 32 is true"
    steps, value = told[stage.device]
    return f"{value:.1f} examples on {stage.device}, {told['cpu'][1]:.1f} on the CPU, 32 is true"


def _noise(place: Path, device: str) -> tuple[int, float]:
    """(steps sampled, noise scale in examples)."""
    from brain.models.efficiency import gradient_statistics, noise_scale
    from tests.collectors.probed import worker

    place.mkdir()
    with worker(place, replicas=1) as watched:
        watched.start(_NOISE, cold=True, RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", DEVICE=device)

        def ended() -> bool:
            watched.listen()
            return watched.ended

        watched.until(ended, "the script ends", seconds=90)
        watched.listen()
        assert not watched.told("failing"), watched.output
        windows = [one for one in watched.windows if one.gns_steps]
    assert windows, f"no gradients were read on {device}: {watched.output}"
    steps = sum(one.gns_steps or 0 for one in windows)
    small = sum((one.gns_steps or 0) * (one.gns_small_square or 0) for one in windows) / steps
    big = sum((one.gns_steps or 0) * (one.gns_big_square or 0) for one in windows) / steps
    batches = windows[0].gns_small_batch or 0, windows[0].gns_big_batch or 0
    square, variance = gradient_statistics(batches[0], small, batches[1], big)
    return steps, noise_scale(square, variance, batch=1)


def node_check(stage: Stage) -> str:
    """The check before training times the card's arithmetic."""
    run = ended_well(stage.run("print('trained', 1)", "--comm-perf-test"))
    assert run.told("trained"), run.output[-2000:]
    lines = [line for line in run.output.splitlines() if "arithmetic" in line]
    assert lines, f"no arithmetic was told of\n{run.output[-2000:]}"
    return lines[0].strip()


_LOOP = """
import os, sys, time, torch
device, way = os.environ["DEVICE"], os.environ["WAY"]
torch.manual_seed(0)
net = torch.nn.Sequential(*(torch.nn.Linear(512, 512) for _ in range(4))).to(device)
optimizer = torch.optim.SGD(net.parameters(), lr=1e-6)
x = torch.ones(64, 512, device=device)
forward = torch.compile(net) if way == "compiled" else net
def passes():
    optimizer.zero_grad(set_to_none=False)
    forward(x).square().mean().backward()
if way == "graph":
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            passes()
            optimizer.step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        passes()
def steps(count):
    for _ in range(count):
        graph.replay() if way == "graph" else passes()
        optimizer.step()
    if device == "cuda":
        torch.cuda.synchronize()
steps(50)
began = time.process_time()
steps(int(os.environ["STEPS"]))
print("microseconds", 1e6 * (time.process_time() - began) / int(os.environ["STEPS"]), flush=True)
"""


def cost(stage: Stage) -> str:
    """The probe's cost beside plain steps, CUDA graphs and torch.compile, in processor time."""
    said = []
    for way in ("plain", "graph", "compiled") if stage.card else ("plain",):
        steps = "3000" if stage.card else "50"
        taken: dict[str, list[float]] = {"--no-probe": [], "": []}
        for _ in range(2):
            for flag, found in taken.items():
                run = stage.run(_LOOP, *filter(None, [flag]), WAY=way, STEPS=steps)
                if run.code and flag and way == "compiled":
                    said.append("torch.compile does not work here without the probe either")
                    break
                found += [float(each) for each in ended_well(run).told("microseconds")]
        if not taken[""]:
            continue
        bare, probed = statistics.median(taken["--no-probe"]), statistics.median(taken[""])
        said.append(f"{way} {bare:.0f} µs and {probed - bare:+.0f} µs with the probe")
        assert probed <= 1.12 * bare + 20, said[-1]
    return "; ".join(said)


PARTS = (
    Part(name="readings", act=readings),
    Part(name="noise", act=noise),
    Part(name="node-check", act=node_check),
    Part(name="probe-cost", act=cost, seconds=240),
)
