"""A world that nobody could have replaced goes on after a pause, as under torchrun."""

import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from brain.types.world import WorldEvent
from tests.hosts.machines import Hosts, cannot_isolate
from tests.hosts.worlds import HandJob, Life, eventually, overlaps
from tests.launcher import elastic

#: What a lease lasts in these jobs, and a pause that no lease survives, seconds.
LEASE = 4.0
CONF = "--rdzv-conf=keep_alive_interval=2,keep_alive_max_attempt=2"
PAUSE = LEASE + 2.0
#: Longer than anything that waits by itself, ``make chaos``.
LONG_PAUSE = 62.0
PAUSES = [
    pytest.param(PAUSE, id="pause"),
    pytest.param(LONG_PAUSE, id="long pause", marks=[pytest.mark.chaos, pytest.mark.timeout(300)]),
]
#: What a lease lasts under a scaler, seconds.
SCALED_LEASE = 3.0


needs_network = pytest.mark.skipif(
    cannot_isolate() is not None, reason=f"no hosts of our own here: {cannot_isolate()}"
)


@contextmanager
def job(
    directory: Path,
    agents: int,
    *,
    nnodes: str = "",
    network: bool = False,
    environment: Mapping[str, str] | None = None,
    slack: float = 0.0,
    debug: bool = True,
    more: Sequence[str] = (),
) -> Iterator[tuple[HandJob, Hosts]]:
    """A job of so many agents on this machine, or of as many hosts with a ``network`` between
    them; there never were two worlds of it."""
    them = Hosts(directory, network=network)
    try:
        for _ in range(agents):
            them.add()
        flags = (CONF, "--nproc-per-node=2", *more)
        it = HandJob(
            hosts=them,
            work=directory / "work",
            nnodes=nnodes or str(agents),
            flags=flags,
            environment=environment or {},
            debug=debug,
        )
        it.start()
        it.running(*them)
        yield it, them
        assert overlaps(it.lives(), slack=slack) == [], it.logs()
    finally:
        them.close()


def stop(them: Hosts) -> None:
    for host in them:
        host.stop()


def go_on(them: Hosts) -> None:
    for host in them:
        host.go_on()


def same_workers(it: HandJob, before: list[Life]) -> bool:
    """Whether the very workers of ``before`` have stepped on, and no others were ever started."""
    now = it.lives()
    known = {(life.epoch, life.rank, life.first): life.step for life in before}
    return len(now) == len(before) and all(
        life.step > known.get((life.epoch, life.rank, life.first), life.step) for life in now
    )


def they_go_on(it: HandJob, them: Hosts, seconds: float) -> None:
    """Pause everything; the same workers step on, and go on doing so."""
    stop(them)
    time.sleep(seconds)
    before = it.lives()
    go_on(them)

    eventually(lambda: same_workers(it, before), "further steps", 30, it.logs)
    time.sleep(LEASE)  # nothing was only put off
    assert same_workers(it, before), it.logs()


def steps(it: HandJob, epoch: int) -> dict[int, int]:
    """Step of each rank of a world."""
    return {life.rank: life.step for life in it.lives() if life.epoch == epoch}


def stood(it: HandJob, epoch: int, before: dict[int, int]) -> bool:
    """Whether a world took no step since ``before`` but one that was about to be counted: for some
    milliseconds after a pause a worker may be quicker than the watch over its lease."""
    return all(step <= before[rank] + 1 for rank, step in steps(it, epoch).items())


@pytest.mark.parametrize("seconds", PAUSES)
@pytest.mark.parametrize("agents", [1, 2])
def test_after_a_pause_of_everything_the_same_workers_go_on(
    agents: int, seconds: float, tmp_path: Path
) -> None:
    with job(tmp_path, agents) as (it, them):
        they_go_on(it, them, seconds)


def test_a_pause_longer_than_a_hang_is_none(tmp_path: Path) -> None:
    with job(tmp_path, 1, more=("--hang-seconds=4", "--on-hang=restart")) as (it, them):
        they_go_on(it, them, 3 * PAUSE)
        assert "no worker has made progress" not in it.agent(them[0]).text()


def test_a_pause_of_the_agent_alone_is_not_noticed_by_its_workers(tmp_path: Path) -> None:
    with job(tmp_path, 1) as (it, them):
        agent = it.agent(them[0])
        them[0].signal(agent, signal.SIGSTOP)
        time.sleep(PAUSE)
        during = it.lives()
        them[0].signal(agent, signal.SIGCONT)

        assert all(life.last > time.monotonic() - LEASE for life in during), it.logs()
        eventually(lambda: same_workers(it, during), "further steps", 30, it.logs)


