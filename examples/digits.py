"""Train a small CNN on scikit-learn's handwritten digits with DistributedDataParallel.

An ordinary script: it knows nothing of Brain. It keeps its global batch whatever the number of
workers, saves a checkpoint every few steps and continues from it after a restart:

    torchrun --nproc-per-node=2 digits.py --steps 200
"""

import argparse
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Sampler, TensorDataset

#: Seconds of one core that an optimizer step should cost, so that sharing it can pay.
STEP_SECONDS = (0.1, 0.3)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=10_000, help="stop after so many steps")
    parser.add_argument("--seconds", type=float, default=1e9, help="or after so much training")
    parser.add_argument("--batch", type=int, help="global batch; default: measured")
    parser.add_argument("--save-every", type=int, default=20, help="steps between checkpoints")
    parser.add_argument("--checkpoint", default="digits.pt")
    parser.add_argument("--lr", type=float, default=1e-3)
    return parser.parse_args()


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, 10),
    )


def digits() -> tuple[TensorDataset, TensorDataset]:
    """1,797 images of 8 x 8 pixels with label and number; every fifth is held out."""
    images, labels = load_digits(return_X_y=True)
    x = torch.tensor(images, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16
    y = torch.tensor(labels)
    held_out = torch.arange(len(y)) % 5 == 0

    def part(rows: Tensor) -> TensorDataset:
        return TensorDataset(x[rows], y[rows], torch.arange(int(rows.sum())))

    return part(~held_out), part(held_out)


def measured_batch(model: nn.Module, examples: TensorDataset) -> int:
    """Raise the global batch until one step costs enough to be worth sharing."""
    x, y, _ = examples.tensors
    batch = 256
    while True:
        rows = torch.arange(batch) % len(y)
        cross_entropy(model(x[rows]), y[rows]).backward()
        started = time.perf_counter()
        cross_entropy(model(x[rows]), y[rows]).backward()
        model.zero_grad()
        seconds = time.perf_counter() - started
        if seconds >= STEP_SECONDS[0] * 1.4 or batch >= 1 << 16:
            return batch
        grow = STEP_SECONDS[0] * 1.8 / seconds
        batch = int(batch * min(max(grow, 1.2), 8)) // 64 * 64


class GlobalBatches(Sampler[list[int]]):
    """This rank's share of every global batch, from ``step`` on; epochs are shuffled by number."""

    def __init__(self, count: int, batch: int, step: int) -> None:
        self.count, self.batch, self.step = count, batch, step

    def __iter__(self) -> Iterator[list[int]]:
        rank, world = dist.get_rank(), dist.get_world_size()
        position = self.step * self.batch
        while True:
            share = range(position + rank, position + self.batch, world)
            yield [self._example(index) for index in share]
            position += self.batch

    def _example(self, index: int) -> int:
        epoch, offset = divmod(index, self.count)
        if getattr(self, "epoch", None) != epoch:
            self.epoch = epoch
            self.order = torch.randperm(
                self.count, generator=torch.Generator().manual_seed(epoch)
            ).tolist()
        return self.order[offset]


def save(path: str, state: dict) -> None:
    torch.save(state, path + ".tmp")
    os.replace(path + ".tmp", path)


def accuracy(model: nn.Module, held_out: TensorDataset) -> float:
    with torch.no_grad():
        x, y, _ = held_out.tensors
        return (model(x).argmax(1) == y).float().mean().item()


@dataclass
class Progress:
    """The state of a checkpoint beside the network and its optimizer."""

    step: int
    #: Seconds of training so far.
    seconds: float
    #: Examples per step over all workers.
    batch: int
    #: How often each example was used.
    used: Tensor


def resumed(path: str, model: nn.Module, optimizer: torch.optim.Optimizer) -> Progress | None:
    if not os.path.exists(path):
        return None
    state = torch.load(path)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return Progress(state["step"], state["seconds"], state["batch"], state["used"])


def fresh(options: argparse.Namespace, model: nn.Module, examples: TensorDataset) -> Progress:
    batch = torch.tensor(options.batch or 0)
    if not options.batch and dist.get_rank() == 0:
        batch = torch.tensor(measured_batch(model, examples))
    dist.broadcast(batch, src=0)
    return Progress(0, 0.0, int(batch), torch.zeros(len(examples), dtype=torch.long))


def train(
    options: argparse.Namespace,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    examples: TensorDataset,
    progress: Progress,
) -> Iterator[float]:
    """Train until told to stop; yield the loss whenever it is time for a checkpoint."""
    replicated = DistributedDataParallel(model)
    batches = GlobalBatches(len(examples), progress.batch, progress.step)
    began = time.perf_counter() - progress.seconds
    used = torch.zeros_like(progress.used)
    done = torch.tensor(progress.step >= options.steps or progress.seconds >= options.seconds)
    for x, y, numbers in DataLoader(examples, batch_sampler=batches) if not done else ():
        # Shares may differ by an example; summing keeps the mean that of the global batch.
        loss = cross_entropy(replicated(x), y, reduction="sum")
        optimizer.zero_grad()
        (loss * dist.get_world_size() / progress.batch).backward()
        optimizer.step()
        progress.step += 1
        used += torch.bincount(numbers, minlength=len(used))
        if progress.step % options.save_every and progress.step < options.steps:
            continue
        progress.seconds = time.perf_counter() - began
        dist.all_reduce(used)
        progress.used = progress.used + used
        used.zero_()
        done = torch.tensor(progress.step >= options.steps or progress.seconds >= options.seconds)
        dist.broadcast(done, src=0)
        yield loss.item() / len(y)
        if done:
            return


def main() -> None:
    options = arguments()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()

    examples, held_out = digits()
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr)
    progress = resumed(options.checkpoint, model, optimizer) or fresh(options, model, examples)
    if rank == 0:
        print(f"step {progress.step}: {world} workers, global batch {progress.batch}", flush=True)

    for loss in train(options, model, optimizer, examples, progress):
        if rank == 0:
            print(f"step {progress.step}  loss {loss:.4f}  {progress.seconds:.0f} s", flush=True)
            networks = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            save(
                options.checkpoint,
                networks | vars(progress) | {"accuracy": accuracy(model, held_out)},
            )
    if rank == 0:
        print(f"accuracy {accuracy(model, held_out):.3f} after {progress.step} steps", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
