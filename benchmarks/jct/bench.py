"""What parts of the benchmark share: where data lie, what was published, how runs are reported."""

import csv
import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import msgspec
import numpy as np

from benchmarks.jct import pollux
from benchmarks.jct.applications import Application, applications
from benchmarks.jct.pollux import Job, Outcome, Policy, Rules
from benchmarks.jct.variants import Variant
from benchmarks.report import Row

ROOT = Path(__file__).parents[2]
#: Lists that the generator of Pollux's workloads drew with these seeds.
SEEDS = (31, 32, 33, 34, 35)
GENERATED = ROOT / "benchmarks/data/pollux"
#: What outcomes follow from, beside data and arguments.
_CODE = ("benchmarks/jct", "benchmarks/models", "brain")


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
    #: Other names and lengths for every workload.
    variant: Variant | None = None
    #: Where outcomes are kept, so that a run that was interrupted goes on; None: nowhere.
    kept: Path | None = None

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
        """A workload of Pollux's, or one that was drawn as those were."""
        if number in SEEDS:
            return GENERATED / f"workload-{number}.csv"
        folder = "workloads" if load == 1 else f"workloads-{load:.1f}"
        return self.data / "pollux" / folder / f"workload-{number}.csv"

    def asked(self, number: int) -> bool:
        """Whether a workload is to be run."""
        return self.workloads is None or number in self.workloads

    def given(self, load: float) -> list[int]:
        """Workloads of Pollux's at a load that are at hand and asked for."""
        known = {
            number for policy, at, number in self.published if (policy, at) == ("pollux", load)
        }
        return sorted(
            number for number in known if self.file(load, number).exists() and self.asked(number)
        )

    def drawn(self) -> list[int]:
        """Generated lists that are asked for."""
        return [number for number in SEEDS if self.asked(number)]

    def jobs(self, load: float, number: int) -> list[Job]:
        """The jobs of a workload of Pollux's."""
        found = pollux.workload(self.file(load, number), self.applications)
        return self.variant.jobs(found) if self.variant else found

    def once(self, what: str, play: Callable[[], Outcome]) -> Outcome:
        """What ``play`` comes to, or came to when the same code met the same data."""
        if self.kept is None:
            return play()
        name = hashlib.sha256(f"{self._state} {self.variant} {what}".encode()).hexdigest()
        file = self.kept / f"{name[:32]}.json"
        if not file.exists():
            self.kept.mkdir(parents=True, exist_ok=True)
            file.write_bytes(msgspec.json.encode(play()))
        return msgspec.json.decode(file.read_bytes(), type=Outcome)

    @cached_property
    def _state(self) -> str:
        """Digest of code and data."""
        found = hashlib.sha256()
        for file in self._sources():
            found.update(file.name.encode() + file.read_bytes())
        return found.hexdigest()

    def _sources(self) -> Iterator[Path]:
        for folder in _CODE:
            yield from sorted((ROOT / folder).rglob("*.py"))
        for peer in ("pollux", "sia"):
            yield from sorted((self.data / peer).rglob("*.csv"))

    def run(
        self,
        name: str,
        load: float,
        number: int,
        policy: Callable[[Sequence[Job]], Policy],
        rules: Rules | None = None,
    ) -> Outcome:
        """Simulate one workload under a policy made for its jobs."""

        def play() -> Outcome:
            jobs = self.jobs(load, number)
            return pollux.simulate(jobs, policy(jobs), rules)

        found = self.once(f"{name} {load:g} {number} {rules}", play)
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
    theirs: Sequence[Outcome | Published],
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
