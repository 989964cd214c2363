"""``brain simulate``: a workload on a simulated cluster, under one policy or several."""

import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import click

from brain import wire
from brain.cli import output
from brain.cli.documents import parse_yaml
from brain.cli.strays import strays_to_stderr
from brain.errors import BadInput
from brain.settings import Settings, settings_from
from brain.simulator import run as running
from brain.simulator.applications import CATALOGUE, Application
from brain.simulator.report import page
from brain.simulator.report.page import rows
from brain.simulator.run import NAMES, PolicyOutcome, Progress
from brain.simulator.spec import Spec, read_spec
from brain.simulator.tables import measured
from brain.simulator.workload import Arrival, read_workload
from brain.types.job import JobDocument, OptimizeMode
from brain.typeset import duration

#: The only setting that a simulation overrides: no person is there to approve plans.
VIRTUAL = {"policy_mode": "auto"}
#: A figure's name, and its value under each policy.
_Row = tuple[str, Sequence[str]]
_MODES = (OptimizeMode.CLUSTER, OptimizeMode.SINGLE_JOB)


@click.command()
@click.argument("workload", type=click.Path(path_type=Path))
@click.option(
    "--cluster", "cluster", required=True, type=click.Path(path_type=Path), help="Cluster (YAML)."
)
@click.option(
    "--policy",
    "policies",
    multiple=True,
    type=click.Choice(NAMES),
    default=("brain",),
    show_default=True,
    help="Policy that decides the sizes of jobs; repeat the option to compare several.",
)
@click.option(
    "--applications",
    type=click.Path(path_type=Path),
    help="Directory with one folder of measured tables per application.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Random seed for faults and measurement noise.",
)
@click.option(
    "--set",
    "given",
    multiple=True,
    metavar="NAME=VALUE",
    help=("A setting of Brain; `brain config` lists all settings."),
)
@click.option(
    "--mode",
    type=click.Choice([str(mode) for mode in _MODES]),
    default=str(OptimizeMode.CLUSTER),
    show_default=True,
    help="Quantity that Brain optimizes.",
)
@click.option("--declared", is_flag=True, help="Let each job declare how long it trains.")
@click.option(
    "--tune", "tunes", is_flag=True, help=("Let scripts use the batch size that Brain gives them.")
)
@click.option(
    "--recurring",
    is_flag=True,
    help=(
        "Treat the jobs of one application as runs of one script, so that later jobs learn from "
        "earlier ones."
    ),
)
@click.option(
    "--report",
    type=click.Path(path_type=Path),
    default=Path("simulation.html"),
    show_default=True,
    help="File for the HTML page with plots; - writes none.",
)
@click.option("-o", "--output", "form", type=click.Choice(["table", "json"]), default="table")
def simulate(
    workload: Path,
    cluster: Path,
    policies: tuple[str, ...],
    applications: Path | None,
    seed: int,
    given: tuple[str, ...],
    mode: str,
    declared: bool,
    tunes: bool,
    recurring: bool,
    report: Path,
    form: str,
) -> None:
    """Run a workload (CSV) on a cluster in virtual time, and print the results.

    \b
    brain simulate workload.csv --cluster cluster.yaml
    brain simulate workload.csv --cluster cluster.yaml --policy brain --policy tiresias

    The workload has a line per job: name, time (seconds), application, and optional columns
    (docs/guides/simulator.md). Brain's own loop decides, on in-memory stores; the same seed gives
    the same result.
    """
    spec = read_spec(read_yaml(cluster))
    known = applications_of(spec, applications, read_text(workload))
    arrivals = read_workload(
        read_text(workload).splitlines(),
        spec,
        known,
        documents=lambda path: _document(workload.parent / path),
        declared=declared,
        tunes=tunes,
        recurring=recurring,
    )
    settings = settings_from(VIRTUAL, chosen(given))
    if str(report) != "-" and not report.parent.is_dir():  # before minutes are spent
        raise BadInput(
            f"--report {report}: the directory {report.parent} does not exist; name another file"
        )
    outcomes = [
        run(arrivals, spec, known, policy, settings, seed=seed, mode=OptimizeMode(mode))
        for policy in dict.fromkeys(policies)
    ]
    if form == "json":
        click.echo(json.dumps([plain(outcome) for outcome in outcomes], indent=2))
    else:
        show(outcomes)
    if str(report) != "-":
        title = f"{workload.name} on {cluster.name}"
        write_page(report, page(outcomes, title=title, styles=styles()))
        click.echo(f"Report: {report}", err=form == "json")


def run(
    arrivals: Sequence[Arrival],
    spec: Spec,
    applications: Mapping[str, Application],
    policy: str,
    settings: Settings,
    *,
    seed: int,
    mode: OptimizeMode,
) -> PolicyOutcome:
    """Simulate one policy, with a progress bar on a terminal."""
    with bar(policy, len(arrivals)) as progress, strays_to_stderr():
        return running.simulate(
            arrivals,
            spec,
            applications,
            policy=policy,
            settings=settings,
            seed=seed,
            mode=mode,
            stopwatch=time.process_time,
            progress=progress,
        )


