"""Trains a small network in a session, the same examples on all ranks, and writes down each step.

Lines of ``$STAYING/<pid>``: rank, world size, epoch of the world, steps, and the parameters as
hexadecimal. ``$STAYING/fail-<rank>`` asks a rank to fail; ``$STAYING/end`` ends after that step.
With ``$STAYING/slow`` a process takes 10 s to end, and leaves ``$STAYING/left-<pid>``.
"""

import os
import sys
import time

import torch

from launcher import elastic

PLACE = os.environ["STAYING"]
torch.set_num_threads(1)


def main() -> None:
    """Train until told otherwise."""
    torch.manual_seed(0)
    model = torch.nn.Linear(6, 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.99)
    session = elastic.join(model, optimizer, state={"schedule": schedule})
    out = os.open(f"{PLACE}/{os.getpid()}", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    while not (os.path.exists(f"{PLACE}/end") and session.steps >= end()):
        with session.step():
            torch.manual_seed(session.steps)
            session.model(torch.randn(4, 6)).square().mean().backward()
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        values = torch.cat([each.detach().flatten() for each in model.parameters()])
        told = f"{session.rank} {session.size} {session.world} {session.steps} "
        os.write(out, (told + values.numpy().tobytes().hex() + "\n").encode())
        time.sleep(0.02)
        asked = f"{PLACE}/fail-{session.rank}"
        if os.path.exists(asked):
            os.unlink(asked)
            sys.exit(3)


def end() -> int:
    """The step to end after, as told; beyond all while that is being written."""
    with open(f"{PLACE}/end") as file:
        return int(file.read() or 10**9)


def leave() -> None:
    """Take as long to end as a save does, where that is asked for, and tell of its end."""
    if os.path.exists(f"{PLACE}/slow"):
        time.sleep(10)
        open(f"{PLACE}/left-{os.getpid()}", "w").close()


if __name__ == "__main__":
    try:
        main()
    finally:
        leave()
