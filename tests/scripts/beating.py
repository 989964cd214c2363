"""A script that learns nothing and writes down when it lives: steps are sleeps, told to the probe.

Each process keeps one record (``struct BEAT``) in ``--records``: epoch, rank, world size, and
CLOCK_MONOTONIC of its first and last step in nanoseconds, with the number of that step. Rank 0
saves the step by rename and a world goes on from there.
"""

import argparse
import mmap
import os
import struct
import sys
import time
from typing import Any

#: epoch, rank, world size, first ns, last ns, step.
BEAT = struct.Struct("<6q")


class Optimizer:
    """What the probe takes for one."""

    param_groups = ()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--records", required=True)
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--pace", type=float, default=0.02, help="seconds per step")
    parser.add_argument("--save-every", type=int, default=10)
    options = parser.parse_args()
    probe = getattr(sys.modules.get("_brain_probe"), "_probe", None)
    if probe is None:
        sys.exit("beating.py needs a probe to know its epoch from")
    epoch = probe.config["epoch"]
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    step = 0
    try:
        with open(options.checkpoint) as saved:
            step = int(saved.read())
        probe.read(options.checkpoint)
    except FileNotFoundError:
        pass
    optimizer = Optimizer()
    first = time.monotonic_ns()
    host = os.environ["BRAIN_TEST_HOST"].partition("-")[0]
    name = f"{epoch}-{rank}-{host}-{first}"
    print("begin", name, flush=True)
    file = open(os.path.join(options.records, name), "wb+")  # noqa: SIM115  held for its life
    file.write(BEAT.pack(epoch, rank, world, first, first, step))
    file.flush()
    record = mmap.mmap(file.fileno(), BEAT.size)
    while step < options.steps:
        time.sleep(options.pace)
        probe.before_step(optimizer, (), {})
        step += 1
        record[:] = BEAT.pack(epoch, rank, world, first, time.monotonic_ns(), step)
        probe.after_step(optimizer, (), {})
        if rank == 0 and step % options.save_every == 0:
            save(options.checkpoint, step, probe)


def save(checkpoint: str, step: int, probe: Any) -> None:
    """Write the step under a temporary name, then under its own."""
    temporary = f"{checkpoint}.{os.getpid()}"
    with open(temporary, "w") as file:
        file.write(str(step))
    probe.wrote(temporary, 0)
    os.replace(temporary, checkpoint)


if __name__ == "__main__":
    main()
