"""Commands for jobs."""

import sys
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import click

from brain import calls
from brain.cli import output
from brain.cli.connect import (
    dry_run_option,
    gpus_option,
    pages,
    project,
    say_dry_run,
    with_client,
)
from brain.cli.documents import JobCommand, complete, document_of, expect_one, read_document
from brain.client import BrainClient, error_of
from brain.errors import BadInput, BrainError, Overloaded, Unavailable
from brain.types.job import JobState
from brain.types.plan import PlanState, PlanVerdict, ScalePlan
from brain.typeset import percent, reallocation
from brain.views import JobDetail, JobOutcome, JobView

COLUMNS = (
    output.Column[JobView]("STATE", lambda job: job.state, rank=0),
    output.Column[JobView]("JOB", lambda job: job.name, rank=0, least=16),
    output.Column[JobView]("REPLICAS", lambda job: _replicas(job), right=True),
    output.Column[JobView](
        "THROUGHPUT", lambda job: output.rate(job.throughput), right=True, rank=2
    ),
    output.Column[JobView]("UNIT", lambda job: job.unit_of_throughput, rank=5),
    output.Column[JobView]("WAIT", lambda job: percent(job.data_wait_share), right=True, rank=4),
    output.Column[JobView]("MODE", lambda job: job.mode, rank=4),
    output.Column[JobView]("BRAIN", lambda job: _brain(job), rank=3, least=12),
    output.Column[JobView]("REASON", lambda job: _reason(job), least=14),
    output.Column[JobView]("AHEAD OF STORAGE", lambda job: _ahead(job), right=True, wide=True),
    output.Column[JobView]("OWNER", lambda job: job.owner, wide=True),
    output.Column[JobView]("PROJECT", lambda job: job.project, wide=True),
    output.Column[JobView]("SINCE", lambda job: output.clock(job.created_at), wide=True),
    output.Column[JobView]("ID", lambda job: job.id, wide=True),
)


#: Told before a hold that followed: what came of a promise is not to be hidden by it.
MISSED = frozenset({PlanVerdict.FELL_SHORT, PlanVerdict.ROLLED_BACK})
#: Longest silence of a service that `brain wait` bears, once the service has answered.
_SILENT_SECONDS = 60.0
#: Conditions that are told in the place of a reason why the job is well.
_NOT_WELL = ("Hung", "Late", "Straggler", "StaleTelemetry", "Undecided")


@click.command(cls=JobCommand)
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "-f",
    "--file",
    "path",
    type=click.Path(),
    help=("Path of the job document; - reads standard input."),
)
@click.option(
    "--pool", default="", help=("Pool that runs the job; default: the only pool, else local.")
)
@click.option("--image", help="Container image; pools on Kubernetes require one.")
@click.option("--name", help="Name of the job; default: the name of the script.")
@click.option(
    "--replicas", default="1", show_default=True, help=("Replicas as MIN:MAX, or one number.")
)
@click.option(
    "--role",
    "roles",
    multiple=True,
    metavar="NAME=N",
    help="Number of replicas in a role other than worker: ps=2, chief=1, evaluator=1.",
)
@click.option("--nproc", default=1, show_default=True, help="Processes per replica.")
@click.option("--policy", type=click.Choice(["off", "shadow", "approve", "auto"]))
@gpus_option
@click.option(
    "--checkpoint",
    metavar="PATH",
    help="File or directory that the script saves to, if Brain cannot detect it.",
)
@click.option(
    "--grace",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="Seconds that the script gets to save after the stop signal; default: 30.",
)
@click.option(
    "--independent",
    is_flag=True,
    help=("Declare that each replica runs an independent copy of the script on purpose."),
)
@click.option(
    "--env",
    multiple=True,
    metavar="NAME=VALUE",
    help=("Environment variable of the workers, NAME=VALUE."),
)
@dry_run_option
@output.output_option
@with_client
def submit(
    client: BrainClient,
    words: tuple[str, ...],
    path: str | None,
    pool: str,
    form: str,
    dry_run: bool,
    **options: Any,
) -> None:
    """Start a job from a document or a command.

    \b
    brain submit -f job.yaml
    brain submit --replicas 1:4 -- python train.py --epochs 3
    brain submit --replicas 5:8 --role chief=1 --role ps=2 -- python ads.py
    brain submit --pool kubernetes --image registry.example/digits:1 -- python train.py
    """
    expect_one("submit", path, words, options)
    if len(words) == 1 and words[0].endswith((".yaml", ".yml")):
        raise BadInput(
            f"command: {words[0]} is a document; submit it with -f {words[0]}", field="command"
        )
    document = read_document(path) if path else document_of(words, **options)
    if named := project():
        document.setdefault("project", named)
    # A container has neither this directory nor the files in it.
    if pool == "local" or (not pool and "image" not in document):
        complete(document)
    started = client.send(calls.submit(document, pool=pool, dry_run=dry_run))
    say_dry_run(dry_run, form)
    output.show([started], COLUMNS, form, name=lambda job: job.id)


