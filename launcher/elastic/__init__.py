"""``elastic.join``: let a job's world change while the processes of its script keep running.

    session = elastic.join(model, optimizer)                  # after both were made
    while session.steps < 1000:
        with session.step():
            session.model(batch()).mean().backward()
            optimizer.step()
            optimizer.zero_grad()

Under ``brain-run``, members join, leave and die while the other processes continue, with no step
lost. Under torchrun and plain Python the same script is plain DistributedDataParallel. Such a
script must not make a process group itself. ``join`` refuses models that are sharded over processes
(FSDP, tensor or pipeline parallel): leave ``join`` out, and their world changes by restarts.
"""

from typing import Any

from launcher.elastic.session import Session, join

__all__ = ["Session", "join"]


def __getattr__(name: str) -> Any:
    """Forward names of ``launcher.data``, such as ``elastic.Sampler``."""
    from launcher import data

    return getattr(data, name)
