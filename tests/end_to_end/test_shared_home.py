"""State directories on a network file system, and several people on one machine."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from brain import calls
from tests.harness import running
from tests.network_files import mounted


@pytest.mark.slow
def test_a_home_on_a_network_file_system_serves_as_any_other() -> None:
    with mounted() as home, running(home / "state", "--slots=2") as brain:
        job = brain.submit("counted.py", "--steps=1000000")
        brain.until("samples", 150, job, lambda detail: detail.job.throughput is not None)
        assert (brain.home / "collector" / "probe.sock").is_symlink()
        brain.send(calls.cancel(job))
        brain.finished(job)


def test_a_home_without_locks_is_refused_with_the_remedy() -> None:
    up = [sys.executable, "-m", "brain.cli", "up", "--port=0"]
    with mounted("--no-locks") as home:
        named = os.environ | {"BRAIN_HOME": str(home / "state")}
        ran = subprocess.run(up, env=named, capture_output=True, text=True, timeout=100)
    assert ran.returncode == 1
    assert (
        "does not support file locks: No locks available; choose one on a local disk" in ran.stderr
    )


#: Another person, who may read where the interpreter is, and nothing more than others may.
_READ = "+dac_read_search"
_NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
_NOBODY += [f"--inh-caps={_READ}", f"--ambient-caps={_READ}"]
_TRAINS = """
import os, time, torch, torch.distributed as dist
from torch import nn
dist.init_process_group("gloo")
model = nn.parallel.DistributedDataParallel(nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(1, 41):
    optimizer.zero_grad(); model(torch.ones(2, 4)).sum().backward(); optimizer.step()
    time.sleep(0.05)
    if step % 10 == 0 and dist.get_rank() == 0:
        torch.save({"step": step}, "model.pt")
os.write(1, f"trained {dist.get_rank()} {os.getuid()}\\n".encode())
"""


@pytest.mark.slow
def test_two_people_train_on_one_machine_at_a_time(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    if os.getuid() or shutil.which("setpriv") is None:
        pytest.skip("only root can be two people here, by setpriv")
    program = str(Path(sys.executable).with_name("brain-run"))
    runs = []
    for uid, become in ((0, []), (65534, _NOBODY)):
        work = tmp_path / str(uid)
        work.mkdir()
        (work / "train.py").write_text(_TRAINS)
        os.chown(work, uid, uid)
        command = [*become, program, "--memory-checkpoint", "--nproc-per-node=2", "train.py"]
        own = {"HOME": str(work), "XDG_CACHE_HOME": str(work / "cache")}
        run = subprocess.Popen(
            command,
            cwd=work,
            env=os.environ | own,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        runs.append(run)
    for run, uid in zip(runs, (0, 65534), strict=True):
        out, err = run.communicate(timeout=180)
        assert run.returncode == 0, err
        assert sorted(out.splitlines()) == [f"trained 0 {uid}", f"trained 1 {uid}"]
        saved = tmp_path / str(uid) / "model.pt"
        assert (saved.is_symlink(), saved.stat().st_uid) == (False, uid)