@contextmanager
def bar(policy: str, jobs: int) -> Iterator[Progress | None]:
    """Show a progress bar of finished jobs on a terminal, and nothing elsewhere."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description:10}"),
        BarColumn(),
        TextColumn(
            "{task.completed:.0f} of {task.total:.0f} jobs, virtual time {task.fields[now]}"
        ),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(policy, total=jobs, now="0")
        yield lambda finished, now: progress.update(task, completed=finished, now=duration(now))


def show(outcomes: Sequence[PolicyOutcome]) -> None:
    """Print the figures, one column per policy."""
    figures = [
        output.Column(outcome.policy, partial(_figure, index), right=True)
        for index, outcome in enumerate(outcomes)
    ]
    label = output.Column[_Row]("", lambda row: row[0], rank=0)
    output.show(list(rows(outcomes)), [label, *figures], "wide", name=lambda row: row[0])


def _figure(policy: int, row: _Row) -> str:
    return row[1][policy]


def plain(outcome: PolicyOutcome) -> dict[str, Any]:
    """Return the outcome of a simulation as plain values.

    Only the value ``policy_seconds`` differs between runs with the same seed.
    """
    return {
        "policy": outcome.policy,
        "seed": outcome.seed,
        "summary": asdict(outcome.summary),
        "jobs": [
            {
                "name": job.name,
                "application": job.application,
                "submitted_seconds": job.submitted,
                "started_seconds": job.started,
                "finished_seconds": job.finished,
                "jct_seconds": job.jct,
                "accelerator_seconds": job.accelerator_seconds,
                "restarts": job.restarts,
                "rho": job.unfairness,
            }
            for job in outcome.jobs
        ],
        "policy_seconds": asdict(outcome.time),
    }


def chosen(given: Sequence[str]) -> dict[str, str]:
    """Parse settings of the form NAME=VALUE.

    Raises:
        BadInput: an item has another form.
    """
    pairs = [item.partition("=") for item in given]
    for item, (name, sign, _) in zip(given, pairs, strict=True):
        if not name or not sign:
            raise BadInput(
                f"--set {item!r} is not NAME=VALUE; `brain config` lists the names", field="set"
            )
    return {name: value for name, _, value in pairs}


def applications_of(spec: Spec, tables: Path | None, workload: str) -> Mapping[str, Application]:
    """Return the applications that a workload may use.

    They come from the catalogue and from the cluster's document. The directory ``tables`` adds
    those of its applications that ``workload`` names.

    Raises:
        BadInput: the directory or one of its tables cannot be used.
    """
    known: dict[str, Application] = {**CATALOGUE, **spec.applications}
    if tables is None:
        return known
    if not tables.is_dir():
        raise BadInput(
            f"--applications {tables} is not a directory; name one with a folder per application"
        )
    for folder in sorted(tables.iterdir()):
        if folder.is_dir() and f",{folder.name}" in workload:
            texts = {file.name: read_text(file) for file in sorted(folder.glob("*.csv"))}
            known[folder.name] = measured(folder.name, texts, list(spec.nodes))
    return known


def read_text(path: Path) -> str:
    """Read a file.

    Raises:
        BadInput: the file cannot be read, or is not UTF-8.
    """
    try:
        # Spreadsheets begin their files with a byte order mark.
        return path.read_text(encoding="utf-8-sig")
    except OSError as missing:
        raise BadInput(
            f"{path} cannot be read: {missing.strerror}; name a file that you can read"
        ) from missing
    except UnicodeDecodeError as bad:
        raise BadInput(f"{path} is not UTF-8 text; save it as UTF-8") from bad


def read_yaml(path: Path) -> Any:
    """Read a YAML file.

    Raises:
        BadInput: the file cannot be read, or is not YAML.
    """
    return parse_yaml(read_text(path), str(path))


def write_page(path: Path, text: str) -> None:
    """Write a report.

    Raises:
        BadInput: the file cannot be written.
    """
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as bad:
        raise BadInput(
            f"--report {path} cannot be written: {bad.strerror}; name another file"
        ) from bad


def styles() -> str:
    """Return the CSS of the report: the dashboard's design tokens (``tokens.css``) and the report's
    own rules.
    """
    package = Path(__file__).parents[1]
    shipped = package / "_tokens.css"
    tokens = shipped if shipped.exists() else package.parent / "web/src/styles/tokens.css"
    rules = package / "simulator" / "report" / "page.css"
    return tokens.read_text() + rules.read_text()


def _document(path: Path) -> JobDocument:
    return wire.job_document(read_yaml(path))
