"""Handwritten digits with DistributedDataParallel; ``ddp_elastic.py`` is the same with three lines.

torchrun --nproc-per-node=2 ddp.py
"""

import sys

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
BATCH = 480


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 8 * 8, 10),
    )


def share(step: int, rank: int, size: int, examples: int) -> torch.Tensor:
    """Return the rank's share of the global batch of a step."""
    return torch.arange(step * BATCH + rank, (step + 1) * BATCH, size) % examples


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    images, labels = load_digits(return_X_y=True)
    x = torch.tensor(images, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16
    y = torch.tensor(labels)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    dist.init_process_group("gloo")
    parallel = DistributedDataParallel(model)
    for step in range(STEPS):
        mine = share(step, dist.get_rank(), dist.get_world_size(), len(y))
        loss = cross_entropy(parallel(x[mine]), y[mine])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 20 == 0 and dist.get_rank() == 0:
            print(f"step {step}: {dist.get_world_size()} workers, loss {loss:.3f}", flush=True)


if __name__ == "__main__":
    main()
