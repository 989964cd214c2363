"""What several of the rules ask."""

from collections.abc import Iterable

from brain.types.world import Cause, WorldWish
from launcher.worlds.sight import AgentSeen, Sight, WorldSeen


def available(sight: Sight) -> list[AgentSeen]:
    """Agents that a world may be made of."""
    return [agent for agent in sight.agents if agent.ready and agent.leaving_since is None]


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
