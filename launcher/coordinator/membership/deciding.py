"""The order in which ``decide`` applies the rules."""

from launcher.coordinator.membership import ending, forming, in_process, leaving, sizing
from launcher.values.action import STAY, Action, WaitFor
from launcher.values.observation import JobObserved, WorldPhase


def decide(observation: JobObserved, now: float) -> Action:
    return forming.alone(observation, _decide(observation, now))


def _decide(observation: JobObserved, now: float) -> Action:
    world = observation.world
    if observation.behind:
        return WaitFor("an agent knows a world with a higher epoch and has not yet reported it")
    if world is None or world.phase is WorldPhase.ENDED:
        return forming.between(observation, now)
    if world.phase is WorldPhase.STOPPING:
        return STAY
    return (
        ending.trouble(observation, world, now)
        or ending.intent(observation, world, now)
        or in_process.settling(observation, world, now)
        or ending.leave(observation, world, now)
        or (leaving.release(observation, leaving_only=True) if world.formed else None)
        or sizing.compare(observation, world, now)
    )
