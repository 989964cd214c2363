"""``torchrun --rdzv-backend=brain``: the real torchrun, a real process group, agents that come and
go."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from launcher.workers.processes.process import free_port
from tests.launcher.elastic import eventually

SCRIPT = """
import os, pathlib, time

place = pathlib.Path(os.environ["MARKS"])
if (place / "fail").exists():
    raise SystemExit(7)
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
network = torch.nn.Linear(2, 1)
name = "-".join([os.environ["RANK"], "of", os.environ["WORLD_SIZE"], os.environ["GROUP_RANK"]])
ended = torch.zeros(1)
while not ended.item():
    network(torch.ones(1, 2)).sum().backward()
    (place / f"{name}-{os.getpid()}-{os.environ['PLACE']}").touch()
    ended.fill_(float((place / "enough").exists()))
    dist.all_reduce(ended, op=dist.ReduceOp.MIN)
    time.sleep(0.02)
# Torch 2.13 may hang or abort where it takes the group apart.
os._exit(0)
"""
#: The first DDP of a process imports dynamo, which takes as long as torch itself.
UNDER_DDP = SCRIPT.replace(
    "network = torch.nn.Linear(2, 1)",
    "network = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))",
)
#: torch is imported by every agent and every worker, on a machine that does other work as well.
SECONDS = 90.0
pytestmark = pytest.mark.timeout(400)


class Torchruns:
    """Agents of one job, and the marks that their workers leave."""

    def __init__(self, directory: Path, options: tuple[str, ...], script: str) -> None:
        self.marks = directory / "marks"
        self.marks.mkdir()
        self._directory, self._options = directory, options
        self._endpoint = f"127.0.0.1:{free_port('127.0.0.1')}"
        (directory / "train.py").write_text(script)
        self.all: list[subprocess.Popen[bytes]] = []

    def start(self, place: str = "z/sw0", **environment: str) -> "subprocess.Popen[bytes]":
        """One more."""
        command = [str(Path(sys.executable).parent / "torchrun"), "--rdzv-backend=brain"]
        command += [f"--rdzv-endpoint={self._endpoint}", "--rdzv-id=job", *self._options]
        added = {
            "MARKS": str(self.marks),
            "BRAIN_TOPOLOGY": place,
            "PLACE": place.replace("/", "."),
            "OMP_NUM_THREADS": "1",
        }
        log = (self._directory / f"agent-{len(self.all)}.log").open("wb")
        with log:
            self.all.append(
                subprocess.Popen(
                    [*command, "train.py"],
                    env={**os.environ, **added, **environment},
                    cwd=self._directory,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            )
        return self.all[-1]

    def world(self, size: int, but: frozenset[str] = frozenset()) -> dict[int, str]:
        """Wait for a world of ``size`` that is not in ``but``; {rank: its mark}."""

        def look() -> dict[int, str]:
            found = {p.name for p in self.marks.glob(f"*-of-{size}-*")} - but
            return {int(name.partition("-")[0]): name for name in found}

        eventually(lambda: len(look()) == size, f"a world of {size}\n{self.logs()}", SECONDS)
        return look()

    def marked(self) -> frozenset[str]:
        """All marks so far."""
        return frozenset(path.name for path in self.marks.iterdir())

    def enough(self) -> list[int]:
        """Let the workers end; returns the agents' exit codes."""
        (self.marks / "enough").touch()
        return [agent.wait(SECONDS) for agent in self.all]

    def workers(self) -> list[int]:
        """Pids of workers that left a mark and live."""
        pids = {int(name.split("-")[4]) for name in self.marked() if "-of-" in name}
        return [pid for pid in pids if Path(f"/proc/{pid}").exists()]

    def logs(self) -> str:
        """What agents and workers printed."""
        return "\n".join(p.read_text()[-2000:] for p in self._directory.glob("agent-*.log"))


@contextmanager
def torchruns(directory: Path, *options: str, script: str = SCRIPT) -> Iterator[Torchruns]:
    """A job of torchrun; afterwards nothing of it runs."""
    made = Torchruns(directory, options, script)
    try:
        yield made
    except BaseException:
        print(made.logs())
        raise
    finally:
        for agent in made.all:
            agent.kill()
            agent.wait(10)
        for pid in made.workers():
            with suppress(ProcessLookupError):  # one whose peers are gone ends by itself
                os.kill(pid, signal.SIGKILL)


@pytest.mark.slow
def test_an_agent_joins_one_leaves_with_notice_and_one_is_killed(tmp_path: Path) -> None:
    with torchruns(tmp_path, "--nnodes=1:3", "--max-restarts=3", script=UNDER_DDP) as job:
        first = job.start()
        job.world(1)
        job.start()
        job.start()
        job.world(3)
        known = job.marked()
        job.all[1].send_signal(signal.SIGTERM)
        before = job.world(2, but=known)
        # The one that coordinates, and had the endpoint; torchrun leaves its worker an orphan.
        known = job.marked()
        orphans = set(job.workers())
        first.kill()
        first.wait(10)
        for pid in orphans - {int(name.split("-")[4]) for name in before.values()}:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        after = job.world(1, but=known)

        assert set(after) == {0}
        assert job.enough()[2] == 0
        assert job.all[1].returncode not in (0, None)


@pytest.mark.slow
def test_units_run_and_ranks_of_two_processes_each_follow_the_topology(tmp_path: Path) -> None:
    conf = "--rdzv-conf=unit=2"
    with torchruns(tmp_path, "--nnodes=4:4", conf, "--nproc-per-node=2") as job:
        for place in ("z/sw1", "z/sw2", "z/sw2", "z/sw1"):
            job.start(place)
        found = job.world(8)

        groups = [found[rank].split("-")[3] for rank in range(8)]
        places = [found[rank].split("-")[5] for rank in range(8)]
        assert groups == ["0", "0", "1", "1", "2", "2", "3", "3"]
        assert places in (
            ["z.sw1"] * 4 + ["z.sw2"] * 4,
            ["z.sw2"] * 4 + ["z.sw1"] * 4,
        )
        assert job.enough() == [0, 0, 0, 0]


@pytest.mark.slow
def test_joining_works_with_a_store_for_workers_alone(tmp_path: Path) -> None:
    with torchruns(tmp_path, "--nnodes=1:2", "--max-restarts=3") as job:
        for at in range(2):
            job.start(TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1")
            job.world(at + 1)

        assert job.enough() == [0, 0]


def test_when_one_agent_has_no_restarts_left_all_end(tmp_path: Path) -> None:
    with torchruns(tmp_path, "--nnodes=2:2", "--max-restarts=0") as job:
        (job.marks / "fail").touch()
        for _ in range(2):
            job.start()

        assert [agent.wait(SECONDS) for agent in job.all] == [1, 1]


def test_a_parameter_that_cannot_be_used_is_named_with_its_remedy(tmp_path: Path) -> None:
    with torchruns(tmp_path, "--nnodes=1:2", "--rdzv-conf=unti=2") as job:
        assert job.start().wait(SECONDS) == 1
        assert "--rdzv-conf: unti=2 is not known; did you mean unit?" in job.logs()
