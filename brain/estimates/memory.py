"""Finds worlds of a job that ran out of memory, and predicts when a memory leak exhausts the
memory.
"""

from collections.abc import Sequence

from brain.models.estimate.past import WorldUse
from brain.models.resources import host_memory
from brain.models.resources.use import MemoryKill, RoleUse
from brain.types.diagnosis import FailureKind
from brain.types.estimate import Band
from brain.types.world import World
from brain.typeset import duration


def kills(worlds: Sequence[World], known: RoleUse, reserved_bytes: float) -> list[MemoryKill]:
    """Return a record of each new world that ran out of memory, oldest first."""
    newest = max((kill.epoch for kill in known.kills), default=0)
    return [
        MemoryKill(
            epoch=world.epoch,
            at_seconds=world.ended_at.timestamp(),
            limit_bytes=known.memory_limit(reserved_bytes),
        )
        for world in sorted(worlds, key=lambda world: world.epoch)
        if world.ended_at is not None
        and world.epoch > newest
        and world.diagnosis is not None
        and world.diagnosis.kind is FailureKind.MEMORY
    ]


def lasts(world: WorldUse, limit_bytes: float) -> Band | None:
    """Return the seconds until leaking memory reaches its limit; None if the limit is not near."""
    if not limit_bytes > 0:
        return None
    # The present interval is left out, because its highest use may be yet to come.
    kept = (world.minutely_bytes[:-1], 60.0), (world.ten_minutely_bytes[:-1], 600.0)
    found = [
        host_memory.time_left(maxima, every_seconds=seconds, limit_bytes=limit_bytes)
        for maxima, seconds in kept
    ]
    near = [one for one in found if one is not None]
    return min(near, key=lambda one: one.value, default=None)


def leak_sentence(left: Band) -> str:
    """Return a sentence that says how long leaking memory lasts, with the remedy."""
    band = f"{duration(left.low)} to {duration(left.high)}"
    return (
        f"the job leaks memory and runs out of it in {duration(left.value)} ({band}): find the "
        "objects that the script keeps from step to step; Brain plans a restart at a save if the "
        "restart costs less than running out of memory"
    )
