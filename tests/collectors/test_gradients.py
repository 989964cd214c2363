"""Gradient noise and the wait for gradients, as the probe reads them in real backward passes."""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

import pytest

from brain.models.efficiency import gradient_statistics, noise_scale
from brain.types.telemetry import SHARDED, ThroughputSample
from tests.collectors.probed import Worker, worker

#: Gradients of examples are N(mean, 1) in 64 dimensions, |mean|^2 = 2, whatever the parameters are.
TRUTH = 64 / 2

#: A world of two workers or one, and a network whose gradient is the mean of its examples. Every
#: second step is sampled, so that a short run says enough; ``probe_cost`` measures the real pace.
PROBLEM = """
import os, sys, time, torch, _brain_probe
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
_brain_probe.gradients.GRADIENT_STEPS = 2
_brain_probe.gradients.GRADIENT_NS = 10**12
_brain_probe.gradients.GRADIENT_PAUSE_NS = 0
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
store = "file://" + os.environ["STORE"]
torch.manual_seed(rank)
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Linear(32, 1, bias=False), torch.nn.Linear(32, 1, bias=False)
    def forward(self, x):
        return self.a(x[:, :32]) + self.b(x[:, 32:])
net = Net()
mean = torch.full((64,), (2 / 64) ** 0.5)
def data(steps=300, accumulation=1, batch=8):
    rows = torch.randn(steps * accumulation * batch, 64) + mean
    return DataLoader(TensorDataset(rows), batch_size=batch)
def join():
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=size)
    return DDP(net)
def leave():
    # torch 2.13 may hang where a process ends beside gloo's last work.
    dist.barrier(); dist.destroy_process_group(); time.sleep(0.05)
optimizer = torch.optim.SGD(net.parameters(), lr=0.001)
"""

PLAIN = """
ddp = join()
for (x,) in data():
    optimizer.zero_grad(); ddp(x).mean().backward(); optimizer.step()
leave()
"""


def trained(
    tmp_path: Path, script: str, *, size: int = 2, cold: bool = False, **environment: str
) -> list[Worker]:
    """Run a script on ``size`` ranks to its end; what each of them told."""
    directories = [tmp_path / str(rank) for rank in range(size)]
    for directory in directories:
        directory.mkdir(parents=True)
    with ExitStack() as stack:
        workers = [stack.enter_context(worker(each, replicas=size)) for each in directories]
        for rank, each in enumerate(workers):
            named: dict[str, Any] = {
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(size),
            }
            store = {"STORE": str(tmp_path / "store")}
            each.start(PROBLEM + script, cold=cold, **named, **store, **environment)
        # Sockets hold ten datagrams: a rank that nobody hears while the others end drops its last.
        workers[0].until(
            lambda: all([ended(each) for each in workers]), "the scripts end", seconds=90
        )
        for each in workers:
            each.listen()
            assert each.process is not None
            assert each.process.poll() == 0, each.output
            assert not each.told("failing")
    return workers


def ended(worker: Worker) -> bool:
    """Whether it is gone; listens to it meanwhile."""
    worker.listen()
    return worker.ended


def read(workers: Sequence[Worker]) -> list[ThroughputSample]:
    """The windows that carry gradient norms."""
    return [one for each in workers for one in each.windows if one.gns_steps]


def scale(windows: Sequence[ThroughputSample]) -> float:
    """The noise scale from the means of all norms, in examples."""
    steps = sum(one.gns_steps or 0 for one in windows)
    [small] = {one.gns_small_batch for one in windows}
    [big] = {one.gns_big_batch for one in windows}
    assert small
    assert big
    small_square = sum((one.gns_steps or 0) * (one.gns_small_square or 0) for one in windows)
    big_square = sum((one.gns_steps or 0) * (one.gns_big_square or 0) for one in windows)
    square, variance = gradient_statistics(small, small_square / steps, big, big_square / steps)
    return noise_scale(square, variance, batch=1)


def reasons(workers: Sequence[Worker]) -> set[str | None]:
    """Why there are no norms, as the last windows say."""
    assert not read(workers)
    return {each.windows[-1].gns_unavailable for each in workers}


