"""``brain-run``: a superset of torchrun, whose worlds change in seconds.

Agents need only ``httpx2`` and ``msgspec``, not torch, and may run under another interpreter than
the workers. Code inside a worker (``inject/``) uses only the standard library and supports CPython
3.8 and later.
"""

import os
import sys


def checkpoint_saved(path: "str | os.PathLike[str]") -> None:
    """Report, inside a worker, that a checkpoint is complete at ``path``: a safe point.

    Call it only if the probe does not recognize how the script saves. Without a probe, under
    plain torchrun for example, the call does nothing.
    """
    probe = sys.modules.get("_brain_probe")
    if probe is not None:
        probe.saved(os.fspath(path))
