"""Measures how long jobs take in a small crowded pool, in `brain simulate`.

The policies are Brain and Tiresias.

    make bench-simulate

Each list is simulated by the command that a user types, with the default settings: the first 80
jobs without ImageNet on ten nodes of four accelerators, with nothing declared. Workloads 1, 3 and 6
of Pollux's are the tuning set. Five further lists decide; the generator of Pollux's workloads drew
them with seeds 31 to 35 (``data/pollux``). Outcomes are stored in ``build/simulate``, so the same
code simulates the same list only once, and an interrupted run continues.
"""

import argparse
import csv
import hashlib
import io
import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.jct.bench import GENERATED, ROOT, SEEDS
from benchmarks.published import SHIPPED
from benchmarks.report import Row, markdown, publish

KEPT = ROOT / "build/simulate"
CLUSTER = "nodes:\n  t4: {count: 10, gpus: 4}\n"
TUNING = (1, 3, 6)
#: Jobs of a list; ImageNet's would be all that its mean tells of.
_JOBS, _LEFT_OUT = 80, "imagenet"
_HISTORY = "runs of one application are identical and have one script"


@dataclass(frozen=True, slots=True)
class Case:
    """The settings of Brain, and the largest allowed share of Tiresias' mean over all lists."""

    name: str
    arguments: tuple[str, ...]
    bar: float
    note: str = ""


CASES = {
    "asked": Case("batch asked, no history", ("--tune",), 0.75),
    "owners": Case("owners' batches, no history", (), 0.95),
    "asked-history": Case("batch asked, history", ("--tune", "--recurring"), 0.65, _HISTORY),
    "owners-history": Case("owners' batches, history", ("--recurring",), 0.85, _HISTORY),
}


@dataclass(frozen=True, slots=True)
class Lists:
    """The places of lists and tables."""

    data: Path

    def file(self, number: int) -> Path:
        """Return the file of a workload, published or drawn."""
        if number in SEEDS:
            return GENERATED / f"workload-{number}.csv"
        return self.data / f"pollux/workloads/workload-{number}.csv"

    def text(self, number: int) -> str:
        """Return the first jobs of a workload as a CSV file."""
        with self.file(number).open() as lines:
            rows = [row for row in csv.DictReader(lines) if row["application"] != _LEFT_OUT]
        out = io.StringIO()
        writer = csv.DictWriter(out, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows[:_JOBS])
        return out.getvalue()


def mean_seconds(lists: Lists, number: int, policy: str, arguments: Sequence[str]) -> float:
    """Return the mean completion time of a list under a policy in seconds, as ``brain simulate``
    prints it.
    """
    text = lists.text(number)
    key = hashlib.sha256(f"{_code()} {text} {policy} {arguments}".encode()).hexdigest()[:32]
    kept = KEPT / f"{key}.json"
    if not kept.exists():
        KEPT.mkdir(parents=True, exist_ok=True)
        kept.write_text(_simulated(lists, text, policy, arguments))
    (outcome,) = json.loads(kept.read_text())
    found = float(outcome["summary"]["jct_mean"])
    print(f"{policy} {' '.join(arguments)}, list {number}: {found:.0f} s", file=sys.stderr)
    return found


#: Mean completion time of a list under a policy with arguments.
Play = Callable[[Lists, int, str, Sequence[str]], float]


def _simulated(lists: Lists, text: str, policy: str, arguments: Sequence[str]) -> str:
    with TemporaryDirectory() as folder:
        workload, cluster = Path(folder, "workload.csv"), Path(folder, "cluster.yaml")
        workload.write_text(text)
        cluster.write_text(CLUSTER)
        command = ["brain", "simulate", str(workload), "--cluster", str(cluster)]
        command += ["--applications", str(lists.data / "pollux/traces"), "--policy", policy]
        command += [*arguments, "-o", "json", "--report", str(Path(folder, "report.html"))]
        brain = str(Path(sys.executable).with_name("brain"))
        run = subprocess.run([brain, *command[1:]], capture_output=True, text=True, check=False)
    if run.returncode:
        raise SystemExit(f"{' '.join(command)} failed: {run.stderr.strip()}")
    return run.stdout


def _code() -> str:
    """Return a digest of the code and data that determine outcomes."""
    found = hashlib.sha256()
    for file in sorted((ROOT / "brain").rglob("*.py")):
        found.update(file.read_bytes())
    return found.hexdigest()


def rows(lists: Lists, cases: Sequence[Case], play: Play = mean_seconds) -> list[Row]:
    """Return three rows for each case: all lists, the lists that decide, and the tuning set."""
    numbers = (*TUNING, *SEEDS)
    asked: list[tuple[str, tuple[str, ...], int]]
    asked = [("tiresias", (), number) for number in numbers]
    asked += [("brain", case.arguments, number) for case in cases for number in numbers]
    with ThreadPoolExecutor(2) as pool:
        found = pool.map(lambda one: play(lists, one[2], one[0], one[1]), asked)
        means = dict(zip(asked, found, strict=True))
    made = []
    for case in cases:
        shares = {
            number: means["brain", case.arguments, number] / means["tiresias", (), number]
            for number in numbers
        }
        made += _of(case, shares)
    return made


def _of(case: Case, shares: Mapping[int, float]) -> list[Row]:
    groups = {
        "all eight lists": (*TUNING, *SEEDS),
        "five generated lists": SEEDS,
        "workloads 1, 3 and 6 (tuning set)": TUNING,
    }
    made = []
    for name, numbers in groups.items():
        each = ", ".join(f"{number}: {shares[number]:.2f}" for number in numbers)
        made.append(
            Row(
                metric=f"Brain, {case.name}, {name}: mean completion × Tiresias",
                value=sum(shares[number] for number in numbers) / len(numbers),
                unit="×",
                bar=case.bar if len(numbers) == len(shares) else None,
                note=f"{each}; {case.note}" if case.note else each,
            )
        )
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--only", nargs="+", choices=CASES, help="cases to run; not published")
    only = parser.parse_args().only
    table = rows(Lists(SHIPPED), [CASES[name] for name in only or CASES])
    if only:
        sys.stdout.write(markdown(table) + "\n")
        sys.exit(0 if all(row.met for row in table) else 1)
    publish("simulate", "Completion times in a crowded pool, by `brain simulate`", table)


if __name__ == "__main__":
    main()
