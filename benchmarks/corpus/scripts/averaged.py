"""Trains with activation checkpointing, an averaged model, and a second gloo group to validate."""

import torch
import torch.distributed as dist
from pieces import WIDTH, batch, options, train
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.checkpoint import checkpoint


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(WIDTH, 32), nn.Linear(32, 1)

    def forward(self, inputs):
        hidden = checkpoint(
            lambda given: torch.tanh(self.first(given)), inputs, use_reentrant=False
        )
        return self.last(hidden)


def main():
    args = options().parse_args()
    dist.init_process_group("gloo")
    validating = dist.new_group(backend="gloo")
    torch.manual_seed(7)
    model = DistributedDataParallel(Model())
    average = AveragedModel(model.module, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

    def train_step(step):
        inputs, targets = batch(step)
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
        average.update_parameters(model.module)
        with torch.no_grad():
            loss = nn.functional.mse_loss(average(inputs), targets)
        dist.all_reduce(loss, group=validating)
        return loss / dist.get_world_size()

    train(args, {"model": model, "average": average, "optimizer": optimizer}, train_step)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
