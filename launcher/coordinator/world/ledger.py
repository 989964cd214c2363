"""Facts that a coordinator's successor needs, written before the coordinator acts."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from brain.types.world import Cause, ReplicaExit
from launcher.coordinator.pins import Pin
from launcher.values.diagnosis.policy import Occurrence
from launcher.values.hang.rules import ProgressShown
from launcher.values.observation import HeldWorld, WorldChange


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldPast:
    """Progress of an earlier world: its steps, and the checkpoints that it saved."""

    #: Optimizer steps of rank 0.
    steps: int = 0
    #: CLOCK_MONOTONIC of the last step in seconds; None if there was none.
    last_step_at: float | None = None
    #: Checkpoint -> steps when it was saved.
    saved: dict[str, int] = field(default_factory=dict)

    def redone(self, loaded: Iterable[str]) -> int:
        """Return how many steps a world repeats after it has loaded the checkpoints ``loaded``."""
        return self.steps - self.at(loaded)

    def at(self, loaded: Iterable[str], begun: int = 0) -> int:
        """Return the job's newest step in the checkpoints ``loaded``; the world that saved them
        began at step ``begun``.
        """
        known = [begun + self.saved[path] for path in loaded if path in self.saved]
        return max(known, default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldLedger:
    """``ledger.json``: a coordinator's facts for its successor, in addition to the world
    document.
    """

    epoch: int = 0
    goal: int = 0
    failures: int = 0
    #: Exit codes of worlds that failed before any step was ever seen.
    barren: tuple[int, ...] = ()
    #: The last failures of the job, oldest first.
    failed: tuple[Occurrence, ...] = ()
    #: Why the job is not started again; empty if it may be.
    hopeless: str = ""
    #: Steps of the job when the present world was formed, as far as they are known.
    begun: int = 0
    held: HeldWorld | None = None
    #: A change was taken back since its world stepped without the checkpoint kept for it. Another
    #: one that nobody planned would end alike: it is made without that check, at one start.
    unchecked: bool = False
    change: WorldChange | None = None
    pins: tuple[Pin, ...] = ()
    #: World that wrote what is pinned; until another one forms, what it writes is good.
    pinned_epoch: int = 0
    #: Where checkpoints were pinned last; leftovers of a crash can only be beside them.
    folders: tuple[str, ...] = ()
    #: No worker of the world runs any more, and why it was ended.
    ended: bool = False
    ended_by: Cause | None = None
    formed: bool = False
    stepped: bool = False
    #: The job is over for its agents.
    over: ReplicaExit | None = None
    exit_code: int = 0
    reason: str = ""
    #: The last world that made a step.
    past: WorldPast | None = None
    #: What worlds of this script came back from without being ended.
    shown: ProgressShown | None = None
