"""A script that may know other workers, by ``--by``: nothing, torch's group, accelerate, or shards.

Its step is a sleep that more workers share, and every copy saves, as scripts for one process do.
"""

import argparse
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--by", choices=["nothing", "torch", "accelerate", "shards"], default="nothing")
options = parser.parse_args()
world = int(os.environ["WORLD_SIZE"])
torch.set_num_threads(1)
model: nn.Module = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = DataLoader(TensorDataset(torch.ones(100_000, 4)), batch_size=16)
step = 0
if os.path.exists("grouped.pt"):
    model.load_state_dict(torch.load("grouped.pt")["model"])
    step = torch.load("grouped.pt")["step"]
plain = model
if options.by == "torch" and world > 1:
    dist.init_process_group("gloo")
    model = DistributedDataParallel(model)
if options.by == "accelerate":
    from accelerate import Accelerator

    model, optimizer = Accelerator(cpu=True).prepare(model, optimizer)
if options.by == "shards":
    from launcher.data import shards

    taken = iter(shards("grouped", 100_000_000, shard=1000))
for (rows,) in data:
    if options.by == "shards":
        next(taken)
    time.sleep(0.01 + 0.08 / (world if options.by != "nothing" else 1))
    optimizer.zero_grad()
    model(rows).square().mean().backward()
    optimizer.step()
    step += 1
    first = options.by in ("nothing", "shards") or int(os.environ["RANK"]) == 0
    if step % 10 == 0 and first:
        mine = f"grouped.pt.{os.getpid()}"
        torch.save({"model": plain.state_dict(), "step": step}, mine)
        os.replace(mine, "grouped.pt")
