"""Trains with Hydra for options, TensorBoard for logs, and torchmetrics across ranks."""

from dataclasses import dataclass

import hydra
import torch
import torch.distributed as dist
from hydra.core.config_store import ConfigStore
from pieces import WIDTH, batch, train
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.tensorboard import SummaryWriter
from torchmetrics import MeanAbsoluteError


@dataclass
class Options:
    checkpoint: str
    pause: str
    rate: float = 0.05


ConfigStore.instance().store("options", node=Options)


@hydra.main(version_base=None, config_name="options")
def main(options):
    dist.init_process_group("gloo")
    torch.manual_seed(7)
    model = DistributedDataParallel(nn.Linear(WIDTH, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=options.rate)
    log = SummaryWriter(f"{options.checkpoint}-log") if dist.get_rank() == 0 else None
    error = MeanAbsoluteError()

    def train_step(step):
        inputs, targets = batch(step)
        optimizer.zero_grad()
        outputs = model(inputs)
        loss = nn.functional.mse_loss(outputs, targets)
        loss.backward()
        optimizer.step()
        error.update(outputs.detach(), targets)
        mean = error.compute()
        if log is not None:
            log.add_scalar("error", mean, step)
        if step % 5 == 0:
            print(f"mean error of five steps {mean.item()!r}")
            error.reset()
        return loss

    train(options, {"model": model, "optimizer": optimizer}, train_step)
    if log is not None:
        log.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
