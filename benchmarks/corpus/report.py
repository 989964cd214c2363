"""The corpus's table: what each program did when it ran plain, was killed, resized and stopped."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from benchmarks import report
from benchmarks.corpus.programs import Program
from benchmarks.corpus.runs import EVENTS


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What differed in one program's runs under both launchers, with one event."""

    program: Program
    event: str
    differences: tuple[str, ...]
    seconds: float


def publish_results(results: Sequence[Result], began: float) -> None:
    """Print, store and show them; end the process with 1 where a run differed."""
    ran = [each for each in results if not each.program.needs]
    programs = {each.program.name: each.program for each in results}.values()
    rows = [
        report.Row(
            metric="programs that ran",
            value=len({each.program.name for each in ran}),
            unit="programs",
            note=f"{sum(each.by_others for each in programs if not each.needs)} by others",
        ),
        report.Row(
            metric="programs that a CPU could not run",
            value=sum(bool(each.needs) for each in programs),
            unit="programs",
        ),
        report.Row(
            metric="runs that differ from torchrun's or from the undisturbed one",
            value=sum(bool(each.differences) for each in ran),
            unit=f"of {len(ran)}",
            bar=0,
        ),
        report.Row(
            metric="time of the whole corpus",
            value=(time.monotonic() - began) / 60,
            unit="min",
            bar=40,
        ),
    ]
    title = "Programs that nobody here wrote"
    (report.HERE / "results" / "corpus-runs.json").write_text(as_json(results))
    report.publish("corpus", title, rows, more=table(results), command="make corpus")


def table(results: Sequence[Result]) -> str:
    """A row for each program, then what differs, by name.

    Rows stand in the order of ``results``, in which a program's events follow each other.
    """
    lines = ["| program | from | " + " | ".join(EVENTS) + " |", "|---" * (2 + len(EVENTS)) + "|"]
    told = []
    for _, group in groupby(results, key=lambda each: each.program.name):
        of_one = list(group)
        program = of_one[0].program
        if program.needs:
            lines.append(f"| {program.name} | {program.origin} | {program.needs} |" + " |" * 3)
            continue
        by_event = {each.event: each for each in of_one}
        words = [
            "—" if event not in by_event else "differs" if by_event[event].differences else "same"
            for event in EVENTS
        ]
        lines.append(f"| {program.name} | {program.origin} | " + " | ".join(words) + " |")
        told += [
            f"- {program.name}, {each.event}: {difference}"
            for each in of_one
            for difference in each.differences
        ]
    return "\n".join([*lines, *(["", "What differs:", "", *told] if told else ())])


def as_json(results: Sequence[Result]) -> str:
    """Every run with what differed."""
    record = [
        {
            "program": each.program.name,
            "origin": each.program.origin,
            "event": each.event,
            "seconds": round(each.seconds, 1),
            "differences": list(each.differences),
            "needs": each.program.needs,
        }
        for each in results
    ]
    return json.dumps(record, indent=1, ensure_ascii=False) + "\n"
