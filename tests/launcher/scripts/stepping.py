"""A worker that trains, and then waits for every thread that it knows."""

import os
import threading

import torch

network = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
for _ in range(3):
    network(torch.ones(1, 2)).sum().backward()
    optimizer.step()
others = [each for each in threading.enumerate() if each is not threading.main_thread()]
os.write(1, f"threads: {[each.name for each in others]}\n".encode())
for each in others:
    each.join()
