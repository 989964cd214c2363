"""``brain replay`` repeats recorded decisions with other settings or another policy."""

import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click

from brain.cli import output
from brain.cli.connect import state_directory, written_settings
from brain.cli.simulate import chosen
from brain.cli.strays import strays_to_stderr
from brain.errors import BadInput, Unavailable
from brain.ports import Stores
from brain.settings import Settings, settings_from, settings_in_environment
from brain.simulator import replay as again
from brain.simulator.policies import OTHERS
from brain.simulator.replay import Replayed, ReplayVerdict, Support, Tally
from brain.simulator.replay.decisions import Progress
from brain.typeset import change, count, duration, number, resize

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_LONGEST_SECONDS = 100 * 365.25 * 86_400.0


@click.command()
@click.option(
    "--since", default="7d", show_default=True, help=("How far back to look: 90m, 12h, 7d, 2w.")
)
@click.option(
    "--policy",
    type=click.Choice(("brain", *OTHERS)),
    default="brain",
    show_default=True,
    help="Who decides instead.",
)
@click.option(
    "--set",
    "given",
    multiple=True,
    metavar="NAME=VALUE",
    help=("A setting of Brain; `brain config` lists all settings."),
)
@click.option("--job", "job", default="", help="Only this job, by id or name.")
@click.option(
    "--all", "everything", is_flag=True, help="Also list decisions that came out the same."
)
@click.option(
    "--database-url",
    default="",
    help=("Database with the recorded decisions; default: the database of `brain up`."),
)
@click.option("-o", "--output", "form", type=click.Choice(["table", "json"]), default="table")
def replay(
    since: str,
    policy: str,
    given: tuple[str, ...],
    job: str,
    everything: bool,
    database_url: str,
    form: str,
) -> None:
    """Repeat this installation's past decisions with other settings, and report the differences.

    \b
    brain replay --since 7d --set minimum_gain=1
    brain replay --since 2w --policy fifo

    The command runs on the machine that has the database, and does not change the database. Each
    decision is repeated with the data that Brain had at that time. A reported difference covers
    only the time until the next recorded change.
    """
    now = datetime.now(UTC)
    begin = now - timedelta(seconds=span(since))
    settings = installed()
    with recorded_here(settings, database_url) as stores:
        with stores.transaction(read_only=True) as tx:
            recording = again.recorded(tx, since=begin, now=now)
        if job:
            recording = recording.only(job)
        with bar() as progress, strays_to_stderr():
            found = again.replay(
                stores,
                recording,
                policy=policy,
                settings=settings_from(asdict(settings), chosen(given)),
                recorded_settings=settings,
                progress=progress,
            )
    total = again.tally(found)
    if form == "json":
        click.echo(json.dumps(plain(found, total), indent=2, default=str))
    else:
        show(found, total, since=since, everything=everything)


