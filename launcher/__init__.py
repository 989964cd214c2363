"""``brain-run``: a torchrun superset whose worlds change in seconds.

Agents need ``httpx2`` and ``msgspec`` alone, never torch, and may run under another interpreter
than the workers they start. What runs inside a worker (``inject/``) is standard library, CPython
3.8 on.
"""

import os
import sys


def checkpoint_saved(path: "str | os.PathLike[str]") -> None:
    """Report, inside a worker, that a checkpoint is complete at ``path``: a safe point.

    Only scripts that save by means that the probe does not know need it. Without a probe (under
    plain torchrun, say) it does nothing.
    """
    probe = sys.modules.get("_brain_probe")
    if probe is not None:
        probe.saved(os.fspath(path))
