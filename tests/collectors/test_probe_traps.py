"""The probe where scripts are not ordinary: what must not be miscounted, raised or blocked."""

import ast
import shutil
import signal
import struct
import sys
from pathlib import Path

import pytest

from tests.collectors.probed import NETWORK, PROBE, worker


def test_the_optimizer_with_most_parameters_is_the_step(tmp_path: Path) -> None:
    script = NETWORK + (
        "small = torch.optim.Adam(torch.nn.Linear(2, 1).parameters())\n"
        "for (x,) in data():\n"
        "    learn(x); small.step(); small.step(); optimizer.step()\n"
    )
    with worker(tmp_path) as job:
        job.run(script)
        assert job.windows[-1].step == pytest.approx(50, abs=1), "the first round is seen late"
        assert {window.accumulation for window in job.training} == {1}


def test_an_optimizer_per_parameter_is_one_step(tmp_path: Path) -> None:
    script = NETWORK + (
        "deep = torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(40)))\n"
        "each = {p: torch.optim.SGD([p], lr=0.1) for p in deep.parameters()}\n"
        "for p in each:\n"
        "    p.register_post_accumulate_grad_hook(lambda p: (each[p].step(), None)[1])\n"
        "for (x,) in data():\n"
        "    deep(x).sum().backward()\n"
    )
    with worker(tmp_path) as job:
        job.run(script)
        assert job.windows[-1].step == 50


def test_when_the_main_optimizer_rests_another_takes_over(tmp_path: Path) -> None:
    script = NETWORK + (
        "head = torch.optim.SGD([net.bias], lr=0.1)\n"
        "for index, (x,) in enumerate(data(examples=1600)):\n"
        "    learn(x); (optimizer if index < 20 else head).step()\n"
    )
    with worker(tmp_path) as job:
        job.run(script)
        assert 20 + 120 <= job.windows[-1].step <= 20 + 180


def test_a_new_optimizer_in_place_of_a_dead_one_goes_on(tmp_path: Path) -> None:
    script = NETWORK + (
        "for epoch in range(3):\n"
        "    optimizer = torch.optim.SGD([net.bias] if epoch else net.parameters(), lr=0.1)\n"
        "    for (x,) in data(examples=160):\n"
        "        learn(x); optimizer.step()\n"
    )
    with worker(tmp_path) as job:
        job.run(script)
        assert job.windows[-1].step == 60


def test_a_step_that_the_scaler_skips_is_none(tmp_path: Path) -> None:
    script = NETWORK + (
        "scaler = torch.amp.GradScaler('cpu', init_scale=2.0)\n"
        "for index, (x,) in enumerate(data()):\n"
        "    optimizer.zero_grad()\n"
        "    loss = net(x).sum() * (float('inf') if index % 10 == 9 else 1.0)\n"
        "    scaler.scale(loss).backward(); scaler.step(optimizer); scaler.update()\n"
    )
    with worker(tmp_path) as job:
        job.run(script)
        assert job.windows[-1].step == 45
        assert {window.accumulation for window in job.training} == {1}


def test_closures_of_lbfgs_are_no_steps(tmp_path: Path) -> None:
    script = NETWORK + (
        "calls = []\n"
        "optimizer = torch.optim.LBFGS(net.parameters(), max_iter=5)\n"
        "for (x,) in data(examples=160):\n"
        "    def closure():\n"
        "        calls.append(1); optimizer.zero_grad()\n"
        "        loss = (net(x) ** 2).sum(); loss.backward(); return loss\n"
        "    optimizer.step(closure)\n"
        "assert len(calls) > 40\n"
    )
    with worker(tmp_path) as job:
        job.run(script)
        assert job.windows[-1].step == 20


def test_a_compiled_step_is_counted(tmp_path: Path) -> None:
    script = NETWORK + (
        "import warnings; warnings.simplefilter('ignore')\n"
        "step = torch.compile(lambda: optimizer.step(), backend='eager')\n"
        "for (x,) in data(examples=160):\n"
        "    learn(x); step()\n"
    )
    with worker(tmp_path) as job:
        job.run(script)
        assert job.windows[-1].step == 20
        assert not job.told("failing")


