"""The corpus's table: how each program behaved when it ran undisturbed, was killed, was resized and
was stopped.

Results are stored in ``results/corpus-runs.json`` when each program ends, so a run of one program
replaces only its own rows.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path

from benchmarks import report
from benchmarks.corpus.programs import PROGRAMS
from benchmarks.corpus.runs import EVENTS

KEPT = report.HERE / "results" / "corpus-runs.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The differences found in one program's runs under both launchers, with one event."""

    program: str
    origin: str
    event: str
    differences: tuple[str, ...] = ()
    #: How torchrun's run ended badly where brain-run's ended well.
    torchrun_failed: str = ""
    seconds: float = 0.0
    #: Why it cannot be compared on a CPU; empty: it ran.
    needs: str = ""
    #: When ``make corpus`` was called that ran it.
    began: str = ""


def keep(results: Sequence[Result], path: Path = KEPT) -> list[Result]:
    """Replace the stored results of the programs in ``results``; return all stored results."""
    renewed = {each.program for each in results}
    place = {each.name: number for number, each in enumerate(PROGRAMS)}
    kept = [*results, *(each for each in _kept(path) if each.program not in renewed)]
    kept = sorted(
        (each for each in kept if each.program in place), key=lambda each: place[each.program]
    )
    path.write_text(
        json.dumps([asdict(each) for each in kept], indent=1, ensure_ascii=False) + "\n"
    )
    return kept


def _kept(path: Path) -> list[Result]:
    rows = json.loads(path.read_text()) if path.exists() else []
    return [Result(**row | {"differences": tuple(row["differences"])}) for row in rows]


def publish_results(results: Sequence[Result]) -> None:
    """Print, store and show the results; exit with 1 if a run differed."""
    ran = [each for each in results if not each.needs]
    others = {each.program for each in ran if each.origin != "here"}
    runnable = sum(not each.needs for each in PROGRAMS)
    calls = len({each.began for each in ran})
    rows = [
        report.Row(
            metric="programs that ran",
            value=len({each.program for each in ran}),
            unit="programs",
            note=f"{len(others)} by others; {runnable} are listed for a CPU",
        ),
        report.Row(
            metric="programs that could not be compared here",
            value=sum(bool(each.needs) for each in results),
            unit="programs",
        ),
        report.Row(
            metric="runs that differ from torchrun's or from the undisturbed one",
            value=sum(bool(each.differences) for each in ran),
            unit=f"of {len(ran)}",
            bar=0,
        ),
        report.Row(
            metric="runs in which torchrun alone failed",
            value=sum(bool(each.torchrun_failed) for each in ran),
            unit=f"of {len(ran)}",
        ),
        report.Row(
            metric="time of all runs",
            value=sum(each.seconds for each in ran) / 60,
            unit="min",
            bar=40 if calls == 1 else None,
            note="one call" if calls == 1 else f"{calls} calls of `make corpus ONLY=…`",
        ),
    ]
    title = "Programs that nobody here wrote"
    report.publish("corpus", title, rows, more=table(results), command="make corpus")


def table(results: Sequence[Result]) -> str:
    """Return a table with a row for each program, and below it the differences by program.

    Rows have the order of ``results``, in which the events of a program follow each other.
    """
    lines = ["| program | from | " + " | ".join(EVENTS) + " |", "|---" * (2 + len(EVENTS)) + "|"]
    told, failed, short = [], [], False
    for _, group in groupby(results, key=lambda each: each.program):
        of_one = list(group)
        first = of_one[0]
        if first.needs:
            lines.append(f"| {first.program} | {first.origin} | {first.needs} |" + " |" * 3)
            continue
        by_event = {each.event: each for each in of_one}
        short |= len(by_event) < len(EVENTS)
        words = [
            "—" if event not in by_event else "differs" if by_event[event].differences else "same"
            for event in EVENTS
        ]
        lines.append(f"| {first.program} | {first.origin} | " + " | ".join(words) + " |")
        failed += [
            f"- {each.program}, {each.event}: {each.torchrun_failed}"
            for each in of_one
            if each.torchrun_failed
        ]
        told += [
            f"- {each.program}, {each.event}: {difference}"
            for each in of_one
            for difference in each.differences
        ]
    if short:
        lines += ["", "—: the program ends before it can be disturbed in that way."]
    if failed:
        lines += ["", "Where torchrun failed and brain-run did not:", "", *failed]
    return "\n".join([*lines, *(["", "What differs:", "", *told] if told else ())])
