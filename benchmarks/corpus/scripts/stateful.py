"""Trains with torchdata's StatefulDataLoader, whose state is saved in the middle of an epoch."""

import torch
import torch.distributed as dist
from pieces import BATCH, WIDTH, examples, options, train
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import TensorDataset
from torchdata.stateful_dataloader import StatefulDataLoader
from torchdata.stateful_dataloader.sampler import StatefulDistributedSampler


class Endless:
    """Yields batch after batch. All ranks advance together, so rank 0 knows the position of every
    rank.
    """

    def __init__(self, loader):
        self.loader, self.batches = loader, None

    def __next__(self):
        self.batches = self.batches or iter(self.loader)
        try:
            return next(self.batches)
        except StopIteration:
            self.batches = iter(self.loader)
            return next(self.batches)

    def state_dict(self):
        return {"loader": self.loader.state_dict(), "world": dist.get_world_size()}

    def load_state_dict(self, state):
        self.loader.load_state_dict(scaled(state["loader"], state["world"]))


def scaled(state, world):
    """Return a rank's state for a world of another size, from the number of examples that each rank
    has used.
    """
    if isinstance(state, dict):
        return {
            key: value * world // dist.get_world_size()
            if key in ("samples_yielded", "yielded") and value
            else scaled(value, world)
            for key, value in state.items()
        }
    return state


def main():
    args = options().parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(7)
    model = DistributedDataParallel(nn.Linear(WIDTH, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    data = TensorDataset(*examples(8 * BATCH))
    sampler = StatefulDistributedSampler(data, shuffle=True, seed=3)
    size = BATCH // dist.get_world_size()
    batches = Endless(StatefulDataLoader(data, batch_size=size, sampler=sampler))

    def train_step(step):
        inputs, targets = next(batches)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        return loss

    train(args, {"model": model, "optimizer": optimizer, "batches": batches}, train_step)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
