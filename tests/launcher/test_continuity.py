"""A paused agent in a cluster renews nothing before it heard that no other agent took its place."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

from brain.errors import BrainError, NotFound, Unavailable, UnknownJob
from brain.views import PodSeen
from launcher.coordinator.continuity import Continuity

LEASE = 3.0
STAYS, GONE = PodSeen(stays=True), PodSeen(stays=False, detail="its pod was deleted")


class Pod:
    """An agent's clock, and the answers that it gets, one after the other."""

    def __init__(self, *answers: PodSeen | BrainError) -> None:
        self.now, self.answers, self.said = 100.0, list(answers), list[str]()
        self.during: Callable[[], None] = lambda: None
        self.asked_about = list[float]()
        self.continuity = Continuity(
            self._ask, pause_seconds=LEASE, say=self.said.append, clock=lambda: self.now
        )

    async def _ask(self, ran_at: float) -> PodSeen:
        self.asked_about.append(ran_at)
        self.during()
        answer = self.answers.pop(0)
        if isinstance(answer, BrainError):
            raise answer
        return answer

    def pause(self, seconds: float) -> None:
        assert not self.continuity.broken
        self.now += seconds

    def find_out(self) -> bool:
        """Let it ask until it has no more answers; returns whether it may go on."""

        async def run() -> None:
            task = asyncio.create_task(self.continuity.keep(lambda: True))
            while self.answers and not self.continuity.denied.is_set():
                await asyncio.sleep(0.05)
            await asyncio.sleep(0.05)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

        asyncio.run(run())
        return not self.continuity.broken


def test_an_agent_that_lost_its_directory_must_end() -> None:
    continuity = Continuity(
        None, pause_seconds=LEASE, say=print, evicted=lambda: "its directory is gone"
    )

    async def run() -> None:
        task = asyncio.create_task(continuity.keep(lambda: False))
        await asyncio.wait_for(continuity.denied.wait(), 10)
        task.cancel()

    asyncio.run(run())
    assert continuity.detail == "its directory is gone"


def test_a_pause_shorter_than_a_lease_is_none() -> None:
    pod = Pod()
    pod.pause(LEASE - 0.1)
    assert not pod.continuity.broken


def test_a_pod_that_stays_goes_on() -> None:
    pod = Pod(STAYS)
    pod.pause(60)
    assert pod.continuity.broken
    assert pod.find_out()
    assert not pod.continuity.denied.is_set()


def test_a_brain_that_does_not_know_the_question_ends_the_agent() -> None:
    pod = Pod(NotFound("there is nothing at /api/v1/jobs/j/replicas/0/pod"))
    pod.pause(60)
    assert not pod.find_out()
    assert pod.continuity.denied.is_set()


def test_a_brain_that_lost_the_job_is_asked_again() -> None:
    pod = Pod(UnknownJob("no job has the id j"), STAYS)
    pod.pause(60)
    assert pod.find_out()
    assert "no job has the id j" in pod.said[0]


def test_a_pod_that_is_gone_ends_and_never_goes_on() -> None:
    pod = Pod(GONE)
    pod.pause(60)
    assert not pod.find_out()
    assert pod.continuity.denied.is_set()
    assert "its pod was deleted" in pod.continuity.detail


def test_the_cluster_is_asked_about_the_time_since_the_pause_began() -> None:
    before = time.time()
    pod = Pod(Unavailable("no answer"), STAYS)
    pod.pause(60)
    after = time.time()
    assert pod.find_out()
    assert pod.asked_about[0] == pod.asked_about[1]
    assert before <= pod.asked_about[0] <= after


def test_silence_proves_nothing_and_is_told_once() -> None:
    silent = Unavailable("no scaler takes requests")
    pod = Pod(silent, silent)
    pod.pause(60)
    assert not pod.find_out()
    assert len(pod.said) == 1
    assert "no scaler takes requests" in pod.said[0]


def test_an_answer_from_before_another_pause_proves_nothing() -> None:
    pod = Pod(STAYS)
    pod.during = lambda: setattr(pod, "now", pod.now + 60)
    pod.pause(60)
    assert not pod.find_out()


def test_a_member_goes_on_with_a_lease_that_answers_what_it_sent_after_the_pause() -> None:
    pod = Pod()
    pod.pause(60)
    pod.continuity.followed(sent_at=110.0)
    assert pod.continuity.broken
    pod.now += 1
    pod.continuity.followed(sent_at=160.5)
    assert not pod.continuity.broken


def test_where_nobody_can_be_asked_there_are_no_pauses() -> None:
    now = [100.0]

    def clock() -> float:
        return now[0]

    ask: Callable[[float], Awaitable[PodSeen]] | None = None
    continuity = Continuity(ask, pause_seconds=LEASE, say=print, clock=clock)
    now[0] += 60
    assert not continuity.broken
