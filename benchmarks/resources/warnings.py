"""Measures if Brain warns of memory leaks in time, and only of leaks.

Made-up traces (``leaks``) are stored by the service, with a turn for every five minutes of a trace.
In a turn, ``estimates.remember`` folds the readings, judges the trend and writes the expected
event.
"""

from dataclasses import dataclass
from datetime import UTC, datetime

from benchmarks.report import Row
from benchmarks.resources.leaks import LIMIT_BYTES, Trace, traces
from benchmarks.resources.service import Service

#: Minutes between turns, and from the warning to the end that are enough.
_EVERY, _ENOUGH = 5, 10
_COUNT = 200
_BEGIN = datetime(2026, 1, 1, tzinfo=UTC).timestamp()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The warning of one trace."""

    #: Minute of the first one; None: there was none.
    warned: int | None
    ends: int

    @property
    def in_time(self) -> bool:
        """Return True if the warning came early enough."""
        return self.warned is not None and self.ends - self.warned >= _ENOUGH


def judge(trace: Trace) -> Outcome:
    """Feed a trace to the service until the service warns or the trace ends."""
    service, ends = Service(memory_bytes=LIMIT_BYTES), len(trace.minutes)
    for begin in range(0, ends, _EVERY):
        some = [
            (_BEGIN + 60.0 * minute, float(trace.minutes[minute]))
            for minute in range(begin, min(begin + _EVERY, ends))
        ]
        service.see([(at, 100.0, used) for at, used in some])
        if service.told("job.memory-leak"):
            return Outcome(warned=begin + len(some), ends=ends)
    return Outcome(warned=None, ends=ends)


def rows(seed: int) -> list[Row]:
    """Return both rows of one seed."""
    leaking = [judge(trace) for trace in traces(seed, _COUNT, leaks=True)]
    sound = [judge(trace) for trace in traces(seed, _COUNT, leaks=False)]
    late = sum(not one.in_time for one in leaking)
    alarms = sum(one.warned is not None for one in sound)
    made_up = f"made-up traces, seed {seed}"
    return [
        Row(
            metric=f"(d) leaks that are not told {_ENOUGH} min before memory runs out",
            value=100 * late / _COUNT,
            unit="%",
            bar=5.0,
            note=f"{late} of {_COUNT} {made_up}",
        ),
        Row(
            metric="(d) memory that does not leak and is said to",
            value=100 * alarms / _COUNT,
            unit="%",
            bar=1.0,
            note=f"{alarms} of {_COUNT} {made_up}, 12 h each",
        ),
    ]
