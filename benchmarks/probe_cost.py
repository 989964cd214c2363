"""What the probe costs a training step: time inside our hooks, over 10,000 steps.

    python benchmarks/probe_cost.py

A small network is trained while the probe observes it as it would observe a worker, with a
control file and with another process that listens as agent and collector do. Each of our three
hooks (before the step, after it, after a batch) is timed from outside, so the clock's own cost is
counted as ours, and so is any time that the machine gives to others meanwhile. Of three rounds the
one with the lowest p99 is reported: what others take is not the probe's cost. ``make bench-loop``
runs it.

The same again for two ranks under DistributedDataParallel, whose gradients the probe samples. There
the bar is on the mean: a sampled step costs some hundred microseconds, and how many steps lie
between two is chosen by that. Steps count as slow (no least pause between samples), which is
when sampling takes its whole budget.
"""

import importlib.util
import json
import os
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

PROBE = Path(__file__).parents[1] / "collectors" / "probe" / "__init__.py"
STEPS = 10_000
ROUNDS = 3
#: Steps of a process that are warm-up to the probe, and to this measurement.
SKIPPED = 5
#: The bar of the project, for median and 99th percentile; with sampled gradients for the mean.
BAR_MICROSECONDS = 50.0
#: Layers of the network whose gradients are sampled, each of two parameters, and steps of a round.
LAYERS = 16
SAMPLED_STEPS = 2000


class Stopwatch:
    """Nanoseconds spent in hooks since the last lap."""

    def __init__(self) -> None:
        self.spent = 0
        self.laps: list[int] = []

    def timed(self, hook: Callable[..., None]) -> Callable[..., None]:
        """The hook, with its time added up."""

        def run(*given: Any) -> None:
            began = time.perf_counter_ns()
            hook(*given)
            self.spent += time.perf_counter_ns() - began

        return run

    def lap(self) -> None:
        """A step is over."""
        self.laps.append(self.spent)
        self.spent = 0


@contextmanager
def observed(watch: Stopwatch) -> Iterator[Any]:
    """The probe in this process, its hooks timed, with listeners that take what it sends."""
    with tempfile.TemporaryDirectory(prefix="brain-bench-") as directory:
        here = Path(directory)
        (here / "control").write_bytes(struct.pack("<8Q", 1, *[0] * 7))
        listener = _listen(here)
        config = {
            **{"v": 1, "job": "bench", "replica": 0, "epoch": 1, "generation": 0, "nodes": 1},
            **{"replicas": 1, "accelerator": "cpu", "checkpoint": None},
            **{name: str(here / name) for name in ("agent", "collector", "control")},
        }
        module = _load()
        module.start(json.loads(json.dumps(config)))
        probe = module._probe
        # The closures that torch gets look these up once, when torch is imported: time them now.
        for name in ("before_step", "after_step", "after_next"):
            setattr(probe, name, watch.timed(getattr(probe, name)))
        for name in ("_arrived", "_over"):
            setattr(probe.gradients, name, watch.timed(getattr(probe.gradients, name)))
        try:
            yield module
        finally:
            assert probe.failures == 0, "the probe failed; what was timed is not its work"
            assert probe.steps == len(watch.laps), "the probe did not see all steps"
            probe.finish()
            listener.kill()
            listener.wait()


def measure(steps: int = STEPS) -> list[list[float]]:
    """Train, and return for each round microseconds inside our hooks of its steps, sorted."""
    watch = Stopwatch()
    total = ROUNDS * steps + SKIPPED
    with observed(watch):
        import torch
        from torch.utils.data import DataLoader, TensorDataset

        torch.set_num_threads(1)
        network = torch.nn.Linear(16, 4)
        optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
        loader = DataLoader(TensorDataset(torch.randn(8 * total, 16)), batch_size=8)
        for (batch,) in loader:
            optimizer.zero_grad()
            network(batch).sum().backward()
            optimizer.step()
            watch.lap()
    return _rounds(watch, steps)