def norms(workers: Sequence[Worker]) -> list[Any]:
    """Norms of all windows; their bounds in time differ from run to run, their sums do not."""
    found = []
    for each in workers:
        mine = read([each])
        steps = sum(one.gns_steps or 0 for one in mine)
        small = sum((one.gns_steps or 0) * (one.gns_small_square or 0) for one in mine)
        big = sum((one.gns_steps or 0) * (one.gns_big_square or 0) for one in mine)
        found.append((steps, pytest.approx(small, rel=1e-5), pytest.approx(big, rel=1e-5)))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("cold", [False, True])
def test_two_workers_under_ddp_tell_the_true_noise_scale(tmp_path: Path, cold: bool) -> None:
    workers = trained(tmp_path, PLAIN, cold=cold)
    windows = read(workers)
    assert {(one.gns_small_batch, one.gns_big_batch) for one in windows} == {(8, 16)}
    assert sum(one.gns_steps or 0 for one in windows) > 250
    assert scale(windows) == pytest.approx(TRUTH, rel=0.2)


def test_accumulation_under_ddp_compares_micro_batches_with_the_step(tmp_path: Path) -> None:
    script = """
ddp = join()
for index, (x,) in enumerate(data(accumulation=3)):
    if index % 3 < 2:
        with ddp.no_sync():
            (ddp(x).mean() / 3).backward()
    else:
        (ddp(x).mean() / 3).backward(); optimizer.step(); optimizer.zero_grad()
leave()
"""
    windows = read(trained(tmp_path, script))
    assert {(one.gns_small_batch, one.gns_big_batch) for one in windows} == {(8, 48)}
    assert scale(windows) == pytest.approx(TRUTH, rel=0.2)


def test_one_worker_tells_it_from_its_micro_batches(tmp_path: Path) -> None:
    script = """
for index, (x,) in enumerate(data(steps=600, accumulation=4)):
    net(x).mean().backward()
    if index % 4 == 3: optimizer.step(); optimizer.zero_grad()
"""
    windows = read(trained(tmp_path, script, size=1))
    assert {(one.gns_small_batch, one.gns_big_batch) for one in windows} == {(8, 32)}
    assert scale(windows) == pytest.approx(TRUTH, rel=0.2)


def test_one_worker_without_accumulation_says_that_nothing_can_be_told(tmp_path: Path) -> None:
    script = "for (x,) in data():\n    net(x).mean().backward(); optimizer.step()\n"
    said = {"one worker without accumulation"}
    assert reasons(trained(tmp_path, script, size=1)) == said


def test_clipping_changes_nothing(tmp_path: Path) -> None:
    clip = "torch.nn.utils.clip_grad_norm_(net.parameters(), 1e-3); optimizer.step()"
    plain = trained(tmp_path / "plain", PLAIN)
    clipped = trained(tmp_path / "clipped", PLAIN.replace("optimizer.step()", clip))
    assert norms(clipped) == norms(plain)


def test_a_loss_scale_is_divided_out(tmp_path: Path) -> None:
    scaled = PLAIN.replace("ddp = join()", "ddp = join()\nscaler = torch.amp.GradScaler('cpu')")
    step = "scaler.scale(ddp(x).mean()).backward(); scaler.step(optimizer); scaler.update()"
    scaled = scaled.replace("ddp(x).mean().backward(); optimizer.step()", step)
    plain = trained(tmp_path / "plain", PLAIN)
    assert norms(trained(tmp_path / "scaled", scaled)) == norms(plain)


def test_gradients_that_are_zeroed_in_place_are_read(tmp_path: Path) -> None:
    zeroed = PLAIN.replace("zero_grad()", "zero_grad(set_to_none=False)")
    plain = trained(tmp_path / "plain", PLAIN)
    assert norms(trained(tmp_path / "zeroed", zeroed)) == norms(plain)


