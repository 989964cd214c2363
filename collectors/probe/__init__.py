"""The probe: it observes a worker's steps, data waits and saves from inside the script's process.

The probe runs in the user's process, is loaded by absolute path as the package ``_brain_probe``,
uses only the standard library and supports CPython 3.8 and later. Its modules import each other by
relative imports, because no code of Brain is on ``sys.path``. The probe never imports torch. Once
the script imports torch, the probe installs hooks in the optimizers, the DataLoader's iterator and
the save and load functions. The probe never raises an exception into training, and blocks training
only to hold a worker between two steps while the agent requests it. docs/reference/protocols.md
describes the probe's messages and files.

On most steps the hooks only append one tuple; a daemon thread makes samples from the tuples. On
sampled steps, at most a few in every hundred, the hooks also read the norms of gradients
(``Gradients``). They keep, change and exchange no gradient. The probe imports no module whose name
scripts often give to their own files (random, statistics, queue).
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
    """Start to observe this process; ``config`` is the parsed BRAIN_WORKER. No exception is raised.

    ``BRAIN_PROBE=0`` switches the probe off. Child processes of a worker are not ranks, so they are
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
    """Return the path of the failed save that caused an exception, and the free bytes there; None
    if no save caused it.
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
    """Report a complete checkpoint at ``path`` that the probe's hooks did not see."""
    if _probe is not None:
        _probe.wrote(os.fspath(path), 0)
