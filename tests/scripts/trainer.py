"""transformers' Trainer with a step that is a sleep, which more workers share."""

import os
import time

import torch
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

world = int(os.environ["WORLD_SIZE"])


class Sleeps(TrainerCallback):
    def on_step_begin(self, *args, **kwargs):
        time.sleep(0.01 + 0.08 / world)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 1)

    def forward(self, rows):
        return {"loss": self.linear(rows).square().mean()}


arguments = TrainingArguments(
    output_dir="checkpoints",
    use_cpu=True,
    max_steps=100_000,
    per_device_train_batch_size=16 // world,
    save_steps=20,
    save_total_limit=2,
    report_to=[],
    disable_tqdm=True,
)
data = [{"rows": torch.ones(4)} for _ in range(4096)]
found = get_last_checkpoint("checkpoints") if os.path.isdir("checkpoints") else None
Trainer(Model(), arguments, train_dataset=data, callbacks=[Sleeps()]).train(
    resume_from_checkpoint=found
)
