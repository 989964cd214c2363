"""Several hosts, with networks that fail between them: there is never more than one world."""

import random
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.hosts.machines import Host, Hosts, cannot_isolate, hosts
from tests.hosts.switch import Link
from tests.hosts.worlds import HandJob, Life, eventually, overlaps

#: Heartbeat budget of these jobs, seconds, and what says so.
BUDGET = 2.0
CONF = "--rdzv-conf=keep_alive_interval=1,keep_alive_max_attempt=2"
#: How long a worker may go on when nobody renews its lease: heartbeat, watch, and its last step.
LATE = BUDGET + 1.0

needs_network = pytest.mark.skipif(
    cannot_isolate() is not None, reason=f"no hosts of our own here: {cannot_isolate()}"
)


def witnesses(it: HandJob) -> list[Path]:
    """Files of ours beside the checkpoint."""
    return list(it.work.glob(".brain-witness-*"))


@contextmanager
def job(directory: Path, count: int, nnodes: str) -> Iterator[tuple[HandJob, Hosts]]:
    """A running job on so many hosts; at the end there never were two worlds, and nothing stays."""
    with hosts(directory, count) as them:
        it = HandJob(hosts=them, work=directory / "work", nnodes=nnodes, flags=(CONF,))
        it.start()
        it.running(*them)
        yield it, them
        assert overlaps(it.lives()) == [], it.logs()
        if them.network:
            them.heal()
        everybody_leaves(it, them)
        assert witnesses(it) == [], it.logs()


def everybody_leaves(it: HandJob, them: Hosts) -> None:
    """Notice to all agents; afterwards no host keeps anything of ours."""
    there = [host for host in them if it.alive(host)]
    for host in there:
        it.leave(host)
    for host in there:
        it.agent(host).wait()
        nothing_left(host)


def nothing_left(host: Host) -> None:
    """Wait until a host has neither processes nor shared memory nor temporary files of ours."""
    what = f"nothing left on {host.name}"
    eventually(lambda: not host.leftovers(), what, 60, lambda: str(host.leftovers()))


def epoch(lives: list[Life]) -> int:
    """The one epoch of a world."""
    (found,) = {life.epoch for life in lives}
    return found


def last_of(it: HandJob, host: Host, epoch: int) -> float:
    """When a host last worked for an epoch."""
    return max(life.last for life in it.lives() if (life.host, life.epoch) == (host.name, epoch))


@needs_network
def test_a_cut_off_minority_stops_by_its_lease_and_joins_again_when_it_can(tmp_path: Path) -> None:
    with job(tmp_path, 3, "1:3") as (it, them):
        before = epoch(it.running(*them))
        cut = time.monotonic()
        them.cut([them[2]], [them[0], them[1]])
        after = epoch(it.running(them[0], them[1]))

        assert after > before
        assert last_of(it, them[2], before) < cut + LATE

        them.heal()
        assert epoch(it.running(*them)) > after


@needs_network
def test_a_cut_off_coordinator_stops_and_the_majority_goes_on_without_it(tmp_path: Path) -> None:
    with job(tmp_path, 3, "1:3") as (it, them):
        before = epoch(it.running(*them))
        cut = time.monotonic()
        them.cut([them[0]], [them[1], them[2]])
        after = epoch(it.running(them[1], them[2]))

        assert after > before
        assert last_of(it, them[0], before) < cut + LATE

        them.heal()
        assert epoch(it.running(*them)) > after


@needs_network
def test_a_cut_off_host_begins_no_world_though_all_that_it_knew_are_dead(tmp_path: Path) -> None:
    with job(tmp_path, 4, "1:4") as (it, them):
        *others, newcomer, cut_off = them
        it.leave(newcomer)
        it.agent(newcomer).wait()
        it.running(cut_off, *others)
        them.cut([cut_off], [newcomer, *others])
        it.running(*others)
        it.start(newcomer)
        it.running(newcomer, *others)
        for other in reversed(others):
            other.signal(it.agent(other), signal.SIGKILL)
            it.agent(other).wait()
            it.running(newcomer, *(host for host in others if it.alive(host)))
        waits = "members of the last world may still run"
        eventually(lambda: waits in it.agent(cut_off).text(), waits, 60, it.logs)

        them.heal()
        step = it.saved_step() + 200  # by then it has been refused everywhere

        eventually(lambda: it.saved_step() > step, "200 steps more", 60, it.logs)


