"""Trains a model that torch.compile compiled, under DDP."""

import torch
import torch.distributed as dist
from pieces import WIDTH, batch, options, train
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main():
    args = options().parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(7)
    model = nn.Sequential(nn.Linear(WIDTH, 32), nn.GELU(), nn.Linear(32, 1))
    model = DistributedDataParallel(model)
    compiled = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

    def train_step(step):
        inputs, targets = batch(step)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(compiled(inputs), targets)
        loss.backward()
        optimizer.step()
        return loss

    train(args, {"model": model, "optimizer": optimizer}, train_step)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