def test_evaluation_is_neither_waiting_nor_batch(tmp_path: Path) -> None:
    script = NETWORK + (
        "for epoch in range(3):\n"
        "    for (x,) in data(examples=80):\n"
        "        learn(x); optimizer.step()\n"
        "    with torch.no_grad():\n"
        "        for (x,) in data(batch=50): net(x)\n"
    )
    with worker(tmp_path) as job:
        job.run(script)
        assert {window.local_batch for window in job.windows} == {8}
        assert {window.accumulation for window in job.windows} == {1}
        assert sum(w.steps for w in job.windows if w.phase == "evaluation") == 2


def test_an_evaluation_that_reads_with_gradients_on_is_recognised(tmp_path: Path) -> None:
    script = NETWORK + (
        "train, held_out = data(examples=80), data(batch=50)\n"
        "for epoch in range(5):\n"
        "    for (x,) in train:\n"
        "        learn(x); optimizer.step()\n"
        "    for (x,) in held_out:\n"
        "        with torch.no_grad(): net(x)\n"
    )
    with worker(tmp_path) as job:
        job.run(script)
        assert {window.local_batch for window in job.windows} == {8}
        assert sum(w.steps for w in job.windows if w.phase == "evaluation") == 4


def test_two_loaders_side_by_side_are_training(tmp_path: Path) -> None:
    script = NETWORK + (
        "for (x,), (y,) in zip(data(), data(batch=4, examples=200)):\n"
        "    learn(x); learn(y); optimizer.step()\n"
    )
    with worker(tmp_path) as job:
        job.run(script)
        assert {window.phase for window in job.windows} == {"warmup", "training"}


