"""Arrivals: the jobs of a simulation, as a table with a row per job.

The table has the columns of the published workloads of Pollux and Sia (``name, time, application,
num_replicas, batch_size``), and some optional columns.
"""

import csv
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from brain.errors import BadInput, TooLarge
from brain.simulator.applications import Application
from brain.simulator.spec import Spec
from brain.spelling import meant
from brain.types.allocation import Bounds
from brain.types.job import JobDocument

#: Columns and their content. ``name``, ``time`` and ``application`` are required.
COLUMNS: Mapping[str, str] = {
    "name": "name of the job, unique in the workload",
    "time": "seconds from the start of the simulation to the submission",
    "application": "application that the job trains: a name from the catalogue, the cluster or "
    "the tables",
    "num_replicas": "accelerators that the owner requests: the size under policies with fixed "
    "sizes, and the first size under Brain if that many are idle",
    "batch_size": "global batch size, in examples, that the script keeps",
    "tune": "yes if the script begins with the application's first batch size and then uses the "
    "batch size that Brain chooses, up to the application's largest; else no",
    "min_replicas": "fewest replicas that an elastic policy may give the job",
    "max_replicas": "most replicas that an elastic policy may give the job",
    "start_replicas": "replicas with which the job begins under Brain; by default num_replicas",
    "unit": "number of replicas that are added or removed together",
    "priority": "jobs of higher priority come first",
    "project": "project whose quota the job counts toward",
    "declared": "yes if the owner declares the length of the run, else no",
    "submitted_as": "name in the job document; Brain uses earlier runs with the same name",
    "scale": "work of the job relative to its application: 0.5 is half of the work",
    "document": (
        "path, relative to the workload, of a job document (YAML) that sets bounds, batch size, "
        "priority and declared length"
    ),
}
_NEEDED = ("name", "time", "application")
MOST_JOBS = 100_000
#: Latest arrival, in seconds (a year): a later one is a mistake in the table.
LAST_SECONDS = 366 * 86_400.0
_YES, _NO = frozenset({"yes", "true", "1"}), frozenset({"no", "false", "0"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    name: str
    at_seconds: float
    application: str
    #: Accelerators that its owner requested.
    wanted: int
    batch: int
    bounds: Bounds
    priority: int = 0
    project: str = "default"
    #: True if its owner declares how long it trains.
    declared: bool = False
    #: True if its script takes the batch that Brain chooses.
    tunes: bool = False
    #: Name under which the job is submitted; if another run has this name then, the job's own name
    #: is used.
    submitted_as: str = ""
    scale: float = 1.0


#: Function that returns the job document of a path in the table.
Documents = Callable[[str], JobDocument]


def read_workload(
    lines: Sequence[str],
    spec: Spec,
    applications: Mapping[str, Application],
    *,
    documents: Documents | None = None,
    declared: bool = False,
    recurring: bool = False,
    tunes: bool = False,
) -> tuple[Arrival, ...]:
    """Parse and check a workload; return the jobs in the order of their arrival.

    Args:
        lines: Lines of the CSV file, including the header.
        applications: Applications that rows may name.
        documents: Reads the document that the column ``document`` names.
        declared: Default for an empty column ``declared``.
        recurring: True to submit jobs with an empty column ``submitted_as`` under the name of their
            application.
        tunes: Default for an empty column ``tune``.

    Raises:
        BadInput: the message names line, column, value and remedy.
        TooLarge: the workload has more than ``MOST_JOBS`` jobs.
    """
    found: dict[str, Arrival] = {}
    for reader in _rows(lines):
        arrival = _arrival(reader, spec, applications, documents, declared, tunes)
        if recurring and not arrival.submitted_as:
            arrival = replace(arrival, submitted_as=arrival.application)
        if arrival.name in found:
            raise reader.bad("name", "is the name of two jobs; give each job its own name")
        found[arrival.name] = arrival
        if len(found) > MOST_JOBS:
            raise TooLarge(f"the workload has more than {MOST_JOBS} jobs; split it")
    if not found:
        raise BadInput("the workload has no job; write a row below the header")
    return tuple(sorted(found.values(), key=lambda arrival: arrival.at_seconds))


def _rows(lines: Sequence[str]) -> Iterator["_Row"]:
    table = csv.DictReader(lines)
    try:
        _check_columns(list(table.fieldnames or ()))
        for row in table:
            yield _Row(row, table.line_num)
    except csv.Error as bad:
        raise BadInput(f"line {table.line_num + 1} is not valid CSV: {bad}; correct it") from bad


def _check_columns(columns: Sequence[str]) -> None:
    missing = [name for name in _NEEDED if name not in columns]
    if missing:
        raise BadInput(
            f"column {missing[0]} is missing; begin the workload with a line "
            f"`{','.join(_NEEDED)}`, separated by commas",
            field=missing[0],
        )
    for name in columns:
        if columns.count(name) > 1:
            raise BadInput(f"column {name!r} occurs twice; remove one", field=name)
        if name not in COLUMNS:
            near = meant(name, list(COLUMNS))
            hint = f"did you mean {near}?" if near else f"known: {', '.join(COLUMNS)}"
            raise BadInput(f"column {name!r} is unknown; {hint}", field=name)


@dataclass(frozen=True, slots=True)
class _Row:
    """One line, whose cells are read by name."""

    cells: Mapping[str, str | None]
    line: int

    def bad(self, column: str, why: str) -> BadInput:
        return BadInput(
            f"line {self.line}: {column} {self.cells.get(column) or ''!r} {why}", field=column
        )

    def text(self, column: str) -> str:
        return (self.cells.get(column) or "").strip()

    def number(self, column: str, *, least: float, most: float = math.inf) -> float:
        text = self.text(column)
        try:
            value = float(text)
        except ValueError:
            raise self.bad(column, "is not a number; correct it") from None
        if not math.isfinite(value) or value < least:
            raise self.bad(column, f"must be at least {least:g}; correct it")
        if value > most:
            raise self.bad(column, f"must be at most {most:g}; correct it")
        return value

    def whole(self, column: str, default: int, *, least: int = 1) -> int:
        if not self.text(column):
            return default
        value = self.number(column, least=least)
        if value != int(value):
            raise self.bad(column, "is not a whole number; correct it")
        return int(value)

    def truth(self, column: str, default: bool) -> bool:
        text = self.text(column).lower()
        if text and text not in _YES | _NO:
            raise self.bad(column, "is neither yes nor no; correct it")
        return text in _YES if text else default


def _arrival(
    row: _Row,
    spec: Spec,
    applications: Mapping[str, Application],
    documents: Documents | None,
    declared: bool,
    tunes: bool,
) -> Arrival:
    if None in row.cells:
        raise BadInput(f"line {row.line} has more cells than the header; remove the last ones")
    name, application = row.text("name"), row.text("application")
    if not name:
        raise row.bad("name", "is empty; name the job")
    if application not in applications:
        near = meant(application, list(applications))
        hint = f"did you mean {near}? known" if near else "known"
        names = ", ".join(sorted(applications))
        raise row.bad("application", f"is unknown; {hint}: {names}; --applications adds tables")
    document = _document(row, documents)
    scale = row.number("scale", least=0, most=1000) if row.text("scale") else 1.0
    if scale == 0:
        raise row.bad("scale", "must be above 0; correct it")
    bounds = _bounds(row, spec, document)
    wanted = _wanted(row, bounds, spec)
    tuned = row.truth("tune", (document is not None and document.tunes) or tunes)
    named = bool(row.text("num_replicas")) and not tuned  # it suits the owner's batch
    if named and bounds.start is None and bounds.allow(wanted):
        bounds = replace(bounds, start=wanted)
    given = document.batch.global_size if document else None
    batch = row.whole("batch_size", given or applications[application].first_batch)
    _check_batch(row, batch, applications[application])
    said = document is not None and (document.epochs is not None or document.steps is not None)
    return Arrival(
        name=name,
        at_seconds=row.number("time", least=0, most=LAST_SECONDS),
        application=application,
        wanted=wanted,
        batch=batch,
        bounds=bounds,
        priority=row.whole("priority", document.priority if document else 0, least=-1000),
        project=_project(row, spec, document, bounds),
        declared=row.truth("declared", said or declared),
        tunes=tuned,
        submitted_as=row.text("submitted_as"),
        scale=scale,
    )


def _project(row: _Row, spec: Spec, document: JobDocument | None, bounds: Bounds) -> str:
    project = row.text("project") or (document.project if document else "default")
    share = spec.projects.get(project)
    if share is not None and share.limit is not None and share.limit < bounds.min:
        why = f"{project} may have {share.limit} accelerators and the job needs {bounds.min}"
        raise row.bad("project", f"{why}; raise projects.{project}.limit")
    return project


def _document(row: _Row, documents: Documents | None) -> JobDocument | None:
    path = row.text("document")
    if not path:
        return None
    if documents is None:
        raise row.bad(
            "document",
            ("names a job document, but only `brain simulate` can read documents; leave it out"),
        )
    try:
        return documents(path)
    except BadInput as bad:
        raise row.bad("document", f"cannot be used: {bad}") from bad


def _bounds(row: _Row, spec: Spec, document: JobDocument | None) -> Bounds:
    given = document.replicas if document else Bounds(min=1, max=min(64, spec.largest))
    unit = row.whole("unit", given.unit)
    low = row.whole("min_replicas", max(given.min, unit))
    high = row.whole("max_replicas", given.max)
    if low > spec.largest:
        raise row.bad(
            "min_replicas",
            f"asks for {low} accelerators of one kind and no kind has more than {spec.largest}; "
            "lower it or enlarge the cluster",
        )
    start = given.start if not row.text("min_replicas") else None
    start = row.whole("start_replicas", start or low)
    first = start if row.text("start_replicas") or start != low else None
    bounds = Bounds(min=low, max=min(high, spec.largest), unit=unit, start=first)
    if start != low and not bounds.allow(start):
        raise row.bad("start_replicas", f"is not a multiple of {unit} from {low} to {bounds.max}")
    if not list(bounds.sizes()) or not bounds.allow(bounds.first):
        column = "unit" if row.text("unit") else "max_replicas"
        why = f"leaves no multiple of {unit} from {low} to {high}; widen the bounds"
        raise row.bad(column, why)
    return bounds


def _wanted(row: _Row, bounds: Bounds, spec: Spec) -> int:
    wanted = row.whole("num_replicas", bounds.first)
    if wanted > spec.largest:
        raise row.bad(
            "num_replicas",
            f"is more than any kind of node has, {spec.largest}; lower it or enlarge the cluster",
        )
    return wanted


def _check_batch(row: _Row, batch: int, application: Application) -> None:
    if batch > application.largest_batch:
        raise row.bad(
            "batch_size",
            f"is above {application.largest_batch}, the largest batch known for the application; "
            "lower batch_size",
        )


def known() -> Iterator[tuple[str, str]]:
    """Yield the columns with their descriptions, for documentation."""
    return iter(COLUMNS.items())
