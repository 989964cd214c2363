"""Groups of replicas: which agents a world takes, releases and waits for."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from brain.types.roles import RoleSize
from brain.types.world import Cause, Member
from launcher.coordinator.membership import decide
from launcher.values.action import (
    FormWorld,
    ParkWorld,
    Release,
    WaitFor,
)
from launcher.values.observation import AgentObserved, JobObserved, WorldObserved
from tests.launcher.elastic import desired
from tests.launcher.observations import agent, ended, members, observation, world

NOW = 1000.0
SMALL, LARGE = 4, 8


def agents(*names: str) -> tuple[AgentObserved, ...]:
    """Agents 0, 1, … of these groups; an empty name is that of an agent that is not here."""
    return tuple(
        agent(id, group=name, processes=LARGE if name == "large" else SMALL)
        for id, name in enumerate(names)
        if name
    )


def placed(*names: str) -> tuple[Member, ...]:
    found = members(range(len(names)))
    return tuple(
        replace(one, role=name, processes=LARGE if name == "large" else SMALL)
        for one, name in zip(found, names, strict=True)
    )


def seen(
    small: int, large: int, here: Sequence[AgentObserved], last: WorldObserved | None = None
) -> JobObserved:
    """What a coordinator knows once a plan wishes for so many replicas of each group."""
    groups = (("large", RoleSize(replicas=large, processes_per_replica=LARGE)),)
    wanted = desired(small + large, generation=1, roles=groups, minimum=2)
    return observation(1, world=last, desired=wanted, agents=tuple(here))


def formed(action: object) -> list[tuple[int, str, int]]:
    assert isinstance(action, FormWorld), action
    return [(one.replica, one.role, one.processes) for one in action.members]


def test_a_world_has_the_replicas_of_each_group_with_their_processes() -> None:
    first = seen(2, 1, agents("worker", "worker", "large"))
    assert formed(decide(first, NOW)) == [(0, "worker", 4), (1, "worker", 4), (2, "large", 8)]


def test_a_lost_replica_is_replaced_within_its_group() -> None:
    last = ended(0, 1, 2, by=Cause.MEMBERSHIP, members=placed("worker", "worker", "large"))
    here = agents("worker", "worker", "", "worker", "large")
    assert formed(decide(seen(2, 1, here, replace(last, generation=1)), NOW)) == [
        (0, "worker", 4),
        (1, "worker", 4),
        (4, "large", 8),
    ]


def test_a_group_shrinks_by_its_own_newest_replica_which_is_let_go() -> None:
    before = placed("worker", "large", "large", "worker")
    here = agents("worker", "large", "large", "worker")
    smaller = seen(2, 1, here, world(0, 1, 2, 3, members=before))
    assert decide(smaller, NOW) == ParkWorld()
    stopped = replace(smaller, world=ended(0, 1, 2, 3, by=Cause.PLAN, members=before))
    made = decide(stopped, NOW)
    assert formed(made) == [(0, "worker", 4), (1, "large", 8), (3, "worker", 4)]
    assert isinstance(made, FormWorld)
    after = world(0, 1, 3, members=made.members, generation=1)
    assert decide(replace(smaller, world=after), NOW) == Release((2,))


@pytest.mark.parametrize("came", [False, True])
def test_another_division_of_the_same_size_waits_for_its_newcomers(came: bool) -> None:
    here = agents("worker", "worker", "worker", "large", "large" if came else "")
    before = world(0, 1, 2, 3, members=placed("worker", "worker", "worker", "large"))
    action = decide(replace(seen(2, 2, here, before), desired_since=NOW), NOW)
    assert action == ParkWorld() if came else isinstance(action, WaitFor), action
