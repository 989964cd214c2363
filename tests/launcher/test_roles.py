"""Roles of replicas: who is what in a world, how processes are told, and when a job is over."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import cast

import pytest

from brain.types.roles import RoleSize
from brain.types.world import Cause, Member
from launcher.coordinator.membership import decide
from launcher.coordinator.world.monitor.monitor import WorldMonitor
from launcher.coordinator.world.peers import Connection, Peer
from launcher.values.action import (
    FormWorld,
    HoldWorld,
    ParkWorld,
    Relabel,
    WaitFor,
)
from launcher.values.config import WorldDocument
from launcher.values.observation import JobObserved, WorldChange, WorldObserved
from launcher.values.workers import WorkerExit
from launcher.workers.environment import tensorflow_config
from tests.launcher.elastic import desired
from tests.launcher.observations import (
    ORDINARY,
    agent,
    agents,
    ended,
    members,
    observation,
    world,
)
from tests.launcher.test_coordinator import hello

NOW = 1000.0


def roles(**counts: int) -> tuple[tuple[str, RoleSize], ...]:
    return tuple((role, RoleSize(replicas=count)) for role, count in counts.items())


SERVED = roles(chief=1, ps=2)


def placed(*names: str) -> tuple[Member, ...]:
    """Members 0, 1, … of these roles, in order of rank."""
    found = members(range(len(names)))
    return tuple(replace(m, role=name) for m, name in zip(found, names, strict=True))


TRAINING = placed("chief", "ps", "ps", "worker", "worker")


def seen(of: tuple[tuple[str, RoleSize], ...], here: int, last: WorldObserved) -> JobObserved:
    """What a coordinator knows once a plan wishes ``here`` replicas of such roles."""
    wanted = desired(here, generation=1, roles=of, minimum=sum(s.replicas for _, s in of) + 1)
    return observation(1, world=last, desired=wanted, agents=agents(*range(here)))


def named(action: object) -> list[str]:
    assert isinstance(action, FormWorld), action
    return [member.role for member in action.members]


def test_the_first_ranks_have_the_roles_and_the_others_are_workers() -> None:
    first = observation(1, desired=desired(5, roles=SERVED, minimum=4), agents=agents(*range(5)))
    assert named(decide(first, NOW)) == ["chief", "ps", "ps", "worker", "worker"]


def test_without_a_chief_the_first_rank_is_a_worker_whose_steps_tell_that_the_world_goes() -> None:
    served = roles(ps=2)
    first = observation(1, desired=desired(4, roles=served, minimum=3), agents=agents(*range(4)))
    assert named(decide(first, NOW)) == ["worker", "ps", "ps", "worker"]


def test_another_server_comes_at_a_safe_point_and_is_no_worker() -> None:
    more = seen(roles(chief=1, ps=3), 6, world(*range(5), members=TRAINING))
    assert decide(more, NOW) == ParkWorld()
    stopped = replace(more, world=ended(*range(5), by=Cause.PLAN, members=TRAINING))
    assert named(decide(stopped, NOW)) == ["chief", "ps", "ps", "ps", "worker", "worker"]


def test_a_worker_becomes_a_server_where_their_sum_stays() -> None:
    parked = world(*range(5), members=TRAINING)
    swapped = seen(roles(chief=1, ps=3), 5, parked)
    assert decide(swapped, NOW) == ParkWorld()
    same = seen(SERVED, 5, parked)
    assert decide(same, NOW) == Relabel(1, 5), "nothing restarts for a world that is there already"


def test_healing_has_all_servers_and_fewer_workers() -> None:
    lost = ended(*range(5), by=Cause.MEMBERSHIP, members=TRAINING)
    wanted = desired(5, roles=SERVED, minimum=4)
    left = observation(1, world=lost, desired=wanted, agents=agents(0, 2, 3, 4))
    left = replace(left, gone=frozenset({1}))
    assert named(decide(left, NOW)) == ["chief", "ps", "ps", "worker"]


def test_a_change_that_is_taken_back_has_the_roles_of_before() -> None:
    change = WorldChange(from_goal=5, from_generation=0, to_generation=1, from_roles=SERVED)
    after = placed("chief", "ps", "ps", "ps", "worker")
    failed = ended(*range(5), by=Cause.REVERT, members=after, change=change)
    back = decide(seen(roles(chief=1, ps=3), 5, failed), NOW)
    assert named(back) == ["chief", "ps", "ps", "worker", "worker"]


def test_no_server_is_started_beside_one_that_has_its_port() -> None:
    more = seen(roles(chief=1, ps=3), 6, world(*range(5), members=TRAINING))
    rules = replace(more.rules, prepare_seconds=60.0)
    assert decide(replace(more, rules=rules), NOW) == ParkWorld()


def fixed(
    of: tuple[tuple[str, RoleSize], ...], *here: str, last: WorldObserved | None = None
) -> JobObserved:
    """What a coordinator knows of agents 0, 1, … that have their roles from their start; an empty
    name is that of an agent that is not here.
    """
    beside = sum(size.replicas for _, size in of)
    wanted = desired(beside + 2, generation=1, roles=of, minimum=beside + 1)
    there = tuple(agent(id, group=name) for id, name in enumerate(here) if name)
    rules = replace(ORDINARY, fixed_roles=True)
    return observation(1, world=last, desired=wanted, agents=there, rules=rules)


def ranks(action: object) -> list[tuple[int, str]]:
    assert isinstance(action, FormWorld), action
    assert [one.group_rank for one in action.members] == list(range(len(action.members)))
    return [(one.replica, one.role) for one in action.members]


def test_fixed_roles_stay_and_one_that_trains_has_the_first_rank() -> None:
    here = ("ps", "worker", "chief", "ps", "worker")
    chief_first = [(2, "chief"), (0, "ps"), (1, "worker"), (3, "ps"), (4, "worker")]
    assert ranks(decide(fixed(SERVED, *here), NOW)) == chief_first
    unled = decide(fixed(roles(ps=2), "ps", "ps", "worker", "worker"), NOW)
    assert ranks(unled) == [(2, "worker"), (0, "ps"), (1, "ps"), (3, "worker")]


@pytest.mark.parametrize(
    ("lost", "waits"),
    [("chief", "0 of 1 chief are here"), ("ps", "1 of 2 ps are here"), ("worker", "")],
)
def test_a_world_waits_for_a_lost_server_or_chief_but_not_for_a_worker(lost: str, waits: str):
    before = ("chief", "ps", "ps", "worker", "worker")
    gone = before.index(lost)
    here = tuple("" if id == gone else name for id, name in enumerate(before))
    last = ended(*range(5), by=Cause.MEMBERSHIP, members=TRAINING, generation=1)
    seen = replace(fixed(SERVED, *here, last=last), gone=frozenset({gone}))
    action = decide(seen, NOW)
    if waits:
        assert action == WaitFor(waits)
        back = decide(replace(seen, agents=(*seen.agents, agent(5, group=lost))), NOW)
        assert sorted(ranks(back))[-1] == (5, lost)
    else:
        assert len(ranks(action)) == 4


def test_another_server_is_waited_for_and_a_change_is_abandoned_without_it() -> None:
    more = roles(chief=1, ps=3)
    before = fixed(more, *(one.role for one in TRAINING), last=world(*range(5), members=TRAINING))
    waiting = decide(replace(before, desired_since=NOW), NOW)
    assert isinstance(waiting, WaitFor)
    assert waiting.reason == "2 of 3 ps"
    late = decide(before, NOW)
    assert late == HoldWorld("only 2 of 3 ps have arrived, so the world cannot change")
    came = replace(before, agents=(*before.agents, agent(5, group="ps")))
    assert decide(came, NOW) == ParkWorld()


def test_fewer_servers_and_more_workers_wait_for_the_workers_alone() -> None:
    fewer = fixed(roles(chief=1, ps=1), "chief", "ps", "ps", "worker", "worker")
    fewer = replace(fewer, world=ended(*range(5), by=Cause.PLAN, members=TRAINING))
    assert ranks(decide(fewer, NOW)) == [(0, "chief"), (1, "ps"), (3, "worker"), (4, "worker")]


def test_fixed_roles_of_a_change_that_is_taken_back_are_those_of_before() -> None:
    change = WorldChange(from_goal=5, from_generation=0, to_generation=1, from_roles=SERVED)
    after = placed("chief", "ps", "ps", "worker", "worker", "ps")
    here = tuple(one.role for one in after)
    failed = ended(*range(6), by=Cause.REVERT, members=after, change=change, generation=1)
    back = ranks(decide(fixed(roles(chief=1, ps=3), *here, last=failed), NOW))
    assert [role for _, role in back] == ["chief", "ps", "ps", "worker", "worker"]


def document(*names: str) -> WorldDocument:
    found = tuple(replace(m, port=7000 + m.group_rank) for m in placed(*names))
    return WorldDocument(
        job="j",
        epoch=1,
        generation=0,
        cause=Cause.START,
        members=found,
        master_addr="127.0.0.1",
        master_port=1,
        run_id="j",
        coordinator="127.0.0.1:0",
    )


def test_each_process_is_told_all_others_and_its_place() -> None:
    told = json.loads(tensorflow_config(document("chief", "ps", "ps", "worker"), 2))
    assert told["task"] == {"type": "ps", "index": 1}
    assert told["cluster"] == {
        "chief": ["127.0.0.1:7000"],
        "worker": ["127.0.0.1:7003"],
        "ps": ["127.0.0.1:7001", "127.0.0.1:7002"],
    }


def test_a_process_listens_at_the_port_that_was_free_last() -> None:
    peer = Peer(hello(0, port=7000), cast(Connection, None), NOW)
    peer.port = 7777  # found free when the workers of the world before had ended
    assert peer.seen().port == 7777


def well_ended(rank: int) -> WorkerExit:
    ended_at = datetime(2026, 1, 1, tzinfo=UTC)
    made = {"rank": rank, "local_rank": 0, "pid": 1, "at_ns": 0, "stopped": False}
    return WorkerExit(code=0, failed_at=ended_at, message="", **made)


@pytest.mark.parametrize(
    ("names", "over"),
    [
        (("chief", "ps", "worker"), [0]),
        (("ps", "worker", "worker"), [1, 2]),
        (("worker", "worker"), [0, 1]),
    ],
    ids=["with a chief", "without", "of workers only"],
)
def test_a_job_is_over_with_its_chief_or_its_workers(names: tuple[str, ...], over: list[int]):
    monitor = WorldMonitor(
        document(*names), goal=len(names), since=0.0, declared=False, blind=False
    )
    for replica in range(len(names)):
        monitor.started(replica)
    for replica in over:
        assert not monitor.finished
        monitor.exited(replica, well_ended(replica))
    assert monitor.finished
