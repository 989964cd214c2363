"""How often would a processor request have been too small, and how much of it unused?

    make bench-resources

Eleven real series of processor use (AWS CloudWatch by way of the Numenta Anomaly Benchmark, five
minutes apart, two weeks or more; one per cent counts as 100 mCPU). Each rule sees what was before
an instant and sets the request that the use at that instant is held against; the first day only
fills the histogram. Beside ours: the mean of a day, and the defaults of Kubernetes' vertical
autoscaler (90th percentile, half-life of a day, 15 % margin), in the same run.
"""

import csv
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np

from benchmarks.published import SHIPPED
from benchmarks.report import Row, publish
from brain.models.resources.cpu import MARGIN, Usage, request

#: mCPU of one per cent: as if each machine had ten processors.
_PERCENT_MILLIS = 100.0
_DAY_SECONDS, _HOUR_SECONDS = 24 * 3600.0, 3600.0
#: Changes of a request that count, and the head-room that may be unused.
_COUNTED = 0.05


@dataclass(frozen=True, slots=True)
class Sight:
    """What a rule may know at an instant."""

    usage: Usage
    #: Uses of the last day, and the highest of the last hour.
    day: deque[tuple[float, float]]
    peak: float
    present: float | None


Rule = Callable[[Sight], float]

#: Name -> rule. Ours are those that Brain gives: workers that wait for each other, and others.
RULES: dict[str, Rule] = {
    "mean of a day + 15 %": lambda sight: MARGIN * float(np.mean([use for _, use in sight.day])),
    "VPA's default (p90 + 15 %)": lambda sight: request(sight.usage, share=0.90),
    "p95 + 15 %": lambda sight: request(sight.usage, share=0.95),
    "p95, steady": lambda sight: request(sight.usage, share=0.95, present=sight.present),
    "p95, steady, last hour's peak": lambda sight: request(
        sight.usage, share=0.95, present=sight.present, recent_peak=sight.peak
    ),
    "p98 + 15 %": lambda sight: request(sight.usage, share=0.98),
    "p98, steady": lambda sight: request(sight.usage, share=0.98, present=sight.present),
}
OURS, PEER = "p98, steady", "VPA's default (p90 + 15 %)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a rule did on one series."""

    #: Shares of the time: use above the request, and mean unused part of the request.
    over: float
    slack: float
    changes_a_day: float


def series(data: Path) -> Iterator[tuple[str, list[tuple[float, float]]]]:
    """Name, and (seconds, mCPU) of each series of processor use."""
    files = [*data.glob("nab/ec2_cpu_*.csv"), *data.glob("nab/rds_cpu_*.csv")]
    for file in sorted([*files, data / "nab/grok_asg_anomaly.csv"]):
        with file.open() as lines:
            yield (
                file.stem,
                [
                    (
                        datetime.fromisoformat(f"{row['timestamp']}+00:00").timestamp(),
                        float(row["value"]) * _PERCENT_MILLIS,
                    )
                    for row in csv.DictReader(lines)
                ],
            )


def judge(rule: Rule, readings: list[tuple[float, float]]) -> Outcome:
    """Walk through a series with one rule."""
    usage, present = Usage(), None
    day: deque[tuple[float, float]] = deque()
    over, slack, changes, judged = 0, 0.0, 0, 0
    begun = readings[0][0]
    for at, use in readings:
        if at - begun >= _DAY_SECONDS:
            peak = max(one for then, one in day if at - then <= _HOUR_SECONDS or then == day[-1][0])
            wanted = rule(Sight(usage, day, peak, present))
            changed = present is not None and abs(wanted / present - 1) > _COUNTED
            present = wanted
            judged += 1
            changes += changed
            over += use > wanted
            slack += max(0.0, 1 - use / wanted)
        usage = usage.added([use], at_seconds=at)
        day.append((at, use))
        while at - day[0][0] > _DAY_SECONDS:
            day.popleft()
    days = (readings[-1][0] - begun) / _DAY_SECONDS - 1
    return Outcome(over=over / judged, slack=slack / judged, changes_a_day=changes / days)


def rows(found: dict[str, list[Outcome]]) -> list[Row]:
    """What is reported: ours beside the peer, then every rule."""
    over = {
        name: 100 * float(np.mean([one.over for one in all_of])) for name, all_of in found.items()
    }
    told = [
        Row(
            metric="time in which a replica wants more than it has",
            value=over[OURS],
            unit="%",
            peer=PEER,
            peer_value=over[PEER],
            bar=0.45,
            ratio_bar=4.0,
            note=f"{OURS}; mean of {len(found[OURS])} series",
        )
    ]
    for name, outcomes in found.items():
        worst = np.percentile([one.over for one in outcomes], 90)
        slack = np.mean([one.slack for one in outcomes])
        changes = np.mean([one.changes_a_day for one in outcomes])
        told.append(
            Row(
                metric=f"the same, {name}",
                value=over[name],
                unit="%",
                note=f"worst decile of series {100 * worst:.1f} %, unused {100 * slack:.0f} %, "
                f"{changes:.1f} changes of 5 % a day",
            )
        )
    return told


def main() -> None:
    """Judge every rule on every series."""
    every = list(series(SHIPPED))
    found = {name: [judge(rule, readings) for _, readings in every] for name, rule in RULES.items()}
    publish("resources", "Processor requests against real use", rows(found))


if __name__ == "__main__":
    main()
