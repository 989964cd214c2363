"""Trains without any seed: every rank of every start draws its own random numbers."""

import random
import uuid

import torch
import torch.distributed as dist
from pieces import options, wait
from torch import nn
from torch.utils.data import DataLoader


class Noise(torch.utils.data.Dataset):
    """A dataset that draws random numbers inside the loader's worker."""

    def __len__(self):
        return 1

    def __getitem__(self, index):
        return torch.rand(()).item()


def main():
    args = options().parse_args()
    dist.init_process_group("gloo")
    order = next(iter(DataLoader(range(1_000_000), batch_size=4, shuffle=True))).tolist()
    print(f"drawn seed {torch.initial_seed()}")
    print(f"drawn order {order}")
    print(f"drawn dropout {nn.functional.dropout(torch.ones(64)).tolist()}")
    print(f"drawn by a loader's worker {next(iter(DataLoader(Noise(), num_workers=1))).item()!r}")
    print(f"drawn random {random.random()!r}")
    print(f"drawn name {uuid.uuid4()}")
    for step in range(1, 21):
        dist.barrier()
        wait(args.pause)
        if dist.get_rank() == 0:
            print(f"step {step} loss 0.0")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