@needs_network
@pytest.mark.parametrize("heard", [True, False])
def test_a_half_open_connection_is_noticed(heard: bool, tmp_path: Path) -> None:
    with job(tmp_path, 3, "1:3") as (it, them):
        before = epoch(it.running(*them))
        silent, listening = (them[2], them[0]) if heard else (them[0], them[2])
        them.cut([silent], [listening], both=False)

        assert epoch(it.running(them[0], them[1])) > before


@needs_network
def test_a_coordinators_host_that_falls_silent_costs_the_lease_and_no_more(tmp_path: Path) -> None:
    with job(tmp_path, 3, "1:3") as (it, them):
        before = epoch(it.running(*them))
        them[0].kill()
        after = it.running(them[1], them[2])

        assert epoch(after) > before
        assert {life.host: life.rank for life in after} == {"host1": 0, "host2": 1}


@needs_network
def test_an_even_split_goes_on_in_one_half_at_most(tmp_path: Path) -> None:
    with job(tmp_path, 4, "2:4") as (it, them):
        before = epoch(it.running(*them))
        them.cut(them.all[:2], them.all[2:])

        def halves() -> set[str]:
            fresh = time.monotonic() - 0.5
            return {life.host for life in it.lives() if life.epoch > before and life.last > fresh}

        began = time.monotonic()
        while time.monotonic() < began + 3 * BUDGET:
            assert halves() <= {"host0", "host1"} or halves() <= {"host2", "host3"}
            time.sleep(0.1)
        them.heal()
        assert epoch(it.running(*them)) > before


@needs_network
def test_a_slow_link_raises_no_alarm(tmp_path: Path) -> None:
    with job(tmp_path, 3, "1:3") as (it, them):
        before = epoch(it.running(*them))
        slow = Link(delay_seconds=0.2, bytes_per_second=50_000)
        them.link([them[0]], them.all[1:], slow)
        steps = max(life.step for life in it.lives())
        enough = steps + int(2 * BUDGET / it.pace_seconds)
        eventually(
            lambda: max(life.step for life in it.lives()) > enough, "two leases", 60, it.logs
        )

        assert epoch(it.running(*them)) == before, it.logs()


def test_a_host_that_is_stopped_frees_its_world_and_comes_back(tmp_path: Path) -> None:
    with job(tmp_path, 3, "1:3") as (it, them):
        before = epoch(it.running(*them))
        them[2].stop()
        after = epoch(it.running(them[0], them[1]))
        stood = last_of(it, them[2], before)
        them[2].go_on()
        whole = epoch(it.running(*them))

        assert before < after < whole
        assert last_of(it, them[2], before) == stood


def test_a_stopped_coordinator_is_succeeded_and_obeys_its_successor(tmp_path: Path) -> None:
    with job(tmp_path, 3, "1:3") as (it, them):
        before = epoch(it.running(*them))
        them[0].stop()
        after = epoch(it.running(them[1], them[2]))
        stood = last_of(it, them[0], before)
        them[0].go_on()
        whole = epoch(it.running(*them))

        assert before < after < whole
        assert last_of(it, them[0], before) == stood


def test_a_killed_coordinator_is_succeeded_though_no_more_than_half_is_left(tmp_path: Path) -> None:
    with job(tmp_path, 2, "1:2") as (it, them):
        before = epoch(it.running(*them))
        them[0].signal(it.agent(them[0]), signal.SIGKILL)

        assert epoch(it.running(them[1])) > before


