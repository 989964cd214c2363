"""A typical training script, which ``make bench-elastic`` runs under every launcher.

The script uses only the environment that torchrun sets. It records each event as one line
``monotonic seconds, what, world size, rank, step`` in ``$BENCH_TRACE/<pid>.csv``. The file
``$BENCH_TRACE/crash-<rank>`` makes a rank exit with code 1.

The network has 48 MB of parameters, of which 44 MB are frozen, as under a fine-tuned head. So the
training state has 52 MB, and the gradients have 4 MB. A step takes 50 ms: the script sleeps for the
part that the processor does not need, as if it waited for an accelerator.
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
    """Writes events with their times."""

    def __init__(self) -> None:
        flags = os.O_CREAT | os.O_WRONLY | os.O_APPEND
        self.file = os.open(f"{PLACE}/{os.getpid()}.csv", flags, 0o644)
        self.world = self.rank = -1

    def tell(self, what: str, step: int = -1, at: float | None = None) -> None:
        """Write an event; written events survive a kill of this process."""
        now = time.monotonic() if at is None else at
        os.write(self.file, f"{now:.6f},{what},{self.world},{self.rank},{step}\n".encode())


def network() -> torch.nn.Module:
    """Return a frozen trunk with a trainable head."""
    layers = [torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(FROZEN_LAYERS + 1)]
    for layer in layers[:-1]:
        layer.requires_grad_(False)
    return torch.nn.Sequential(*layers)


def save(step: int, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Save the whole state, so that the checkpoint's file is always complete."""
    state = {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save(state, CHECKPOINT + ".tmp")
    os.replace(CHECKPOINT + ".tmp", CHECKPOINT)


def main() -> None:
    """Train until the launcher or the benchmark ends the process."""
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
