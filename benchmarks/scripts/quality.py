"""A typical training script, resumable, whose batch size is requested by others; ``make
bench-quality`` runs it.

    brain-run quality.py TASK DATA SEED EPOCHS GATES

It trains one of three networks for ``EPOCHS`` epochs, and writes the loss on held-out data. Its
work has ``GATES`` gates, evenly spread. From a gate on it trains slowly, until the file
``$BENCH_TRACE/gate`` shows that world and batch size were changed. Rank 0 writes its progress to
``$BENCH_TRACE/at``.
"""

import json
import os
import sys
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from launcher.batch import Batch
from launcher.data import Sampler

PLACE, CHECKPOINT = Path(os.environ["BENCH_TRACE"]), os.environ["BENCH_CHECKPOINT"]
FIRST_BATCH, RENEW_EVERY, SAVE_EVERY = 32, 10, 50
_SLOW_SECONDS = 0.5


class Letters(nn.Module):
    """A small language model, which predicts the next character after each window."""

    def __init__(self, letters: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(letters, 24)
        self.memory = nn.GRU(24, 96, batch_first=True)
        self.output = nn.Linear(96, letters)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.output(self.memory(self.embedding(x))[0])
        return out.transpose(1, 2)


def network(task: str, letters: int) -> nn.Module:
    """Return the network of a task."""
    if task == "language model":
        return Letters(letters)
    if task == "digits by MLP":
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    return nn.Sequential(
        nn.Conv2d(1, 12, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(12, 24, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(24 * 16, 10),
    )


class Training:
    """The state of a checkpoint, and the values that follow from the requested batch size."""

    def __init__(self, task: str, data: str, seed: int) -> None:
        arrays = np.load(data)
        names = "x", "y", "held_x", "held_y"
        self.x, self.y, *self.held_out = (torch.from_numpy(arrays[name]) for name in names)
        torch.manual_seed(seed)
        self.seed, self.module = seed, network(task, int(self.y.max()) + 1)
        self.adam = task == "language model"
        parameters = self.module.parameters()
        self.optimizer: torch.optim.Optimizer = (
            torch.optim.Adam(parameters, lr=3e-3)
            if self.adam
            else torch.optim.SGD(parameters, lr=0.02, momentum=0.9)
        )
        self.first_rate = self.optimizer.param_groups[0]["lr"]
        self.steps = self.gate = 0
        #: Slow steps of this process.
        self.slow = 0
        self.batch = Batch(FIRST_BATCH)
        self.deal({})

    def deal(self, state: dict) -> None:
        """Use the requested batch size from now on, with its learning rate."""
        world = dist.get_world_size()
        examples = self.batch.local * self.batch.accumulation * world
        self.sampler = Sampler(
            len(self.x), global_batch=examples, most_per_replica=self.batch.local, seed=self.seed
        )
        if state:
            self.sampler.load_state_dict(state)
        ratio = examples / FIRST_BATCH
        scale = ratio**0.5 if self.adam else self.batch.learning_rate_scale
        for group in self.optimizer.param_groups:
            group["lr"] = self.first_rate * scale

    def save(self) -> None:
        """Let rank 0 write a checkpoint, which is either complete or absent."""
        state = {
            "module": self.module.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "sampler": self.sampler.state_dict(),
            "steps": self.steps,
            "gate": self.gate,
        }
        torch.save(state, CHECKPOINT + ".tmp")
        os.replace(CHECKPOINT + ".tmp", CHECKPOINT)

    def resume(self) -> None:
        """Continue from the checkpoint, if there is one."""
        if os.path.exists(CHECKPOINT):
            state = torch.load(CHECKPOINT)
            self.module.load_state_dict(state["module"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.steps, self.gate = state["steps"], state["gate"]
            self.deal(state["sampler"])

    def loss(self) -> tuple[float, float]:
        """Return the mean loss and the accuracy on held-out data."""
        x, y = self.held_out
        with torch.no_grad():
            out = self.module(x)
            right = (out.argmax(1) == y).float().mean()
            return float(cross_entropy(out, y)), float(right)


def write(name: str, **said: object) -> None:
    """Write a file so that readers see either its old or its new content."""
    (PLACE / f"{name}.tmp").write_text(json.dumps(said))
    os.replace(PLACE / f"{name}.tmp", PLACE / name)


def passed(training: Training) -> bool:
    """Return True once the benchmark has opened a gate for all ranks; until then steps are slow,
    and each is saved.

    The launcher changes a world between a save and the next step, so a script must not stand still.
    """
    rank, world = dist.get_rank(), dist.get_world_size()
    said = torch.zeros(1)
    if rank == 0:
        training.save()
        write("at", gate=training.gate + 1, world=world, steps=training.steps)
        gate = PLACE / "gate"
        said[0] = int(gate.read_text()) if gate.exists() else 0
    dist.broadcast(said, src=0)
    if said <= training.gate:
        # Ever slower: on a busy machine a newcomer takes minutes, and the work must not end.
        training.slow += 1
        time.sleep(_SLOW_SECONDS * (1 + training.slow / 20))
        return False
    training.gate, training.slow = training.gate + 1, 0
    if training.batch.renew():
        training.deal(training.sampler.state_dict())
    return True


def train(training: Training, epochs: int, gates: int) -> None:
    """Train to the end; a gate or another batch size starts the loader again."""
    parallel = DistributedDataParallel(training.module)
    whole = len(training.x) * epochs
    while training.sampler.epoch < epochs:
        loader = DataLoader(TensorDataset(training.x, training.y), batch_sampler=training.sampler)
        for (x, y), micro in training.sampler.over(loader):
            (cross_entropy(parallel(x), y) * micro.weight).backward()
            if not micro.last:
                continue
            training.optimizer.step()
            training.optimizer.zero_grad()
            training.sampler.step()
            training.steps += 1
            done = training.sampler.epoch * len(training.x) + training.sampler.consumed
            if training.gate < gates and done >= (training.gate + 1) * whole / (gates + 1):
                if passed(training):
                    break
            elif training.steps % RENEW_EVERY == 0 and training.batch.renew():
                training.deal(training.sampler.state_dict())
                break
            elif training.steps % SAVE_EVERY == 0 and dist.get_rank() == 0:
                training.save()


def main() -> None:
    """Train one task under the launcher that started this process."""
    task, data, seed, epochs, gates = sys.argv[1:]
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    training = Training(task, data, int(seed))
    training.resume()
    train(training, int(epochs), int(gates))
    if dist.get_rank() == 0:
        training.save()
        loss, accuracy = training.loss()
        write("result", loss=loss, accuracy=accuracy, steps=training.steps)


if __name__ == "__main__":
    main()
