"""Memory of a parameter server, which grows with the distinct keys in the examples.

    M(x) = M0 + k x^b,  0 <= b <= 1            Heaps' law in examples x, not in time

The power law is the point forecast. Growth is concave, so the line through the newest examples lies
above the law as long as nothing changes. If recent growth is steeper than the earlier law predicts,
the job has changed (a feature was added), and only the line is used. models.md section 3.3 has the
constants, and the errors of law and line on 21 growth curves. A forecast after a tenth of a run is
unreliable, so the request is recomputed during the run.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from brain.errors import Undetermined
from brain.models.resources.host_memory import MARGIN

#: Newest shares of the examples from which the law, the line, and a change are computed.
_LAW, _LINE, _CHANGE = 0.6, 0.3, 0.15
#: Factor on the growth expected by the earlier law above which growth counts as changed.
_STEEPER = 1.3
#: Largest factor on the law's forecast at which the line's forecast still counts.
_MOST = 1.5
#: Share of the examples to come that a request looks ahead; and the least look-ahead, in moves of a
#: server.
_AHEAD, _MOVES = 0.15, 2.0
#: Readings from which growth is forecast: a busy service may fold one reading a minute, and a job
#: that grew five-fold fills its servers within ten.
_LEAST_READINGS = 6
#: Most readings that are kept.
_KEPT = 48

_Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerGrowth:
    """Memory of a job's fullest server as a function of the workers' steps, oldest reading first.

    Steps stand for examples, because the batch size of such a job does not change.
    """

    readings: tuple[tuple[float, float], ...] = ()
    #: Number of servers that hold the rows.
    servers: int = 0

    @property
    def steps(self) -> float:
        """Return the number of steps in the readings."""
        return self.readings[-1][0] if self.readings else 0.0

    def added(self, steps: float, used_bytes: float, servers: int) -> "ServerGrowth":
        """Return the growth with another reading, made after ``steps`` more steps.

        If the number of servers changed, the earlier readings are converted to the new number.
        """
        known = self.readings
        if known and servers != self.servers:
            base, factor = known[0][1], self.servers / servers
            known = tuple((at, base + factor * (used - base)) for at, used in known)
        if len(known) >= _KEPT:
            known = known[::2]
        return ServerGrowth(
            readings=(*known, (self.steps + steps, float(round(used_bytes)))), servers=servers
        )

    def forecast(self, at: float) -> "Forecast | None":
        """Return the forecast for the fullest server at ``at`` steps; None if there are too few
        readings.
        """
        if not self.readings:
            return None
        steps, used = zip(*self.readings, strict=True)
        try:
            return forecast(steps, used, base_bytes=used[0], at=at)
        except Undetermined:
            return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """The memory of one server after a number of examples."""

    bytes: float
    #: Bytes that the memory stays below as long as nothing changes.
    most_bytes: float
    #: True if growth changed lately; then both values are those of the line.
    changed: bool

    @property
    def request_bytes(self) -> float:
        """Return the bytes to reserve: a value between the forecasts of the law and of the line,
        plus headroom.
        """
        if self.changed:
            return MARGIN * self.most_bytes
        return MARGIN * 0.5 * (self.bytes + min(self.most_bytes, _MOST * self.bytes))


def forecast(
    examples: Sequence[float], used_bytes: Sequence[float], *, base_bytes: float, at: float
) -> Forecast:
    """Return the forecast of a server's memory at ``at`` examples.

    Args:
        examples: Examples consumed at each reading, rising.
        used_bytes: Memory of the server at each reading.
        base_bytes: Memory before the first example.

    Raises:
        Undetermined: there are too few readings, a reading is invalid, or no reading is above
            ``base_bytes``.
    """
    x, used = np.asarray(examples, float), np.asarray(used_bytes, float)
    _expect_readings(x, used, base_bytes)
    grown = np.maximum(used - base_bytes, 1.0)
    last, now = float(x[-1]), float(used[-1])
    line = max(0.0, _slope(x, used, _LINE))
    ahead = max(0.0, at - last)
    if _changed(x, grown):
        steep = now + max(line, _slope(x, used, _CHANGE)) * ahead
        return Forecast(bytes=steep, most_bytes=steep, changed=True)
    law = base_bytes + float(grown[-1]) * (max(at, last) / last) ** _exponent(x, grown)
    return Forecast(bytes=law, most_bytes=max(law, now + line * ahead), changed=False)


def look_ahead(
    seen: float, whole: float, *, examples_per_second: float, move_seconds: float
) -> float:
    """Return the number of examples for which the next request must still suffice.

    >>> look_ahead(100, 1100, examples_per_second=1, move_seconds=30)
    250.0
    """
    to_come = max(0.0, whole - seen)
    return seen + min(to_come, max(_AHEAD * to_come, _MOVES * move_seconds * examples_per_second))


def _expect_readings(x: _Floats, used: _Floats, base_bytes: float) -> None:
    if len(x) != len(used) or len(x) < _LEAST_READINGS:
        raise Undetermined(
            f"the server's memory was read {len(x)} times, but {_LEAST_READINGS} readings are "
            "needed; wait for more",
            code="no-usage",
        )
    sound = np.isfinite(x).all() and np.isfinite(used).all() and (x > 0).all()
    if not sound or (np.diff(x) <= 0).any() or not 0 <= base_bytes < math.inf:
        raise Undetermined(
            "readings must be finite, and the number of examples must increase from "
            "each reading to the next",
            code="no-usage",
        )
    if used[-1] <= base_bytes:
        raise Undetermined("the server's memory has not grown yet", code="no-growth")


def _newest(x: _Floats, share: float) -> NDArray[np.bool_]:
    """Return flags of the readings in the newest share of the examples, at least three."""
    chosen: NDArray[np.bool_] = x >= x[-1] * (1 - share)
    chosen[-3:] = True
    return chosen


def _slope(x: _Floats, used: _Floats, share: float) -> float:
    chosen = _newest(x, share)
    return float(np.polyfit(x[chosen], used[chosen], 1)[0])


def _exponent(x: _Floats, grown: _Floats) -> float:
    chosen = _newest(x, _LAW)
    slope = np.polyfit(np.log(x[chosen]), np.log(grown[chosen]), 1)[0]
    return float(np.clip(slope, 0.0, 1.0))


def _changed(x: _Floats, grown: _Floats) -> bool:
    """Return True if the newest examples added more memory than the law of the earlier ones
    expects.
    """
    before = x < x[-1] * (1 - _CHANGE)
    if before.sum() < 4:
        return False
    from_x, from_grown = x[before], grown[before]
    exponent = _exponent(from_x, from_grown)
    expected = from_grown[-1] * ((x[-1] / from_x[-1]) ** exponent - 1)
    return bool(grown[-1] - from_grown[-1] > _STEEPER * max(expected, 0.01 * grown[-1]))
