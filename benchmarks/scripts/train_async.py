"""The loop of ``train.py`` with ``fully_shard`` and ``dcp.async_save``, by torch's own recipe.

Steps and trace are those of ``train.py``. The network is small, because a world gathers all of it
in each step. Storage takes as long as ten steps. The event ``saving`` is the call, and ``saved``
the checkpoint that can be loaded.
"""

import os
import sys
import time
from pathlib import Path
from typing import Any

BEGAN = time.monotonic()

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.distributed.checkpoint as dcp  # noqa: E402
import train  # noqa: E402
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict  # noqa: E402
from torch.distributed.checkpoint.stateful import Stateful  # noqa: E402
from torch.distributed.fsdp import fully_shard  # noqa: E402

IMPORTED = time.monotonic()

PLACE = Path(train.CHECKPOINT + ".d")
STORAGE_SECONDS = 10 * train.STEP_SECONDS
WIDTH, LAYERS = 64, 4


class Storage(dcp.FileSystemWriter):
    """Files that take some time to be written completely."""

    def finish(self, metadata: Any, results: Any) -> None:
        """Write the metadata that makes the files a checkpoint."""
        time.sleep(STORAGE_SECONDS)
        super().finish(metadata, results)


class Training(Stateful):
    """The whole state of a checkpoint."""

    def __init__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self.model, self.optimizer, self.step = model, optimizer, 0

    def state_dict(self) -> dict[str, Any]:
        """Return the state, as in torch's tutorial."""
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer, "step": torch.tensor(self.step)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load the state, as in torch's tutorial."""
        model, optimizer = state["model"], state["optimizer"]
        set_state_dict(
            self.model, self.optimizer, model_state_dict=model, optim_state_dict=optimizer
        )
        self.step = int(state["step"])


def main() -> None:
    """Train until the launcher or the benchmark ends the process."""
    trace = train.Trace()
    trace.tell("began", at=BEGAN)
    trace.tell("imported", at=IMPORTED)
    dist.init_process_group("gloo")
    background = dist.new_group()  # a save's collectives must not mix with those of the steps
    trace.world, trace.rank = dist.get_world_size(), dist.get_rank()
    trace.tell("grouped")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)))
    fully_shard(model)
    training = Training(model, torch.optim.AdamW(model.parameters(), lr=1e-3))
    trace.tell("built")
    complete = [int(path.parent.name) for path in PLACE.glob("*/.metadata")]
    if complete:
        dcp.load({"training": training}, checkpoint_id=str(PLACE / str(max(complete))))
    trace.tell("loaded", training.step)
    trace.tell("wrapped", training.step)
    pending = None
    crash = f"{train.PLACE}/crash-{trace.rank}"
    while training.step < train.STEPS:
        due = time.monotonic() + train.STEP_SECONDS
        model(torch.randn(8, WIDTH)).square().mean().backward()
        training.optimizer.step()
        training.optimizer.zero_grad()
        time.sleep(max(0.0, due - time.monotonic()))
        training.step += 1
        trace.tell("step", training.step)
        if training.step % train.SAVE_EVERY == 0:
            if pending is not None:
                pending.result()
            step, place = training.step, str(PLACE / str(training.step))
            trace.tell("saving", step)
            pending = dcp.async_save(
                {"training": training},
                checkpoint_id=place,
                storage_writer=Storage(place),
                process_group=background,
            )
            if trace.rank == 0:
                pending.add_done_callback(lambda _, step=step: trace.tell("saved", step))
        if os.path.exists(crash):
            os.unlink(crash)
            trace.tell("crashes", training.step)
            sys.exit(1)


if __name__ == "__main__":
    main()
