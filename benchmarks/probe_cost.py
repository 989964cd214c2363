"""What the probe costs a training step: time inside our hooks, over 10,000 steps.

    python benchmarks/probe_cost.py

A small network is trained while the probe observes it as it would observe a worker, with a
control file and with an agent and a collector that listen. Each of our three hooks (before the
step, after it, after a batch) is timed from outside, so the clock's own cost is counted as ours.
``make bench-loop`` runs it.
"""

import importlib.util
import json
import os
import socket
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

PROBE = Path(__file__).parents[1] / "collectors" / "probe.py"
STEPS = 10_000
#: Steps of a process that are warm-up to the probe, and to this measurement.
SKIPPED = 5
#: The bar of the project, for median and 99th percentile.
BAR_MICROSECONDS = 50.0


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
def observed(watch: Stopwatch) -> Iterator[None]:
    """The probe in this process, its hooks timed, with listeners that take what it sends."""
    with tempfile.TemporaryDirectory(prefix="brain-bench-") as directory:
        here = Path(directory)
        (here / "control").write_bytes(struct.pack("<8Q", 1, *[0] * 7))
        listeners = [_listen(here / name) for name in ("agent", "collector")]
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
        try:
            yield
        finally:
            assert probe.failures == 0, "the probe failed; what was timed is not its work"
            assert probe.steps >= STEPS, "the probe did not see the steps"
            probe.finish()
            for listener in listeners:
                listener.shutdown(socket.SHUT_RDWR)
                listener.close()


def measure(steps: int = STEPS) -> list[float]:
    """Train, and return microseconds inside our hooks for each step after the warm-up."""
    watch = Stopwatch()
    with observed(watch):
        import torch
        from torch.utils.data import DataLoader, TensorDataset

        torch.set_num_threads(1)
        network = torch.nn.Linear(16, 4)
        optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
        loader = DataLoader(TensorDataset(torch.randn(8 * (steps + SKIPPED), 16)), batch_size=8)
        for (batch,) in loader:
            optimizer.zero_grad()
            network(batch).sum().backward()
            optimizer.step()
            watch.lap()
    return [lap / 1000 for lap in watch.laps[SKIPPED:]]


def rows(steps: int = STEPS) -> list[dict[str, Any]]:
    """Fields of ``benchmarks.report.Row``. No peer measures this without a change of the code."""
    laps = sorted(measure(steps))
    found = {
        "probe, time in hooks per step, median": (median(laps), BAR_MICROSECONDS),
        "probe, time in hooks per step, p99": (laps[int(0.99 * len(laps))], BAR_MICROSECONDS),
        "probe, time in hooks per step, mean": (sum(laps) / len(laps), None),
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


def _listen(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    listener.bind(str(path))

    def take() -> None:
        while listener.recv(1 << 16):
            pass

    threading.Thread(target=take, daemon=True).start()
    return listener


def main() -> int:
    """Print the cost; 1 where a bar is missed."""
    os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1")
    found = rows()
    for row in found:
        bar = "" if row["bar"] is None else f"  (at most {row['bar']})"
        print(f"{row['metric']:<42} {row['value']:>8} {row['unit']}{bar}")
    return 0 if all(row["bar"] is None or row["value"] <= row["bar"] for row in found) else 1


if __name__ == "__main__":
    sys.exit(main())
