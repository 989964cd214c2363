"""Output of commands: tables for people, API objects for programs."""

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from shutil import get_terminal_size
from typing import Any, Generic, TypeVar

import click

from brain import wire
from brain.errors import Overloaded, Unavailable
from brain.types.recommendation import Prediction
from brain.types.world import World
from brain.typeset import UNKNOWN, number
from brain.views import JobView

T = TypeVar("T")
FORMATS = ("table", "wide", "json", "yaml", "name")
#: Spaces between two columns.
_GAP = 2


@dataclass(frozen=True)
class Column(Generic[T]):
    """One column of a table."""

    head: str
    cell: Callable[[T], str]
    right: bool = False
    #: Shown by ``-o wide`` only.
    wide: bool = False
    #: If the terminal is too narrow, columns are dropped from the highest rank down.
    rank: int = 1
    #: Characters to which a cell may be cut; None: it is never cut.
    least: int | None = None


def output_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the option ``-o`` with the formats that all lists support."""
    return click.option(
        "-o",
        "--output",
        "form",
        type=click.Choice(FORMATS),
        default="table",
        show_default=True,
        help="table fits the terminal; wide shows every column in full.",
    )(command)


def sort_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the option ``--sort``; the service checks the given field, because only it knows the
    fields.
    """
    told = "Field to sort by, with - before it for descending, for example `name` or `-created_at`."
    return click.option("--sort", default="", help=told)(command)


def show(
    items: Sequence[T], columns: Sequence[Column[T]], form: str, *, name: Callable[[T], str]
) -> None:
    """Print ``items`` in the format ``form``."""
    if form in ("json", "yaml"):
        dump([wire.plain(item) for item in items], form)
    elif form == "name":
        for item in items:
            click.echo(name(item))
    else:
        wide = form == "wide"
        _table(items, [column for column in columns if wide or not column.wide], whole=wide)


def dump(value: Any, form: str) -> None:
    """Print plain data as JSON or YAML."""
    if form == "yaml":
        import yaml

        click.echo(
            yaml.safe_dump(_lists(wire.plain(value)), sort_keys=False, allow_unicode=True), nl=False
        )
    else:
        import json

        click.echo(json.dumps(wire.plain(value), indent=2, ensure_ascii=False))


def watch(
    fetch: Callable[[], T],
    show: Callable[[T], None],
    *,
    sleep: Callable[[float], None] = time.sleep,
    every_seconds: float = 2.0,
) -> None:
    """Fetch something and show it every few seconds until interrupted.

    While the service does not answer, for example because it restarts, the last state stays, with
    one sentence below it. A service that never answered ends the command.
    """
    shown = silent = False
    while True:
        try:
            found = fetch()
        except (Overloaded, Unavailable) as why:
            if not shown:
                raise
            if not silent:
                click.echo(f"brain: {why}. The command goes on, and asks again.", err=True)
            silent = True
        else:
            if sys.stdout.isatty():
                click.clear()
            show(found)
            shown, silent = True, False
        sleep(every_seconds)


def rate(prediction: Prediction | None) -> str:
    """Format a throughput with its interval: ``1 842 ± 110``, or ``—`` for None.

    If the interval is not symmetric, the form is ``1 842 (1 700–2 100)``.
    """
    if prediction is None:
        return UNKNOWN
    value, low, high = prediction.examples_per_second, prediction.low, prediction.high
    half = number((high - low) / 2, digits=2)
    if {number(high - value, digits=2), number(value - low, digits=2)} == {half}:
        return f"{number(value)} ± {half}"
    return f"{number(value)} ({number(low)}–{number(high)})"


def clock(at: datetime | None) -> str:
    """Format a local time: ``14:21`` today, ``Mon 09:10`` this week, else ``12 Dec 09:10``."""
    if at is None:
        return UNKNOWN
    local, now = at.astimezone(), datetime.now(UTC).astimezone()
    if local.date() == now.date():
        return local.strftime("%H:%M")
    if abs(now - local) < timedelta(days=6):
        return local.strftime("%a %H:%M")
    return local.strftime("%-d %b %H:%M")


