"""Carries out changes to pods on separate threads: many at a time, but each change only once.

The API server may take seconds to answer, or not answer at all. So the threads that reconcile jobs
or receive changes of pods do not wait for an answer; they get the outcome later.
"""

import logging
import threading
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor

from brain.errors import BrainError

log = logging.getLogger(__name__)


class Acts:
    """Runs a limited number of actions at a time, in order of arrival."""

    def __init__(self, at_once: int) -> None:
        self._threads = ThreadPoolExecutor(at_once, thread_name_prefix="act")
        self._lock = threading.Lock()
        self._wanted: set[Hashable] = set()

    def do(
        self,
        name: Hashable,
        act: Callable[[], None],
        failed: Callable[[Exception], None] = lambda why: None,
    ) -> None:
        """Run ``act`` once, unless an action of this name already waits or runs.

        ``failed`` gets the error that ``act`` raised, on the thread that ran it.
        """
        with self._lock:
            if name in self._wanted:
                return
            self._wanted.add(name)
        self._threads.submit(self._do, name, act, failed)

    def end(self) -> None:
        """Wait for all actions that have begun."""
        self._threads.shutdown(wait=True)

    def _do(
        self, name: Hashable, act: Callable[[], None], failed: Callable[[Exception], None]
    ) -> None:
        try:
            act()
        except BrainError as why:
            log.warning("%s: %s", name, why)
            failed(why)
        except Exception as bug:
            # The thread pool would swallow the error.
            log.exception("%s", name)
            failed(bug)
        finally:
            with self._lock:
                self._wanted.discard(name)
