"""Trains with FSDP2 and torch.distributed.checkpoint, by the official recipe; saves every fifth
step.
"""

import os

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from pieces import options, wait
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.stateful import Stateful
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

BATCH = 8


class App(Stateful):
    """Model, optimizer and step, which are saved together."""

    def __init__(self, model, optimizer):
        self.model, self.optimizer, self.step = model, optimizer, 0

    def state_dict(self):
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer, "step": self.step}

    def load_state_dict(self, state):
        set_state_dict(
            self.model,
            self.optimizer,
            model_state_dict=state["model"],
            optim_state_dict=state["optimizer"],
        )
        self.step = state["step"]


def newest(directory):
    """Return the newest complete checkpoint; the metadata of a checkpoint is written last."""
    names = os.listdir(directory) if os.path.isdir(directory) else []
    whole = [name for name in names if os.path.exists(f"{directory}/{name}/.metadata")]
    return f"{directory}/{max(whole, key=int)}" if whole else None


def main():
    parser = options()
    parser.add_argument("--asynchronous", action="store_true")
    args = parser.parse_args()
    dist.init_process_group("cpu:gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(7)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    mesh = init_device_mesh("cpu", (world,))
    fully_shard(model[0], mesh=mesh)
    fully_shard(model[2], mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    app = App(model, optimizer)
    if found := newest(args.checkpoint):
        dcp.load({"app": app}, checkpoint_id=found)
        if rank == 0:
            print(f"resumed at {app.step}")
    # Its collectives run beside those of the training: it needs a group of its own.
    group = dist.new_group(backend="gloo") if args.asynchronous else None
    saving = None
    while app.step < 20:
        app.step += 1
        made = torch.Generator().manual_seed(app.step)
        inputs = torch.randn(BATCH, 16, generator=made).chunk(world)[rank]
        targets = torch.randn(BATCH, 4, generator=made).chunk(world)[rank]
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        told = loss.detach().clone()
        dist.all_reduce(told)
        wait(args.pause)
        if rank == 0:
            print(f"step {app.step} loss {told.item() / world!r}")
        if app.step % 5 == 0:
            place = f"{args.checkpoint}/{app.step}"
            if saving is not None:
                saving.result()
            if args.asynchronous:
                saving = dcp.async_save({"app": app}, checkpoint_id=place, process_group=group)
            else:
                dcp.save({"app": app}, checkpoint_id=place)
    if saving is not None:
        saving.result()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