@pytest.mark.parametrize("how", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_workers_of_a_loader_observe_nothing(tmp_path: Path, how: str) -> None:
    script = f"""
import warnings; warnings.simplefilter("ignore")
import os, sys, torch
class Rows(torch.utils.data.Dataset):
    def __len__(self): return 160
    def __getitem__(self, index):
        probe = sys.modules.get("_brain_probe")
        assert probe is None or not probe._probe.armed
        torch.save(torch.ones(1), f"row-{{index}}.pt")
        return torch.randn(4)
if __name__ == "__main__":
    net = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    loader = torch.utils.data.DataLoader(
        Rows(), batch_size=8, num_workers=2, multiprocessing_context={how!r})
    for x in loader:
        net(x).sum().backward(); optimizer.step()
"""
    with worker(tmp_path) as job:
        job.run(script, cold=how == "spawn")
        assert job.windows[-1].step == 20
        assert len({window.place.source for window in job.windows}) == 1
        assert len(job.told("started")) == 1
        assert not job.saves


def test_a_script_keeps_its_own_packages_and_path(tmp_path: Path) -> None:
    for package in ("brain", "collectors", "launcher"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text(f"whose = 'the script, {package}'\n")
    script = NETWORK + (
        "import brain, collectors, launcher\n"
        "assert {m.whose[:10] for m in (brain, collectors, launcher)} == {'the script'}\n"
        "assert not [p for p in sys.path if p.endswith(('collectors', 'inject'))]\n"
        "for (x,) in data():\n    learn(x); optimizer.step()\n"
    )
    with worker(tmp_path) as job:
        job.run(script, cold=True)
        assert job.windows[-1].step == 50


def test_without_torch_it_is_silent(tmp_path: Path) -> None:
    with worker(tmp_path) as job:
        job.run("import sys\nassert 'torch' not in sys.modules\nprint('done')\n", cold=True)
        assert job.output == "done\n"
        assert [event["event"] for event in job.events] == ["started"]


def test_our_errors_stay_ours_and_end_the_probe(tmp_path: Path) -> None:
    script = NETWORK + (
        "class Odd:\n"
        "    @property\n"
        "    def shape(self): raise RuntimeError('odd batch')\n"
        "for _ in data(collate_fn=lambda rows: Odd()):\n"
        "    learn(torch.randn(8, 4)); optimizer.step()\n"
        "print('trained')\n"
    )
    with worker(tmp_path) as job:
        job.run(script)
        assert job.output == "trained\n"
        told = [(event["where"], event["disarmed"]) for event in job.told("failing")]
        assert told == [("after_next", False), ("after_next", True)]
        assert job.control[3] < 50, "it has stopped to count"


def test_errors_of_the_script_pass_unchanged(tmp_path: Path) -> None:
    script = NETWORK + (
        "try: torch.save(net, '/no/such/place/ck.pt')\n"
        "except RuntimeError: pass\n"
        "try: torch.load('missing.pt')\n"
        "except FileNotFoundError: pass\n"
        "it = iter(data(examples=8)); next(it)\n"
        "try: next(it)\n"
        "except StopIteration: print('as ever')\n"
    )
    with worker(tmp_path) as job:
        job.run(script)
        assert job.output == "as ever\n"
        assert not job.told("failing")


def test_it_can_be_switched_off(tmp_path: Path) -> None:
    script = NETWORK + (
        "for (x,) in data():\n    learn(x); optimizer.step()\n"
        "from torch.optim.optimizer import _global_optimizer_post_hooks as hooks\n"
        "assert not hooks\n"
    )
    with worker(tmp_path) as job:
        job.run(script, BRAIN_PROBE="0")
        assert not job.events + job.samples


@pytest.mark.parametrize("broken", ["control", "agent", "collector"])
def test_what_is_missing_costs_the_telemetry_not_the_job(tmp_path: Path, broken: str) -> None:
    script = NETWORK + "for (x,) in data():\n    learn(x); optimizer.step()\nprint('trained')\n"
    with worker(tmp_path, **{broken: "/no/such/place"}) as job:
        job.run(script)
        assert job.output == "trained\n"


STEADY = NETWORK + (
    "for index, (x,) in enumerate(data(examples=80_000)):\n"
    "    learn(x); optimizer.step(); time.sleep(0.002)\n"
    "    if index % 50 == 49: torch.save(net, 'ck.pt')\n"
)


def test_it_parks_after_the_next_save_and_goes_on_when_told(tmp_path: Path) -> None:
    with worker(tmp_path) as job:
        job.start(STEADY)
        job.until(lambda: job.told("saved"), "a first save", seconds=60)
        job.control[1] = 1
        job.until(lambda: job.told("parked"), "it parks")
        [parked], newest = job.told("parked"), job.told("saved")[-1]
        assert (parked["step"], parked["path"]) == (newest["step"], newest["path"])
        assert (job.control[6], job.control[3]) == (1, parked["step"])
        job.control[1] = 0
        job.until(lambda: job.control[3] > parked["step"] + 10, "it goes on")
        assert job.control[6] == 0


def test_a_worker_whose_lease_is_over_makes_no_further_step(tmp_path: Path) -> None:
    with worker(tmp_path) as job:
        job.start(STEADY)
        job.until(lambda: job.told("stepping"), "a first step", seconds=60)
        job.control[2] = 1
        steps = job.control[3]
        job.until(lambda: job.ended, "it ends")
        assert job.process is not None
        assert job.process.poll() == 83
        assert job.control[3] <= steps + 1


def test_it_parks_before_the_next_step(tmp_path: Path) -> None:
    with worker(tmp_path) as job:
        job.start(STEADY)
        job.until(lambda: job.told("stepping"), "a first step", seconds=60)
        job.control[1] = 2
        job.until(lambda: job.control[6], "it parks")
        steps = job.control[3]
        job.until(lambda: job.told("parked"), "it says so")
        assert job.told("parked")[0]["step"] == steps == job.control[3]


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, -signal.SIGTERM), (signal.SIGUSR1, 7)]
)
def test_a_parked_worker_obeys_signals(tmp_path: Path, number: int, code: int) -> None:
    handler = "import signal\nsignal.signal(signal.SIGUSR1, lambda *_: sys.exit(7))\n"
    with worker(tmp_path) as job:
        job.start(STEADY.replace("for index", handler + "for index"))
        job.until(lambda: job.told("stepping"), "a first step", seconds=60)
        job.control[1] = 2
        job.until(lambda: job.control[6], "it parks")
        assert job.process is not None
        job.process.send_signal(number)
        assert job.process.wait(20) == code


