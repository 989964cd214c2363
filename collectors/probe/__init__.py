"""The probe: it observes a worker's steps, data waits and saves from inside the script's process.

It runs in the user's process, is loaded by absolute path as the package ``_brain_probe``, uses only
the standard library and supports CPython 3.8 and later. Its modules import each other relatively,
because no code of Brain is on ``sys.path``. The probe never imports torch; once the script does, it
installs hooks in the optimizers, the DataLoader's iterator and the save and load functions. It
never raises an exception into training, and blocks training only to park a worker on the agent's
request. docs/reference/protocols.md describes its messages and files.

The hooks only count: they append one tuple per step, and a daemon thread makes samples of them.
On sampled steps, a few in a hundred or less, the norms of gradients are read as they arrive
(``Gradients``); no gradient is kept, changed, or exchanged. No module that scripts like to name
their own files after (random, statistics, queue) is imported.
"""

from __future__ import annotations

import os
import socket

from .observing import Probe
from .sender import VERSION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_probe: Probe | None = None


def start(config: dict[str, Any]) -> None:
    """Start to observe this process; ``config`` is the parsed BRAIN_WORKER. This never raises an
    exception.

    ``BRAIN_PROBE=0`` switches it off. Children of an observed process are not ranks, so they are
    not observed: in a forked child the probe stops, and other children do not inherit BRAIN_WORKER.
    """
    global _probe
    try:
        if os.environ.get("BRAIN_PROBE") == "0":
            return
        if config.get("v") != VERSION or not hasattr(socket, "AF_UNIX") or _probe is not None:
            return
        _probe = Probe(config, os.environ)
        _probe.install()
    except Exception:  # noqa: BLE001 - a failing probe costs the telemetry, never the job
        _probe = None


def failed_save(error: BaseException) -> tuple[str, int] | None:
    """Return (path, free bytes there) of the save that raised an exception or one of its causes;
    None if no save did.
    """
    failed = None if _probe is None else _probe.failed_save
    chain, at = [], error  # type: list[int], BaseException | None
    while failed is not None and at is not None and id(at) not in chain:
        if id(at) == failed[0]:
            return failed[1:]
        chain.append(id(at))
        at = at.__cause__ or at.__context__
    return None


def saved(path: str) -> None:
    """Report that a checkpoint is complete at ``path``, for scripts that save by unknown means."""
    if _probe is not None:
        _probe.wrote(os.fspath(path), 0)
