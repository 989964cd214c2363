"""Code that the parts of the benchmark share: the places of data, published results, and the
reports of runs.
"""

import csv
import hashlib
import os
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import msgspec
import numpy as np

from benchmarks.jct import pollux
from benchmarks.jct.applications import Application, applications
from benchmarks.jct.pollux import Job, Outcome, Policy, Rules
from benchmarks.jct.variants import Variant
from benchmarks.published import SHIPPED, sia_tables
from benchmarks.report import Row

ROOT = Path(__file__).parents[2]
#: Lists that the generator of Pollux's workloads drew with these seeds.
SEEDS = (31, 32, 33, 34, 35)
#: What is run of Pollux's workloads and of those lists where a run is not full.
_USUAL = (6, 31, 32)
GENERATED = SHIPPED / "pollux"
#: What outcomes follow from, beside data and arguments.
_CODE = ("benchmarks/jct", "benchmarks/models", "brain")


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """A result of a peer, published by its authors or measured by us."""

    mean_seconds: float
    p99_seconds: float
    makespan_seconds: float


@dataclass(kw_only=True)
class Bench:
    """One run of ``python -m benchmarks.jct``."""

    data: Path = SHIPPED
    #: Sia's tables; None where they are missing.
    sia: Path | None = field(default_factory=sia_tables)
    #: Workloads to run; None: the usual ones, or all that are given where the run is full.
    workloads: Sequence[int] | None = None
    full: bool = False
    #: The only one of those, where several processes share them.
    alone: int | None = None
    #: Told of every run that ended.
    tell: Callable[[str], None] = lambda line: None
    #: Made of every workload.
    variant: Variant | None = None
    #: Where outcomes are kept, so that a run that was interrupted goes on; None: nowhere.
    kept: Path | None = None

    @cached_property
    def applications(self) -> dict[str, Application]:
        """Return the tables of Pollux's applications."""
        return applications(self.data)

    @cached_property
    def published(self) -> dict[tuple[str, float, int], Published]:
        """Return the published results by policy, load and workload."""
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
        """Return the file of one of Pollux's workloads, or of one that the same generator drew."""
        if number in SEEDS:
            return GENERATED / f"workload-{number}.csv"
        folder = "workloads" if load == 1 else f"workloads-{load:.1f}"
        return self.data / "pollux" / folder / f"workload-{number}.csv"

    def asked(self, number: int, usual: Container[int] = _USUAL) -> bool:
        """Return True if a workload should be run."""
        if self.alone not in (None, number):
            return False
        return number in usual or self.full if self.workloads is None else number in self.workloads

    def given(self, load: float) -> list[int]:
        """Return those of Pollux's workloads at a load that are present and should be run."""
        known = {
            number for policy, at, number in self.published if (policy, at) == ("pollux", load)
        }
        return sorted(
            number for number in known if self.file(load, number).exists() and self.asked(number)
        )

    def drawn(self) -> list[int]:
        """Return the generated workloads that should be run."""
        return [number for number in SEEDS if self.asked(number)]

    def jobs(self, load: float, number: int) -> list[Job]:
        """Return the jobs of one of Pollux's workloads."""
        found = pollux.workload(self.file(load, number), self.applications)
        return self.variant.jobs(found) if self.variant else found

    def once(self, what: str, play: Callable[[], Outcome]) -> Outcome:
        """Return the result of ``play``, or its stored result if the same code has met the same
        data before.
        """
        if self.kept is None:
            return play()
        name = hashlib.sha256(f"{self._state} {self.variant} {what}".encode()).hexdigest()
        file = self.kept / f"{name[:32]}.json"
        if not file.exists():
            self.kept.mkdir(parents=True, exist_ok=True)
            fresh = file.with_suffix(f".{os.getpid()}")
            fresh.write_bytes(msgspec.json.encode(play()))
            fresh.replace(file)
        return msgspec.json.decode(file.read_bytes(), type=Outcome)

    @property
    def _changed(self) -> str:
        return f", {self.variant}" if self.variant else ""

    @cached_property
    def _state(self) -> str:
        """Return a digest of code and data."""
        found = hashlib.sha256()
        for file in self._sources():
            found.update(file.name.encode() + file.read_bytes())
        return found.hexdigest()

    def _sources(self) -> Iterator[Path]:
        for folder in _CODE:
            yield from sorted((ROOT / folder).rglob("*.py"))
        for folder in (self.data / "pollux", self.sia):
            yield from sorted(folder.rglob("*.csv")) if folder else ()

    def run(
        self,
        name: str,
        load: float,
        number: int,
        policy: Callable[[], Policy],
        rules: Rules | None = None,
    ) -> Outcome:
        """Simulate one workload under a policy."""

        def play() -> Outcome:
            return pollux.simulate(self.jobs(load, number), policy(), rules)

        found = self.once(f"{name} {load:g} {number} {rules}", play)
        self.tell(
            f"{name}, load {load:g}, workload {number}{self._changed}: "
            f"{found.mean_seconds:.0f} s on average, "
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
    share: float | None = None,
    p99: float | None = None,
    makespan: float | None = None,
    numbers: Sequence[int] = (),
) -> list[Row]:
    """Return rows with means over workloads.

    Args:
        name: Name of our policy.
        peer: Name of the peer's policy.
        ours: Outcomes of our policy, by workload.
        theirs: Outcomes of the peer, by workload.
        share: Largest allowed share of the peer's average completion time.
        p99: Largest allowed share of the peer's 99th percentile.
        makespan: Largest allowed share of the peer's makespan.
        numbers: Numbers of the workloads, if the note should list each of them.
    """
    bars = {"mean_seconds": share, "p99_seconds": p99, "makespan_seconds": makespan}
    words = {
        "mean_seconds": "average completion",
        "p99_seconds": "99th percentile",
        "makespan_seconds": "makespan",
    }
    rows = []
    for key, bar in bars.items():
        values, others = (
            np.array([getattr(one, key) for one in group]) for group in (ours, theirs)
        )
        shares = values / others
        each = ", ".join(
            f"workload {number}: {one:.2f}" for number, one in zip(numbers, shares, strict=False)
        )
        value, other = float(values.mean()), float(others.mean())
        rows.append(
            Row(
                metric=f"{name}: {words[key]}",
                value=value,
                unit="s",
                peer=peer,
                peer_value=other,
                ratio_bar=None if bar is None else 1 / bar,
                note=f"{value / other:.3f} of {peer}" + (f"; {each}" if each else ""),
            )
        )
    return rows