def test_while_nobody_listens_the_newest_are_kept_and_the_loss_is_told(tmp_path: Path) -> None:
    # Each step makes three samples: its own and those of two saves.
    script = NETWORK + (
        "for index, (x,) in enumerate(data(examples=1200)):\n"
        "    learn(x); optimizer.step()\n"
        "    torch.save(net, 'a.pt'); torch.save(net, 'b.pt')\n"
        "open('done', 'w').close()\n"
        "while not os.path.exists('heard'): time.sleep(0.01)\n"
    )
    with worker(tmp_path) as job:
        job.deaf()
        job.start(script)
        job.until_path(tmp_path / "done", seconds=60)
        job.listen_again()
        job.until(lambda: job.losses, "the loss is told")
        (tmp_path / "heard").touch()
        job.until(lambda: job.ended, "the script ends")
        job.listen()
        told = sum(loss.dropped for loss in job.losses)
        assert {loss.where for loss in job.losses} == {"probe"}
        assert told + len(job.samples) == 1 + max(sample.sequence for sample in job.samples)
        assert len(job.samples) > 256


@pytest.mark.parametrize("part", sorted(PROBE.parent.glob("*.py")), ids=lambda part: part.stem)
def test_it_is_plain_python_3_8_and_standard_library(part: Path) -> None:
    tree = ast.parse(part.read_text(), feature_version=(3, 8))
    imported = {
        name.name.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for name in node.names
    } | {
        (node.module or "").split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and not node.level
    }
    assert imported <= sys.stdlib_module_names
    # A script may have files of these names beside it.
    assert not imported & {"random", "statistics", "queue", "logging", "types", "copy", "select"}


FAKE_TORCH = {
    "torch/__init__.py": "from torch.serialization import save\n"
    "from torch.optim.optimizer import Optimizer\ndef is_grad_enabled(): return True\n",
    "torch/serialization.py": "def save(obj, f): open(f, 'w').write(obj)\ndef load(f): pass\n",
    "torch/optim/__init__.py": "",
    "torch/optim/optimizer.py": "before, after = [], []\n"
    "register_optimizer_step_pre_hook = before.append\n"
    "register_optimizer_step_post_hook = after.append\n"
    "class Optimizer:\n"
    "    param_groups = []\n"
    "    def step(self):\n"
    "        for hook in before: hook(self, (), {})\n"
    "        for hook in after: hook(self, (), {})\n",
}


def pythons() -> list[str]:
    """Every interpreter from 3.8 on that this machine has, ours at least."""
    found = [shutil.which(f"python3.{minor}") for minor in range(8, 15)]
    versions = Path.home() / ".pyenv" / "versions"
    found += [str(path) for path in versions.glob("3.*/bin/python") if _minor(path) >= 8]
    return sorted({sys.executable, *(path for path in found if path and "shims" not in path)})


def _minor(path: Path) -> int:
    return int(path.parents[1].name.split(".")[1])


@pytest.mark.parametrize("python", pythons())
def test_it_works_under_every_python_here(tmp_path: Path, python: str) -> None:
    for name, text in FAKE_TORCH.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    script = (
        "import torch\noptimizer = torch.Optimizer()\n"
        "for index in range(20):\n    optimizer.step()\ntorch.save('x', 'ck.pt')\n"
    )
    with worker(tmp_path) as job:
        job.start(script, python=python, cold=True)
        job.until(lambda: job.ended, "the script ends")
        job.listen()
        assert job.windows[-1].step == 20
        assert [Path(event["path"]).name for event in job.told("saved")] == ["ck.pt"]