@click.command()
@click.option("--filter", default="", help="Filter, for example `state:Running project:vision`.")
@output.sort_option
@click.option("-w", "--watch", "watching", is_flag=True, help="Refresh every two seconds.")
@output.output_option
@with_client
def jobs(client: BrainClient, filter: str, sort: str, watching: bool, form: str) -> None:
    """List jobs, newest first."""

    def fetch() -> list[JobView]:
        return list(pages(client, lambda at: calls.jobs(filter=filter, sort=sort, page_token=at)))

    show = partial(output.show, columns=COLUMNS, form=form, name=lambda job: job.name)
    output.watch(fetch, show) if watching else show(fetch())


@click.command()
@click.argument("job")
@click.option("-w", "--watch", "watching", is_flag=True, help="Refresh every two seconds.")
@output.output_option
@with_client
def job(client: BrainClient, job: str, watching: bool, form: str) -> None:
    """Show one job."""

    fetch = partial(client.send, calls.job(job))

    def show(detail: JobDetail) -> None:
        if form in ("json", "yaml"):
            output.dump(detail, form)
            return
        output.show([detail.job], COLUMNS, form, name=lambda found: found.id)
        if form == "name":
            return
        decision = None if detail.job.finished_at else detail.job.decision
        for condition in detail.job.conditions:
            if decision and condition.reason == decision.explanation.reason:
                continue  # the line `Why` shows it
            click.echo(f"{condition.kind}: {condition.reason}")
        for said in filter(None, (output.groups(detail.job), _memory(detail.job))):
            click.echo(said)
        for line in output.finding(detail.worlds):
            click.echo(line)
        if decision:
            click.echo(f"Why: {decision.explanation.reason}")
            click.echo(f"Next: {decision.explanation.next_step}")

    output.watch(fetch, show) if watching else show(fetch())


def _action(name: str, about: str) -> click.Command:
    @click.command(name, help=f"{about} A refusal for one job does not affect the other jobs.")
    @click.argument("jobs", nargs=-1)
    @click.option(
        "--filter",
        default="",
        help=("Select jobs by a filter instead of names: `state:Running owner:me`."),
    )
    @dry_run_option
    @output.output_option
    @with_client
    def act(
        client: BrainClient, jobs: tuple[str, ...], filter: str, dry_run: bool, form: str
    ) -> None:
        call = calls.change_jobs(name, jobs, filter=filter, dry_run=dry_run)
        outcomes = client.send(call).items
        changed = [one.job for one in outcomes if one.job]
        if changed or not outcomes:
            _show_changed(changed, dry_run, form)
        _raise_refused(outcomes)

    return act


def _show_changed(changed: Sequence[JobView], dry_run: bool, form: str) -> None:
    say_dry_run(dry_run, form)
    output.show(changed, COLUMNS, form, name=lambda job: job.name)


def _raise_refused(outcomes: Sequence[JobOutcome]) -> None:
    """Raise an error of the first refusal's class, with the reason of every refusal."""
    refused = [one.problem for one in outcomes if one.problem]
    if refused:
        said = "; ".join(problem.detail for problem in refused)
        number = f"{len(refused)} of {len(outcomes)} jobs were not changed: "
        kind = refused[0].type.rpartition("/")[2]
        raise error_of(kind, (number if len(outcomes) > 1 else "") + said)


cancel = _action("cancel", "End jobs; they cannot be resumed.")
suspend = _action("suspend", "Stop jobs at their next safe point and free their nodes.")
resume = _action("resume", "Resume suspended jobs from their checkpoints.")


@click.command()
@click.argument("jobs", nargs=-1, required=True)
@dry_run_option
@output.output_option
@with_client
def lift_advise_only(client: BrainClient, jobs: tuple[str, ...], dry_run: bool, form: str) -> None:
    """Let Brain act again on jobs that are advise-only, as their policy mode allows."""
    lifted = [client.send(calls.lift_advise_only(one, dry_run=dry_run)) for one in jobs]
    _show_changed(lifted, dry_run, form)


