"""Keys are worked on once at a time, later where they failed, and never forgotten."""

import threading
from random import Random

import pytest

from brain.errors import Conflict, Unavailable
from scaler.kubernetes.runtime.cluster import Key, TooMany
from scaler.kubernetes.runtime.controller import Controller, Result
from scaler.kubernetes.runtime.pace import Backoff
from scaler.kubernetes.runtime.queue import WorkQueue
from tests.kubernetes.shelf import VirtualClock

A, B = Key("team", "a"), Key("team", "b")


def queue(clock: VirtualClock) -> WorkQueue:
    pauses = Backoff(first_seconds=1.0, longest_seconds=60.0, jitter=0.0)
    return WorkQueue(clock, Random(1), pauses=pauses)


def test_a_key_waits_once_however_often_it_is_added() -> None:
    keys = queue(VirtualClock())
    for _ in range(3):
        keys.add(A)
    keys.add(B)
    assert [keys.take(), keys.take(), keys.take()] == [A, B, None]


def test_a_key_added_during_its_work_comes_again_after_it() -> None:
    keys = queue(VirtualClock())
    keys.add(A)
    keys.take()
    keys.add(A)
    assert keys.take() is None
    keys.done(A)
    assert keys.take() == A


def test_a_delayed_key_comes_when_it_is_due_by_the_earliest_wish() -> None:
    clock = VirtualClock()
    keys = queue(clock)
    for seconds in (30.0, 10.0, 20.0):
        keys.add_after(A, seconds)
    clock.sleep(9.9)
    assert keys.take() is None
    clock.sleep(0.1)
    assert keys.take() == A
    keys.done(A)
    clock.sleep(60.0)
    assert keys.take() is None


def test_failures_in_a_row_pause_longer_until_one_is_no_failure() -> None:
    clock = VirtualClock()
    keys = queue(clock)

    def pause() -> float:
        keys.retry(A)
        began = clock.seconds
        while (key := keys.take()) is None:
            clock.sleep(0.5)
        keys.done(key)
        return clock.seconds - began

    assert [pause() for _ in range(3)] == [1.0, 2.0, 4.0]
    keys.forget(A)
    assert pause() == 1.0


def test_a_closed_queue_wakes_who_waits() -> None:
    keys = WorkQueue(VirtualClock(), Random(1))
    taken: list[Key | None] = []
    waiting = threading.Thread(target=lambda: taken.append(keys.take(60.0)), daemon=True)
    waiting.start()
    keys.close()
    waiting.join(20.0)
    assert taken == [None]


def test_no_two_workers_have_the_same_key_at_once() -> None:
    keys = WorkQueue(VirtualClock(), Random(1))
    at_work, lock, left = set[Key](), threading.Lock(), threading.Semaphore(0)

    def reconcile(key: Key) -> Result:
        with lock:
            assert key not in at_work
            at_work.add(key)
        keys.add(key)
        with lock:
            at_work.remove(key)
        left.release()
        return Result()

    stop = threading.Event()
    controller = Controller("things", keys, reconcile, workers=4, clock=VirtualClock())
    for name in "abc":
        keys.add(Key("team", name))
    threads = controller.start(stop)
    for _ in range(300):
        assert left.acquire(timeout=20.0)
    stop.set()
    keys.close()
    for thread in threads:
        thread.join(20.0)
    assert not any(thread.is_alive() for thread in threads)


class Attempts:
    """A reconcile that fails as it is told, and what a controller made of it."""

    def __init__(self, *ends: Exception | Result) -> None:
        self.clock, self.ends, self.outcomes, self.panics = VirtualClock(), list(ends), [""], 0
        self.queue = queue(self.clock)
        self.controller = Controller(
            "things", self.queue, self._reconcile, clock=self.clock, sight=self
        )
        self.queue.add(A)

    def _reconcile(self, key: Key) -> Result:
        end = self.ends.pop(0)
        if isinstance(end, Exception):
            raise end
        return end

    def reconciled(self, outcome: str, seconds: float) -> None:
        self.outcomes.append(outcome)

    def panicked(self) -> None:
        self.panics += 1

    def active(self, difference: int) -> None:
        pass

    def next_after(self) -> float:
        """Work once; seconds until the key comes again."""
        assert self.controller.step()
        began = self.clock.seconds
        while self.queue.take() is None and self.clock.seconds - began < 100.0:
            self.clock.sleep(0.5)
        return self.clock.seconds - began


@pytest.mark.parametrize(
    ("end", "outcome", "after"),
    [
        (Conflict("newer"), "requeue", 1.0),
        (Unavailable("away"), "error", 1.0),
        (TooMany("slow", retry_after_seconds=9.0), "error", 9.0),
        (Result(requeue_after_seconds=30.0), "requeue_after", 30.0),
        (Result(), "success", 100.0),
    ],
)
def test_how_a_reconcile_ended_says_when_the_next_is(
    end: Exception | Result, outcome: str, after: float
) -> None:
    attempts = Attempts(end)
    assert attempts.next_after() == after
    assert attempts.outcomes[-1] == outcome


def test_a_bug_met_by_one_key_is_counted_and_others_go_on() -> None:
    attempts = Attempts(KeyError("bug"), Result())
    attempts.queue.add(B)
    attempts.controller.step()
    attempts.controller.step()
    assert (attempts.panics, attempts.outcomes[1:]) == (1, ["error", "success"])
