"""Runs the tests that are marked *slow*, and publishes the number of passed and failed tests by
file.

    python -m benchmarks.slow_tests
"""

import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

from benchmarks.base import ROOT, git
from benchmarks.report import Row, publish

#: Workers of pytest: the tests mostly wait for programs that they start.
WORKERS = 3
OUTCOMES = ("passed", "failed", "skipped")


def main() -> None:
    """Run all slow tests; exit with 1 if a test failed or none ran."""
    commit = git("describe", "--always", "--dirty").decode().strip()
    load, began = os.getloadavg()[0], time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        _run(report)
        counts = by_file(report)
    total = sum(counts.values(), Counter[str]())
    minutes = (time.monotonic() - began) / 60
    rows = [
        Row(metric="tests that failed", value=total["failed"], unit="tests", bar=0),
        Row(metric="tests that passed", value=total["passed"], unit="tests"),
        Row(metric="tests that were skipped", value=total["skipped"], unit="tests"),
        Row(
            metric="time of the run",
            value=minutes,
            unit="min",
            note=f"commit {commit}, {WORKERS} pytest workers, load {load:.1f} at its start",
        ),
    ]
    title = "Slow tests: whole systems for tens of seconds"
    publish("slow-tests", title, rows, table(counts), "make test-slow")


def by_file(report: Path) -> dict[str, Counter[str]]:
    """Return the number of passed, failed and skipped tests of each file from a JUnit report.

    Raises:
        SystemExit: the report has no test, because pytest could not run.
    """
    counts = defaultdict[str, Counter[str]](Counter)
    for file, outcome in _outcomes(ET.parse(report)):
        counts[file][outcome] += 1
    if not counts:
        sys.exit("no slow test ran: see pytest's output above")
    return dict(sorted(counts.items()))


def table(counts: Mapping[str, Counter[str]]) -> str:
    """Return the counts as a Markdown table with a row for each file."""
    rows = [["file", *OUTCOMES], ["---"] * (1 + len(OUTCOMES))]
    rows += [[f"`{file}`", *(str(of[each]) for each in OUTCOMES)] for file, of in counts.items()]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in rows)


def _run(report: Path) -> None:
    distribution = ["--numprocesses", str(WORKERS), "--dist", "worksteal"]
    command = [sys.executable, "-m", "pytest", "-m", "slow", *distribution]
    subprocess.run([*command, f"--junit-xml={report}", "tests"], cwd=ROOT, check=False)


def _outcomes(report: ET.ElementTree) -> Iterator[tuple[str, str]]:
    for case in report.iter("testcase"):
        inner = {each.tag for each in case}
        failed = inner & {"failure", "error"}
        outcome = "failed" if failed else "skipped" if "skipped" in inner else "passed"
        yield f"{case.attrib['classname'].replace('.', '/')}.py", outcome


if __name__ == "__main__":
    main()