@click.command()
@click.argument("job")
@click.option(
    "--for",
    "goal",
    default="finished",
    show_default=True,
    help="The state to wait for: finished, state=STATE[,STATE] or plan=STATE[,STATE].",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="Give up after this time; default: never.",
)
@with_client
def wait(client: BrainClient, job: str, goal: str, timeout: float | None) -> None:
    """Wait until a job, or its newest plan, is in a state.

    The exit code is 0 once the state is reached, 1 if it cannot be reached any more (or the job
    finished without success), and 124 after the timeout. The wait ends if Brain answers nothing for
    a minute.
    """
    kind, wanted = _goal(goal)
    deadline = None if timeout is None else time.monotonic() + timeout
    id, answered_at = job, float("-inf")
    while deadline is None or time.monotonic() < deadline:
        try:
            found = client.send(calls.job(id)).job
        except (Overloaded, Unavailable):
            # The job goes on while the service is restarted.
            if time.monotonic() > answered_at + _SILENT_SECONDS:
                raise
            time.sleep(0.5)
            continue
        # A later job may get the name.
        id, answered_at = found.id, time.monotonic()
        plan = found.plan.state if found.plan else ""
        ended = found.finished_at is not None
        if {"finished": ended, "state": found.state in wanted}.get(kind, plan in wanted):
            click.echo(f"{found.name}: {found.state}{f', plan {plan}' if plan else ''}")
            if kind == "finished" and found.state is not JobState.SUCCEEDED:
                raise BrainError(found.reason)
            return
        if ended:
            raise BrainError(f"{found.name} is {found.state}: {found.reason}")
        time.sleep(0.5)
    click.echo(
        f"{job} did not reach {goal} within {timeout:g} s; wait longer with --timeout, or look "
        f"at `brain job {job}`",
        err=True,
    )
    sys.exit(124)


def _goal(goal: str) -> tuple[str, set[str]]:
    """Return ``--for`` as its kind and the states that it names; refuse unknown states."""
    kind, _, said = goal.partition("=")
    states: dict[str, set[str]] = {"finished": {""}, "state": {*JobState}, "plan": {*PlanState}}
    wanted, known = set(said.split(",")), states.get(kind, set())
    if not wanted <= known:
        names = f"; STATE is one of {', '.join(sorted(known))}" if len(known) > 1 else ""
        raise click.UsageError(
            f"--for {goal!r} is not valid; give finished, state=STATE or plan=STATE{names}"
        )
    return kind, wanted


@click.command()
@click.argument("job")
@click.option("--replica", type=click.IntRange(min=0), help="Only this replica.")
@click.option(
    "--rank",
    type=click.IntRange(min=0),
    help="Print only the output of the replica with this rank.",
)
@click.option(
    "--previous",
    is_flag=True,
    help=(
        "Print the output of the replica that ended last; with --rank, the output of the "
        "replica that had this rank before the present one."
    ),
)
@click.option("-f", "--follow", is_flag=True, help="Keep printing until the job ends.")
@with_client
def logs(
    client: BrainClient,
    job: str,
    replica: int | None,
    rank: int | None,
    previous: bool,
    follow: bool,
) -> None:
    """Print the output of the workers."""
    if follow:  # a later job may get the name
        job = client.send(calls.job(job)).job.id
    call = calls.logs(job, replica=replica, rank=rank, previous=previous, follow=follow)
    with client.lines(call) as lines:
        for line in lines:
            click.echo(line)
    if follow and replica is rank is None and not previous:
        found = client.send(calls.job(job)).job
        if found.finished_at is None:
            said = f"Brain ended the output, perhaps to restart, although {found.name} is"
            raise Unavailable(f"{said} {found.state}; run the command again to read on")


def _replicas(job: JobView) -> str:
    same = job.replicas == job.replicas_wished
    return str(job.replicas) if same else f"{job.replicas} → {job.replicas_wished}"


def _ahead(job: JobView) -> str:
    """Seconds that the newest checkpoint is in memory only."""
    if job.memory is None:
        return "—"
    return "off" if job.memory.off else f"{job.memory.ahead_seconds:.1f} s"


def _memory(job: JobView) -> str:
    """Return a sentence on the checkpoint in memory; empty if the job keeps none there."""
    if job.memory is None:
        return ""
    if job.memory.off:
        return f"RAM checkpoint off: {job.memory.off}"
    copied = {True: ", copied to another host", False: ", not copied yet", None: ""}
    return f"RAM checkpoint: {_ahead(job)} ahead of storage{copied[job.memory.buddy]}"


def _reason(job: JobView) -> str:
    found = (one for one in job.conditions if one.kind in _NOT_WELL)
    return next((f"{one.kind}: {one.reason}" for one in found), job.reason)


def planned(plan: ScalePlan) -> str:
    """Return the state of an active plan, and the size or the amounts that it leads to."""
    if plan.in_place:
        return f"{plan.state} g{plan.generation}: {reallocation(plan.current, plan.target)}"
    return f"{plan.state} g{plan.generation} → {plan.target.replicas}"


def _brain(job: JobView) -> str:
    plan = job.plan
    if plan and plan.active:
        return planned(plan)
    if plan and job.verdict in MISSED:
        # The newest plan is the rollback, not the plan that it undid.
        return job.verdict if plan.restores else f"{job.verdict} g{plan.generation}"
    if job.decision and job.decision.hold and job.finished_at is None:
        return f"Hold: {job.decision.explanation.code}"
    if plan is None:
        return "—"
    ended = job.verdict is PlanVerdict.NOT_APPLIED
    return f"{plan.state if ended else job.verdict} g{plan.generation}"
