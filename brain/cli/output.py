"""How answers are shown: tables for people, API objects for programs."""

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, TypeVar

import click

from brain import wire
from brain.types.recommendation import Prediction
from brain.types.world import World

T = TypeVar("T")
FORMATS = ("table", "wide", "json", "yaml", "name")


@dataclass(frozen=True)
class Column(Generic[T]):
    """One column of a table."""

    head: str
    cell: Callable[[T], str]
    right: bool = False
    wide: bool = False


def output_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``-o`` with the formats that all lists know."""
    return click.option(
        "-o", "--output", "form", type=click.Choice(FORMATS), default="table", show_default=True
    )(command)


def show(
    items: Sequence[T], columns: Sequence[Column[T]], form: str, *, name: Callable[[T], str]
) -> None:
    """Print ``items`` as ``form`` asks."""
    if form in ("json", "yaml"):
        dump([wire.plain(item) for item in items], form)
    elif form == "name":
        for item in items:
            click.echo(name(item))
    else:
        _table(items, [column for column in columns if form == "wide" or not column.wide])


def dump(value: Any, form: str) -> None:
    """Print plain data as JSON or YAML."""
    if form == "yaml":
        import yaml

        click.echo(yaml.safe_dump(_lists(wire.plain(value)), sort_keys=False), nl=False)
    else:
        import json

        click.echo(json.dumps(wire.plain(value), indent=2, ensure_ascii=False))


def watch(draw: Callable[[], None], *, every_seconds: float = 2.0) -> None:
    """Draw again and again until interrupted."""
    while True:
        if sys.stdout.isatty():
            click.clear()
        draw()
        time.sleep(every_seconds)


def rate(prediction: Prediction | None) -> str:
    """``1 842 ± 110``; ``—`` where nothing is known."""
    if prediction is None:
        return "—"
    half = (prediction.high - prediction.low) / 2
    return f"{number(prediction.examples_per_second)} ± {number(half)}"


def number(value: float | None) -> str:
    """Three significant figures, groups of three from 1 000; ``—`` for None."""
    if value is None:
        return "—"
    if value and abs(value) < 100:
        digits = f"{value:.3g}"
        return digits if "e" not in digits else f"{value:.4f}"
    return f"{value:,.0f}".replace(",", " ")


def percent(share: float | None) -> str:
    """A share as per cent without its sign; ``—`` for None."""
    return "—" if share is None else f"{share * 100:.0f}"


def clock(at: datetime | None) -> str:
    """``14:21`` today, ``Mon 09:10`` this week, else ``12 Dec 09:10``, in local time."""
    if at is None:
        return "—"
    local, now = at.astimezone(), datetime.now(UTC).astimezone()
    if local.date() == now.date():
        return local.strftime("%H:%M")
    if abs(now - local) < timedelta(days=6):
        return local.strftime("%a %H:%M")
    return local.strftime("%-d %b %H:%M")


def seconds(value: float | None) -> str:
    """``38 s``, ``4 min``, ``1 h 24 min``; ``—`` for None."""
    if value is None:
        return "—"
    if value < 100:
        return f"{value:.3g} s"
    minutes = round(value / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def _table(items: Iterable[T], columns: Sequence[Column[T]]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD if sys.stdout.isatty() else None, pad_edge=False)
    for column in columns:
        table.add_column(
            column.head,
            justify="right" if column.right else "left",
            overflow="fold",
            no_wrap=not sys.stdout.isatty(),
        )
    for item in items:
        table.add_row(*(column.cell(item) for column in columns))
    # A pipe has no width; cutting there would lose what a script looks for.
    Console(markup=False, highlight=False, width=None if sys.stdout.isatty() else 10_000).print(
        table
    )


def _lists(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _lists(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_lists(inner) for inner in value]
    return value


def finding(worlds: Sequence[World], *, whole: bool = False) -> list[str]:
    """The newest failure of a job in lines; ``whole``: with what tells so, and the traceback."""
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
