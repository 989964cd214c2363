"""The pictures of a simulation: completion times, use of the cluster, and running jobs over
time.
"""

from collections.abc import Sequence
from html import escape
from itertools import accumulate

import numpy as np

from brain.simulator.measures import JobResult
from brain.simulator.report.drawing import (
    Frame,
    Scale,
    count_axis,
    element,
    path,
    share_axis,
    span_axis,
    stairs,
    svg,
    text,
    time_axis,
)
from brain.simulator.run import PolicyOutcome
from brain.simulator.world import PlacementStay
from brain.typeset import count, duration, percent

#: Distinct styles of lines, one for each policy.
SERIES = tuple(f"s{index}" for index in range(1, 7))
#: Most points of the line of use; a screen shows no more.
_MOST_POINTS = 1200
#: Least pixels between labels at the end of lines.
_APART = 14.0
_TALL, _LOW = 14, 3


def completion(outcomes: Sequence[PolicyOutcome]) -> str:
    """Return a plot of the share of jobs that took at most a given time from submission to
    completion; each policy is a line.
    """
    frame = Frame(width=1120, height=260)
    times = [sorted(job.jct for job in outcome.jobs) for outcome in outcomes]
    low = max(1.0, min(each[0] for each in times) * 0.9)
    x, parts = span_axis(frame, low, max(low * 1.1, max(each[-1] for each in times)))
    y, grid = share_axis(frame)
    for name, each in zip(SERIES, times, strict=False):
        steps = [(max(low, jct), (index + 1) / len(each)) for index, jct in enumerate(each)]
        points = stairs([(x(steps[0][0]), y(0)), *((x(jct), y(share)) for jct, share in steps)])
        parts.append(path(points, f"ln {name}"))
    labels = _labels(frame, [outcome.policy for outcome in outcomes], times)
    said = "Share of jobs completed within a time: " + "; ".join(
        f"{o.policy} half within {duration(o.summary.jct_p50)}" for o in outcomes
    )
    return svg(frame, [*grid, *parts, *labels], said)


def use(outcome: PolicyOutcome, until: float) -> str:
    """Return a plot over time of the accelerators that jobs held, and of the accelerators that
    trained.
    """
    frame = Frame(width=1120, height=130)
    capacity = outcome.spec.accelerators
    x, parts = time_axis(frame, until)
    y, grid = count_axis(frame, capacity)
    left, right, _, bottom = frame.inner
    stays = [(stay, len(stay.placement)) for stay in _stays(outcome)]
    held = _thinned(_level([(s.began, s.ended, n) for s, n in stays]), until)
    busy = _thinned(_level([(s.stepped, s.ended, n) for s, n in stays]), until)
    area = stairs([(x(at), y(level)) for at, level in busy])
    line = stairs([(x(at), y(level)) for at, level in held])
    closed = [(left, bottom), *area, (area[-1][0] if area else left, bottom)]
    share = outcome.summary.utilization
    mean = percent(share)
    parts += [
        path(closed, "busy"),
        path(line, "ob"),
        element("path", d=f"M{left} {y(capacity):.1f}H{right}", class_="cap"),
        text(f"{capacity} in all", right + 8, y(capacity) + 4, "lb"),
        text(f"{mean} held", right + 8, max(y(capacity) + 18, y(share * capacity) + 4), "lb"),
    ]
    said = (
        f"{outcome.policy}: until the last job ended, jobs held {mean} of the {capacity} "
        "accelerators on average"
    )
    return svg(frame, [*grid, *parts], said)


def who(outcome: PolicyOutcome, until: float) -> str:
    """Return a plot with a row per job, which shows when the job waited, restarted and trained.

    The color is darker where the job had more accelerators.
    """
    jobs = outcome.jobs
    pitch = _TALL if len(jobs) <= 40 else max(_LOW, 540 // len(jobs))
    frame = Frame(width=1120, height=len(jobs) * pitch + 38)
    x, parts = time_axis(frame, until)
    for row, job in enumerate(jobs):
        parts.append(_row(job, x, frame.top + row * pitch, max(2, pitch - 1)))
    if pitch == _TALL:
        parts += [
            text(job.name, frame.width - frame.right + 8, frame.top + row * pitch + 10, "lb")
            for row, job in enumerate(jobs)
        ]
    said = (
        f"{outcome.policy}: {count(len(jobs), 'job')} in the order of arrival, from left to right"
    )
    return svg(frame, parts, said)


def _row(job: JobResult, x: Scale, top: int, height: int) -> str:
    middle = top + height / 2
    drawn = [
        element("path", d=f"M{x(job.submitted):.1f} {middle}H{x(job.finished):.1f}", class_="wait")
    ]
    for stay in job.stays:
        began, stepped, ended = x(stay.began), x(stay.stepped), x(stay.ended)
        if stepped > began:
            drawn.append(_bar(began, stepped, top, height, "restart"))
        kind = f"n{_shade(len(stay.placement))}"
        drawn.append(_bar(stepped, max(ended, stepped + 0.5), top, height, kind))
    sizes = " → ".join(str(len(stay.placement)) for stay in job.stays)
    told = (
        f"{job.name} ({job.application}): completed {duration(job.jct)} after it arrived, "
        f"{count(job.restarts, 'restart')}, accelerators {sizes}"
    )
    return element("g", f"<title>{escape(told)}</title>" + "".join(drawn))


def _bar(left: float, right: float, top: int, height: int, kind: str) -> str:
    return element("rect", x=left, y=top, width=max(0.3, right - left), height=height, class_=kind)


def _shade(accelerators: int) -> int:
    """Return the shade of a number of accelerators: 1 for one, 5 from sixteen on."""
    return min(5, accelerators.bit_length())


def _stays(outcome: PolicyOutcome) -> list[PlacementStay]:
    return [stay for job in outcome.jobs for stay in job.stays]


def _level(spans: Sequence[tuple[float, float, int]]) -> list[tuple[float, float]]:
    """Return the number of accelerators in use from each change on."""
    edges = sorted(
        [(began, n) for began, ended, n in spans if ended > began]
        + [(ended, -n) for began, ended, n in spans if ended > began]
    )
    levels = accumulate((change for _, change in edges), initial=0)
    joined: dict[float, float] = {0.0: 0}
    for (at, _), level in zip(edges, list(levels)[1:], strict=True):
        joined[at] = level
    return list(joined.items())


def _thinned(points: list[tuple[float, float]], until: float) -> list[tuple[float, float]]:
    """Return the mean of each pixel if there are more changes than pixels."""
    if len(points) <= _MOST_POINTS:
        return points
    edges = np.linspace(0, until, _MOST_POINTS // 2 + 1)
    instants, levels = np.array(points).T
    areas = np.concatenate([[0.0], np.cumsum(levels[:-1] * np.diff(instants))])
    # No accelerator is in use after the last change.
    means = np.diff(np.interp(edges, instants, areas)) / np.diff(edges)
    return [(float(at), float(mean)) for at, mean in zip(edges, [*means, 0.0], strict=True)]


def _labels(frame: Frame, names: Sequence[str], times: Sequence[Sequence[float]]) -> list[str]:
    """Return names at the right end of the lines, the slowest at the bottom, with their dashes."""
    right = frame.width - frame.right
    order = sorted(range(len(names)), key=lambda index: times[index][len(times[index]) // 2])
    drawn = []
    for place, index in enumerate(order):
        y = frame.top + 12 + place * _APART
        drawn.append(element("path", d=f"M{right + 8} {y - 4}h18", class_=f"ln {SERIES[index]}"))
        drawn.append(text(names[index], right + 32, y, "lb"))
    return drawn
