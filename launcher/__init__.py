"""``brain-run``: a torchrun superset whose worlds change in seconds.

Agents need ``httpx2`` and ``msgspec`` alone, never torch, and may run under another interpreter
than the workers they start. Code inside a worker (``inject/``) uses the standard library alone,
CPython 3.8 on.
"""

import os
import sys


def checkpoint_saved(path: "str | os.PathLike[str]") -> None:
    """Report, inside a worker, that a checkpoint is complete at ``path``: a safe point.

    Call it only from a script whose way of saving the probe does not recognize. Without a probe,
    under plain torchrun for example, the call does nothing.
    """
    probe = sys.modules.get("_brain_probe")
    if probe is not None:
        probe.saved(os.fspath(path))