def span(text: str) -> float:
    """Return the length in seconds of a duration that a person wrote.

    Raises:
        BadInput: the text is not a duration.

    >>> span("90m"), span("7d")
    (5400.0, 604800.0)
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhdw])", text.strip())
    if not found or float(found[1]) <= 0:
        raise BadInput(f"--since {text!r} is not a duration; write 90m, 12h or 7d", field="since")
    seconds = float(found[1]) * _UNITS[found[2]]
    if seconds > _LONGEST_SECONDS:
        raise BadInput(
            f"--since {text!r} is more than a century; give a shorter duration", field="since"
        )
    return seconds


def installed() -> Settings:
    """Return the settings that ``brain up`` uses here.

    Raises:
        BadInput: ``brain.toml`` cannot be used.
    """
    written = written_settings(state_directory() / "brain.toml")
    return settings_from(written, settings_in_environment(os.environ))


@contextmanager
def recorded_here(settings: Settings, url: str) -> Iterator[Stores]:
    """Yield the stores of this installation.

    Raises:
        Unavailable: this machine has no database of Brain.
    """
    from brain.db import SqlStores

    file = (state_directory() / "brain.db").absolute()
    chosen_url = url or settings.database_url or f"sqlite:///{file}"
    path = Path(chosen_url.removeprefix("sqlite:///"))
    if chosen_url.startswith("sqlite:///") and not path.exists():
        raise Unavailable(
            f"no decisions are recorded in {path}, which is missing: run this command on "
            "Brain's machine, set BRAIN_HOME, or name the database with --database-url"
        )
    stores = SqlStores(chosen_url)
    try:
        yield stores
    finally:
        stores.close()


@contextmanager
def bar() -> Iterator[Progress | None]:
    """Show a progress bar that counts decisions, if standard error is a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress as Bar

    with Bar(console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task("decisions", total=None)
        yield lambda done, total: shown.update(task, completed=done, total=total)


def show(found: Sequence[Replayed], total: Tally, *, since: str, everything: bool) -> None:
    """Print the decisions that differ (all if ``everything``), then the totals."""
    if not found:
        click.echo(
            f"Brain made no decision within the last {since}; look further back with --since"
        )
        return
    for one in found:
        if everything or one.verdict is not ReplayVerdict.SAME:
            for line in lines(one):
                click.echo(line)
    click.echo(
        f"{count(total.decisions, 'decision')}: {total.same} the same, {total.different} "
        f"different, {total.untold} that cannot be repeated from the recorded data"
    )
    if total.gain is not None:
        click.echo(
            f"The different decisions would have changed throughput by {change(total.gain)} on "
            f"average, and taken {_hours(total.replica_hours)} (known for {total.expected} of "
            f"{total.different} decisions)"
        )


def lines(one: Replayed) -> Iterator[str]:
    """Yield the lines that describe a replayed decision to a person."""
    decision = one.decision
    did = resize(decision.before, decision.replicas)
    when, name = output.clock(decision.at), decision.job.document.name
    yield f"{when}  {name}: {did} ({decision.code}) — {one.verdict}"
    if one.verdict is ReplayVerdict.SAME:
        return
    if one.replicas is None:
        yield f"    {one.untold}"
        return
    yield f"    instead {resize(decision.before, one.replicas)} ({one.code}): {one.reason}"
    if one.gain is not None:
        center, low, high = one.gain
        yield (
            f"    throughput {change(center)} ({change(low)} … {change(high)}) for "
            f"{duration(one.stood_seconds)}, {_hours(one.replica_hours)}"
        )
    else:
        yield f"    its effect is unknown: {one.untold}"
    for support in one.supports:
        yield f"    {supported(support)}"


def _hours(more: float | None) -> str:
    """``0.1 replica-hours fewer``."""
    hours = more or 0.0
    return f"{number(abs(hours))} replica-hours {('fewer' if hours < 0 else 'more')}"


def supported(support: Support) -> str:
    """Return a phrase that says which measurements support a size."""
    who = count(support.replicas, "replica")
    if support.worlds:
        worlds = ", ".join(map(str, support.worlds))
        return f"{who}: measured in world{'s' * (len(support.worlds) > 1)} {worlds}"
    if support.predicted is not None:
        return f"{who}: not in any recorded world; predicted by a model of the other sizes"
    return f"{who}: {support.why_not}"


def plain(found: Sequence[Replayed], total: Tally) -> dict[str, Any]:
    """Return a replay as plain values, for programs."""
    return {
        "summary": asdict(total),
        "decisions": [
            {
                "at": one.decision.at.isoformat(),
                "job": one.decision.job.id,
                "name": one.decision.job.document.name,
                "before": one.decision.before,
                "recorded": {"replicas": one.decision.replicas, "code": one.decision.code},
                "replayed": None
                if one.replicas is None
                else {"replicas": one.replicas, "code": one.code, "reason": one.reason},
                "verdict": str(one.verdict),
                "evidence": str(one.evidence),
                "stood": {"replicas": one.stood, "seconds": one.stood_seconds},
                "gain": one.gain,
                "replica_hours": one.replica_hours,
                "supports": [
                    {"replicas": each.replicas, "worlds": each.worlds, "why_not": each.why_not}
                    for each in one.supports
                ],
                "untold": one.untold,
            }
            for one in found
        ],
    }
