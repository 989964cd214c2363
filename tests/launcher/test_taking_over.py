"""Who goes on while others are silent: by rule, and by the leadership on one machine."""

import asyncio
import itertools
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from brain.errors import Unavailable
from brain.types.world import Cause
from launcher.coordinator.continuity import Continuity
from launcher.coordinator.leadership import EndpointLeadership, LocalLeadership
from launcher.coordinator.membership import decide, may_form, quorum_at
from launcher.coordinator.world.heartbeats import Heartbeats
from launcher.coordinator.world.monitor.monitor import WorldMonitor
from launcher.coordinator.world.state import CoordinatorState
from launcher.values.action import (
    FormWorld,
    StopWorld,
    Take,
    WaitFor,
)
from launcher.values.replica import Coordinating, JobPlace, read, started_ticks
from launcher.values.witness import WitnessObserved
from launcher.workers.processes.process import free_port
from tests.disks import full_disk
from tests.launcher.building import a_world
from tests.launcher.observations import ended, members, observation, world

NOW = 1000.0


# --- leases ---


def a_lease(*, now: float, heard: float, holds: bool = True, lost: int = 0) -> float:
    """Seconds that the workers of a world of two may live on, whose coordinator took over at 10 and
    gives leases of 3 s; its agents have ``heard`` its word of that time."""

    class Agents(list[SimpleNamespace]):
        def __init__(self) -> None:
            super().__init__(SimpleNamespace(replica=r, confirmed_at=heard) for r in (10, 11))
            self.lost = lost

    it = SimpleNamespace(
        clock=lambda: now,
        terms=SimpleNamespace(lease_seconds=3.0, address="here:1"),
        peers=Agents(),
        behind={},
        gone=set(),
        recovered_at=10.0,
    )
    document = replace(a_world(1, 1), coordinator="there:1", holds=True)
    nobody = Continuity(None, pause_seconds=3.0, say=print)
    heartbeats = Heartbeats(cast(CoordinatorState, it), lambda: holds, nobody)
    return heartbeats._lease(cast(WorldMonitor, SimpleNamespace(document=document)), now)


def test_who_takes_over_gives_leases_while_the_old_ones_last() -> None:
    assert a_lease(now=12.0, heard=11.5, holds=False) == pytest.approx(2.5)


@pytest.mark.parametrize(
    "missing", [{"heard": 12.9}, {"holds": False}, {"lost": 1}], ids=["word", "seat", "agent"]
)
def test_who_took_over_before_a_pause_renews_with_proof_only(missing: dict[str, Any]) -> None:
    proved: dict[str, Any] = {"now": 20.0, "heard": 19.5}

    assert a_lease(**proved) == pytest.approx(2.5)
    assert a_lease(**proved | missing) == 0.0


# --- partitions --------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 6, 7])
def test_of_the_two_sides_of_a_cut_one_at_most_goes_on(size: int) -> None:
    last = tuple(range(size))
    for coordinated in (None, *last):
        for one in itertools.chain.from_iterable(
            itertools.combinations(last, n) for n in range(size + 1)
        ):
            other = tuple(replica for replica in last if replica not in one)
            go_on = [may_form(last, side, (), True, coordinated) for side in (one, other) if side]

            assert sum(go_on) <= 1


@pytest.mark.parametrize("size", [2, 3, 4, 5, 6])
def test_a_cut_with_more_dead_than_one_side_knows_of_lets_one_at_most_go_on(size: int) -> None:
    last = tuple(range(size))
    for marks in itertools.product("abx", repeat=size):
        one, other, dead = (tuple(r for r in last if marks[r] == mark) for mark in "abx")
        for proved in (dead, ()):
            first = bool(one) and may_form(last, one, dead, True, 0)
            second = bool(other) and may_form(last, other, proved, True, 0)

            assert not (first and second)


def test_half_of_a_world_goes_on_with_whoever_coordinated() -> None:
    assert may_form((0, 1), (1,), (), True, 1)
    assert not may_form((0, 1), (0,), (), True, 1)
    assert not may_form((0, 1), (1,), (), False, 1)


def test_half_of_a_world_goes_on_with_proof_that_the_rest_is_gone() -> None:
    assert may_form((0, 1), (1,), (0,), False, 0)


