"""What parts of the benchmark share: where data lie, what was published, how runs are reported."""

import csv
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from benchmarks.jct import pollux
from benchmarks.jct.applications import Application, applications
from benchmarks.jct.pollux import Job, Outcome, Policy, Rules
from benchmarks.report import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """What a peer's authors published, or was measured of a peer."""

    mean_seconds: float
    p99_seconds: float
    makespan_seconds: float


@dataclass(kw_only=True)
class Bench:
    """One run of ``python -m benchmarks.jct``."""

    data: Path = field(
        default_factory=lambda: Path(os.environ.get("BRAIN_BENCH_DATA", "../shared/data"))
    )
    #: Workloads to run; None: all that are given.
    workloads: Sequence[int] | None = None
    #: Told of every run that ended.
    tell: Callable[[str], None] = lambda line: None

    @cached_property
    def applications(self) -> dict[str, Application]:
        """Tables of Pollux's applications."""
        return applications(self.data)

    @cached_property
    def published(self) -> dict[tuple[str, float, int], Published]:
        """By policy, load and workload."""
        with (self.data / "pollux/published.csv").open() as lines:
            return {
                (row["policy"], float(row["load"]), int(row["workload"])): Published(
                    mean_seconds=float(row["avg_jct_seconds"]),
                    p99_seconds=float(row["p99_jct_seconds"]),
                    makespan_seconds=float(row["makespan_seconds"]),
                )
                for row in csv.DictReader(lines)
            }

    def file(self, load: float, number: int) -> Path:
        """A workload of Pollux's."""
        folder = "workloads" if load == 1 else f"workloads-{load:.1f}"
        return self.data / "pollux" / folder / f"workload-{number}.csv"

    def given(self, numbers: Sequence[int]) -> list[int]:
        """Those of ``numbers`` that are asked for."""
        return [one for one in numbers if self.workloads is None or one in self.workloads]

    def jobs(self, load: float, number: int) -> list[Job]:
        """The jobs of a workload of Pollux's."""
        return pollux.workload(self.file(load, number), self.applications)

    def run(
        self,
        name: str,
        load: float,
        number: int,
        policy: Callable[[Sequence[Job]], Policy],
        rules: Rules | None = None,
    ) -> Outcome:
        """Simulate one workload under a policy made for its jobs."""
        jobs = self.jobs(load, number)
        found = pollux.simulate(jobs, policy(jobs), rules)
        self.tell(
            f"{name}, load {load:g}, workload {number}: {found.mean_seconds:.0f} s on average, "
            f"99th percentile {found.p99_seconds:.0f} s, makespan {found.makespan_seconds:.0f} s, "
            f"{found.restarts_per_job:.1f} restarts a job, decisions {found.decision_ms_mean:.1f} "
            f"(at most {found.decision_ms_max:.0f}) ms"
        )
        return found


def beside(
    name: str,
    peer: str,
    ours: Sequence[Outcome | Published],
    theirs: Sequence[Published],
    *,
    share: float | None,
    p99: float | None = 1.0,
    makespan: float | None = 1.03,
    note: str = "",
) -> list[Row]:
    """Rows of means over workloads; bars are the largest shares of the peer's that are allowed."""
    bars = {"mean_seconds": share, "p99_seconds": p99, "makespan_seconds": makespan}
    words = {
        "mean_seconds": "average completion",
        "p99_seconds": "99th percentile",
        "makespan_seconds": "makespan",
    }
    rows = []
    for key, bar in bars.items():
        value, other = (
            float(np.mean([getattr(one, key) for one in group])) for group in (ours, theirs)
        )
        rows.append(
            Row(
                metric=f"{name}: {words[key]}",
                value=value,
                unit="s",
                peer=peer,
                peer_value=other,
                ratio_bar=None if bar is None else 1 / bar,
                note=f"{value / other:.3f} of {peer}" + (f"; {note}" if note else ""),
            )
        )
    return rows