def widths(columns: Sequence[Column[Any]], natural: Sequence[int], room: int) -> dict[int, int]:
    """Return the width of each shown column by index; a column that does not fit is left out.

    Columns get their least width in the order of their ranks, then share the remaining characters
    evenly. The most important column always stays.

    >>> name, why = Column("JOB", str, rank=0), Column("WHY", str, least=10)
    >>> widths([name, why], [6, 40], 50), widths([name, why], [6, 40], 20)
    ({0: 6, 1: 40}, {0: 6, 1: 12})
    >>> widths([name, why], [6, 40], 17)
    {0: 6}
    """
    least = {
        index: natural[index] if column.least is None else min(natural[index], column.least)
        for index, column in enumerate(columns)
    }
    by_rank = sorted(least, key=lambda index: (columns[index].rank, index))
    while len(by_rank) > 1 and sum(least.values()) + _GAP * (len(least) - 1) > room:
        del least[by_rank.pop()]
    spare = room - sum(least.values()) - _GAP * (len(least) - 1)
    while spare > 0 and (cut := [index for index in by_rank if least[index] < natural[index]]):
        for index in cut[:spare]:
            least[index] += 1
        spare -= len(cut)
    return least


def _table(items: Sequence[T], columns: Sequence[Column[T]], *, whole: bool) -> None:
    """Print a table, one line per row; into a pipe nothing is cut, because scripts need it all."""
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table

    rows = [[_line(column.cell(item)) for column in columns] for item in items]
    heads = [column.head for column in columns]
    natural = [max(map(cell_len, cells)) for cells in zip(heads, *rows, strict=True)]
    everything = sum(natural) + _GAP * len(natural)
    fits = sys.stdout.isatty() and not whole
    shown = widths(columns, natural, get_terminal_size().columns if fits else everything)
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0))
    for index in sorted(shown):
        table.add_column(
            heads[index],
            justify="right" if columns[index].right else "left",
            width=shown[index],
            no_wrap=True,
            overflow="ellipsis",
        )
    for row in rows:
        table.add_row(*(row[index] for index in sorted(shown)))
    # Both dimensions are given, because rich assumes 80 columns for a dumb terminal.
    Console(markup=False, highlight=False, width=everything, height=100).print(table)


def _line(cell: str) -> str:
    """Return a cell as one line of printable text, whatever a worker wrote into it."""
    return " ".join("".join(char if char.isprintable() else " " for char in cell).split())


def _lists(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _lists(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_lists(inner) for inner in value]
    return value


def groups(job: JobView) -> str:
    """Return a line about the groups of a job; empty if its replicas are alike."""
    said = [
        f"{one.name} {_from_to(one.replicas, one.replicas_wished)} × {one.processes_per_replica}"
        for one in job.groups
    ]
    total = sum(one.replicas_wished * one.processes_per_replica for one in job.groups)
    return f"Groups (replicas × processes): {', '.join(said)}; {total} in all" if said else ""


def _from_to(now: int, then: int) -> str:
    return str(now) if now == then else f"{now} → {then}"


def finding(worlds: Sequence[World], *, whole: bool = False) -> list[str]:
    """Return lines about a job's newest failure; with ``whole``, also the evidence and the
    traceback.
    """
    found = next((world for world in worlds if world.diagnosis is not None), None)
    if found is None or found.diagnosis is None:
        return []
    why = found.diagnosis
    lines = [f"Failed (world {found.epoch}, {why.kind}): {why.sentence}"]
    if whole:
        lines += [f"  {fact.label}: {fact.value}" for fact in why.evidence]
        lines += [f"  | {line}" for line in why.traceback.rstrip().splitlines()]
        for each in why.attachments:
            lines += [f"  {each.name}", *(f"  | {line}" for line in each.text.splitlines())]
    return [*lines, f"  Then: {why.next_step}"] if why.next_step else lines
