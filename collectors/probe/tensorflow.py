"""Observes steps and checkpoints of TensorFlow's parameter-server training in its coordinator.

A ``ClusterCoordinator`` schedules functions, which its workers run, and ``join`` returns once all
functions are done. Each function counts as one step. The time since the last ``join`` is the time
that these steps took. Only the coordinator counts steps, for all workers.
"""

from __future__ import annotations

import os
import time

from .hooks import _instead_of, _loading, _saving, _wrap

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .observing import Probe


def hook_coordinator(probe: Probe, module: Any) -> None:
    """Count scheduled functions; a step boundary is a moment at which no function runs."""
    kind = module.ClusterCoordinator
    schedule, join = kind.schedule, kind.join
    scheduled = [0]

    @_instead_of(schedule)
    def brain_schedule(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not scheduled[0]:
            _lead(probe)
            probe.before_step(self, args, kwargs)
        result = schedule(self, *args, **kwargs)
        scheduled[0] += 1
        return result

    @_instead_of(join)
    def brain_join(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = join(self, *args, **kwargs)
        count, scheduled[0] = scheduled[0], 0
        _joined(probe, count)
        return result

    kind.schedule, kind.join = brain_schedule, brain_join


def _lead(probe: Probe) -> None:
    """Record that this process schedules and counts the steps of all workers."""
    probe.processes, probe.met = 1, True
    if probe.saving:  # all was at rest meanwhile
        probe.saving, probe.since = False, time.monotonic_ns()


def _joined(probe: Probe, steps: int) -> None:
    """Count the finished steps of all workers; each gets an equal share of the time."""
    try:
        if not probe.armed or not steps:
            return
        began = probe.since
        each = (time.monotonic_ns() - began) // steps
        for done in range(1, steps + 1):
            probe._count(began + done * each)
    except Exception as error:  # noqa: BLE001 - never into training
        probe.failed("joined", error)


def hook_checkpoints(probe: Probe, module: Any) -> None:
    """Watch checkpoints. A checkpoint's path is the directory of its files, which older checkpoints
    may share.
    """
    for name in ("save", "write"):
        _wrap(probe, module.Checkpoint, name, _saving, _directory)
    for name in ("restore", "read"):
        _wrap(probe, module.Checkpoint, name, _loading, _directory)


def hook_manager(probe: Probe, module: Any) -> None:
    """Watch the saves of a ``CheckpointManager``, which does not call the ``save`` that
    ``hook_checkpoints`` observes.
    """
    _wrap(probe, module.CheckpointManager, "save", _saving, lambda args, _: args[0].directory)


def _directory(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the directory of the files whose prefix a save or load has as an argument; None if it
    has none.
    """
    named = [*args[1:2], *(kwargs.get(name) for name in ("file_prefix", "save_path"))]
    prefix = next((each for each in named if each is not None), None)
    return None if prefix is None else os.path.dirname(os.path.abspath(os.fspath(prefix)))


ACTIONS = {
    "tensorflow.python.distribute.coordinator.cluster_coordinator": hook_coordinator,
    "tensorflow.python.checkpoint.checkpoint": hook_checkpoints,
    "tensorflow.python.checkpoint.checkpoint_management": hook_manager,
}
