"""Builders: a script run as a worker is, with sockets that stand for its agent and collector."""

import atexit
import functools
import json
import mmap
import os
import shutil
import signal
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
from tests.patience import Patience

PROBE = Path(__file__).parents[2] / "collectors" / "probe" / "__init__.py"

#: What an agent's ``sitecustomize`` does, and then the script.
BOOTSTRAP = """
def run(script):
    import importlib.util, json, os, runpy, sys
    config = json.loads(os.environ["BRAIN_WORKER"])
    spec = importlib.util.spec_from_file_location("_brain_probe", config["probe"])
    probe = sys.modules["_brain_probe"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(probe)
    probe.start(config)
    sys.argv = [script]
    sys.path[0] = os.path.dirname(script)
    runpy.run_path(script, run_name="__main__")
"""
COLD = BOOTSTRAP + "import sys\nrun(sys.argv[1])\n"
#: Imports torch once, and forks a worker for each line that it reads.
WARM = (
    BOOTSTRAP
    + """
import atexit, gc, json, os, sys, traceback, warnings
warnings.simplefilter("ignore")
# The first optimizer of a process imports dynamo.
import torch, torch._dynamo, torch.distributed.checkpoint, safetensors.torch
torch.set_num_threads(1)
warnings.simplefilter("error")
gc.freeze()
for line in sys.stdin:
    wish = json.loads(line)
    if "wait" in wish:
        pid, status = os.waitpid(wish["wait"], os.WNOHANG)
        print(json.dumps(os.waitstatus_to_exitcode(status) if pid else None), flush=True)
        continue
    pid = os.fork()
    if pid == 0:
        os.chdir(wish["directory"])
        os.environ.update(wish["environment"])
        output = os.open(wish["output"], os.O_WRONLY | os.O_CREAT)
        os.dup2(output, 1)
        os.dup2(output, 2)
        code = 1
        try:
            run(wish["script"])
            code = 0
        except SystemExit as ended:
            code = ended.code
        except BaseException:
            traceback.print_exc()
        # What an exit does, but for taking torch down piece by piece, which needs a second.
        atexit._run_exitfuncs()
        sys.stdout.flush()
        os._exit(code)
    print(pid, flush=True)
"""
)

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


class _Forked:
    """A worker that the nursery forked; used as a ``Popen`` is."""

    def __init__(self, script: Path, output: Path, environment: dict[str, str]) -> None:
        self._code: int | None = None
        self.pid = _ask(
            script=str(script),
            output=str(output),
            directory=str(script.parent),
            environment=environment,
        )

    def poll(self) -> int | None:
        """Its exit code, once it has ended."""
        if self._code is None:
            self._code = _ask(wait=self.pid)
        return self._code

    def wait(self, seconds: float) -> int:
        """Its exit code."""
        patience = Patience(seconds)
        while (code := self.poll()) is None:
            assert not patience.over, f"worker {self.pid} does not end"
            time.sleep(0.01)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal, if it runs."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End it, if it runs."""
        self.send_signal(signal.SIGKILL)


@functools.cache
def _nursery() -> "subprocess.Popen[str]":
    """The process that forks workers; it ends with its input, that is with us."""
    nursery = subprocess.Popen(
        [sys.executable, "-c", WARM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    atexit.register(nursery.communicate)
    return nursery


def _ask(**wish: Any) -> Any:
    nursery = _nursery()
    assert nursery.stdin is not None
    assert nursery.stdout is not None
    nursery.stdin.write(json.dumps(wish) + "\n")
    nursery.stdin.flush()
    return json.loads(nursery.stdout.readline())


class Worker:
    """One worker process and what it told; everything it needs lies in ``directory``."""

    def __init__(self, directory: Path, *, checkpoint: str | None = None, **config: Any) -> None:
        self.directory = directory
        self.sockets = Path(tempfile.mkdtemp(prefix="brain-test-"))
        self.agent = _listen(self.sockets / "agent")
        self.collector = _listen(self.sockets / "collector")
        control = directory / "control"
        control.write_bytes(struct.pack("<16Q", 2, *[0] * 15))
        with control.open("r+b") as file:
            self._mapped = mmap.mmap(file.fileno(), 128)
        #: The fields of the control file: version, park, lease, steps, last, saved, parked, first.
        self.control = memoryview(self._mapped).cast("Q")[:8]
        self.events: list[dict[str, Any]] = []
        self.samples: list[Sample] = []
        self.process: subprocess.Popen[bytes] | _Forked | None = None
        self.config = {
            **{"v": 1, "job": "0190", "replica": 3, "epoch": 2, "generation": 5, "nodes": 1},
            **{"replicas": 2, "accelerator": "cpu", "checkpoint": checkpoint},
            **{"agent": str(self.sockets / "agent"), "control": str(control)},
            **{"collector": str(self.sockets / "collector"), "probe": str(PROBE)},
            **config,
        }

    def start(
        self, script: str, *, cold: bool = False, python: str = sys.executable, **environment: str
    ) -> None:
        """Start a script; it sees ``directory`` as its own place.

        Args:
            cold: in an interpreter of its own, so that the probe is there before torch is.
        """
        path = self.directory / "train.py"
        path.write_text(textwrap.dedent(script))
        output = self.sockets / "output"
        ranks = {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
        told = ranks | {"BRAIN_WORKER": json.dumps(self.config)} | environment
        if not cold and python == sys.executable:
            self.process = _Forked(path, output, told)
            return
        with output.open("w") as file:
            self.process = subprocess.Popen(
                [python, "-W", "error", "-c", COLD, str(path)],
                cwd=self.directory,
                env=os.environ | told,
                stdout=file,
                stderr=subprocess.STDOUT,
            )

    def run(
        self, script: str, *, cold: bool = False, seconds: float = 100, **environment: str
    ) -> "Worker":
        """Run a script to its end; it must end with 0."""
        self.start(script, cold=cold, **environment)
        self.until(lambda: self.ended, "the script ends", seconds=seconds)
        self.listen()
        assert self.process is not None
        assert self.process.poll() == 0, self.output
        return self

    @property
    def output(self) -> str:
        """What the script printed."""
        return (self.sockets / "output").read_text()

    @property
    def ended(self) -> bool:
        """Whether the process is gone."""
        return self.process is not None and self.process.poll() is not None

    def until(self, true: Any, what: str, *, seconds: float = 60) -> None:
        """Listen until a condition holds."""
        patience = Patience(seconds)
        while not true():
            self.listen()
            assert not patience.over, f"not within {seconds} s: {what}"

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
            self.process.wait(20)
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
