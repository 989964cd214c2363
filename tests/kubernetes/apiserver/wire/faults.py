"""What goes wrong, on demand."""

import re
import threading
from dataclasses import dataclass, field


@dataclass(slots=True, kw_only=True)
class Fault:
    """One thing that goes wrong with requests that it matches, ``times`` times."""

    #: ``answer``, ``slow`` or ``cut``.
    what: str
    times: int
    method: str = ""
    path: str = ""
    agent: str = ""
    #: Of an ``answer``.
    code: int = 500
    retry_after_seconds: int | None = None
    #: Of ``slow``.
    seconds: float = 0.0
    #: None: every request; else only watches, or only what is not one.
    watches: bool | None = None
    met: int = field(default=0)

    def meets(self, method: str, path: str, agent: str, watch: bool) -> bool:
        """Return whether a request is one that this goes wrong with."""
        return (
            self.met < self.times
            and (not self.method or self.method == method)
            and (self.watches is None or self.watches == watch)
            and re.search(self.path, path) is not None
            and re.search(self.agent, agent) is not None
        )


class Faults:
    """The faults that are to come; any thread may add some."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._faults: list[Fault] = []

    def answer(
        self,
        code: int,
        *,
        times: int = 1,
        method: str = "",
        path: str = "",
        agent: str = "",
        retry_after_seconds: int | None = None,
        watches: bool | None = None,
    ) -> Fault:
        """Answer the next ``times`` requests that match with an error; patterns are searched."""
        return self._add(
            Fault(
                what="answer",
                times=times,
                method=method,
                path=path,
                agent=agent,
                code=code,
                retry_after_seconds=retry_after_seconds,
                watches=watches,
            )
        )

    def slow(
        self, seconds: float, *, times: int = 1, method: str = "", path: str = "", agent: str = ""
    ) -> Fault:
        """Answer so many requests late."""
        return self._add(
            Fault(what="slow", times=times, method=method, path=path, agent=agent, seconds=seconds)
        )

    def cut(self, *, times: int = 1, path: str = "", watches: bool | None = True) -> Fault:
        """Break the connection in the middle of the next line of a watch, or of an answer."""
        return self._add(Fault(what="cut", times=times, path=path, watches=watches))

    def clear(self) -> None:
        """Let everything go well again."""
        with self._lock:
            self._faults.clear()

    def _add(self, fault: Fault) -> Fault:
        with self._lock:
            self._faults.append(fault)
        return fault

    def take(
        self, what: str, method: str, path: str, agent: str = "", *, watch: bool = False
    ) -> Fault | None:
        """Return what goes wrong with a request now, and count it."""
        if not self._faults:
            return None
        with self._lock:
            for fault in self._faults:
                if fault.what == what and fault.meets(method, path, agent, watch):
                    fault.met += 1
                    return fault
        return None
