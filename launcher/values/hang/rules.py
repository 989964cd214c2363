"""Decides if a world has been quiet for too long.

Pure; times are seconds of the coordinator's clock.

A world is quiet when no rank gives a sign of life (a step, a batch, a checkpoint read or written).
A single silent rank proves nothing, because it may only wait for its peers. The allowed time
depends on the activity of the ranks, and on earlier quiet times of this world and script that ended
by themselves.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

#: Steps after which their usual time is known, and how much more than is known is news.
_USUAL_STEPS, _NEWS = 16, 1.25


class QuietPhase(StrEnum):
    """The present activity of a world."""

    #: No step was seen yet: imports, compilation, data sets.
    FIRST_STEP = "the first step"
    STEPS = "training"
    SAVING = "a checkpoint"
    EVALUATING = "an evaluation"


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """The times for which a world may be quiet."""

    #: Least seconds in training and evaluation; 0 turns the check off.
    seconds: float = 300.0
    #: The same at least before the first step, where workers wait for each other: a start of our
    #: own example takes 7 to 8 s, 55 s on a machine with ten times as many processes as processors.
    first_seconds: float = 30.0
    #: A longer time for scripts whose owner gives them more than ``seconds`` has by default.
    first_share: float = 0.1
    #: The same where workers are busy: they may compile, or read a data set.
    first_busy_seconds: float = 10_800.0
    #: Seconds in a checkpoint, as a multiple of ``seconds``: storage may be slow.
    saving: float = 4.0
    #: A world of steps of ``s`` seconds may be quiet for so many times ``s``; evaluations that
    #: nobody can see and rare long steps are ten times as long.
    steps: float = 20.0
    #: So many times the longest quiet that it came back from.
    longest: float = 3.0
    #: Workers that compute, or read and write, although they say nothing, get so many times that.
    busy: float = 6.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RankObserved:
    """One worker's progress from a heartbeat; times are on the coordinator's clock."""

    rank: int
    steps: int
    #: Of its last step and its last other sign of life; None: none.
    step_at: float | None = None
    life_at: float | None = None
    saving: bool = False
    evaluating: bool = False
    parked: bool = False

    @property
    def last_at(self) -> float | None:
        """Time of the rank's last sign of life, in seconds of the coordinator's clock; None before
        the first sign.
        """
        known = [at for at in (self.step_at, self.life_at) if at is not None]
        return max(known, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressShown:
    """Quiet times from which worlds of one script recovered; a later world may be quiet for as
    long.
    """

    #: Name of the program that the job runs.
    program: str
    step_seconds: float = 0.0
    longest_seconds: float = 0.0
    #: The longest time without a sign of life up to the first step.
    first_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldPace:
    """A world's signs of life, step time and quiet times so far; ``paced`` adds new progress."""

    #: Time of the order to start its workers.
    since: float
    #: The newest sign of life of any rank.
    moved_at: float
    steps: int = 0
    step_at: float | None = None
    #: Usual seconds of a step; None before two were seen.
    step_seconds: float | None = None
    #: The longest time without a sign of life that it came back from, after its first step.
    longest_seconds: float = 0.0
    #: The same up to its first step.
    first_seconds: float = 0.0
    #: Quiet times of earlier worlds of the same script.
    shown: ProgressShown | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Quiet:
    """A world that may be hung."""

    phase: QuietPhase
    seconds: float
    #: Quiet time after which it counts as standing still, if its workers wait for each other.
    budget_seconds: float
    #: The same if its workers do nothing, and if they are busy.
    idle_seconds: float
    busy_seconds: float
    #: Ranks whose last sign of life is oldest.
    suspects: tuple[int, ...]

    @property
    def due(self) -> bool:
        """True if the world has been quiet for so long that its workers must be examined."""
        return self.seconds >= self.budget_seconds

    def too_long(self, *, busy: bool, waiting: bool) -> bool:
        """True if the world has been quiet for longer than is allowed for the present state of its
        workers.

        ``busy`` is True if some workers are busy, ``waiting`` is True if some workers wait for
        other workers.
        """
        allowed = self.budget_seconds if waiting else self.idle_seconds
        return self.seconds >= (self.busy_seconds if busy else allowed)


def begin(since: float, shown: ProgressShown | None = None, program: str = "") -> WorldPace:
    """Return the pace of a world whose workers have just started; ``shown`` is used only if it
    belongs to the same script.
    """
    same = shown is not None and shown.program == program
    return WorldPace(since=since, moved_at=since, shown=shown if same else None)


def shows(pace: WorldPace, program: str) -> ProgressShown:
    """Return the longest quiet time and the longest step time that any world of a script has had.

    >>> shows(WorldPace(since=0, moved_at=0, longest_seconds=40.0), "train.py").longest_seconds
    40.0
    """
    before = pace.shown or ProgressShown(program=program)
    # A world that ends after few steps may have met an evaluation in the first of them.
    usual = pace.step_seconds if pace.step_seconds and pace.steps >= _USUAL_STEPS else 0.0
    return ProgressShown(
        program=program,
        step_seconds=max(before.step_seconds, usual),
        longest_seconds=max(before.longest_seconds, pace.longest_seconds),
        first_seconds=max(before.first_seconds, pace.first_seconds),
    )


