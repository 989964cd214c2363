"""Builders of what a coordinator knows; each fills in what a test is not about."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from brain.types.resources import NodeName
from brain.types.world import Cause, Member
from launcher.values.observation import (
    AgentObserved,
    JobObserved,
    Saves,
    WorldObserved,
    WorldParking,
    WorldPhase,
    WorldRules,
)
from tests.launcher.elastic import desired

#: Two saves, 10 s apart.
SAVED = Saves(count=2, interval_seconds=10.0)
#: Nothing is prepared.
ORDINARY = WorldRules(prepare_seconds=0)


def agent(replica: int, **fields: Any) -> AgentObserved:
    """An agent that is ready."""
    made = {"node": NodeName("n0"), "address": f"127.0.0.1:{replica}", "processes": 1}
    return AgentObserved(replica=replica, **(made | fields))


def agents(*replicas: int) -> tuple[AgentObserved, ...]:
    """Agents that are ready."""
    return tuple(agent(replica) for replica in replicas)


def members(replicas: Iterable[int], node: str = "n0") -> tuple[Member, ...]:
    """A world's members in order of rank."""
    return tuple(
        Member(
            replica=replica,
            group_rank=rank,
            processes=1,
            node=NodeName(node),
            address=f"127.0.0.1:{replica}",
        )
        for rank, replica in enumerate(replicas)
    )


def world(*replicas: int, **fields: Any) -> WorldObserved:
    """A world that steps and has saved."""
    made: dict[str, Any] = {
        "epoch": 1,
        "generation": 0,
        "goal": len(replicas),
        "members": members(replicas),
        "phase": WorldPhase.RUNNING,
        "saves": SAVED,
    }
    return WorldObserved(**(made | fields))


def ended(*replicas: int, by: Cause | None, **fields: Any) -> WorldObserved:
    """A world of which no worker runs any more."""
    return world(*replicas, phase=WorldPhase.ENDED, ended_by=by, **fields)


def parked(
    *replicas: int, since: float = 0.0, reached: bool = True, **fields: Any
) -> WorldObserved:
    """A world at its safe point, or on the way there."""
    return world(*replicas, parking=WorldParking(since=since, reached=reached), **fields)


def observation(wished: int | None = 1, *here: int, **fields: Any) -> JobObserved:
    """An observation with a desired world of generation 0 and of agents."""
    wanted = None if wished is None else desired(wished)
    made = {"desired": wanted, "agents": agents(*here), "rules": ORDINARY}
    return JobObserved(**(made | fields))


def planned(replicas: int, seen: JobObserved, **fields: Any) -> JobObserved:
    """The same, after a plan of generation 1 was wished."""
    return replace(seen, desired=desired(replicas, generation=1, **fields))