def test_backward_passes_within_backward_passes_are_one(tmp_path: Path) -> None:
    checkpointed = """
from torch.utils.checkpoint import checkpoint
inner = net
class Outer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = inner
    def forward(self, x):
        return checkpoint(self.inner, x.requires_grad_(), use_reentrant=True)
net = Outer()
"""
    plain = trained(tmp_path / "plain", PLAIN)
    assert norms(trained(tmp_path / "nested", checkpointed + PLAIN)) == norms(plain)


@pytest.mark.parametrize("none", [True, False])
def test_gradients_of_another_loss_are_not_taken_for_micro_batches(
    tmp_path: Path, none: bool
) -> None:
    """As the generator's loss leaves gradients in a discriminator, which are dropped."""
    script = f"""
for index, (x,) in enumerate(data(accumulation=2)):
    if index % 2 == 0: (100 * net(x).mean()).backward(); optimizer.zero_grad(set_to_none={none})
    else: net(x).mean().backward(); optimizer.step(); optimizer.zero_grad(set_to_none={none})
"""
    [alone] = trained(tmp_path, script, size=1)
    assert reasons([alone])


def test_a_backward_pass_without_exchange_is_not_taken_for_the_mean(tmp_path: Path) -> None:
    script = """
ddp = join()
for (x,) in data():
    with ddp.no_sync():
        optimizer.zero_grad(); ddp(x).mean().backward(); optimizer.step()
leave()
"""
    said = {"the step does not follow a backward pass that averages gradients"}
    assert reasons(trained(tmp_path, script)) == said


def test_a_communication_hook_of_the_script_is_left_alone(tmp_path: Path) -> None:
    script = """
ddp = join()
calls = []
def halving(state, bucket):
    calls.append(1)
    buffer = bucket.buffer().div_(2 * size)
    return dist.all_reduce(buffer, async_op=True).get_future().then(lambda f: f.value()[0])
for index, (x,) in enumerate(data()):
    if index == 1: ddp.register_comm_hook(None, halving)
    optimizer.zero_grad(); ddp(x).mean().backward(); optimizer.step()
assert len(calls) == 299 and [hook for hook, _ in ddp._comm_hooks] == [halving]
leave()
"""
    workers = trained(tmp_path, script)
    assert reasons(workers) == {"the script's communication hook halving"}


def test_a_hook_that_only_compresses_the_mean_is_no_obstacle(tmp_path: Path) -> None:
    script = PLAIN.replace(
        "ddp = join()",
        "ddp = join()\n"
        "from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook\n"
        "ddp.register_comm_hook(None, fp16_compress_hook)",
    )
    assert scale(read(trained(tmp_path, script))) == pytest.approx(TRUTH, rel=0.2)


def test_sharded_parameters_are_never_guessed_about(tmp_path: Path) -> None:
    script = """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
dist.init_process_group("gloo", init_method=store, rank=rank, world_size=size)
fully_shard(net, mesh=init_device_mesh("cpu", (size,)))
optimizer = torch.optim.SGD(net.parameters(), lr=0.001)
for (x,) in data(steps=40):
    optimizer.zero_grad(); net(x).mean().backward(); optimizer.step()
leave()
"""
    workers = trained(tmp_path, script)
    assert reasons(workers) == {f"{SHARDED} (FSDP or tensor parallelism)"}


def test_the_mark_of_the_first_fsdp_is_known(tmp_path: Path) -> None:
    """It needs a device, which is not here; what it writes on its parameters is."""
    script = """
from torch.distributed.fsdp._common_utils import _set_fsdp_flattened
for each in net.parameters(): _set_fsdp_flattened(each)
for (x,) in data(steps=40):
    optimizer.zero_grad(); net(x).mean().backward(); optimizer.step()
"""
    workers = trained(tmp_path, script)
    assert reasons(workers) == {"parameters are sharded (FSDP or tensor parallelism)"}


def parts(workers: Sequence[Worker]) -> list[set[int | None]]:
    """The bytes of the part that each worker told, once its state was there."""
    return [{one.sharded_bytes for one in each.windows[-2:]} for each in workers]


#: Warnings of torch itself, which tests take for errors.
QUIET = "import warnings; warnings.simplefilter('ignore')\n"
STEPS = (
    "    optimizer.zero_grad(); ddp(x).mean().backward(); optimizer.step()\n    time.sleep(0.02)\n"
)


