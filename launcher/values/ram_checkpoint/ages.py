"""Decides which ages of checkpoints in memory are worth reporting. Pure."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from brain.types.world import MemoryCheckpoint

#: Storage takes most saves in less; a report of each would be all that Brain hears.
_BRIEF = timedelta(seconds=2)


def worth_telling(
    known: Mapping[int, MemoryCheckpoint], now: datetime
) -> dict[int, MemoryCheckpoint]:
    """Return the state of each replica's RAM checkpoint in the form that is worth reporting.

    A checkpoint that has waited for storage for only a moment is reported as if it were on storage.
    """
    return {replica: _settled(memory, now) for replica, memory in known.items()}


def _settled(memory: MemoryCheckpoint, now: datetime) -> MemoryCheckpoint:
    if memory.ahead_since is None or now - memory.ahead_since > _BRIEF:
        return memory
    return replace(memory, ahead_since=None)
