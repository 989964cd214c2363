"""A script that computes for 100 ms of each step and waits for 300: a quarter of a processor."""

import time

import torch
from torch import nn


def main() -> None:
    torch.set_num_threads(1)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    while True:
        until = time.process_time() + 0.1
        while time.process_time() < until:
            pass
        time.sleep(0.3)
        loss = model(torch.ones(8, 4)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