def measure_sampled(store: str, steps: int = SAMPLED_STEPS) -> tuple[list[list[float]], int]:
    """The same as one of two ranks; also the steps between two whose gradients were read."""
    watch = Stopwatch()
    total = ROUNDS * steps + SKIPPED
    with observed(watch) as probe:
        import torch
        import torch.distributed as dist
        from torch.utils.data import DataLoader, TensorDataset

        probe.gradients.GRADIENT_PAUSE_NS = 0
        torch.set_num_threads(1)
        rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=size)
        layers = [torch.nn.Linear(16, 16) for _ in range(LAYERS)]
        network = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers))
        optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
        loader = DataLoader(TensorDataset(torch.randn(8 * total, 16)), batch_size=8)
        for (batch,) in loader:
            optimizer.zero_grad()
            network(batch).sum().backward()
            optimizer.step()
            watch.lap()
        every = probe._probe.gradients.every
        assert probe._probe.gradients.reason is None, probe._probe.gradients.reason
        dist.barrier()
    return _rounds(watch, steps), every


def _rounds(watch: Stopwatch, steps: int) -> list[list[float]]:
    micros = [lap / 1000 for lap in watch.laps[SKIPPED:]]
    return [sorted(micros[steps * index :][:steps]) for index in range(ROUNDS)]


def measure_two_ranks() -> tuple[list[list[float]], int]:
    """``measure_sampled`` of the first of two ranks, each a process of its own."""
    with tempfile.TemporaryDirectory(prefix="brain-bench-") as directory:
        command = [sys.executable, __file__, "--store", f"{directory}/store"]
        own = {"WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
        ranks = [
            subprocess.Popen(
                command,
                env=os.environ | own | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
                stdout=subprocess.PIPE,
            )
            for rank in range(2)
        ]
        told = [json.loads(rank.communicate()[0]) for rank in ranks]
    return told[0]["rounds"], told[0]["every"]


def rows(steps: int = STEPS) -> list[dict[str, Any]]:
    """Fields of ``benchmarks.report.Row``. No peer measures this without a change of the code."""
    rounds = sorted(measure(steps), key=_p99)
    laps = rounds[0]
    quietest = f"quietest of {ROUNDS} rounds"
    found = {
        f"probe, time in hooks per step, median, {quietest}": (median(laps), BAR_MICROSECONDS),
        f"probe, time in hooks per step, p99, {quietest}": (_p99(laps), BAR_MICROSECONDS),
        f"probe, time in hooks per step, mean, {quietest}": (sum(laps) / len(laps), None),
        "probe, time in hooks per step, p99, worst round": (_p99(rounds[-1]), None),
    }
    sampled, every = measure_two_ranks()
    means = [sum(laps) / len(laps) for laps in sampled]
    of = f"{2 * LAYERS} parameters, DDP, gradients of every {every}th step"
    found |= {
        f"probe, {of}, mean, {quietest}": (min(means), BAR_MICROSECONDS),
        f"probe, {of}, median, {quietest}": (min(median(laps) for laps in sampled), None),
        f"probe, {of}, mean, worst round": (max(means), None),
    }
    return [
        {
            "metric": metric,
            "value": round(value, 2),
            "unit": "µs",
            "bar": bar,
        }
        for metric, (value, bar) in found.items()
    ]


def _load() -> Any:
    spec = importlib.util.spec_from_file_location("_brain_probe", PROBE)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["_brain_probe"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _p99(laps: list[float]) -> float:
    return laps[int(0.99 * len(laps))]


def _listen(here: Path) -> "subprocess.Popen[bytes]":
    """A process that takes all datagrams of both sockets; it is there when this returns."""
    script = (
        "import selectors, socket, sys\n"
        "ready = selectors.DefaultSelector()\n"
        "for path in sys.argv[1:]:\n"
        "    taken = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
        "    taken.bind(path); ready.register(taken, selectors.EVENT_READ)\n"
        "print(flush=True)\n"
        "while True:\n"
        "    for key, _ in ready.select(): key.fileobj.recv(65536)\n"
    )
    command = [sys.executable, "-c", script, str(here / "agent"), str(here / "collector")]
    listener = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert listener.stdout is not None
    listener.stdout.readline()
    listener.stdout.close()
    return listener


def main() -> int:
    """Print the cost; 1 where a bar is missed."""
    if sys.argv[1:2] == ["--store"]:
        rounds, every = measure_sampled(sys.argv[2])
        print(json.dumps({"rounds": rounds, "every": every}))
        return 0
    os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1")
    found = rows()
    for row in found:
        bar = "" if row["bar"] is None else f"  (at most {row['bar']})"
        print(f"{row['metric']:<88} {row['value']:>8} {row['unit']}{bar}")
    return 0 if all(row["bar"] is None or row["value"] <= row["bar"] for row in found) else 1


if __name__ == "__main__":
    sys.exit(main())