# --- a witness ---------------------------------------------------------------------------------

PATH = "/storage/.brain-witness-job-1-ab"
IN_FORCE = WitnessObserved(epoch=1, path=PATH, in_force=True)
OFFERED = WitnessObserved(epoch=1, path=PATH)


@pytest.mark.parametrize("size", [2, 3, 4, 5, 6])
def test_with_a_witness_one_side_at_most_goes_on_whoever_holds_it(size: int) -> None:
    last = tuple(range(size))
    for marks in itertools.product("abx", repeat=size):
        one, other, dead = (tuple(r for r in last if marks[r] == mark) for mark in "abx")
        for holder, proved in itertools.product((None, *last), (dead, ())):
            held = replace(IN_FORCE, holder=holder)
            first = bool(one) and may_form(last, one, dead, True, 0, held)
            # A side that does not know who holds it is not the holder's.
            known = held if holder in other else IN_FORCE
            second = bool(other) and may_form(last, other, proved, True, 0, known)

            assert not (first and second)


@pytest.mark.parametrize("size", [2, 4, 6])
def test_of_two_halves_one_at_most_goes_on_while_a_witness_comes_into_force(size: int) -> None:
    """Who coordinated knows first; a member may have heard that it counts, only of it, or both."""
    last = tuple(range(size))
    for ours in itertools.combinations(last[1:], size // 2 - 1):
        one = (0, *ours)
        other = tuple(replica for replica in last if replica not in one)
        for knows, told in ((OFFERED, OFFERED), (IN_FORCE, OFFERED), (IN_FORCE, IN_FORCE)):
            for takes in (one, other):
                first = replace(knows, holder=one[0] if takes is one else None)
                second = replace(told, holder=other[0] if takes is other else None)
                go_on = [
                    may_form(last, one, (), True, 0, first),
                    may_form(last, other, (), True, 0, second),
                ]

                assert sum(go_on) <= 1


def test_half_of_a_world_goes_on_with_the_witness_and_not_with_who_coordinated() -> None:
    assert may_form((0, 1), (1,), (), True, 0, replace(IN_FORCE, holder=1))
    assert not may_form((0, 1), (0,), (), True, 0, IN_FORCE)
    assert not may_form((0, 1), (1,), (), False, 0, replace(IN_FORCE, holder=1))


def test_a_witness_that_not_all_have_seen_leaves_the_decision_to_who_coordinated() -> None:
    assert may_form((0, 1), (0,), (), True, 0, OFFERED)
    assert not may_form((0, 1), (1,), (), True, 0, replace(OFFERED, holder=1))


def test_a_half_asks_for_the_witness_once_its_lease_is_over_and_goes_on_with_it() -> None:
    lost = ended(0, 1, by=Cause.MEMBERSHIP, coordinated=0)
    seen = observation(2, 1, world=lost, lease_until=NOW, witness=IN_FORCE)
    mine = replace(seen, witness=replace(IN_FORCE, asked=True, holder=1))

    assert isinstance(decide(seen, NOW - 1), WaitFor)
    assert decide(seen, NOW) == Take(1)
    assert decide(mine, NOW) == FormWorld(members([1]), Cause.MEMBERSHIP, 0, 2)


@pytest.mark.parametrize(
    ("witness", "says"),
    [
        (WitnessObserved(), "no checkpoint was seen"),
        (OFFERED, "not all members have confirmed that they see it"),
        (replace(OFFERED, trouble="this host does not see it"), "this host does not see it"),
        (replace(IN_FORCE, asked=True), "has not answered yet"),
        (replace(IN_FORCE, asked=True, lost=True, trouble="the other half"), "the other half"),
    ],
)
def test_a_half_that_waits_says_why(witness: WitnessObserved, says: str) -> None:
    lost = ended(0, 1, by=Cause.MEMBERSHIP, coordinated=0)
    action = decide(observation(2, 1, world=lost, lease_until=NOW, witness=witness), NOW)

    assert isinstance(action, WaitFor)
    assert says in action.reason


def test_before_another_world_begins_the_witness_of_the_last_one_is_taken() -> None:
    lost = ended(0, 1, by=Cause.FAILURE, coordinated=0)
    seen = observation(2, 0, 1, world=lost, witness=IN_FORCE)
    asked = replace(IN_FORCE, asked=True)

    assert decide(seen, NOW) == Take(0)
    assert isinstance(decide(replace(seen, witness=asked), NOW), WaitFor)
    for answer in (replace(asked, holder=0), replace(asked, lost=True)):
        assert isinstance(decide(replace(seen, witness=answer), NOW), FormWorld)


# --- leases ------------------------------------------------------------------------------------


def test_leases_count_from_when_more_than_half_were_known_to_hear() -> None:
    heard = {0: 10.0, 1: 9.0, 2: 7.0}

    assert quorum_at((0, 1, 2), heard, ()) == 9.0
    assert quorum_at((0, 1), heard, ()) == 9.0


def test_without_most_members_there_is_no_lease_but_by_proof() -> None:
    assert quorum_at((0, 1, 2), {0: 10.0}, ()) == -math.inf
    assert quorum_at((0, 1, 2), {0: 10.0}, (1, 2)) == 10.0


@pytest.mark.parametrize("size", [2, 3, 4, 5])
def test_no_lease_outlasts_what_a_successor_waits_for(size: int) -> None:
    """Who may form a world without the coordinator has heard it no earlier than leases count."""
    last = tuple(range(size))
    for until in itertools.product((1.0, 2.0, 3.0), repeat=size - 1):
        heard = {0: 4.0} | dict(zip(last[1:], until, strict=True))
        for n in range(1, size):
            for side in itertools.combinations(last[1:], n):
                if 2 * len(side) >= size:
                    assert quorum_at(last, heard, ()) <= max(heard[each] for each in side)


# --- a successor -------------------------------------------------------------------------------


def test_a_successor_without_most_members_waits_for_the_lease_and_then_for_ever() -> None:
    seen = observation(4, 2, 3, world=ended(0, 1, 2, 3, by=Cause.MEMBERSHIP, coordinated=0))

    assert isinstance(decide(seen, NOW), WaitFor)


def test_a_successor_with_half_of_them_and_the_old_coordinator_waits_for_the_lease() -> None:
    fields = {"coordinated": 0, "by": Cause.MEMBERSHIP}
    seen = observation(4, 0, 1, world=ended(0, 1, 2, 3, **fields), lease_until=NOW)

    assert isinstance(decide(seen, NOW - 1), WaitFor)
    assert decide(seen, NOW) == FormWorld(members([0, 1]), Cause.MEMBERSHIP, 0, 4)


def test_nothing_is_decided_while_an_agent_has_to_tell_of_a_later_world() -> None:
    seen = observation(2, 0, world=world(0, 1, failed=1), behind=True)

    said = "an agent knows a world with a higher epoch and has not yet reported it"
    assert decide(seen, NOW) == WaitFor(said)


def test_a_member_that_is_silent_beyond_its_lease_ends_the_world() -> None:
    assert decide(observation(2, 0, world=world(0, 1)), NOW) == StopWorld(Cause.MEMBERSHIP)


# --- the leadership on one machine -------------------------------------------------------------


@contextmanager
def holder(place: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """Another process that holds the leadership, and does nothing else."""
    lines = (
        "import sys, pathlib, time; from launcher.values.replica import JobPlace; "
        "from launcher.coordinator.leadership import LocalLeadership; "
        "held = LocalLeadership(JobPlace(pathlib.Path(sys.argv[1]))); "
        "print(held.claim('127.0.0.1:1', 1, hung=False), flush=True); time.sleep(600)"
    )
    command = [sys.executable, "-c", lines, str(place)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"True\n"
        yield process
        process.kill()


def test_a_seat_that_is_held_is_not_to_be_had(tmp_path: Path) -> None:
    with holder(tmp_path):
        assert not LocalLeadership(JobPlace(tmp_path)).claim("127.0.0.1:2", 1, hung=False)


def test_the_seat_of_a_killed_holder_is_free(tmp_path: Path) -> None:
    with holder(tmp_path) as process:
        process.kill()
        process.wait()

        assert LocalLeadership(JobPlace(tmp_path)).claim("127.0.0.1:2", 1, hung=False)


def test_from_a_holder_that_hangs_the_seat_is_taken_by_the_next_term(tmp_path: Path) -> None:
    with holder(tmp_path):
        leadership = LocalLeadership(JobPlace(tmp_path))

        assert leadership.claim("127.0.0.1:2", 1, hung=True)
        assert leadership.holds()
        found = read(tmp_path / "coordinator.json", Coordinating)
        assert found is not None
        assert (found.term, found.pid, found.ticks) == (2, os.getpid(), started_ticks(os.getpid()))


def test_who_was_succeeded_sees_it_before_the_next_act(tmp_path: Path) -> None:
    first, second = LocalLeadership(JobPlace(tmp_path)), LocalLeadership(JobPlace(tmp_path))
    first.claim("127.0.0.1:1", 1, hung=False)
    second.claim("127.0.0.1:2", 1, hung=True)

    assert not first.holds()
    assert second.holds()


def test_a_seat_that_was_given_up_is_free_while_its_holder_lives_on(tmp_path: Path) -> None:
    first, second = LocalLeadership(JobPlace(tmp_path)), LocalLeadership(JobPlace(tmp_path))
    first.claim("127.0.0.1:1", 1, hung=False)
    first.leave()

    assert second.claim("127.0.0.1:2", 1, hung=False)
    assert not first.holds()


def test_a_lock_that_a_hung_holder_let_go_of_goes_to_who_took_over(tmp_path: Path) -> None:
    with holder(tmp_path) as process:
        leadership = LocalLeadership(JobPlace(tmp_path))
        leadership.claim("127.0.0.1:2", 1, hung=True)
        process.kill()
        process.wait()
        leadership.holds()

        assert not JobPlace(tmp_path).lock.take()


def test_a_seat_that_a_full_disk_keeps_from_being_told_stays_free(tmp_path: Path) -> None:
    first, second = LocalLeadership(JobPlace(tmp_path)), LocalLeadership(JobPlace(tmp_path))
    with full_disk(), pytest.raises(Unavailable, match=r"coordinator\.json"):
        first.claim("127.0.0.1:1", 1, hung=False)

    assert second.claim("127.0.0.1:2", 1, hung=False)


def test_a_seat_can_be_given_up_on_a_full_disk(tmp_path: Path) -> None:
    leadership = LocalLeadership(JobPlace(tmp_path))
    leadership.claim("127.0.0.1:1", 1, hung=False)
    with full_disk():
        leadership.leave()

    assert JobPlace(tmp_path).lock.take()


def test_an_agent_on_another_machine_is_gone_when_that_refuses_its_address() -> None:
    async def ask() -> frozenset[int]:
        leadership = EndpointLeadership("127.0.0.1:29400", "127.0.0.1:1", bound=True)
        while not (
            gone := await leadership.gone(
                members([2], node="far"), lease_expired=False, in_touch=True
            )
        ):
            await asyncio.sleep(0.01)
        return gone

    assert asyncio.run(asyncio.wait_for(ask(), 60)) == {2}


def test_an_old_refusal_does_not_count_against_an_agent_that_returned_to_the_address() -> None:
    host, port = "127.0.0.1", free_port("127.0.0.1")
    silent = [replace(members([2], node="far")[0], address=f"{host}:{port}")]
    now = 0.0
    leadership = EndpointLeadership("127.0.0.1:1", "127.0.0.1:2", bound=False, clock=lambda: now)

    async def attempts() -> None:
        await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}))

    async def gone(*, in_touch: bool) -> frozenset[int]:
        found = await leadership.gone(silent, lease_expired=False, in_touch=in_touch)
        await attempts()
        return found

    async def story() -> None:
        nonlocal now
        assert {await gone(in_touch=False) for _ in range(3)} == {frozenset()}
        now = 100.0
        async with await asyncio.start_server(lambda _, writer: writer.close(), host, port):
            assert {await gone(in_touch=True) for _ in range(3)} == {frozenset()}

    asyncio.run(story())


def test_on_loopback_nothing_comes_between_but_a_network_may(tmp_path: Path) -> None:
    leadership = EndpointLeadership("127.0.0.1:29400", "127.0.0.1:1", bound=True)
    far, near = members([1])[0], members([2])[0]
    far = type(far)(replica=1, group_rank=0, processes=1, node=far.node, address="10.0.0.7:29400")

    gone = asyncio.run(leadership.gone([far, near], lease_expired=True, in_touch=False))

    assert gone == {2}
