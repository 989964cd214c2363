"""Code that the scripts share: options, random batches, and a loop that saves every fifth step."""

import argparse
import os
import time

import torch
import torch.distributed as dist

STEPS, EVERY, BATCH, WIDTH = 20, 5, 8, 16


def wait(pause):
    """Sleep as long as a slow data source would: the number of seconds in the file ``pause``."""
    with open(pause) as file:
        time.sleep(float(file.read()))


def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--pause", required=True)
    return parser


def examples(number):
    """Return the given number of examples, which are equal in every process."""
    made = torch.Generator().manual_seed(5)
    inputs = torch.randn(number, WIDTH, generator=made)
    return inputs, inputs.sum(1, keepdim=True) / 4


def batch(step):
    """Return this rank's part of a step's batch."""
    made = torch.Generator().manual_seed(step)
    inputs = torch.randn(BATCH, WIDTH, generator=made).chunk(dist.get_world_size())
    return inputs[dist.get_rank()], inputs[dist.get_rank()].sum(1, keepdim=True) / 4


def tell(step, loss):
    print(f"step {step} loss {loss!r}")


def tell_resumed(step):
    print(f"resumed at {step}")


def train(args, parts, train_step):
    """Load the saved state of ``parts``, then call ``train_step`` for each remaining step."""
    path, first, world = f"{args.checkpoint}.pt", 0, dist.get_world_size()
    if os.path.exists(path):
        saved = torch.load(path)
        for name, part in parts.items():
            part.load_state_dict(saved[name])
        first = saved["step"]
        if dist.get_rank() == 0:
            tell_resumed(first)
    for step in range(first + 1, STEPS + 1):
        loss = train_step(step).detach().clone()
        dist.all_reduce(loss)
        wait(args.pause)
        if dist.get_rank() == 0:
            tell(step, loss.item() / world)
        if step % EVERY == 0:
            if dist.get_rank() == 0:
                state = {name: part.state_dict() for name, part in parts.items()}
                torch.save(state | {"step": step}, f"{path}.new")
                os.replace(f"{path}.new", path)
            dist.barrier()
