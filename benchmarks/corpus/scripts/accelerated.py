"""Trains with accelerate: accumulated gradients, save_state and load_state."""

import os

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from pieces import options, wait
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

BATCH, EPOCHS = 8, 4


def main():
    args = options().parse_args()
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    set_seed(11)
    made = torch.Generator().manual_seed(5)
    data = TensorDataset(
        torch.randn(5 * BATCH, 16, generator=made), torch.randn(5 * BATCH, 1, generator=made)
    )
    model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    loader = DataLoader(data, BATCH // accelerator.num_processes, shuffle=False)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    names = os.listdir(args.checkpoint) if os.path.isdir(args.checkpoint) else []
    first = max((int(name) for name in names if name.isdigit()), default=0)
    if first:
        accelerator.load_state(f"{args.checkpoint}/{first}")
        accelerator.print(f"resumed at {5 * first}")
    for epoch in range(first, EPOCHS):
        for number, (inputs, targets) in enumerate(loader, 5 * epoch + 1):
            with accelerator.accumulate(model):
                loss = nn.functional.mse_loss(model(inputs), targets)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            told = accelerator.reduce(loss.detach(), "mean")
            wait(args.pause)
            accelerator.print(f"step {number} loss {told.item()!r}")
        accelerator.save_state(f"{args.checkpoint}/unfinished")
        accelerator.wait_for_everyone()
        if accelerator.is_main_process:
            os.rename(f"{args.checkpoint}/unfinished", f"{args.checkpoint}/{epoch + 1}")
        accelerator.wait_for_everyone()
    accelerator.end_training()


if __name__ == "__main__":
    main()
