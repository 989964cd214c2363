"""Measures how often a CPU request would have been too small, and how much of it would have been
unused.

The data are eleven real series of processor use (AWS CloudWatch, from the Numenta Anomaly
Benchmark): five minutes between readings, two weeks or more; one per cent counts as 100 mCPU. At
each instant a rule sets the request from earlier readings, and the use at this instant is compared
with the request; the first day only fills the histogram. Our rule is the service: a reading is
stored as telemetry, ``estimates.remember`` folds it in a turn, ``estimates.advised`` answers, and
the answer becomes the job's reservation. It is compared, in the same run, with the mean of a day
and with the defaults of Kubernetes' vertical autoscaler (90th percentile, half-life of a day, 15 %
margin).
"""

import csv
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Protocol

import numpy as np

from benchmarks.published import SHIPPED
from benchmarks.report import Row
from benchmarks.resources.service import Service
from brain.models.resources.cpu import MARGIN, CpuUsage, request
from brain.types.resources import Resources

#: mCPU of one per cent: as if each machine had ten processors.
_PERCENT_MILLIS = 100.0
_MEMORY_BYTES = 2**30
_DAY_SECONDS = 24 * 3600.0
#: Changes of a request that count.
_COUNTED = 0.05


class Rule(Protocol):
    """A rule that sets a request."""

    def see(self, at_seconds: float, millis: float) -> None:
        """Process a reading."""
        ...

    def request(self) -> float:
        """Return the mCPU to reserve until the next reading."""
        ...


@dataclass(slots=True)
class MeanOfADay:
    """The mean of the last day plus a margin."""

    _day: list[tuple[float, float]] = field(default_factory=list)

    def see(self, at_seconds: float, millis: float) -> None:
        self._day.append((at_seconds, millis))
        self._day = [each for each in self._day if at_seconds - each[0] <= _DAY_SECONDS]

    def request(self) -> float:
        return MARGIN * float(np.mean([use for _, use in self._day]))


@dataclass(slots=True)
class Autoscaler:
    """The defaults of Kubernetes' vertical autoscaler, with our implementation of its histogram."""

    _usage: CpuUsage = CpuUsage()

    def see(self, at_seconds: float, millis: float) -> None:
        self._usage = self._usage.added([millis], at_seconds)

    def request(self) -> float:
        return request(self._usage, share=0.90)


@dataclass(slots=True)
class Ours:
    """The service's advice, which becomes the job's reservation."""

    independent: bool
    _service: Service = field(init=False)

    def __post_init__(self) -> None:
        self._service = Service(memory_bytes=_MEMORY_BYTES, independent=self.independent)

    def see(self, at_seconds: float, millis: float) -> None:
        self._service.see([(at_seconds, millis, _MEMORY_BYTES / 2)])

    def request(self) -> float:
        target = self._service.cpu_target()
        self._service.reserve(Resources(cpu_millis=round(target)))
        return target


#: Name -> rule. Of ours a role whose replicas wait for each other, and one whose do not.
OURS, STRICT = "the service, replicas that wait for nobody", "the service, replicas that wait"
PEER = "VPA's default (p90 + 15 %)"


def rules() -> dict[str, Rule]:
    """Return new instances of all rules."""
    return {
        "mean of a day + 15 %": MeanOfADay(),
        PEER: Autoscaler(),
        OURS: Ours(independent=True),
        STRICT: Ours(independent=False),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The results of a rule on one series."""

    #: Shares of the time: use above the request, and mean unused part of the request.
    over: float
    slack: float
    changes_a_day: float


def series(data: Path) -> Iterator[tuple[str, list[tuple[float, float]]]]:
    """Yield the name and the (seconds, mCPU) readings of each series of processor use."""
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
    """Apply one rule to a series."""
    present: float | None = None
    over, slack, changes, judged = 0, 0.0, 0, 0
    begun = readings[0][0]
    for at, use in readings:
        if at - begun >= _DAY_SECONDS:
            wanted = rule.request()
            changes += present is not None and abs(wanted / present - 1) > _COUNTED
            present = wanted
            judged += 1
            over += use > wanted
            slack += max(0.0, 1 - use / wanted)
        rule.see(at, use)
    days = (readings[-1][0] - begun) / _DAY_SECONDS - 1
    return Outcome(over=over / judged, slack=slack / judged, changes_a_day=changes / days)


def rows() -> list[Row]:
    """Return rows that compare our rule with the peer, then a row for every rule."""
    found: dict[str, list[Outcome]] = {name: [] for name in rules()}
    for _, readings in series(SHIPPED):
        for name, rule in rules().items():
            found[name].append(judge(rule, readings))
    return [*_beside(OURS, found), *_told(found)]


def _beside(name: str, found: dict[str, list[Outcome]]) -> Iterator[Row]:
    """Return our results as multiples of the peer's, each with its bar."""
    figures = (
        ("time in which a replica wants more than it has", "over", 0.5),
        ("unused part of a request", "slack", 1.25),
        ("changes of 5 % a day", "changes_a_day", 0.5),
    )
    for metric, figure, bar in figures:
        ours, peer = (
            float(np.mean([getattr(one, figure) for one in found[rule]])) for rule in (name, PEER)
        )
        yield Row(
            metric=f"(a) {metric}, {name}",
            value=ours / peer,
            unit=f"× that of {PEER}",
            bar=bar,
            note=f"{ours:.4g} against {peer:.4g}; {len(found[name])} real series",
        )


def _told(found: dict[str, list[Outcome]]) -> Iterator[Row]:
    for name, outcomes in found.items():
        worst = np.percentile([one.over for one in outcomes], 90)
        slack = np.mean([one.slack for one in outcomes])
        changes = np.mean([one.changes_a_day for one in outcomes])
        yield Row(
            metric=f"(a) time in which a replica wants more than it has, {name}",
            value=100 * float(np.mean([one.over for one in outcomes])),
            unit="%",
            note=f"worst decile of series {100 * worst:.1f} %, unused {100 * slack:.0f} %, "
            f"{changes:.1f} changes of 5 % a day",
        )
