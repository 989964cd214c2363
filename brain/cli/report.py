"""``brain report``: what a job reserves, uses and needs."""

from dataclasses import replace
from typing import Any

import click

from brain import calls, wire
from brain.cli import output
from brain.cli.connect import with_client
from brain.client import BrainClient
from brain.types.digest import Digest, DigestLine
from brain.types.document import JobDocument
from brain.types.report import JobReport, ResourceLine
from brain.typeset import cores, count, gibibytes, money, number, percent

#: What a replica reserves; the other lines are of space.
_RESERVED = ("cpu", "memory")
#: Fields that a person writes even where they have their defaults.
_SAID = ("name", "command", "replicas", "min", "max", "resources", "cpuMillis")
_DEFAULTS = wire.document_plain(JobDocument(name=""))


def _amount(line: ResourceLine, amount: float) -> str:
    return cores(amount) if line.resource == "cpu" else gibibytes(amount)


def _columns(currency: str) -> tuple[output.Column[ResourceLine], ...]:
    def cost(line: ResourceLine) -> str:
        unused = line.unused_cost_a_day
        return money(unused, currency) if unused else ""

    return (
        output.Column("ROLE", lambda line: line.role, rank=4),
        output.Column("RESOURCE", lambda line: line.resource, rank=0),
        output.Column(
            "RESERVED",
            lambda line: _amount(line, line.reserved) if line.reserved else "nothing",
            right=True,
            rank=1,
        ),
        output.Column("USED", lambda line: _amount(line, line.used), right=True, rank=1),
        output.Column("ADVISED", lambda line: _amount(line, line.advised), right=True, rank=0),
        output.Column(
            "FROM–TO",
            lambda line: f"{_amount(line, line.low)}–{_amount(line, line.high)}",
            right=True,
            rank=3,
        ),
        output.Column("GRADE", lambda line: line.grade, rank=2),
        output.Column("EXCESS A DAY", cost, right=True, rank=3),
    )


_WEEK: tuple[output.Column[DigestLine], ...] = (
    output.Column("OF ALL", lambda line: line.resource, rank=0),
    output.Column("UNIT", lambda line: line.unit, rank=0),
    output.Column("REQUESTED", lambda line: number(line.requested), right=True, rank=0),
    output.Column("USED", lambda line: number(line.used), right=True, rank=1),
    output.Column("ADVISED", lambda line: number(line.recommended), right=True, rank=1),
    output.Column("WASTED", lambda line: number(line.wasted), right=True, rank=0),
)


@click.command()
@click.argument("job", required=False)
@click.option(
    "--owner",
    help="Report on a week of all jobs of this owner (me: your own) instead of on one job.",
)
@click.option("--week", help="The week to report, as 2026-W48; default: the present one.")
@click.option("-o", "--output", "form", type=click.Choice(["text", "json", "yaml"]), default="text")
@with_client
def report(
    client: BrainClient, job: str | None, owner: str | None, week: str | None, form: str
) -> None:
    """Report what each replica of a job reserves, uses and should reserve, with the costs.

    \b
    brain report digits
    brain report digits -o yaml
    brain report --owner ada --week 2026-W48
    """
    if (job is None) == (owner is week is None):
        raise click.UsageError("give either a JOB, or --owner or --week for all jobs of a person")
    if job is None:
        name = "" if owner in (None, "me") else str(owner)
        _show_week(client.send(calls.digest(owner=name, week=week or "")), form)
        return
    card = client.send(calls.report(job))
    if form != "text":
        output.dump(wire.plain(card), form)
        return
    click.echo(card.headline)
    # Space is no reservation of the job's: it is worth a word only where there is too little.
    card = replace(
        card,
        lines=tuple(one for one in card.lines if one.resource in _RESERVED or one.grade == "tight"),
    )
    if card.lines:
        click.echo()
        output.show(card.lines, _columns(card.currency), "table", name=lambda line: line.resource)
        click.echo()
    for line in lines(card):
        click.echo(line)
    if card.lines:
        click.echo("\nThe document to submit next time:\n")
        output.dump(_pruned(card.document, _DEFAULTS), "yaml")


def _show_week(week: Digest, form: str) -> None:
    if form != "text":
        output.dump(wire.plain(week), form)
        return
    click.echo(_week_headline(week))
    if week.lines:
        click.echo()
        output.show(week.lines, _WEEK, "table", name=lambda line: line.resource)
    for title, jobs in (("Look at", week.worst), ("Used best", week.best)):
        for one in jobs:
            spent = money(one.wasted_cost, week.currency) if one.wasted_cost else ""
            waste = f", {spent} wasted" if spent else ""
            used = f"{percent(one.used_share)} of its request used{waste}"
            advice = f" {one.advice}" if one in week.worst else ""
            click.echo(f"\n{title}: {one.name}, {used}.{advice}")


def _week_headline(week: Digest) -> str:
    until = f"{week.until:%Y-%m-%d}"
    jobs = f"{count(week.jobs, 'job')} of {week.owner}"
    said = f"{jobs} had replicas in week {week.week} (until {until})"
    if week.cost is not None:
        wasted = money(week.wasted_cost, week.currency) if week.wasted_cost else "nothing"
        said += f"; they cost {money(week.cost, week.currency)}, of which {wasted} was wasted"
    if week.unmeasured:
        said += f"; {count(week.unmeasured, 'job')} reserved nothing, or had no measured use"
    return f"{said}."


def lines(card: JobReport) -> list[str]:
    """Return the sentences that are printed below the report's table."""
    found = [
        f"{line.resource}: {'; '.join(filter(None, (line.reason, line.hindsight)))}."
        for line in card.lines
    ]
    found += [f"{one.kind}: {one.sentence}." for one in card.notices[1:]]
    if card.hindsight:
        found.append(f"{card.hindsight}.")
    for idle in card.idle:
        cost = f", {money(idle.cost_a_day, card.currency)} a day" if idle.cost_a_day else ""
        some = count(idle.replicas, idle.role)
        found.append(f"Idle for {idle.minutes:.0f} min: {some} on {idle.node}{cost}.")
    if card.accelerator_share is not None:
        found.append(
            f"Accelerators computed for {percent(card.accelerator_share)} of the last day."
        )
    if card.cost_a_day:
        sizes = count(card.replicas, "replica")
        found.append(
            f"Cost of the reservation: {money(card.cost_a_day, card.currency)} a day for {sizes}."
        )
    if card.basis:
        early = (
            "; there are only a few readings so far, so run this again in ten minutes"
            if card.exploring
            else ""
        )
        found.append(f"Rests on {card.basis}{early}.")
    if card.rejected:
        readings = count(card.rejected, "reading")
        found.append(f"Ignored: {readings}, the last because {card.rejected_because}.")
    return found + [f"Missing: {sentence}." for sentence in card.missing]


def _pruned(document: Any, defaults: Any) -> Any:
    """Return the document without unset fields and defaults, as a person would write it."""
    if not isinstance(document, dict):
        return document
    usual = defaults if isinstance(defaults, dict) else {}
    pairs = {
        name: _pruned(value, usual.get(name))
        for name, value in document.items()
        if name in _SAID or (name != "scriptHash" and value != usual.get(name))
    }
    return {name: value for name, value in pairs.items() if value not in (None, {})}
