"""A worker that adds up ranks with all others, and writes down what it saw."""

import os

import observe
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
mine = torch.tensor([dist.get_rank() + 1.0])
dist.all_reduce(mine)
os.write(1, f"sum {mine.item()} of {dist.get_world_size()}\n".encode())
assert observe.SEEN
# Under any launcher torch 2.13 may hang or abort where it takes the group apart.
os._exit(0)
