"""A script that asks for its batch, and writes down the batch of each step."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from launcher.batch import Batch


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = DistributedDataParallel(nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batch = Batch(8)
    with open("batches", "w", buffering=1) as written:
        while True:
            for _ in range(batch.accumulation):
                time.sleep(0.05)
                model(torch.ones(batch.local, 4)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            written.write(f"{batch.local * batch.accumulation}\n")
            batch.renew()


if __name__ == "__main__":
    main()