def news(known: ProgressShown | None, shown: ProgressShown) -> bool:
    """True if the times of a script must be stored, because one of them is more than a
    quarter longer than the stored time.
    """
    before = known if known is not None and known.program == shown.program else None
    before = before or ProgressShown(program=shown.program)
    return (
        shown.step_seconds > _NEWS * before.step_seconds
        or shown.longest_seconds > _NEWS * before.longest_seconds
        or shown.first_seconds > _NEWS * before.first_seconds
    )


def paced(pace: WorldPace, ranks: Sequence[RankObserved], now: float) -> WorldPace:
    """Return the pace, updated by the present progress of the world's workers."""
    lives = [at for each in ranks if (at := each.last_at) is not None]
    moved_at = max([pace.moved_at, *(at for at in lives if at <= now)])
    if any(each.parked for each in ranks):  # it is us who hold them
        moved_at = now
    stepped = pace.steps > 0
    gap = moved_at - pace.moved_at
    ahead = max(ranks, key=lambda each: each.steps, default=None)
    pace = replace(
        pace,
        moved_at=moved_at,
        longest_seconds=max(pace.longest_seconds, gap if stepped else 0.0),
        first_seconds=max(pace.first_seconds, 0.0 if stepped else gap),
    )
    if ahead is None or ahead.steps <= pace.steps or ahead.step_at is None:
        return pace
    if pace.step_at is None:
        return replace(pace, steps=ahead.steps, step_at=ahead.step_at)
    took = max(0.0, ahead.step_at - pace.step_at) / (ahead.steps - pace.steps)
    known = pace.step_seconds
    # Phases between steps must not make steps look long: shorter ones count at once.
    usual = took if known is None or took < known else known + (took - known) / 16
    return replace(pace, steps=ahead.steps, step_at=ahead.step_at, step_seconds=usual)


def without(pace: WorldPace, unseen_seconds: float, now: float) -> WorldPace:
    """Return the pace without ``unseen_seconds``, in which no sign of life was possible.

    >>> without(WorldPace(since=0, moved_at=10.0), 300.0, 311.0).moved_at
    310.0
    """
    return replace(pace, moved_at=max(pace.moved_at, min(pace.moved_at + unseen_seconds, now)))


def quiet(
    pace: WorldPace, ranks: Sequence[RankObserved], now: float, patience: Patience
) -> Quiet | None:
    """Return the seconds for which the world has been quiet, with the limits that apply now. Return
    None if there are no workers, or if ``patience`` turns the check off.
    """
    if patience.seconds <= 0 or not ranks:
        return None
    phase = phase_of(pace, ranks)
    allowed = idle = budget(pace, phase, patience)
    busy = patience.busy * allowed
    if phase is QuietPhase.FIRST_STEP:
        idle = max(allowed, patience.seconds, patience.first_seconds)
        busy = max(allowed, patience.first_busy_seconds)
    return Quiet(
        phase=phase,
        seconds=max(0.0, now - pace.moved_at),
        budget_seconds=allowed,
        idle_seconds=idle,
        busy_seconds=busy,
        suspects=suspects(ranks),
    )


def phase_of(pace: WorldPace, ranks: Sequence[RankObserved]) -> QuietPhase:
    """Return the activity of the world; if a rank saves, all ranks wait for it."""
    if any(each.saving for each in ranks):
        return QuietPhase.SAVING
    if pace.steps == 0:
        return QuietPhase.FIRST_STEP
    return QuietPhase.EVALUATING if any(each.evaluating for each in ranks) else QuietPhase.STEPS


def budget(pace: WorldPace, phase: QuietPhase, patience: Patience) -> float:
    """Return the seconds of quiet after which a world is considered hung.

    >>> pace = WorldPace(since=0, moved_at=0, step_seconds=30.0)
    >>> budget(pace, QuietPhase.STEPS, Patience(seconds=300))
    600.0
    """
    before = pace.shown or ProgressShown(program="")
    longest = max(pace.longest_seconds, before.longest_seconds)
    step_seconds = max(pace.step_seconds or 0.0, before.step_seconds)
    shown = max(patience.longest * longest, patience.steps * step_seconds)
    match phase:
        case QuietPhase.FIRST_STEP:
            least = min(patience.first_seconds, patience.seconds)
            share = patience.first_share * patience.seconds
            return max(least, share, patience.longest * before.first_seconds)
        case QuietPhase.SAVING:
            return max(patience.saving * patience.seconds, shown)
        case _:
            return max(patience.seconds, shown)


def suspects(ranks: Sequence[RankObserved]) -> tuple[int, ...]:
    """Return the ranks that stopped first: the ranks with the fewest steps.

    Among these, ranks that save or evaluate take precedence. If all ranks have the same number of
    steps, return the ranks whose last sign of life is oldest by more than 1 ms.
    """
    fewest = min((each.steps for each in ranks), default=0)
    behind = [each for each in ranks if each.steps == fewest]
    busy = [each for each in behind if each.saving or each.evaluating]
    if busy and len(busy) < len(behind):
        return tuple(sorted(each.rank for each in busy))
    if len(behind) < len(ranks):
        return tuple(sorted(each.rank for each in behind))
    # A batch, a load: whoever has not had its own is the one that the others wait for.
    oldest = min((each.last_at or 0.0 for each in behind), default=0.0)
    first = [each for each in behind if (each.last_at or 0.0) <= oldest + 0.001]
    return tuple(sorted(each.rank for each in first)) if len(first) < len(behind) else ()
