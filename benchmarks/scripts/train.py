"""A training script such as anybody has; ``make bench-elastic`` runs it under every launcher.

It knows nothing of launchers but the environment that torchrun gives, and writes only down when
what happened: one line ``monotonic seconds, what, world size, rank, step`` per event into
``$BENCH_TRACE/<pid>.csv``. ``$BENCH_TRACE/crash-<rank>`` asks a rank to end with 1.

The network has 48 MB of parameters, 44 MB of them frozen as under a fine-tuned head, so that the
state has 52 MB and gradients have 4. A step takes 50 ms; what the processor does not need of them
is slept, as it would wait for an accelerator.
"""

import os
import sys
import time

BEGAN = time.monotonic()

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

IMPORTED = time.monotonic()

PLACE = os.environ["BENCH_TRACE"]
CHECKPOINT = os.environ["BENCH_CHECKPOINT"]
STEPS = int(os.environ.get("BENCH_STEPS", "1000000"))
STEP_SECONDS = 0.05
SAVE_EVERY = 20
WIDTH = 1024
FROZEN_LAYERS = 11


class Trace:
    """What happened when."""

    def __init__(self) -> None:
        flags = os.O_CREAT | os.O_WRONLY | os.O_APPEND
        self.file = os.open(f"{PLACE}/{os.getpid()}.csv", flags, 0o644)
        self.world = self.rank = -1

    def tell(self, what: str, step: int = -1, at: float | None = None) -> None:
        """Write it down; what is written survives a kill of this process."""
        now = time.monotonic() if at is None else at
        os.write(self.file, f"{now:.6f},{what},{self.world},{self.rank},{step}\n".encode())


def network() -> torch.nn.Module:
    """A frozen trunk with a head that is trained."""
    layers = [torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(FROZEN_LAYERS + 1)]
    for layer in layers[:-1]:
        layer.requires_grad_(False)
    return torch.nn.Sequential(*layers)


def save(step: int, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """The whole state, never half of it under the checkpoint's name."""
    state = {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save(state, CHECKPOINT + ".tmp")
    os.replace(CHECKPOINT + ".tmp", CHECKPOINT)


def main() -> None:
    """Train until told otherwise."""
    trace = Trace()
    trace.tell("began", at=BEGAN)
    trace.tell("imported", at=IMPORTED)
    dist.init_process_group("gloo")
    trace.world, trace.rank = dist.get_world_size(), dist.get_rank()
    trace.tell("grouped")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = network()
    trained = [each for each in model.parameters() if each.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=1e-3, momentum=0.9)
    trace.tell("built")
    step = 0
    if os.path.exists(CHECKPOINT):
        state = torch.load(CHECKPOINT, map_location="cpu")
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step = state["step"]
        del state
    trace.tell("loaded", step)
    parallel = DistributedDataParallel(model)
    trace.tell("wrapped", step)
    crash = f"{PLACE}/crash-{trace.rank}"
    while step < STEPS:
        due = time.monotonic() + STEP_SECONDS
        examples = torch.randn(8, WIDTH)
        parallel(examples).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(max(0.0, due - time.monotonic()))
        step += 1
        trace.tell("step", step)
        if trace.rank == 0 and step % SAVE_EVERY == 0:
            save(step, model, optimizer)
            trace.tell("saved", step)
        if os.path.exists(crash):
            os.unlink(crash)
            trace.tell("crashes", step)
            sys.exit(1)
    # No destroy_process_group(): under any launcher torch 2.13 may hang in it.


if __name__ == "__main__":
    main()
