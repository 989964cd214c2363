"""Warnings name the line of the script that gave rise to them, whoever stands in between."""

import os
import warnings

import torch
from torch import nn


def shown(message: object, category: type, filename: str, line: int, *_: object) -> None:
    print(category.__name__, os.path.basename(filename), line)


warnings.simplefilter("always")
warnings.showwarning = shown  # type: ignore[assignment]
torch.distributed.init_process_group("gloo")
network = nn.parallel.DistributedDataParallel(nn.Linear(2, 1), check_reduction=True)
warnings.filterwarnings("ignore", category=ResourceWarning)
scaler = torch.amp.GradScaler("cuda")
torch.distributed.destroy_process_group()
