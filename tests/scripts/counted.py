"""A DDP script whose step is a sleep: its speed does not depend on the machine.

Counts every example it uses, saves by rename, and goes on from its checkpoint. Sharing pays as far
as ``--alone`` (seconds that every step costs whatever the number of workers) lets it.
"""

import argparse
import os
import signal
import sys
import time
from functools import partial

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

EXAMPLES = 64
BATCH = 16


def end(seconds: float, beside: str, *_: object) -> None:
    """What a script does that saves at its end, and how far it came."""
    me = f"{os.environ['RANK']}-of-{os.environ['WORLD_SIZE']}-{os.getpid()}"
    directory = os.path.dirname(os.path.abspath(beside))
    open(f"{directory}/ending-{me}", "w").close()
    time.sleep(seconds)
    open(f"{directory}/ended-{me}", "w").close()
    sys.exit(0)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--shared", type=float, default=0.1, help="seconds per step to share")
    parser.add_argument("--alone", type=float, default=0.01, help="seconds per step not shared")
    parser.add_argument("--save-every", type=int, default=10)
    parser.add_argument("--checkpoint", default="counted.pt")
    parser.add_argument("--until", help="end at the first save after this file appeared")
    parser.add_argument("--no-load", action="store_true", help="never look at the checkpoint")
    parser.add_argument("--no-save", action="store_true")
    parser.add_argument("--ends-slowly", type=float, help="seconds that its SIGTERM handler takes")
    parser.add_argument("--hang", action="store_true", help="never make a step")
    options = parser.parse_args()
    if options.ends_slowly:
        signal.signal(signal.SIGTERM, partial(end, options.ends_slowly, options.checkpoint))
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    if options.hang:
        time.sleep(600)

    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    step, used = 0, torch.zeros(EXAMPLES, dtype=torch.long)
    if os.path.exists(options.checkpoint) and not options.no_load:
        state = torch.load(options.checkpoint)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step, used = state["step"], state["used"]
    replicated = DistributedDataParallel(model)
    news = torch.zeros_like(used)
    while step < options.steps:
        rows = [(step * BATCH + i) % EXAMPLES for i in range(rank, BATCH, world)]
        time.sleep(options.alone + options.shared * len(rows) / BATCH)
        loss = replicated(torch.ones(len(rows), 4)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        news += torch.bincount(torch.tensor(rows), minlength=EXAMPLES)
        if step % options.save_every == 0 or step == options.steps:
            dist.all_reduce(news)
            used, news = used + news, torch.zeros_like(news)
            if options.until is not None:
                enough = torch.tensor(int(os.path.exists(options.until)))
                dist.all_reduce(enough, op=dist.ReduceOp.MIN)
                options.steps = step if enough else options.steps
            if rank == 0 and not options.no_save:
                state = {
                    "model": model.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "step": step,
                    "used": used,
                }
                torch.save(state, options.checkpoint + ".tmp")
                os.replace(options.checkpoint + ".tmp", options.checkpoint)
    if rank == 0:
        print(f"done after {step} steps", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