def test_an_agent_started_anew_at_the_endpoint_joins_the_world_that_lives(tmp_path: Path) -> None:
    with job(tmp_path, 3, "1:3") as (it, them):
        them[0].signal(it.agent(them[0]), signal.SIGKILL)
        alone = epoch(it.running(them[1], them[2]))
        it.start(them[0])

        assert epoch(it.running(*them)) > alone


@pytest.mark.parametrize("seed", range(3))
def test_agents_killed_at_any_moment_leave_nothing(seed: int, tmp_path: Path) -> None:
    rng = random.Random(f"orphans/{seed}")
    with hosts(tmp_path, 2) as them:
        it = HandJob(hosts=them, work=tmp_path / "work", nnodes="1:2", flags=(CONF,))
        it.start()
        time.sleep(rng.uniform(0.0, 2.0))  # into the start, a fork, or a change of worlds
        for host in them:
            host.signal(it.agent(host), signal.SIGKILL)
            time.sleep(rng.uniform(0.0, 0.2))
        for host in them:
            nothing_left(host)


# --- two hosts, and what decides between them --------------------------------------------------


def in_force(it: HandJob) -> None:
    """Wait until the witness is there, and all agents have heard that it counts."""
    eventually(lambda: witnesses(it), "a witness", 60, it.logs)
    time.sleep(1.0)  # no file says that it is in force


def alone(it: HandJob, before: int) -> str:
    """Wait until one host has a world of its own after an epoch; its name."""

    def look() -> str | None:
        fresh = time.monotonic() - 0.5
        found = {life.host for life in it.lives() if life.epoch > before and life.last > fresh}
        assert len(found) <= 1, it.logs()
        return next(iter(found), None)

    return eventually(look, "a world of one half", 60, it.logs)


@needs_network
def test_of_two_hosts_the_member_goes_on_when_the_coordinators_host_is_lost(tmp_path: Path) -> None:
    with job(tmp_path, 2, "1:2") as (it, them):
        before = epoch(it.running(*them))
        in_force(it)
        them[0].kill()

        assert epoch(it.running(them[1])) > before


@needs_network
@pytest.mark.parametrize("way", ["cut", "coordinator unheard", "member unheard"])
def test_of_two_hosts_that_lose_each_other_one_goes_on(way: str, tmp_path: Path) -> None:
    with job(tmp_path, 2, "1:2") as (it, them):
        before = epoch(it.running(*them))
        in_force(it)
        silent, deaf = (them[1], them[0]) if way == "member unheard" else (them[0], them[1])
        them.cut([silent], [deaf], both=way == "cut")
        goes_on = alone(it, before)
        began = time.monotonic()
        while time.monotonic() < began + 3 * BUDGET:
            assert alone(it, before) == goes_on
            time.sleep(0.1)
        waits = next(host for host in them if host.name != goes_on)

        assert "the other half took the witness" in it.agent(waits).text(), it.logs()
        them.heal()
        assert epoch(it.running(*them)) > before


@needs_network
def test_without_one_storage_the_host_without_the_coordinator_waits_and_says_so(
    tmp_path: Path,
) -> None:
    with hosts(tmp_path, 2) as them:
        it = HandJob(hosts=them, work=tmp_path / "work", nnodes="1:2", flags=(CONF,), storage="own")
        it.checkpoint.parent.mkdir()
        for host in them:
            mount = ["mount", "-t", "tmpfs", "tmpfs", str(it.checkpoint.parent)]
            assert host.start(mount, directory=it.work).wait() == 0
        it.start()
        before = epoch(it.running(*them))
        # As long as a witness takes where there is one, on a busy machine, too.
        it.running(*them, after=time.monotonic() + 4.0)
        them[0].kill()
        says = (
            "no witness on the checkpoint's storage decides which half continues "
            "(this host does not see"
        )
        eventually(lambda: says in it.agent(them[1]).text(), says, 60, it.logs)

        assert max(life.epoch for life in it.lives()) == before, it.logs()