def test_the_optimizer_s_state_that_workers_divide_is_counted_and_noise_is_measured_on(
    tmp_path: Path,
) -> None:
    script = f"""{QUIET}
from torch.distributed.optim import ZeroRedundancyOptimizer
ddp = join()
optimizer = ZeroRedundancyOptimizer(net.parameters(), torch.optim.Adam, lr=0.001)
for (x,) in data(steps=120):
{STEPS}leave()
"""
    workers = trained(tmp_path, script)
    # One of the two layers each: two moments of 32 numbers, and the steps.
    assert parts(workers) == [{2 * 32 * 4 + 4}, {2 * 32 * 4 + 4}]
    assert read(workers), "gradients are whole"


def test_parameters_and_gradients_count_where_they_are_divided_too(tmp_path: Path) -> None:
    script = f"""
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
dist.init_process_group("gloo", init_method=store, rank=rank, world_size=size)
ddp = net = torch.nn.Linear(64, 32, bias=False)
fully_shard(net, mesh=init_device_mesh("cpu", (size,)))
optimizer = torch.optim.SGD(net.parameters(), lr=0.001, momentum=0.9)
for (x,) in data(steps=120):
{STEPS}leave()
"""
    part = 16 * 64 * 4
    assert parts(trained(tmp_path, script)) == [{3 * part}, {3 * part}]


@pytest.mark.parametrize(("stage", "bytes"), [(1, 32 * 4 * 2), (2, 32 * 4 * 3), ("offloaded", 0)])
def test_deepspeed_s_optimizer_is_known_by_what_is_around_it(
    tmp_path: Path, stage: int | str, bytes: int
) -> None:
    """It needs a device, which is not here; the stand-in has its name and its attributes."""
    package = tmp_path / "deepspeed" / "runtime" / "zero"
    package.mkdir(parents=True)
    for each in (package, package.parent, package.parent.parent):
        (each / "__init__.py").touch()
    (package / "stage_1_and_2.py").write_text(
        "class DeepSpeedZeroOptimizer:\n"
        "    def __init__(self, init_optimizer, partition_grads, cpu_offload):\n"
        "        self.optimizer, self.partition_gradients = init_optimizer, partition_grads\n"
        "        self.cpu_offload = cpu_offload\n"
    )
    script = f"""
sys.path.insert(0, {str(tmp_path)!r})
from deepspeed.runtime.zero.stage_1_and_2 import DeepSpeedZeroOptimizer
part = torch.nn.Parameter(torch.zeros(32))
inner = torch.optim.SGD([part], lr=0.001, momentum=0.9)
optimizer = DeepSpeedZeroOptimizer(inner, {stage == 2}, {stage == "offloaded"})
for (x,) in data(steps=120):
    part.grad = torch.ones(32); optimizer.optimizer.step(); time.sleep(0.02)
"""
    assert parts(trained(tmp_path, script, size=1)) == [{bytes}]


def test_workers_that_divide_nothing_tell_no_part(tmp_path: Path) -> None:
    assert parts(trained(tmp_path, PLAIN)) == [{None}, {None}]


def test_workers_without_ddp_say_so(tmp_path: Path) -> None:
    script = "for (x,) in data():\n    net(x).mean().backward(); optimizer.step()\n"
    said = {"no DistributedDataParallel around the optimizer's parameters"}
    assert reasons(trained(tmp_path, script)) == said


def test_training_comes_out_the_same_to_the_bit(tmp_path: Path) -> None:
    script = """
deep = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 8))
net = deep
ddp = join()
optimizer = torch.optim.AdamW(deep.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=512.0)
for index, (x,) in enumerate(data(accumulation=2)):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = (ddp(x) ** 2).mean() / 2
    if index % 2 == 0:
        with ddp.no_sync(): scaler.scale(loss).backward()
        continue
    scaler.scale(loss).backward(); scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(deep.parameters(), 0.5)
    scaler.step(optimizer); scaler.update(); optimizer.zero_grad()
weights = torch.cat([each.detach().flatten() for each in deep.parameters()])
open("weights", "wb").write(weights.numpy().tobytes())
leave()
"""
    assert read(trained(tmp_path / "seen", script))
    assert not trained(tmp_path / "unseen", script, BRAIN_PROBE="0")[0].samples
    assert len({path.read_bytes() for path in tmp_path.glob("*/*/weights")}) == 1


