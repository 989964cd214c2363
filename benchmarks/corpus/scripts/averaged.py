"""Activation checkpointing, an averaged model, and a second gloo group for validation."""

import argparse
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.checkpoint import checkpoint

BATCH = 8


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(16, 32), nn.Linear(32, 1)

    def forward(self, inputs):
        hidden = checkpoint(
            lambda given: torch.tanh(self.first(given)), inputs, use_reentrant=False
        )
        return self.last(hidden)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--pause", type=float, default=0.2)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    validating = dist.new_group(backend="gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(7)
    model = DistributedDataParallel(Model())
    average = AveragedModel(model.module, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    parts = {"model": model, "average": average, "optimizer": optimizer}
    first = 0
    if os.path.exists(args.checkpoint):
        saved = torch.load(args.checkpoint)
        for name, part in parts.items():
            part.load_state_dict(saved[name])
        first = saved["step"]
        if rank == 0:
            print(f"resumed at {first}")
    for step in range(first + 1, 21):
        made = torch.Generator().manual_seed(step)
        inputs = torch.randn(BATCH, 16, generator=made).chunk(world)[rank]
        targets = torch.randn(BATCH, 1, generator=made).chunk(world)[rank]
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
        average.update_parameters(model.module)
        with torch.no_grad():
            told = nn.functional.mse_loss(average(inputs), targets)
        dist.all_reduce(told, group=validating)
        time.sleep(args.pause)  # data take their time
        if rank == 0:
            print(f"step {step} loss {told.item() / world!r}")
        if step % 5 == 0:
            if rank == 0:
                state = {name: part.state_dict() for name, part in parts.items()}
                torch.save(state | {"step": step}, f"{args.checkpoint}.new")
                os.replace(f"{args.checkpoint}.new", args.checkpoint)
            dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
