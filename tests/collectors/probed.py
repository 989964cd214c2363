"""Builders: a script run as a worker is, with sockets that stand for its agent and collector."""

import json
import mmap
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from brain import wire
from brain.types.telemetry import LossSample, Sample, SaveSample, ThroughputSample

PROBE = Path(__file__).parents[2] / "collectors" / "probe.py"

BOOTSTRAP = """
import importlib.util, json, os, runpy, sys
config = json.loads(os.environ["BRAIN_WORKER"])
spec = importlib.util.spec_from_file_location("_brain_probe", config["probe"])
probe = sys.modules["_brain_probe"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(probe)
probe.start(config)
sys.argv = sys.argv[1:]
sys.path[0] = os.path.dirname(sys.argv[0])
runpy.run_path(sys.argv[0], run_name="__main__")
"""

#: An ordinary small network; scripts of tests begin with it.
NETWORK = """
import os, sys, time, torch
from torch.utils.data import DataLoader, TensorDataset
net = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
def data(examples=400, batch=8, **more):
    return DataLoader(TensorDataset(torch.randn(examples, 4)), batch_size=batch, **more)
def learn(x):
    net(x).sum().backward()
"""


class Worker:
    """One worker process and what it told; everything it needs lies in ``directory``."""

    def __init__(self, directory: Path, *, checkpoint: str | None = None, **config: Any) -> None:
        self.directory = directory
        self.sockets = Path(tempfile.mkdtemp(prefix="brain-test-"))
        self.agent = _listen(self.sockets / "agent")
        self.collector = _listen(self.sockets / "collector")
        control = directory / "control"
        control.write_bytes(struct.pack("<8Q", 1, *[0] * 7))
        with control.open("r+b") as file:
            self._mapped = mmap.mmap(file.fileno(), 64)
        #: The fields of the control file: version, park, lease, steps, last, saved, parked, first.
        self.control = memoryview(self._mapped).cast("Q")
        self.events: list[dict[str, Any]] = []
        self.samples: list[Sample] = []
        self.process: subprocess.Popen[str] | None = None
        self.config = {
            **{"v": 1, "job": "0190", "replica": 3, "epoch": 2, "generation": 5, "nodes": 1},
            **{"replicas": 2, "accelerator": "cpu", "checkpoint": checkpoint},
            **{"agent": str(self.sockets / "agent"), "control": str(control)},
            **{"collector": str(self.sockets / "collector"), "probe": str(PROBE)},
            **config,
        }

    def start(self, script: str, *, python: str = sys.executable, **environment: str) -> None:
        """Start a script; it sees ``directory`` as its own place."""
        path = self.directory / "train.py"
        path.write_text(textwrap.dedent(script))
        ranks = {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [python, "-W", "error", "-c", BOOTSTRAP, str(path)],
            cwd=self.directory,
            env=os.environ | ranks | {"BRAIN_WORKER": json.dumps(self.config)} | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, script: str, *, seconds: float = 60, **environment: str) -> "Worker":
        """Run a script to its end; it must end with 0."""
        self.start(script, **environment)
        self.until(lambda: self.ended, "the script ends", seconds=seconds)
        self.listen()
        assert self.process is not None
        output = self.process.communicate()[0]
        assert self.process.returncode == 0, output
        self.output = output
        return self

    @property
    def ended(self) -> bool:
        """Whether the process is gone."""
        return self.process is not None and self.process.poll() is not None

    def until(self, true: Any, what: str, *, seconds: float = 30) -> None:
        """Listen until a condition holds."""
        deadline = time.monotonic() + seconds
        while not true():
            self.listen()
            assert time.monotonic() < deadline, f"not within {seconds} s: {what}"

    def until_path(self, path: Path, *, seconds: float) -> None:
        """Listen until the script has made a file."""
        self.until(path.exists, f"{path.name} exists", seconds=seconds)

    def deaf(self) -> None:
        """Stop to listen as a collector that died does."""
        self.collector.close()
        (self.sockets / "collector").unlink()

    def listen_again(self) -> None:
        """Listen as a collector that was started again."""
        self.collector = _listen(self.sockets / "collector")

    def listen(self) -> None:
        """Take what was sent in the next hundredth of a second."""
        self.events += [json.loads(line) for line in _received(self.agent)]
        self.samples += [wire.decode_sample(line) for line in _received(self.collector)]

    def told(self, event: str) -> list[dict[str, Any]]:
        """Events of one kind so far."""
        return [told for told in self.events if told["event"] == event]

    @property
    def windows(self) -> list[ThroughputSample]:
        """Windows of steps so far."""
        return [sample for sample in self.samples if isinstance(sample, ThroughputSample)]

    @property
    def training(self) -> list[ThroughputSample]:
        """Windows of the phase that is fitted."""
        return [window for window in self.windows if window.phase == "training"]

    @property
    def saves(self) -> list[SaveSample]:
        """Saves so far."""
        return [sample for sample in self.samples if isinstance(sample, SaveSample)]

    @property
    def losses(self) -> list[LossSample]:
        """Losses so far."""
        return [sample for sample in self.samples if isinstance(sample, LossSample)]

    def close(self) -> None:
        """End the process, if it still runs, and let go of the sockets."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            assert self.process.stdout is not None
            self.process.stdout.close()
        self.agent.close()
        self.collector.close()
        shutil.rmtree(self.sockets)


@contextmanager
def worker(directory: Path, **config: Any) -> Iterator[Worker]:
    """A worker to be started, gone at the end."""
    built = Worker(directory, **config)
    try:
        yield built
    finally:
        built.close()


def _listen(path: Path) -> socket.socket:
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    listening.bind(str(path))
    listening.settimeout(0.01)
    return listening


def _received(listening: socket.socket) -> Iterator[bytes]:
    while listening.fileno() >= 0:
        try:
            yield listening.recv(65536)
        except (TimeoutError, OSError):
            return
