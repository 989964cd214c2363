"""Trains a network whose gradient noise scale is known: 32 examples, whatever its parameters are.

The gradient of an example is the example itself, N(mean, 1) in 64 dimensions with |mean|^2 = 2.
"""

import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    network = torch.nn.Linear(64, 1, bias=False)
    replicated = DistributedDataParallel(network)
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-4)
    for _ in range(int(sys.argv[1])):
        rows = torch.randn(800, 64) + (2 / 64) ** 0.5
        for (x,) in DataLoader(TensorDataset(rows), batch_size=8):
            optimizer.zero_grad()
            replicated(x).mean().backward()
            torch.nn.utils.clip_grad_norm_(network.parameters(), 0.1)
            optimizer.step()


main()
