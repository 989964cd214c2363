"""Derives step times of ranks from heartbeats, and decides if leaving out a slow replica pays for
the restart.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from brain.types.resources import NodeName
from launcher.coordinator.topology import choose
from launcher.coordinator.world.monitor.monitor import WorldMonitor
from launcher.coordinator.world.state import CoordinatorState
from launcher.values.diagnosis import slowness
from launcher.values.workers import Progress

#: Seconds of steps that one look is about.
_LOOK_SECONDS = 30.0
#: Cost of a change of the world if none was seen, and the time that a job is assumed to go on:
#: as long as it has gone on, at most so long.
_RESTART_SECONDS, _HORIZON_SECONDS = 30.0, 86_400.0


@dataclass(slots=True)
class Slowness:
    """Step times since the last call of ``look``; each world needs a new object."""

    began: dict[int, Progress] = field(default_factory=dict)
    began_at: float = 0.0
    row: dict[int, int] = field(default_factory=dict)

    def look(
        self, progress: Iterable[tuple[Progress, int, NodeName]], now: float, ratio: float
    ) -> slowness.SlowSuspect | None:
        """Read progress from heartbeats. Return a replica whose step time was above ``ratio`` times
        the usual one in several checks in a row; None if there is none.
        """
        here = list(progress)
        if not self.began or len(here) != len(self.began):
            self.began, self.began_at = {each.rank: each for each, _, _ in here}, now
            return None
        if now - self.began_at < _LOOK_SECONDS:
            return None
        times = [rank_time(self.began[p.rank], p, r, n) for p, r, n in here if p.rank in self.began]
        self.began, self.began_at = {each.rank: each for each, _, _ in here}, now
        slow = slowness.slowest([each for each in times if each is not None], ratio)
        if any(each is None for each in times):
            slow = None
        self.row = slowness.again(self.row, slow)
        return slow if slow is not None and self.row[slow.replica] >= slowness.LOOKS else None


def rank_time(
    before: Progress, after: Progress, replica: int, node: NodeName
) -> slowness.RankTime | None:
    """Return one rank's step time, and its wait for gradients, between two heartbeats; None if the
    rank made no step.
    """
    steps = after.steps - before.steps
    if steps <= 0 or not before.last_step_ns:
        return None
    samples = after.waits - before.waits
    return slowness.RankTime(
        rank=after.rank,
        replica=replica,
        node=node,
        step_seconds=(after.last_step_ns - before.last_step_ns) / 1e9 / steps,
        wait_seconds=(after.waited_ns - before.waited_ns) / 1e9 / samples if samples else 0.0,
        # Own time needs waits of this very stretch; few are enough where they were always alike.
        samples=after.waits if samples else 0,
    )


def worth(
    slow: slowness.SlowSuspect, it: CoordinatorState, monitor: WorldMonitor, now: float
) -> str:
    """Return a sentence that says why the world would be faster without a slow replica; empty if
    the world would not be faster.
    """
    desired = it.desired
    if desired is None or not monitor.seen().saves.known:  # without a safe point all work would go
        return ""
    agents = [each.seen() for each in it.peers if each.replica != slow.replica]
    ready = [each for each in agents if each.ready and each.leaving_since is None]
    need = max(desired.minimum, desired.unit)
    rest = choose(
        monitor.document.members, ready, desired.replicas, desired.unit, need, it.terms.rules.shape
    )
    lived = now - (monitor.first_step_at or now)
    pays = slowness.pays(
        slow,
        replicas=len(monitor.document.members),
        left=len(rest),
        restart_seconds=_RESTART_SECONDS,
        horizon_seconds=min(lived, _HORIZON_SECONDS),
    )
    if not pays:
        return ""
    return (
        f"replica {slow.replica} on {slow.node} takes {slow.ratio:.2f} times as long as usual for "
        f"its own share of a step. Because {len(rest)} replicas without it are faster than "
        f"{len(monitor.document.members)} with it, replica {slow.replica} leaves at "
        "the next safe point"
    )
