"""The saves of one world, and the wait for a safe point."""

from launcher.coordinator.world.ledger import WorldPast
from launcher.values.observation import Saves, WorldParking
from launcher.values.ram_checkpoint import links
from launcher.values.workers import ProbeEvent

#: Newest saved paths that a world remembers, and the least number for each worker that saves. The
#: coordinator writes all of them at each heartbeat.
_PATHS, _PATHS_PER_SAVER = 500, 4


class WorldSaves:
    """The checkpoints that a world's workers have saved, and the workers that have parked.

    Times are seconds of the coordinator's clock. ``stepping`` is True if a first step was seen.
    """

    def __init__(self, leading: int) -> None:
        """``leading`` is the number of workers with whose end the job is over."""
        self._leading = leading
        self._saved: dict[str, tuple[int, bool]] = {}
        #: When each checkpoint was completed, whatever the number of its files and writers.
        self._saved_at: list[float] = []
        self._saved_step = -1
        self._savers: set[int] = set()
        self._parking: float | None = None
        self._parked: set[int] = set()
        #: Savers that have not parked.
        self._unparked: set[int] = set()
        self._fresh: list[str] = []

    @property
    def paths(self) -> list[str]:
        """Newest checkpoints that this world has saved, the newest last."""
        return list(self._saved)

    @property
    def steps(self) -> dict[str, int]:
        """The step of each saved checkpoint."""
        return {path: step for path, (step, _) in self._saved.items()}

    @property
    def parks(self) -> bool:
        """True if workers were asked to park, and not to continue since."""
        return self._parking is not None

    def follow(self, before: "WorldSaves") -> None:
        """Take over the saved checkpoints of the last world, whose workers continue."""
        self._saved, self._saved_at = dict(before._saved), list(before._saved_at)
        self._saved_step = before._saved_step

    def inherit(self, past: WorldPast) -> None:
        """Take over the last coordinator's knowledge of this world's saves."""
        self._saved = {path: (step, False) for path, step in past.saved.items()}

    def save(self, event: ProbeEvent, path: str, now: float, *, stepping: bool) -> bool:
        """Store a completed save; return True if it may change a decision."""
        self._savers.add(event.rank)
        self._saved.pop(path, None)  # the newest is the last
        self._saved[path] = (event.step or 0, bool(event.replaced))
        while len(self._saved) > max(_PATHS, _PATHS_PER_SAVER * len(self._savers)):
            del self._saved[next(iter(self._saved))]
        fresh = event.step is None or event.step > self._saved_step
        if fresh:
            self._saved_at.append(now)
            self._saved_step = event.step if event.step is not None else self._saved_step
        if self._parking is None:
            return fresh
        self._fresh.append(path)
        return self.reached(stepping=stepping)

    def park(self, now: float) -> None:
        """Store that workers were asked to park, that is, to pause between two steps."""
        self._parking, self._fresh = now, []
        self._parked.clear()
        self._unparked = set(self._savers)

    def unpark(self) -> None:
        """Store that workers were asked to continue."""
        self._parking = None
        self._parked.clear()

    def parked(self, rank: int, path: str | None) -> None:
        """Store that a worker has parked, after a save to ``path``."""
        self._savers.add(rank)
        self._rests(rank)
        if path:
            self._fresh.append(path)

    def ended(self, rank: int) -> None:
        """Store that a worker ended as it was asked to, which counts as parked."""
        if self._parking is not None:
            self._rests(rank)

    def checkpoints(self) -> dict[str, bool]:
        """Return the checkpoints saved at this safe point, each with True if it was renamed into
        place.
        """
        # A step in an agent's memory needs no second hold: agents keep it for the next world.
        fresh = (path for path in self._fresh if not path.startswith(links.MEMORY))
        return {path: self._saved.get(path, (0, False))[1] for path in fresh}

    def reached(self, *, stepping: bool) -> bool:
        """True if each worker that saves has parked, or has ended because it was asked to.

        If the script's steps cannot be seen, a save is enough.
        """
        if self._parking is None:
            return False
        if self._parked:
            return not self._unparked if self._savers else len(self._parked) >= self._leading
        return bool(self._fresh) and not stepping

    def seen(self, *, declared: bool, told: bool) -> Saves:
        """Return the observations in the form that ``membership.decide`` needs.

        ``told`` is True if a worker's progress shows a save.
        """
        at = self._saved_at
        interval = at[-1] - at[-2] if len(at) > 1 else None
        return Saves(declared=declared, count=max(len(at), told), interval_seconds=interval)

    def seen_parking(self, *, stepping: bool) -> WorldParking | None:
        """Return the wait for a safe point; None if there is none."""
        if self._parking is None:
            return None
        return WorldParking(since=self._parking, reached=self.reached(stepping=stepping))

    def _rests(self, rank: int) -> None:
        self._unparked.discard(rank)
        self._parked.add(rank)
