"""torch.distributed.checkpoint by the recipe of torch's own tutorial: ``get_state_dict`` before the
load, directories by step. Saves every 20 steps until a file ``enough`` is there."""

import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import FileSystemWriter
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.stateful import Stateful
from torch.distributed.fsdp import fully_shard


class Slow(FileSystemWriter):
    """Storage that takes as long as ten steps."""

    def finish(self, metadata, results):
        time.sleep(0.2)
        super().finish(metadata, results)


class App(Stateful):
    def __init__(self, model, optimizer):
        self.model, self.optimizer, self.step = model, optimizer, 0

    def state_dict(self):
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer, "step": torch.tensor(self.step)}

    def load_state_dict(self, state):
        set_state_dict(
            self.model,
            self.optimizer,
            model_state_dict=state["model"],
            optim_state_dict=state["optimizer"],
        )
        self.step = int(state["step"])


how = sys.argv[1]
dist.init_process_group("gloo")
# Its collectives run beside those of the training: it needs a group of its own.
group = dist.new_group(backend="gloo")
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 1))
for layer in model:
    fully_shard(layer)
fully_shard(model)
app = App(model, torch.optim.AdamW(model.parameters(), lr=0.01))
done = sorted(Path("checkpoints").glob("*/.metadata"), key=lambda path: int(path.parent.name))
if done:
    dcp.load({"app": app}, checkpoint_id=str(done[-1].parent))
print("world", dist.get_world_size(), "begins at step", app.step, flush=True)
pending = None
while not Path("enough").exists() or app.step % 20:
    model(torch.ones(4, 8)).sum().backward()
    app.optimizer.step()
    app.optimizer.zero_grad()
    app.step += 1
    time.sleep(0.02)
    if app.step % 20 == 0:
        place = f"checkpoints/{app.step}"
        if how == "save":
            dcp.save({"app": app}, checkpoint_id=place)
        else:
            if pending is not None:
                pending.result()
            pending = dcp.async_save(
                {"app": app}, checkpoint_id=place, storage_writer=Slow(place), process_group=group
            )
if pending is not None:
    pending.result()
dist.destroy_process_group()
