"""Changes of pods, each carried out apart from whoever wants it: many at once, each once.

The API server may take seconds to answer, or not answer at all. Nobody who looks at jobs or hears
of pods waits for that; what comes of an act is told when it is known.
"""

import logging
import threading
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor

from brain.errors import BrainError

log = logging.getLogger(__name__)


class Acts:
    """So many at a time, in the order in which they came."""

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
        """Have ``act`` done, unless one of this name waits or is under way already.

        ``failed`` is told what it raised, by the thread that did it.
        """
        with self._lock:
            if name in self._wanted:
                return
            self._wanted.add(name)
        self._threads.submit(self._do, name, act, failed)

    def end(self) -> None:
        """Wait for all that was begun."""
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
            # Its thread would keep it to itself.
            log.exception("%s", name)
            failed(bug)
        finally:
            with self._lock:
                self._wanted.discard(name)
