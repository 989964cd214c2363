"""``train.py`` for torchft, which has no launcher: its Manager is part of the training loop.

Network, steps and trace are those of ``train.py``; a restarted replica copies its state from a
living one instead of a checkpoint. Gradients go through the Manager itself, as one tensor in one
bucket, because the DistributedDataParallel wrapper of release 0.2 ends the process (``assert
fut._fut``) if a peer leaves during an all-reduce.
"""

import os
import time
from datetime import timedelta

BEGAN = time.monotonic()

import torch  # noqa: E402
import train  # noqa: E402
from torchft import Manager, Optimizer, ProcessGroupGloo  # noqa: E402


def main() -> None:
    """Train until the launcher or the benchmark ends the process."""
    trace = train.Trace()
    trace.tell("began", at=BEGAN)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = train.network()
    trained = [each for each in model.parameters() if each.requires_grad]
    inner = torch.optim.SGD(trained, lr=1e-3, momentum=0.9)

    def load(state: dict[str, dict[str, object]]) -> None:
        model.load_state_dict(state["model"])
        inner.load_state_dict(state["optimizer"])

    manager = Manager(
        pg=ProcessGroupGloo(timeout=timedelta(seconds=5)),
        min_replica_size=1,
        load_state_dict=load,
        state_dict=lambda: {"model": model.state_dict(), "optimizer": inner.state_dict()},
        replica_id=f"bench_{os.environ['REPLICA_GROUP_ID']}",
        timeout=timedelta(seconds=10),
    )
    optimizer = Optimizer(manager, inner)
    trace.tell("wrapped")
    while manager.current_step() < train.STEPS:
        due = time.monotonic() + train.STEP_SECONDS
        optimizer.zero_grad()
        model(torch.randn(8, train.WIDTH)).square().mean().backward()
        for each in trained:
            manager.allreduce(each.grad).wait()
        optimizer.step()
        time.sleep(max(0.0, due - time.monotonic()))
        trace.world, trace.rank = manager.num_participants(), manager.participating_rank() or 0
        trace.tell("step", manager.current_step())


if __name__ == "__main__":
    main()