@pytest.mark.parametrize("seconds", PAUSES)
@pytest.mark.parametrize("replicas", [1, 2])
def test_under_a_scaler_a_paused_world_goes_on_that_nobody_succeeded(
    replicas: int, seconds: float, tmp_path: Path
) -> None:
    first = elastic.desired(replicas)
    with elastic.job(tmp_path, "--steps", "100000", first=first) as it:
        it.begin(replicas)
        before = sorted(it.workers())
        it.pause()
        time.sleep(seconds)
        it.go_on()
        time.sleep(SCALED_LEASE)  # nothing was only put off
        it.saved()

        assert sorted(it.workers()) == before
        assert not [each for each in it.brain.reports() if each.event is WorldEvent.LOST]


def test_a_paused_half_never_steps_beside_the_world_that_went_on_without_it(
    tmp_path: Path,
) -> None:
    with job(tmp_path, 2, nnodes="1:2") as (it, them):
        paused = them[1]
        paused.stop()
        it.running(them[0])
        time.sleep(LEASE)
        paused.go_on()

        it.running(*them)


@needs_network
@pytest.mark.parametrize("seconds", PAUSES)
@pytest.mark.parametrize("count", [2, 3])
def test_after_a_pause_of_all_hosts_the_same_workers_go_on(
    count: int, seconds: float, tmp_path: Path
) -> None:
    with job(tmp_path, count, network=True, debug=False) as (it, them):
        they_go_on(it, them, seconds)
        for host in them:
            assert "ran out; the processes pause until" in it.agent(host).text()


@needs_network
@pytest.mark.parametrize("paused", [0, 1], ids=["coordinator", "member"])
def test_a_host_that_was_paused_while_the_other_one_went_on_never_steps_its_world_again(
    paused: int, tmp_path: Path
) -> None:
    with job(tmp_path, 2, nnodes="1:2", network=True, slack=60) as (it, them):
        eventually(lambda: list(it.work.glob(".brain-witness-*")), "a witness", 60, it.logs)
        time.sleep(1.0)  # until all agents have heard that it counts
        before = max(life.epoch for life in it.lives())
        them[paused].stop()
        it.running(them[1 - paused])
        then = steps(it, before)
        them[paused].go_on()
        it.running(*them)
        time.sleep(LEASE)

        assert stood(it, before, then), it.logs()


@needs_network
def test_where_new_agents_look_elsewhere_one_may_have_begun_anew_so_that_workers_end(
    tmp_path: Path,
) -> None:
    with job(tmp_path, 3, nnodes="2:3", network=True, slack=60) as (it, them):
        first, *others = them
        it.leave(first)
        it.agent(first).wait()
        before = max(life.epoch for life in it.running(*others))
        for host in others:
            host.stop()
        time.sleep(PAUSE)
        then = steps(it, before)
        it.start(first)
        for host in others:
            host.go_on()
        it.running(*them)

        assert stood(it, before, then), it.logs()


@needs_network
def test_a_manager_of_jobs_may_have_started_others_so_that_workers_end(tmp_path: Path) -> None:
    manager = {"SLURM_JOB_ID": "7"}
    with job(tmp_path, 2, network=True, environment=manager, slack=60) as (it, them):
        before = max(life.epoch for life in it.lives())
        stop(them)
        time.sleep(PAUSE)
        then = steps(it, before)
        go_on(them)
        it.running(*them)

        assert stood(it, before, then), it.logs()


@needs_network
def test_a_short_cut_costs_no_restart_where_no_host_may_go_on_alone(tmp_path: Path) -> None:
    with job(tmp_path, 2, network=True) as (it, them):
        before = it.lives()
        them.cut([them[0]], [them[1]])
        time.sleep(LEASE + 0.8)
        them.heal()

        eventually(lambda: same_workers(it, before), "further steps", 30, it.logs)


@needs_network
def test_a_cut_that_is_healed_about_when_leases_end_makes_no_second_world(tmp_path: Path) -> None:
    with job(tmp_path, 2, nnodes="1:2", network=True) as (it, them):
        for seconds in (LEASE - 0.5, LEASE + 0.5, LEASE + 1.5):
            them.cut([them[0]], [them[1]])
            time.sleep(seconds)
            them.heal()
            it.running(*them, after=time.monotonic())
