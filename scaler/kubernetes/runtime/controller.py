"""Workers that take keys from a queue and reconcile each until it has its desired state."""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from brain.errors import BrainError, Conflict
from scaler.kubernetes.runtime.cluster.errors import TooMany
from scaler.kubernetes.runtime.cluster.kind import Key
from scaler.kubernetes.runtime.pace import Clock
from scaler.kubernetes.runtime.queue import WorkQueue

log = logging.getLogger(__name__)

#: Seconds between a worker's checks if it may go on.
_LOOK_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of a reconcile: the key is done, or must be reconciled again after a while."""

    requeue_after_seconds: float | None = None


#: Looks at one object and does what is missing; calling it again does no harm. After a
#: ``BrainError`` it is called again with growing pauses.
Reconcile = Callable[[Key], Result]


class ControllerObserver(Protocol):
    def reconciled(self, outcome: str, seconds: float) -> None:
        """Record that a reconcile ended as ``success``, ``requeue_after``, ``requeue`` or
        ``error``.
        """

    def panicked(self) -> None:
        """Record that a reconcile met a bug of the operator."""

    def active(self, difference: int) -> None:
        """Record that ``difference`` more workers (fewer, if negative) are busy."""


class ControllerUnobserved:
    """The observer that records nothing."""

    def reconciled(self, outcome: str, seconds: float) -> None: ...
    def panicked(self) -> None: ...
    def active(self, difference: int) -> None: ...


UNSEEN = ControllerUnobserved()


class Controller:
    """Reconciles the keys of one queue with a number of workers, while ``may_act`` is true."""

    def __init__(
        self,
        name: str,
        queue: WorkQueue,
        reconcile: Reconcile,
        *,
        workers: int = 4,
        clock: Clock,
        sight: ControllerObserver = UNSEEN,
        may_act: Callable[[float], bool] = lambda wait_seconds: True,
    ) -> None:
        self.name, self.queue, self.workers = name, queue, workers
        self._reconcile, self._clock, self._sight = reconcile, clock, sight
        self._may_act = may_act

    def start(self, stop: threading.Event) -> list[threading.Thread]:
        """Start the workers; they end once ``stop`` is set and the queue is closed."""
        threads = [
            threading.Thread(
                target=self._work, args=(stop,), name=f"{self.name}-{number}", daemon=True
            )
            for number in range(self.workers)
        ]
        for thread in threads:
            thread.start()
        return threads

    def step(self, wait_seconds: float = 0.0) -> bool:
        """Reconcile one key, if one waits."""
        key = self.queue.take(wait_seconds)
        if key is None:
            return False
        self._sight.active(1)
        began = self._clock.elapsed()
        try:
            outcome = self._attempt(key)
        finally:
            self.queue.done(key)
            self._sight.active(-1)
        self._sight.reconciled(outcome, self._clock.elapsed() - began)
        return True

    def _work(self, stop: threading.Event) -> None:
        while not stop.is_set():
            if self._may_act(_LOOK_SECONDS):
                self.step(_LOOK_SECONDS)

    def _attempt(self, key: Key) -> str:
        try:
            result = self._reconcile(key)
        except Conflict as why:
            # Another writer was first; the newer version is on its way here.
            log.debug("%s %s: %s", self.name, key, why)
            self.queue.retry(key)
            return "requeue"
        except BrainError as why:
            log.warning("%s %s: %s", self.name, key, why)
            wait = why.retry_after_seconds if isinstance(why, TooMany) else 0.0
            self.queue.retry(key, wait)
            return "error"
        except Exception:
            # A bug that one object brings out must not stop all others.
            log.exception("%s %s", self.name, key)
            self._sight.panicked()
            self.queue.retry(key)
            return "error"
        self.queue.forget(key)
        if result.requeue_after_seconds is None:
            return "success"
        self.queue.add_after(key, result.requeue_after_seconds)
        return "requeue_after"
