"""The scaler between Brain and a backend, both in memory; only its pauses are real, and short."""

import asyncio
import errno
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from brain.client import AsyncBrainClient
from brain.types.job import Intent, JobId, JobState
from brain.types.resources import Resources
from brain.types.roles import WORKER
from brain.types.world import ReplicaExit, ReplicaState
from brain.views import DesiredJob
from scaler.desired import WishFile, answered
from scaler.loop import Scaler, _at_most
from scaler.pace import Pace
from scaler.ports import Observed, ReplicaPhase
from tests.scaler.brain_twin import BrainTwin
from tests.scaler.memory_backend import MemoryBackend
from tests.scaler.wished import JOB, NOW, pool, wish

OTHER = JobId("01998f00-0000-7000-8000-000000000002")
QUICK = Pace(
    look=0.02,
    poll=0.2,
    heartbeat=0.05,
    repeat=60,
    gather=0,
    doubt=60,
    retry=0.02,
    retry_longest=0.05,
)


class Clock:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> datetime:
        return self.now

    def move(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


class House:
    """A scaler with everything around it."""

    def __init__(
        self,
        home: Path,
        *jobs: DesiredJob,
        backend: MemoryBackend | None = None,
        pace: Pace = QUICK,
        told: Callable[[], None] = lambda: None,
    ) -> None:
        self.brain, self.pace, self.heard = BrainTwin(*jobs), pace, told
        self.backend = backend or MemoryBackend(capacity=Resources(cpu_millis=4000))
        self.clock = Clock()
        self.file = WishFile(home / "wishes.json")

    def lived_in(self, act: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run the scaler while ``act`` does."""
        asyncio.run(self._live(act))

    async def _live(self, act: Callable[[], Awaitable[None]]) -> None:
        async with AsyncBrainClient("http://brain", "t", self.brain.transport()) as client:
            self.scaler = Scaler(
                client,
                self.backend,
                self.file,
                pool="local",
                clock=self.clock,
                pace=self.pace,
                told=self.heard,
            )
            work = asyncio.create_task(self.scaler.run())
            try:
                await act()
                assert not work.done(), work
            finally:
                work.cancel()
                await asyncio.gather(work, return_exceptions=True)

    async def until(self, stage: str, look: Callable[[], object]) -> None:
        try:
            async with asyncio.timeout(60):
                while not look():
                    await asyncio.sleep(0.005)
        except TimeoutError:
            raise AssertionError(f"{stage}: not within 60 s") from None

    def phases(self, job: JobId = JOB) -> list[ReplicaPhase]:
        return [seen.phase for seen in self.backend.observe(job, NOW).replicas]

    def states(self, job: JobId = JOB) -> list[ReplicaState]:
        return [replica.state for replica in self.brain.told(job)]

    async def running(self, *ids: int, job: JobId = JOB) -> None:
        def started() -> bool:
            seen = {replica.id: replica for replica in self.backend.observe(job, NOW).replicas}
            return all(id in seen for id in ids)

        await self.until(f"replicas {ids} started", started)
        for id in ids:
            self.backend.run(job, id)


def test_a_wish_becomes_replicas_and_brain_is_told_what_was_seen(tmp_path: Path):
    house = House(tmp_path, wish(2))

    async def act() -> None:
        await house.running(0, 1)
        await house.until("both told", lambda: house.states() == [ReplicaState.RUNNING] * 2)

    house.lived_in(act)
    assert house.backend.has_token(JOB)


class Steady(MemoryBackend):
    """A backend that tells of every change, and counts looks at each job."""

    def __init__(self) -> None:
        super().__init__(capacity=Resources(cpu_millis=4000))
        self.looks: Counter[JobId] = Counter()

    def observe(self, job: JobId, now: datetime) -> Observed:
        self.looks[job] += 1
        return replace(super().observe(job, now), steady=True)


def test_a_job_at_rest_is_looked_at_once_something_changes(tmp_path: Path):
    backend = Steady()
    house = House(tmp_path, wish(1), backend=backend)

    async def act() -> None:
        await house.running(0)
        while backend.looks:
            backend.looks.clear()
            await asyncio.sleep(4 * QUICK.look)

        backend.lose(JOB, 0)
        house.scaler.wake(OTHER)
        await asyncio.sleep(4 * QUICK.look)
        assert not backend.looks

        house.scaler.wake(JOB)
        await house.running(1)

    house.lived_in(act)


def test_a_job_at_rest_is_looked_at_now_and_then_all_the_same(tmp_path: Path):
    backend = Steady()
    house = House(tmp_path, wish(1), backend=backend)

    async def act() -> None:
        await house.running(0)
        await asyncio.sleep(4 * QUICK.look)
        backend.lose(JOB, 0)
        house.clock.move(60)
        await house.running(1)

    house.lived_in(act)


def test_the_node_is_registered_and_repeated_before_brain_takes_it_for_silent(tmp_path: Path):
    house = House(tmp_path)

    async def act() -> None:
        await house.until("it is registered", lambda: house.brain.nodes)
        await asyncio.sleep(4 * QUICK.heartbeat)
        assert len(house.brain.nodes) == 1
        house.clock.move(QUICK.repeat)
        await house.until("it is repeated", lambda: len(house.brain.nodes) == 2)

    house.lived_in(act)
    assert house.brain.nodes[0].capacity == Resources(cpu_millis=4000)


def test_a_replica_that_begins_and_runs_soon_is_one_report(tmp_path: Path):
    house = House(tmp_path, wish(1), pace=replace(QUICK, gather=60))

    async def act() -> None:
        await house.until("it begins", house.phases)
        await asyncio.sleep(4 * QUICK.look)
        assert not house.states()
        await house.running(0)
        await house.until("it is told", house.states)

    house.lived_in(act)
    assert [len(report.replicas) for report in house.brain.reports] == [0, 1]
    assert house.states() == [ReplicaState.RUNNING]


@pytest.mark.parametrize("intent", [Intent.SUSPEND, Intent.CANCEL])
def test_a_job_that_never_had_replicas_is_reported_again_once_it_has_to_stop(
    tmp_path: Path, intent: Intent
):
    queued = wish(0, state=JobState.STARTING)
    house = House(tmp_path, queued)

    async def act() -> None:
        await house.until("it has none", lambda: house.brain.reports)
        house.brain.wish(wish(0, state=JobState.STARTING, intent=intent))
        await house.until("Brain is told so again", lambda: len(house.brain.reports) == 2)
        await asyncio.sleep(4 * QUICK.look)

    house.lived_in(act)
    assert [report.replicas for report in house.brain.reports] == [(), ()]


def test_a_replica_that_begins_for_long_is_told(tmp_path: Path):
    house = House(tmp_path, wish(1), pace=replace(QUICK, gather=60))

    async def act() -> None:
        await house.until("it begins", house.phases)
        await asyncio.sleep(4 * QUICK.look)
        house.clock.move(60)
        await house.until("it is told", lambda: house.states() == [ReplicaState.STARTING])

    house.lived_in(act)


def test_whoever_listens_hears_that_brain_is_away(tmp_path: Path):
    heard: list[None] = []
    house = House(tmp_path, told=lambda: heard.append(None))
    house.brain.away = True

    async def act() -> None:
        await house.until("it is heard", lambda: heard)

    house.lived_in(act)


def test_a_new_wish_is_followed(tmp_path: Path):
    house = House(tmp_path, wish(1))

    async def act() -> None:
        await house.running(0)
        house.brain.wish(wish(2, generation=1))
        await house.running(1)

    house.lived_in(act)
    assert [seen.generation for seen in house.backend.observe(JOB, NOW).replicas] == [0, 1]


def test_a_lost_replica_is_replaced_and_told(tmp_path: Path):
    house = House(tmp_path, wish(1))

    async def act() -> None:
        await house.running(0)
        house.clock.move(60)
        house.backend.lose(JOB, 0)
        await house.running(1)
        await house.until("the loss told", lambda: len(house.brain.told(JOB)) == 2)

    house.lived_in(act)
    assert house.brain.told(JOB)[0].exit is ReplicaExit.LOST


def test_a_report_that_crossed_another_write_is_sent_again_at_once(tmp_path: Path):
    house = House(tmp_path, wish(1))

    async def act() -> None:
        await house.until("it starts", lambda: house.states() == [ReplicaState.STARTING])
        house.brain.crossed = 1
        house.backend.run(JOB, 0)
        await house.until("it is told", lambda: house.states() == [ReplicaState.RUNNING])

    house.lived_in(act)
    assert house.brain.crossed == 0


def test_without_brain_it_heals_from_what_is_on_disk(tmp_path: Path):
    house = House(tmp_path)
    known = answered(None, pool(wish(1)), NOW)
    assert known is not None
    house.file.keep(known)
    house.backend.put_token(JOB, "brn_1")
    house.brain.away = True

    async def act() -> None:
        await house.running(0)
        house.clock.move(60)
        house.backend.lose(JOB, 0)
        await house.running(1)

    house.lived_in(act)
    assert house.brain.polls == 0


def test_when_brain_is_back_it_is_told_everything(tmp_path: Path):
    house = House(tmp_path, wish(1))

    async def act() -> None:
        await house.running(0)
        house.brain.away = True
        house.clock.move(60)
        house.backend.lose(JOB, 0)
        await house.running(1)
        house.brain.away = False
        await house.until("all told", lambda: house.states() == ["exited", "running"])

    house.lived_in(act)


def test_the_wishes_of_brain_outlive_the_scaler(tmp_path: Path):
    house = House(tmp_path, wish(1))
    house.lived_in(lambda: house.running(0))

    kept = house.file.load()
    assert kept is not None
    assert kept.jobs[JOB] == wish(1)


def test_agents_of_a_finished_job_are_asked_to_leave(tmp_path: Path):
    house = House(tmp_path, wish(1))

    async def act() -> None:
        await house.running(0)
        house.brain.states[JOB] = "Cancelled"
        house.brain.wish()

        def ended() -> bool:
            house.clock.move(1)
            return house.phases() == [ReplicaPhase.ENDED]

        await house.until("ended", ended)
        await house.until("told", lambda: house.states() == [ReplicaState.EXITED])
        await house.until("cleared", lambda: not house.backend.has_token(JOB))

    house.lived_in(act)


def test_of_jobs_that_were_over_before_nothing_is_told(tmp_path: Path):
    house = House(tmp_path, wish(1), wish(1, job=OTHER))
    house.lived_in(lambda: house.running(0))
    house.backend.end(JOB, 0, ReplicaExit.SUCCEEDED, NOW)
    house.brain.wish(wish(1, job=OTHER))
    house.brain.reports.clear()

    async def act() -> None:
        await house.until("the other told", lambda: house.states(OTHER))

    house.lived_in(act)
    assert house.states(JOB) == []


def test_agents_of_a_job_that_brain_does_not_know_are_left_alone(tmp_path: Path):
    house = House(tmp_path, wish(1))

    async def act() -> None:
        await house.running(0)
        house.brain.wish()
        polls = house.brain.polls
        house.clock.move(3600)
        await house.until("a few polls", lambda: house.brain.polls > polls + 3)

    house.lived_in(act)
    assert house.phases() == [ReplicaPhase.RUNNING]


def test_the_environment_reaches_the_agent(tmp_path: Path):
    house = House(tmp_path, wish(1, environment={"KEY": None}))
    house.brain.environment = {"KEY": "hunter2"}

    house.lived_in(lambda: house.running(0))

    assert house.backend.environment(JOB, frozenset({"KEY"})) == {"KEY": "hunter2"}


def test_an_environment_that_cannot_be_had_is_the_reason_to_wait(tmp_path: Path):
    house = House(tmp_path, wish(1, environment=["KEY"]), wish(1, job=OTHER))
    house.brain.refuses_environment = "environment.KEY.fromFile /k: No such file"

    async def act() -> None:
        await house.running(0, job=OTHER)
        await house.until(
            "the reason told",
            lambda: (
                house.brain.waiting(JOB)
                == "no agent can be started: environment.KEY.fromFile /k: No such file"
            ),
        )

    house.lived_in(act)
    assert house.phases() == []


def test_a_restarted_scaler_takes_the_environment_back_from_a_living_agent(tmp_path: Path):
    house = House(tmp_path, wish(2, environment=["KEY"]))
    house.brain.environment = {"KEY": "hunter2"}
    house.lived_in(lambda: house.running(0, 1))
    house.brain.away = True
    house.clock.move(60)
    house.backend.lose(JOB, 1)

    house.lived_in(lambda: house.running(2))

    house.backend.lose(JOB, 0)
    assert house.backend.environment(JOB, frozenset({"KEY"})) == {"KEY": "hunter2"}


def test_a_token_is_minted_once_and_again_if_it_is_lost(tmp_path: Path):
    house = House(tmp_path, wish(1))
    house.lived_in(lambda: house.running(0))
    house.lived_in(lambda: house.running(0))
    once = house.brain.tokens_minted
    house.backend.clear(JOB)

    async def renewed() -> None:
        await house.until("another token", lambda: house.backend.has_token(JOB))

    house.lived_in(renewed)
    assert (once, house.brain.tokens_minted) == (1, 2)


def test_what_does_not_fit_is_told_with_the_reason(tmp_path: Path):
    house = House(tmp_path, wish(5))

    async def act() -> None:
        await house.running(0, 1, 2, 3)
        # First it waited for its token.
        await house.until(
            "the reason",
            lambda: (
                house.brain.waiting(JOB)
                == "1 of 5 replicas wait for room: each needs 1 CPU, and 0 CPU are free"
            ),
        )

    house.lived_in(act)


def test_a_job_whose_document_cannot_be_used_is_told_as_failed(tmp_path: Path):
    house = House(tmp_path, wish(1, command="train"))

    async def act() -> None:
        await house.until("the report", lambda: house.brain.told(JOB))

    house.lived_in(act)
    (told,) = house.brain.told(JOB)
    assert told.exit is ReplicaExit.FAILED
    assert "command" in told.detail


class FullDisk(MemoryBackend):
    """Has no room for what a job would write down."""

    def start(
        self,
        wish: DesiredJob,
        replica: int,
        environment: Mapping[str, str],
        now: datetime,
        *,
        group: str = WORKER,
    ) -> None:
        if wish.job == JOB:
            raise OSError(errno.ENOSPC, "No space left on device")
        super().start(wish, replica, environment, now, group=group)


def test_a_full_disk_is_told_and_harms_no_other_job(tmp_path: Path):
    backend = FullDisk(capacity=Resources(cpu_millis=4000))
    house = House(tmp_path, wish(1), wish(1, job=OTHER), backend=backend)

    async def act() -> None:
        await house.running(0, job=OTHER)
        # First it waited for its token.
        await house.until(
            "the reason",
            lambda: str(house.brain.waiting(JOB)).endswith("No space left on device"),
        )

    house.lived_in(act)


class Bug(MemoryBackend):
    def start(
        self,
        wish: DesiredJob,
        replica: int,
        environment: Mapping[str, str],
        now: datetime,
        *,
        group: str = WORKER,
    ) -> None:
        if wish.job == JOB:
            raise KeyError("name")
        super().start(wish, replica, environment, now, group=group)


def test_a_bug_that_one_job_meets_harms_no_other_job(tmp_path: Path):
    backend = Bug(capacity=Resources(cpu_millis=4000))
    house = House(tmp_path, wish(1), wish(1, job=OTHER), backend=backend)

    house.lived_in(lambda: house.running(0, job=OTHER))

    assert backend.observe(JOB, house.clock.now).replicas == ()


def test_one_that_left_is_replaced_once_brain_repeats_its_wish(tmp_path: Path):
    house = House(tmp_path, wish(2))

    async def act() -> None:
        await house.running(0, 1)
        house.clock.move(1)
        house.backend.end(JOB, 1, ReplicaExit.LEFT, house.clock.now)
        house.clock.move(1)
        await house.running(2)

    house.lived_in(act)


def test_one_that_left_is_replaced_without_waiting_for_the_end_of_a_poll(tmp_path: Path):
    house = House(tmp_path, wish(2), pace=replace(QUICK, poll=600))

    async def act() -> None:
        await house.running(0, 1)
        house.clock.move(1)
        house.backend.end(JOB, 1, ReplicaExit.LEFT, house.clock.now)
        house.clock.move(1)
        await house.running(2)

    house.lived_in(act)


def test_a_job_that_brain_does_not_list_causes_no_requests_for_a_confirmation(tmp_path: Path):
    house = House(tmp_path, wish(2, job=OTHER), pace=replace(QUICK, poll=600))

    async def act() -> None:
        await house.running(0, 1, job=OTHER)
        house.clock.move(1)
        house.backend.end(OTHER, 1, ReplicaExit.LEFT, house.clock.now)
        house.brain.wish(wish(1))
        await house.running(0)
        before = house.brain.requests
        await asyncio.sleep(10 * QUICK.look)
        assert house.brain.requests <= before + 1

    house.lived_in(act)


@pytest.mark.parametrize("damage", ["", "{", '{"pool": 1}'])
def test_damaged_wishes_on_disk_are_none(tmp_path: Path, damage: str):
    (tmp_path / "wishes.json").write_text(damage)

    assert WishFile(tmp_path / "wishes.json").load() is None


def test_a_task_ends_although_its_event_comes_together_with_the_cancellation():
    async def act() -> bool:
        event = asyncio.Event()

        async def work() -> None:
            while True:
                event.clear()
                await _at_most(60, event)

        task = asyncio.create_task(work())
        await asyncio.sleep(0.01)
        event.set()
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task], timeout=5)
        return task.cancelled()

    assert asyncio.run(act())
