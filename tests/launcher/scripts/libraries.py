"""What its libraries made as they were imported is this worker's, also where they are known."""

import os
import sys
import time

import torch
from keepsakes import asks, draws, knows, opens, prints, reads, sets

network = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
network(torch.ones(1, 2)).sum().backward()
optimizer.step()
os.environ["OWN"] = "as text"
os.environb[b"OTHER"] = b"as bytes"
told = [
    f"rank {reads.settings['RANK']} of {reads.settings['WORLD_SIZE']}",
    f"{knows.program} is {knows.main} with {knows.arguments}",
    f"own process: {knows.process == os.getpid()}",
    f"first record: {opens.records.readline().strip()}",
    f"seeded: {draws.seeded}",
    f"directory: {os.path.basename(sets.directory)} {os.getcwd() == sets.directory}",
    f"said: {prints.said}",
    f"rank {asks.rank!r} {os.getenvb(b'RANK')!r} of {os.environb[b'WORLD_SIZE']!r}",
    f"own: {os.getenvb(b'OWN')!r} {os.environ['OTHER']}",
    f"as many: {len(os.environ) == len(os.environb)}",
]
for each in told:  # one write: ranks print into one stream
    sys.stdout.write(f"{os.environ['RANK']}: {each}\n")
    sys.stdout.flush()
if "LINGER" in os.environ:  # until the launcher knows what was imported
    time.sleep(600)
