"""A script whose loader has as many workers as its replica's CPUs carry, and writes how many."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from launcher.loader import Loaders


def main() -> None:
    torch.set_num_threads(1)
    data = TensorDataset(torch.ones(64, 4))
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loaders = Loaders(3)
    while True:
        with open("loaders", "a") as file:
            print(loaders.workers, file=file)
        loader = DataLoader(
            data,
            batch_size=8,
            num_workers=loaders.workers,
            prefetch_factor=loaders.prefetch,
            persistent_workers=True,
        )
        while not loaders.renew():
            for (batch,) in loader:
                time.sleep(0.05)
                loss = model(batch).square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()


if __name__ == "__main__":
    main()
