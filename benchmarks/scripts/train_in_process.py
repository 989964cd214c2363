"""``train.py`` with the three lines of ``launcher.elastic``: its process stays while the world
changes.

Network, steps, checkpoints and trace are those of ``train.py``. A step is recorded immediately
after it ends, so the time of a change counts as its gap.
"""

import os
import sys
import time

BEGAN = time.monotonic()

import torch  # noqa: E402
import train  # noqa: E402

from launcher import elastic  # noqa: E402

IMPORTED = time.monotonic()


def main() -> None:
    """Train until the launcher or the benchmark ends the process."""
    trace = train.Trace()
    trace.tell("began", at=BEGAN)
    trace.tell("imported", at=IMPORTED)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = train.network()
    trained = [each for each in model.parameters() if each.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=1e-3, momentum=0.9)
    trace.tell("built")
    session = elastic.join(model, optimizer)
    trace.tell("wrapped", session.steps)
    while session.steps < train.STEPS:
        with session.step():
            due = time.monotonic() + train.STEP_SECONDS
            trace.world, trace.rank = session.size, session.rank
            examples = torch.randn(8, train.WIDTH)
            session.model(examples).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            time.sleep(max(0.0, due - time.monotonic()))
            trace.tell("step", session.steps + 1)
        if session.rank == 0 and session.steps % train.SAVE_EVERY == 0:
            train.save(session.steps, model, optimizer)
            trace.tell("saved", session.steps)
        crash = f"{train.PLACE}/crash-{session.rank}"
        if os.path.exists(crash):
            os.unlink(crash)
            trace.tell("crashes", session.steps)
            sys.exit(1)


if __name__ == "__main__":
    main()
