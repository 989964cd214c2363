"""The environment as bytes is the environment, also where its libraries are known."""

import os
import sys
import time

import torch
from keepsakes import asks

network = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
network(torch.ones(1, 2)).sum().backward()
optimizer.step()
os.environ["OWN"] = "as text"
os.environb[b"OTHER"] = b"as bytes"
told = [
    f"rank {asks.rank} {os.getenvb(b'RANK')} of {os.environb[b'WORLD_SIZE']}",
    f"own: {os.getenvb(b'OWN')} {os.environ['OTHER']}",
    f"as many: {len(os.environ) == len(os.environb)}",
]
rank = os.environ["RANK"]
sys.stdout.write("".join(f"{rank}: {each}\n" for each in told))
sys.stdout.flush()
if "LINGER" in os.environ:  # until the launcher knows what was imported
    time.sleep(600)
