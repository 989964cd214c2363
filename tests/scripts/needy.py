"""A script that needs more than it has: its loader or its last rank computes once the file ``busy``
is there, or it keeps memory with each step until its process ends."""

import argparse
import os
import time
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset


def compute(seconds: float) -> None:
    """Use so much processor time, however long that takes."""
    until = time.process_time() + seconds
    while os.path.exists("busy") and time.process_time() < until:
        pass


class Batches(IterableDataset[torch.Tensor]):
    """Batches without end, each of which costs processor time."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __iter__(self) -> Iterator[torch.Tensor]:
        while True:
            compute(self.seconds)
            yield torch.ones(8, 4)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--loads", type=float, default=0.0, help="processor seconds of a batch")
    parser.add_argument(
        "--computes", type=float, default=0.0, help="the same of the last rank's step"
    )
    parser.add_argument("--keeps", type=float, default=0.0, help="MiB that each step keeps")
    parser.add_argument("--step", type=float, default=0.2, help="seconds of a device's step")
    parser.add_argument("--saves", type=float, default=0.0, help="seconds between two saves")
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    last = dist.get_rank() == dist.get_world_size() - 1
    model = DistributedDataParallel(nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    if options.saves and os.path.exists("needy.pt"):
        model.load_state_dict(torch.load("needy.pt"))
    kept: list[bytearray] = []
    saved = time.monotonic()
    for batch in DataLoader(Batches(options.loads), batch_size=None, num_workers=1):
        time.sleep(options.step)
        compute(options.computes if last else 0.0)
        kept.append(bytearray(b"1") * int(options.keeps * 2**20))
        loss = model(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if options.saves and not dist.get_rank() and time.monotonic() - saved > options.saves:
            saved = time.monotonic()
            torch.save(model.state_dict(), "needy.tmp")
            os.replace("needy.tmp", "needy.pt")


if __name__ == "__main__":
    main()
