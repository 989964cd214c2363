"""Gives a session access to the launcher's other parts in its process: the connection to the agent,
and the probe.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from brain.errors import BadInput
from launcher.elastic.changing import Plan
from launcher.elastic.member import SessionMember
from launcher.values.console import say


def _told() -> dict[str, Any] | None:
    """Return the part of BRAIN_WORKER that sessions need; None without ``brain-run``."""
    module = sys.modules.get("_brain_elastic")
    return None if module is None else module.told


def member(steps: Callable[[], int], device: torch.device) -> SessionMember | None:
    """Connect to the agent; return None without an agent, or if the script made a process group
    itself.

    Raises:
        BadInput: this process already has a session.
    """
    told = _told()
    if told is None:
        return None
    if hasattr(sys.modules["_brain_elastic"], "failing"):
        raise BadInput(
            "join: this process already has a session; join once, with all networks in one "
            "torch.nn.ModuleList and all optimizers in one list",
            field="join",
        )
    if dist.is_initialized():
        say(
            "this world can only change by restarts, because the script called "
            "init_process_group; remove the call, because elastic.join connects the processes"
        )
        return None
    _wait_at_gate()
    try:
        # LOCAL_RANK is 0 in all workers with --virtual-local-rank.
        local_rank = int(told.get("local_rank", os.environ["LOCAL_RANK"]))
        made = SessionMember(told["socket"], local_rank, device=device, steps=steps)
        sys.modules["_brain_elastic"].failing = made.failing  # type: ignore[attr-defined]
        return made
    except OSError as cannot:
        say(f"this world can only change by restarts: {cannot}")
        return None


def joining() -> bool:
    """True if this process was started to join a world that is already training."""
    told = _told()
    return told is not None and bool(told["joining"])


def _wait_at_gate() -> None:
    """Wait at the gate: a worker started ahead must meet no peers before its world forms."""
    gate = sys.modules.get("_brain_gate")
    if gate is not None:
        gate.at_end()


def _probe() -> Any:
    return getattr(sys.modules.get("_brain_probe"), "_probe", None)


def counted() -> int:
    """Return the number of optimizer steps that the probe counted in this process."""
    probe = _probe()
    return 0 if probe is None else int(probe.steps)


def count(steps: int) -> None:
    """Set the probe's step count, so that all ranks of a world report the same number."""
    probe = _probe()
    if probe is not None:
        probe.steps = steps


def moved(plan: Plan) -> None:
    """Inform the probe and ``launcher.checkpoint`` of the present world."""
    memory = sys.modules.get("_brain_memory")
    if memory is not None:
        memory.config.update(plan.place)
    probe = _probe()
    if probe is not None:
        probe.moved(plan.rank, plan.size, plan.place)