def test_the_wait_for_the_slowest_is_told_by_the_others(tmp_path: Path) -> None:
    script = """
ddp = join()
for (x,) in data(steps=60):
    loss = ddp(x).mean()
    if rank == 1: time.sleep(0.05)
    optimizer.zero_grad(); loss.backward(); optimizer.step()
leave()
"""
    fast, slow = trained(tmp_path, script)
    waits = [
        [one.exchange_wait_seconds for one in each.windows if one.exchange_wait_seconds is not None]
        for each in (fast, slow)
    ]
    assert median(waits[0]) > 0.03
    assert median(waits[1]) < median(waits[0]) / 2


def test_a_network_saved_between_backward_passes_is_saved_without_a_warning(
    tmp_path: Path,
) -> None:
    script = """
for index, (x,) in enumerate(data(accumulation=2)):
    net(x).mean().backward()
    if index % 2: optimizer.step(); optimizer.zero_grad()
    elif index % 20 == 0: torch.save(net, "net.pt")
"""
    assert read(trained(tmp_path, script, size=1))


@pytest.mark.slow
def test_a_compiled_network_is_read_and_not_compiled_again(tmp_path: Path) -> None:
    script = """
import warnings; warnings.simplefilter("ignore")
import torch._dynamo
torch._dynamo.config.error_on_recompile = True
ddp = torch.compile(join(), backend="aot_eager")
for (x,) in data():
    optimizer.zero_grad(); ddp(x).mean().backward(); optimizer.step()
leave()
"""
    assert scale(read(trained(tmp_path, script))) == pytest.approx(TRUTH, rel=0.2)


def test_a_network_that_is_compiled_on_a_sampled_step_compiles(tmp_path: Path) -> None:
    script = """
import warnings; warnings.simplefilter("ignore")
compiled = torch.compile(net, backend="aot_eager", fullgraph=True)
for index, (x,) in enumerate(data(steps=60, accumulation=2)):
    if index == 44: assert any(each._backward_hooks for each in net.parameters())
    (net if index < 44 else compiled)(x).mean().backward()
    if index % 2: optimizer.step(); optimizer.zero_grad()
"""
    assert read(trained(tmp_path, script, size=1))


def test_a_network_that_the_script_drops_is_not_kept_by_us(tmp_path: Path) -> None:
    script = """
import gc, weakref
for index, (x,) in enumerate(data(steps=40, accumulation=2)):
    net(x).mean().backward()
    if index % 2: optimizer.step(); optimizer.zero_grad()
gone = weakref.ref(net)
del net, optimizer
gc.collect()
assert gone() is None
"""
    assert read(trained(tmp_path, script, size=1))


@pytest.mark.parametrize(
    ("cost_ns", "step_ns", "every"),
    [
        (100_000, 1_000_000_000, 16),
        (192_001, 1_000_000_000, 32),
        (12_000_000, 1_000_000_000, 1024),
        (100_000, 1_000_000, 128),
    ],
)
def test_sampling_is_as_rare_as_its_cost_demands(cost_ns: int, step_ns: int, every: int) -> None:
    import time

    from collectors.probe.gradients import Gradients

    steps = 1 << 20  # so many that a pause between the two looks at the clock is nothing to each
    gradients = Gradients(SimpleNamespace(steps=1000 + steps))  # type: ignore[arg-type]
    gradients.costs.extend([cost_ns] * 5)
    gradients.opened = (1000, time.monotonic_ns() - steps * step_ns)
    gradients._pace()
    assert gradients.every == every


def test_workers_of_a_process_group_met_each_other_even_once_it_is_gone(tmp_path: Path) -> None:
    workers = trained(tmp_path, PLAIN + "for (x,) in data(20):\n    optimizer.step()\n")
    assert {window.met for each in workers for window in each.windows} == {True}
