"""Makes steps of a small network as fast as possible, in a session or as plain
DistributedDataParallel.

It writes the median seconds of a step to ``$BENCH_TRACE/steady-<rank>``.
"""

import contextlib
import os
import sys
import time
from statistics import median

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

WARM, STEPS, WIDTH = 500, 2500, 64


def main() -> None:
    """Make steps, and write the median seconds of a step."""
    torch.set_num_threads(1)
    model = torch.nn.Linear(WIDTH, WIDTH)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    if "session" in sys.argv:
        from launcher import elastic

        session = elastic.join(model, optimizer)
        rank, step = session.rank, session.step
    else:
        dist.init_process_group("gloo")
        rank, step = dist.get_rank(), contextlib.nullcontext
        parallel = DistributedDataParallel(model)
    examples, took = torch.randn(8, WIDTH), []
    for _ in range(WARM + STEPS):
        began = time.perf_counter()
        with step():
            network = session.model if "session" in sys.argv else parallel
            network(examples).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        took.append(time.perf_counter() - began)
    with open(f"{os.environ['BENCH_TRACE']}/steady-{rank}", "w") as told:
        told.write(str(median(took[WARM:])))


if __name__ == "__main__":
    main()