def test_the_control_file_has_the_layout_of_the_protocol(tmp_path: Path) -> None:
    with worker(tmp_path) as job:
        job.run(NETWORK + "for (x,) in data(examples=80):\n    learn(x); optimizer.step()\n")
        fields = struct.unpack("<16Q", (tmp_path / "control").read_bytes())
        assert (fields[0], fields[3]) == (2, 10)


DCP = NETWORK + (
    "import os, time, warnings\n"
    "warnings.simplefilter('ignore')  # it says that this is one process\n"
    "import torch.distributed.checkpoint as dcp\n"
    "from torch.distributed.checkpoint import FileSystemWriter\n"
    "from torch.distributed.checkpoint.state_dict import get_state_dict\n"
    "class Held(FileSystemWriter):\n"
    "    def finish(self, metadata, results):\n"
    "        while not os.path.exists('finish'): time.sleep(0.01)\n"
    "        super().finish(metadata, results)\n"
    "def save():\n"
    "    state = {'m': net.state_dict()}\n"
    "    return dcp.async_save(state, storage_writer=Held('ckpt'), no_dist=True)\n"
    "batches = data(examples=8000)\n"
    "def train(steps):\n"
    "    for _, (x,) in zip(range(steps), batches):\n"
    "        learn(x); optimizer.step()\n"
)


def test_the_step_with_which_a_state_dict_is_made_is_none(tmp_path: Path) -> None:
    script = DCP + (
        "optimizer = torch.optim.Adam(net.parameters())\n"
        "state = dict(zip('mo', get_state_dict(net, optimizer)))\n"
        "open('made', 'w').close()\n"
        "while not os.path.exists('finish'): time.sleep(0.01)\n"
        "train(10)\n"
    )
    with worker(tmp_path) as job:
        job.start(script)
        job.until_path(tmp_path / "made", seconds=100)
        assert job.control[3] == 0
        assert not job.told("stepping")
        (tmp_path / "finish").touch()
        job.until(lambda: job.ended, "the script ends")
        assert job.control[3] == 10


def test_a_save_in_the_background_is_told_once_it_is_complete_with_the_step_it_began_at(
    tmp_path: Path,
) -> None:
    script = DCP + (
        "train(10)\n"
        "saving = save()\n"
        "train(20)\n"
        "open('trained', 'w').close()\n"
        "saving.result()\n"
        "train(5)\n"
    )
    with worker(tmp_path) as job:
        job.start(script)
        job.until_path(tmp_path / "trained", seconds=100)
        job.listen()
        assert not job.told("saved")
        (tmp_path / "finish").touch()
        job.until(lambda: job.ended, "the script ends")
        job.listen()
        assert [told["step"] for told in job.told("saved")] == [10]


def test_a_worker_that_is_asked_to_park_waits_for_the_save_of_this_very_step(
    tmp_path: Path,
) -> None:
    script = DCP + (
        "train(10)\n"
        "while not os.path.exists('asked'): time.sleep(0.01)\n"
        "saving = save()\n"
        "open('saving', 'w').close()\n"
        "train(20)\n"
    )
    with worker(tmp_path) as job:
        job.start(script)
        job.until(lambda: job.control[3] == 10, "ten steps", seconds=100)
        job.control[1] = 1
        (tmp_path / "asked").touch()
        job.until_path(tmp_path / "saving", seconds=60)
        job.listen()
        assert (job.control[3], job.control[6]) == (10, 0)
        (tmp_path / "finish").touch()
        job.until(lambda: job.control[6] == 1, "it parks")
        assert job.control[3] == 10
        job.until(lambda: job.told("saved") and job.told("parked"), "both are told")
        assert job.told("saved")[0]["step"] == job.told("parked")[0]["step"] == 10
        job.control[1] = 0
        job.until(lambda: job.ended, "the script ends")
