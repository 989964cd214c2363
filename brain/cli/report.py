"""``brain report``: what a job reserves, uses and needs."""

from typing import Any

import click

from brain import calls, wire
from brain.cli import output
from brain.cli.connect import with_client
from brain.client import BrainClient
from brain.types.report import JobReport, ResourceLine
from brain.typeset import cores, count, gibibytes, money, percent


def _amount(line: ResourceLine, amount: float) -> str:
    return cores(amount) if line.resource == "cpu" else gibibytes(amount)


def _columns(currency: str) -> tuple[output.Column[ResourceLine], ...]:
    def cost(line: ResourceLine) -> str:
        unused = line.unused_cost_a_day
        return money(unused, currency) if unused else ""

    return (
        output.Column("ROLE", lambda line: line.role, rank=4),
        output.Column("OF EACH", lambda line: line.resource, rank=0),
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
        output.Column("TOO MUCH A DAY", cost, right=True, rank=3),
    )


@click.command()
@click.argument("job")
@click.option("-o", "--output", "form", type=click.Choice(["text", "json", "yaml"]), default="text")
@with_client
def report(client: BrainClient, job: str, form: str) -> None:
    """Report what each replica of a job reserves, uses and should reserve, and the cost of that.

    \b
    brain report digits
    brain report digits -o yaml
    """
    card = client.send(calls.report(job))
    if form != "text":
        output.dump(wire.plain(card), form)
        return
    click.echo(card.headline)
    if card.lines:
        click.echo()
        output.show(card.lines, _columns(card.currency), "table", name=lambda line: line.resource)
        click.echo()
    for line in lines(card):
        click.echo(line)
    if card.lines:
        click.echo("\nThe next document:\n")
        output.dump(_pruned(card.document), "yaml")


def lines(card: JobReport) -> list[str]:
    """Return the sentences below the table."""
    found = [
        f"{line.resource}: {'; '.join(filter(None, (line.reason, line.hindsight)))}."
        for line in card.lines
    ]
    found += [f"{one.kind}: {one.sentence}." for one in card.notices[1:]]
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
            ("; there are few readings yet, run this again in ten minutes")
            if card.exploring
            else ""
        )
        found.append(f"Rests on {card.basis}{early}.")
    if card.rejected:
        readings = count(card.rejected, "reading")
        found.append(f"Ignored: {readings}, the last because {card.rejected_because}.")
    return found + [f"Missing: {sentence}." for sentence in card.missing]


def _pruned(document: Any) -> Any:
    """Return the document without unset fields, as a person would write it."""
    if not isinstance(document, dict):
        return document
    pairs = ((name, _pruned(value)) for name, value in document.items() if name != "scriptHash")
    return {
        name: value
        for name, value in pairs
        if value is not None and value is not False and value not in ("", {}, [])
    }
