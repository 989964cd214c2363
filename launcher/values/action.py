"""The coordinator's actions: the output of ``launcher.coordinator.membership``.

This module is pure and uses only the standard library and ``brain.types``. Times are seconds of the
coordinator's monotonic clock.
"""

from dataclasses import dataclass

from brain.types.world import Cause, Member, ReplicaExit


@dataclass(frozen=True, slots=True)
class StayAsIs:
    """Do nothing until an event comes."""


@dataclass(frozen=True, slots=True)
class WaitFor:
    """Do nothing until an event comes, or until ``until``."""

    reason: str
    until: float | None = None


@dataclass(frozen=True, slots=True)
class ParkWorld:
    """Ask all workers to park (stop and wait) after their next completed save."""


@dataclass(frozen=True, slots=True)
class Unpark:
    """Let all workers continue."""


@dataclass(frozen=True, slots=True)
class PrepareWorld:
    """Start the next world's workers early, and hold them before they run the script.

    The present world trains meanwhile. In process, running workers build the next world's process
    group instead, and only newcomers are started.
    """

    form: "FormWorld"
    in_process: bool = False


@dataclass(frozen=True, slots=True)
class DiscardWorld:
    """End the prepared world, which is no longer desired or cannot be built."""

    #: Why it cannot be built; None if it is only not wanted any more.
    reason: str | None


@dataclass(frozen=True, slots=True)
class Swap:
    """At the safe point, keep the checkpoint under a second name, then stop the workers.

    So no script can overwrite or delete the checkpoint before the next world has loaded it.
    """

    #: True for a change that a generation asked for.
    planned: bool
    #: True if every worker has to end, so nothing is built beside the workers that run: they may
    #: have used up the memory.
    anew: bool = False


@dataclass(frozen=True, slots=True)
class StopWorld:
    """Stop the workers; the world ends because of ``cause``.

    If ``cause`` is None, the world ends because its owner wants it.
    """

    cause: Cause | None


@dataclass(frozen=True, slots=True)
class FormWorld:
    """Start the next world, once no worker of the job runs."""

    members: tuple[Member, ...]
    cause: Cause
    generation: int
    #: Replicas desired by that generation.
    goal: int


@dataclass(frozen=True, slots=True)
class Take:
    """Take the witness for the half of the last world that contains ``replica``."""

    replica: int


@dataclass(frozen=True, slots=True)
class Switch:
    """Change to the next world, because all workers are ready to change at the same step."""

    form: FormWorld


@dataclass(frozen=True, slots=True)
class Heal:
    """Let the remaining workers change immediately to a world without the lost workers."""

    form: FormWorld


@dataclass(frozen=True, slots=True)
class Relabel:
    """Report that the present world is already the one that this generation desires; restart
    nothing.
    """

    generation: int
    goal: int


@dataclass(frozen=True, slots=True)
class Release:
    """Release agents that are not in the world; the end of their replicas is reported as *left*."""

    replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class HoldWorld:
    """Abandon the planned change, and report ``reason``."""

    reason: str


@dataclass(frozen=True, slots=True)
class Revert:
    """Restore the checkpoint and form a world of the old size, because the planned world cannot be
    used.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class End:
    """End the job for all agents."""

    exit: ReplicaExit
    exit_code: int
    reason: str


#: Carried out by ``launcher.coordinator.world.actions``; the rest by ``in_process`` beside it.
Ordinary = (
    StayAsIs | WaitFor | PrepareWorld | DiscardWorld | ParkWorld | Unpark | Swap | StopWorld
    | Take | FormWorld | Relabel | Release | HoldWorld | Revert | End
)  # fmt: skip
Action = Ordinary | Switch | Heal
STAY = StayAsIs()
