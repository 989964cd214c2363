"""By hand a script that does not load its checkpoint pays for one change that is taken back."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from launcher.workers.processes.process import free_port
from tests.launcher.elastic import eventually

pytestmark = pytest.mark.slow

#: Notes that it begins and its hundredth step, saves often, and never loads.
TRAIN = """
import os, time, torch, torch.distributed as dist
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
step = 0
def note():
    if dist.get_rank() == 0:
        with open("worlds", "a") as worlds:
            worlds.write(f"{step}:{dist.get_world_size()} ")
note()
while True:
    optimizer.zero_grad()
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    step += 1
    time.sleep(0.02)
    if step == 100:
        note()
    if step % 10 == 0 and dist.get_rank() == 0:
        torch.save({"model": model.state_dict()}, "state.new")
        os.replace("state.new", "state.pt")
"""


def test_a_script_that_does_not_load_pays_two_starts_once(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    command = [
        *(str(Path(sys.executable).with_name("brain-run")), "--nnodes=1:2", "--max-restarts=9"),
        *("--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{free_port('127.0.0.1')}"),
        "train.py",
    ]
    worlds = tmp_path / "worlds"

    def reached(*expected: str) -> None:
        """Wait until worlds began, or made a hundred steps, in this order (step:size)."""
        wanted = "".join(f"{each} " for each in expected)
        eventually(lambda: worlds.exists() and worlds.read_text() == wanted, wanted)

    agents: list[subprocess.Popen[str]] = []

    def start() -> None:
        agents.append(subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True))

    try:
        start()
        reached("0:1", "100:1")
        start()
        reached("0:1", "100:1", "0:2", "0:2", "100:2")
        agents[1].send_signal(signal.SIGTERM)
        reached("0:1", "100:1", "0:2", "0:2", "100:2", "0:1", "100:1")
    finally:
        said = []
        for agent in reversed(agents):
            agent.send_signal(signal.SIGINT)
        for agent in agents:
            try:
                said.append(agent.communicate(timeout=60)[1])
            except subprocess.TimeoutExpired:
                agent.kill()
                agent.wait()
    (line,) = [each for each in said[0].splitlines() if "is undone" in each]
    assert f"without loading {os.path.realpath(tmp_path)}/state.pt" in line
    assert "costs a restart" in line
    assert "start the job again" in line
    assert "is undone" not in said[1]
