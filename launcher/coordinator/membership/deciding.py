"""The order of the questions."""

from launcher.coordinator.membership import ending, forming, in_process, leaving, sizing
from launcher.values.observation import STAY, Action, Phase, Sight, Wait


def decide(sight: Sight, now: float) -> Action:
    """Return the one thing to do now."""
    return forming.alone(sight, _decide(sight, now))


def _decide(sight: Sight, now: float) -> Action:
    world = sight.world
    if sight.behind:
        return Wait("an agent has still to tell of a later world")
    if world is None or world.phase is Phase.ENDED:
        return forming.between(sight, now)
    if world.phase is Phase.STOPPING:
        return STAY
    return (
        ending.trouble(sight, world, now)
        or ending.intent(sight, world, now)
        or in_process.settling(sight, world, now)
        or ending.leave(sight, world, now)
        or (leaving.release(sight, leaving_only=True) if world.formed else None)
        or sizing.compare(sight, world, now)
    )
