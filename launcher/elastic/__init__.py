"""Changing the world without ending its processes: three lines in a script.

    session = elastic.join(model, optimizer)                  # after both were made
    while session.steps < 1000:
        with session.step():
            session.model(batch()).mean().backward()
            optimizer.step()
            optimizer.zero_grad()

Under ``brain-run`` members come, leave and die while the processes of the others go on, with no
step lost. Under torchrun and plain Python the same script is plain DistributedDataParallel. Such a
script makes no process group of its own. Models that are sharded over processes (FSDP, tensor or
pipeline parallel) are refused: without ``join`` they take the launcher's restart path.
"""

from typing import Any

from launcher.elastic.session import Session, join

__all__ = ["Session", "join"]


def __getattr__(name: str) -> Any:
    """Forward names of ``launcher.data``, such as ``elastic.Sampler``."""
    from launcher import data

    return getattr(data, name)
