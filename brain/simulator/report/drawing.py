"""Plots as SVG text: scales, ticks, lines. The module sets classes, but no style."""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

#: Possible seconds between ticks.
_STEPS = (
    *(1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800),
    *(3600, 7200, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800),
)
_TICKS = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """The size and margins of a plot, in the plot's own pixels."""

    width: int
    height: int
    left: int = 44
    right: int = 96
    top: int = 8
    bottom: int = 22

    @property
    def inner(self) -> tuple[float, float, float, float]:
        """Return the left, right, top and bottom edge of the plotted area, in pixels."""
        return self.left, self.width - self.right, self.top, self.height - self.bottom


Scale = Callable[[float], float]


def linear(low: float, high: float, begins: float, ends: float) -> Scale:
    """Return a scale from values to pixels."""
    span = (high - low) or 1.0
    return lambda value: begins + (value - low) / span * (ends - begins)


def logarithmic(low: float, high: float, begins: float, ends: float) -> Scale:
    """Return a logarithmic scale from values above 0 to pixels."""
    inner = linear(math.log(low), math.log(high), begins, ends)
    return lambda value: inner(math.log(value))


def element(name: str, _content: str = "", /, **attributes: object) -> str:
    """Return an SVG element; write ``class_`` for ``class``, and ``_`` for ``-``, in attributes."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_value(value)}"'
        for key, value in attributes.items()
    )
    return f"<{name}{given}>{_content}</{name}>" if _content else f"<{name}{given}/>"


def text(said: str, x: float, y: float, kind: str = "") -> str:
    return element("text", escape(said), x=x, y=y, **({"class_": kind} if kind else {}))


def path(points: Sequence[tuple[float, float]], kind: str) -> str:
    """Return an SVG line through points."""
    drawn = " ".join(
        f"{'L' if index else 'M'}{x:.1f} {y:.1f}" for index, (x, y) in enumerate(points)
    )
    return element("path", d=drawn, class_=kind) if points else ""


def stairs(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the points of a step line, which keeps its height until the next point."""
    drawn = list(points[:1])
    for (_, before), (x, y) in itertools.pairwise(points):
        drawn += [(x, before), (x, y)]
    return drawn


def svg(frame: Frame, parts: Sequence[str], label: str) -> str:
    """Return a whole plot as SVG; ``label`` describes the plot for people who cannot see it."""
    return element(
        "svg",
        "".join(parts),
        class_="c",
        viewBox=f"0 0 {frame.width} {frame.height}",
        role="img",
        aria_label=label,
    )


def time_axis(frame: Frame, until: float) -> tuple[Scale, list[str]]:
    """Return a scale of seconds from 0, with ticks at round durations."""
    left, right, _top, bottom = frame.inner
    at = linear(0, until, left, right)
    step = next((step for step in _STEPS if until / step <= _TICKS), _STEPS[-1])
    step *= max(1, math.ceil(until / step / _TICKS))
    ticks = [index * step for index in range(int(until // step) + 1)]
    parts = [element("path", d=f"M{left} {bottom}H{right}", class_="base")]
    for tick in ticks:
        parts.append(text(clock(tick, step), at(tick), bottom + 16, "ax m"))
        parts.append(element("path", d=f"M{at(tick):.1f} {bottom}v4", class_="base"))
    return at, parts


def count_axis(frame: Frame, most: float) -> tuple[Scale, list[str]]:
    """Return a scale of a quantity from 0, with three or four gridlines."""
    left, right, top, bottom = frame.inner
    step = _round(most / 3.5)
    ticks = [index * step for index in range(1, int(most * 1.001 / step) + 1)]
    at = linear(0, max(most, step), bottom, top + 4)
    parts = []
    for tick in ticks:
        parts.append(element("path", d=f"M{left} {at(tick):.1f}H{right}", class_="grid"))
        parts.append(text(f"{tick:g}", left - 6, at(tick) + 4, "ax e"))
    return at, [*parts, text("0", left - 6, bottom + 4, "ax e")]


def share_axis(frame: Frame) -> tuple[Scale, list[str]]:
    left, right, top, bottom = frame.inner
    at = linear(0, 1, bottom, top + 4)
    parts = [text("0", left - 6, bottom + 4, "ax e")]
    for share in (0.25, 0.5, 0.75, 1.0):
        parts.append(element("path", d=f"M{left} {at(share):.1f}H{right}", class_="grid"))
        parts.append(text(f"{share * 100:.0f} %", left - 6, at(share) + 4, "ax e"))
    return at, parts


def span_axis(frame: Frame, low: float, high: float) -> tuple[Scale, list[str]]:
    """Return a logarithmic scale of durations, with ticks at round durations."""
    left, right, _top, bottom = frame.inner
    at = logarithmic(low, high, left, right)
    marks = (1, 10, 60, 300, 900, 3600, 4 * 3600, 12 * 3600, 86_400, 3 * 86_400, 10 * 86_400)
    parts = [element("path", d=f"M{left} {bottom}H{right}", class_="base")]
    for mark in marks:
        if low <= mark <= high:
            parts.append(text(clock(mark), at(mark), bottom + 16, "ax m"))
            parts.append(element("path", d=f"M{at(mark):.1f} {bottom}v4", class_="base"))
    return at, parts


def clock(seconds: float, step: float | None = None) -> str:
    """Format a duration in the largest unit in which ``step``, or the duration itself, is a whole
    number.

    >>> clock(0), clock(90), clock(7200), clock(259200), clock(7200, 1200)
    ('0', '90 s', '2 h', '3 d', '120 min')
    """
    whole = step or seconds
    if seconds == 0:
        return "0"
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if whole >= size and whole % size == 0:
            return f"{seconds / size:g} {unit}"
    return f"{seconds:g} s"


def _round(value: float) -> float:
    """Return the next round number: 1, 2, 5 or 10 times a power of ten."""
    power: float = 10 ** math.floor(math.log10(max(value, 1e-9)))
    return max(1.0, next(step * power for step in (1, 2, 5, 10) if step * power >= value * 0.999))


def _value(value: object) -> str:
    return f"{value:.1f}" if isinstance(value, float) else escape(str(value), quote=True)
