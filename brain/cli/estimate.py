"""``brain estimate``: the needs of a job before it runs."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import click

from brain import calls
from brain.cli import output
from brain.cli.connect import gpus_option, with_client
from brain.cli.documents import JobCommand, complete, document_of, expect_one, read_document
from brain.client import BrainClient
from brain.errors import BadInput
from brain.settings import prices_of
from brain.types.estimate import Band, Estimate, EstimateQuestion, SizeEstimate
from brain.typeset import count, duration, number, percent

_GIB, _MIB = 2**30, 2**20


def _column(
    head: str, cell: Callable[[SizeEstimate], str], rank: int, *, wide: bool = False
) -> output.Column[SizeEstimate]:
    return output.Column(head, cell, right=True, wide=wide, rank=rank)


def _band(band: Band | None, scale: float = 1.0) -> str:
    """Format a value as ``3.2 (2.9–3.6)``; only as ``3.2`` if the band rounds to the value."""
    if band is None:
        return "—"
    value, low, high = (_figure(each / scale) for each in (band.value, band.low, band.high))
    return value if value == low == high else f"{value} ({low}–{high})"


def _figure(value: float) -> str:
    """Round to three figures; a negligible value becomes 0."""
    return "0" if abs(value) < 0.0005 else number(value)


def _time(band: Band | None) -> str:
    if band is None:
        return "—"
    if band.low == band.high:
        return duration(band.value)
    return f"{duration(band.value)} ({duration(band.low)}–{duration(band.high)})"


def _note(row: SizeEstimate) -> str:
    words = [
        "begin here" if row.chosen else "",
        "exploring" if row.exploring and not row.undetermined else "",
        "waits for room" if row.fits and not row.fits_now else "",
        row.why_not,
    ]
    return ", ".join(filter(None, words))


def columns(currency: str) -> tuple[output.Column[SizeEstimate], ...]:
    """Return the columns of the table of sizes; ``currency`` is the unit in the heading of the
    cost.

    A range in a cell is a 90 % interval.
    """
    return (
        _column("REPLICAS", lambda row: str(row.replicas), 0),
        output.Column("ON", lambda row: row.accelerator, rank=2, least=8),
        _column("NODES", lambda row: str(row.nodes), 2, wide=True),
        _column("THROUGHPUT", lambda row: output.rate(row.throughput), 2),
        _column("TRAINS FOR", lambda row: _time(row.finish_seconds), 1),
        _column("ACCEL-HOURS", lambda row: _band(row.accelerator_hours), 4),
        _column(f"COST {currency}", lambda row: _band(row.cost), 3),
        _column("NET MiB/s", lambda row: _band(row.network_bytes_per_second, _MIB), 6),
        _column("CPU", lambda row: _band(row.cpu_millis, 1000), 5),
        _column("MEM GiB", lambda row: _band(row.memory_bytes, _GIB), 4),
        _column("DEVICE GiB", lambda row: _band(row.device_memory_bytes, _GIB), 4, wide=True),
        output.Column("", _note, rank=1, least=16),
    )


@click.command(cls=JobCommand)
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "-f",
    "--file",
    "path",
    type=click.Path(),
    help=("Path of the job document; - reads standard input."),
)
@click.option("--name", help="Name of the job; default: the name of the script.")
@click.option(
    "--replicas", default="1", show_default=True, help=("Replicas as MIN:MAX, or one number.")
)
@click.option("--nproc", default=1, show_default=True, help="Processes per replica.")
@gpus_option
@click.option(
    "--checkpoint",
    metavar="PATH",
    help="File or directory that the script saves to; `none` if it saves nothing.",
)
@click.option(
    "--env",
    multiple=True,
    metavar="NAME=VALUE",
    help=("Environment variable of the workers, NAME=VALUE."),
)
@click.option("--steps", type=int, help="Length of the run in optimizer steps.")
@click.option("--examples", type=float, help="Length of the run in examples.")
@click.option(
    "--examples-per-epoch", type=float, help="Examples per epoch; needs `epochs` in the document."
)
@click.option(
    "--price",
    "prices",
    multiple=True,
    metavar="KIND=MONEY",
    help=("Price of one accelerator for one hour."),
)
@click.option(
    "--deadline",
    type=float,
    metavar="HOURS",
    help="List only sizes at which the job is likely to finish by this time.",
)
@click.option(
    "--budget",
    type=float,
    metavar="MONEY",
    help="List only sizes at which the job costs no more than this.",
)
@click.option(
    "--probe", is_flag=True, help=("First measure the script at a few sizes, for two minutes.")
)
@click.option(
    "--probe-seconds",
    type=float,
    default=120.0,
    show_default=True,
    help=("Time limit of the whole probe, in seconds."),
)
@click.option(
    "--batch-option",
    metavar="OPTION",
    help="The script's option for its batch size; the probe doubles the batch once.",
)
@output.output_option
@with_client
def estimate(
    client: BrainClient,
    words: tuple[str, ...],
    path: str | None,
    form: str,
    probe: bool,
    probe_seconds: float,
    batch_option: str | None,
    checkpoint: str | None,
    steps: int | None,
    examples: float | None,
    examples_per_epoch: float | None,
    prices: tuple[str, ...],
    deadline: float | None,
    budget: float | None,
    **options: Any,
) -> None:
    """Estimate how long a job will take and what it will need, before it runs.

    The estimate is based on similar jobs; with --probe, on two minutes of the script itself.

    \b
    brain estimate -f job.yaml --price A100=2.5
    brain estimate --probe --replicas 1:4 --checkpoint last.pt --steps 5000 -- python train.py
    """
    expect_one("estimate", path, words, options)
    declared = checkpoint if checkpoint != "none" else None
    document = (
        read_document(path)
        if path
        else document_of(words, policy=None, checkpoint=declared, **options)
    )
    if path and declared:
        document["checkpoint"] = dict(document.get("checkpoint") or {}) | {"path": declared}
    complete(document)
    expect_figures(
        {
            "--examples": examples,
            "--examples-per-epoch": examples_per_epoch,
            "--deadline": deadline,
            "--budget": budget,
            "--probe-seconds": probe_seconds,
        }
    )
    question = EstimateQuestion(
        steps=steps,
        examples=examples,
        examples_per_epoch=examples_per_epoch,
        prices=_prices(prices),
        deadline_seconds=None if deadline is None else deadline * 3600,
        budget=budget,
    )
    # Refused here, before the probe runs for minutes.
    answer = client.send(calls.estimate(document, question))
    if probe:
        from brain.cli.probing import probe as run

        run(
            client,
            document,
            answer,
            seconds=probe_seconds,
            batch_option=batch_option,
            saves_nothing=checkpoint == "none",
            say=lambda sentence: click.echo(sentence, err=True),
        )
        answer = client.send(calls.estimate(document, question))
    show(answer, form)


def expect_figures(given: Mapping[str, float | None]) -> None:
    """Refuse options whose numbers are not finite, or not above 0.

    Raises:
        BadInput: the message names the option.
    """
    for name, value in given.items():
        if value is not None and not 0 < value < math.inf:
            raise BadInput(f"{name} {value:g} must be a finite number above 0", field=name[2:])


def _prices(given: tuple[str, ...]) -> dict[str, float]:
    try:
        return prices_of(",".join(given))
    except BadInput as bad:
        raise BadInput(f"--price: {bad}", field="prices") from bad


def show(answer: Estimate, form: str) -> None:
    """Print an estimate in the format ``form``."""
    if form in ("json", "yaml"):
        output.dump(answer, form)
        return
    output.show(answer.sizes, columns(answer.currency), form, name=lambda row: str(row.replicas))
    if form == "name":
        return
    for line in lines(answer, form):
        click.echo(line)


def lines(answer: Estimate, form: str) -> list[str]:
    """Return the lines that are printed below the estimate's table."""
    found = [
        f"Throughput of all replicas in {answer.unit}; CPU and memory per replica. Intervals: 90 %."
    ]
    found.append(f"Rests on {answer.basis}.")
    if answer.work is not None:
        found.append(f"Work: {answer.work.basis}.")
    why = answer.explanation
    if why is not None:
        chosen = next(row for row in answer.sizes if row.chosen)
        sizes = count(chosen.replicas, "replica")
        found.append(
            f"Brain would start the job with {sizes} on {chosen.accelerator}: {why.reason}."
        )
        found += [f"  {fact.label}: {fact.value}" for fact in why.evidence]
        found.append(f"Next: {why.next_step}")
    elif not answer.exploring:
        found.append("Brain cannot recommend a size; the table gives the reasons.")
    if answer.exploring:
        found.append(
            "This estimate is marked exploring, because Brain has measured no similar job."
        )
    found += [f"Missing: {sentence}" for sentence in answer.missing]
    if form == "wide":
        found += [
            f"{one.name}: {percent(one.likeness)} similar ({one.same})" for one in answer.similar
        ]
    return found
