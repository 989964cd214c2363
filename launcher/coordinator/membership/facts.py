"""What several of the rules ask."""

from collections.abc import Iterable, Sequence

from brain.types.world import Cause, Member, WorldWish
from launcher.coordinator.topology import choose, extent
from launcher.values.observation import AgentSeen, Sight, WorldSeen


def available(sight: Sight) -> list[AgentSeen]:
    """Agents that a world may be made of."""
    return [agent for agent in sight.agents if agent.ready and agent.leaving_since is None]


def chosen(
    sight: Sight, wish: WorldWish, previous: Sequence[Member], goal: int
) -> tuple[Member, ...]:
    """Return the members that a world of ``goal`` would have now; none where it cannot be."""
    here = available(sight)
    return choose(previous, here, goal, wish.unit, wish.minimum, sight.rules.shape)


def size_of(sight: Sight, members: Sequence[Member]) -> int:
    """How large a world is, in what the wish counts."""
    return extent(members, sight.rules.shape)


def counted(sight: Sight) -> str:
    """What the wish counts, in a sentence."""
    return "replicas" if sight.rules.shape is None else "processes"


def warming_until(sight: Sight) -> float:
    """Until when agents are waited for that are here but not ready; 0.0 where all are."""
    slow = [a.since for a in sight.agents if not a.ready and a.leaving_since is None]
    return max(slow) + sight.rules.ready_seconds if slow else 0.0


def goal_of(sight: Sight, wish: WorldWish) -> tuple[int, bool]:
    """Return the replicas to strive for now, and whether that is a change by plan."""
    world = sight.world
    if world is not None and world.ended_by is Cause.REVERT and world.change is not None:
        return world.change.from_goal, False
    if world is None or world.stopped or wish.generation == world.generation:
        return wish.replicas, False
    blocked = sight.held is not None and sight.held.generation == wish.generation
    return (world.goal, False) if blocked or wish.frozen else (wish.replicas, True)


def resting(sight: Sight, world: WorldSeen) -> bool:
    """Whether this was given up, and nothing was saved since."""
    held, wish = sight.held, sight.wish
    if held is None or wish is None or held.generation != wish.generation:
        return False
    return held.saves == world.saves.count


def names(replicas: Iterable[int]) -> str:
    """Replicas in a sentence."""
    return ", ".join(map(str, sorted(replicas)))


def span(seconds: float) -> str:
    """Seconds in a sentence."""
    return f"{seconds / 60:.0f} minutes" if seconds >= 90 else f"{seconds:.0f} seconds"
