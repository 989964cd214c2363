"""Commands for plans and the reasons behind them."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import click

from brain import calls
from brain.cli import output
from brain.cli.amounts import CPU, MEMORY
from brain.cli.connect import dry_run_option, pages, say_dry_run, with_client
from brain.cli.jobs import MISSED
from brain.client import BrainClient
from brain.errors import BadInput, UnknownPlan
from brain.types.advice import NoticeKind
from brain.types.plan import PlanKind, PlanState, ScalePlan
from brain.types.recommendation import Recommendation
from brain.typeset import change, count, duration, plan_change, reallocated, reallocation, standing
from brain.views import JobEdit, JobView, PlanDecision, PlanView, ResizeRequest, WhatIf

COLUMNS = (
    output.Column[PlanView]("STATE", lambda view: view.plan.state, rank=0),
    output.Column[PlanView]("PLAN", lambda view: _named(view), rank=0, least=16),
    output.Column[PlanView]("REPLICAS", lambda view: _sizes(view.plan)),
    output.Column[PlanView](
        "EACH",
        lambda view: reallocated(view.plan.current, view.plan.target) or "—",
        rank=4,
    ),
    output.Column[PlanView](
        "PROMISED", lambda view: output.rate(view.plan.promised), right=True, rank=2
    ),
    output.Column[PlanView](
        "MEASURED", lambda view: output.rate(view.plan.outcome.measured), right=True, rank=2
    ),
    output.Column[PlanView]("VERDICT", lambda view: view.verdict),
    output.Column[PlanView](
        "DOWN", lambda view: duration(view.plan.outcome.downtime_seconds), right=True, rank=3
    ),
    output.Column[PlanView]("WHY", lambda view: view.plan.explanation.reason, least=16),
    output.Column[PlanView]("KIND", lambda view: view.plan.kind, wide=True),
    output.Column[PlanView](
        "BY", lambda view: view.plan.approval.by if view.plan.approval else "—", wide=True
    ),
    output.Column[PlanView]("MADE", lambda view: output.clock(view.plan.created_at), wide=True),
)

#: A prediction older than this is shown with its age.
_FRESH_SECONDS = 60.0
#: Conditions that are printed below the decision.
_ALSO = frozenset({"Frozen", "NotEnforced", *NoticeKind})


def _sizes(plan: ScalePlan) -> str:
    if plan.kind is PlanKind.RESTART:
        return f"{plan.target.replicas}, anew"
    return f"{plan.current.replicas} → {plan.target.replicas}"


@click.command()
@click.argument("job", required=False)
@click.option("--filter", default="", help="For example `state:Proposed`.")
@output.sort_option
@output.output_option
@with_client
def plans(client: BrainClient, job: str | None, filter: str, sort: str, form: str) -> None:
    """List the plans of all jobs, or of one job, newest first."""
    if job and sort:
        raise click.UsageError("--sort is for the plans of all jobs; leave out the job or --sort")
    if job is not None:
        found = list(_plans_of(client, job))
    else:
        found = list(
            pages(client, lambda token: calls.plans(filter=filter, sort=sort, page_token=token))
        )
    if not found and form in ("table", "wide"):
        click.echo(no_plan(job, filter))
        return
    _show(found, form)


def no_plan(job: str | None, filter: str) -> str:
    """Return the sentence that is shown if there is no plan."""
    if filter and not job:
        return f"No plan matches {filter!r}; leave out --filter to list all plans."
    whose = f"{job} has no plan" if job else "There is no plan"
    return (
        f"{whose} yet: Brain makes a plan when another size is worth a restart. `brain explain "
        f"{job or 'JOB'}` shows the current reason."
    )


class _Signed(click.Command):
    """Parses a negative number as an argument instead of an option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        numbers = [arg for arg in args if arg[:1] == "-" and arg[1:].isdigit()]
        if numbers and "--" not in args:
            args = [*(arg for arg in args if arg not in numbers), "--", *numbers]
        return super().parse_args(ctx, args)


@click.command(cls=_Signed)
@click.argument("job")
@click.argument("replicas", type=int)
@click.option("--why", default="", help="Reason, recorded in the audit log.")
@dry_run_option
@output.output_option
@with_client
def resize(
    client: BrainClient, job: str, replicas: int, why: str, dry_run: bool, form: str
) -> None:
    """Ask for a size within the job's bounds."""
    request = ResizeRequest(replicas=replicas, why=why)
    asked = client.send(calls.resize(job, request, dry_run=dry_run))
    say_dry_run(dry_run, form)
    _show([asked], form)


@click.command()
@click.argument("job")
@click.option("--cpu", type=CPU, metavar="CPUS", help="CPU of each replica: 1.5, or 1500m.")
@click.option(
    "--memory", type=MEMORY, metavar="AMOUNT", help=("Memory of each replica: 2Gi, 512Mi, 2G.")
)
@click.option("--replicas", type=int, help="Number of replicas, within the job's bounds.")
@click.option(
    "--gpus", type=click.IntRange(min=0), help="GPUs of each replica; suspend the job first."
)
@click.option(
    "--batch",
    type=click.IntRange(min=1),
    metavar="EXAMPLES",
    help="Global batch in examples, for a script that reads its batch from launcher.batch.",
)
@click.option(
    "--role", help="Only change replicas of this role (ps, worker, chief, evaluator) or group."
)
@click.option("--why", default="", help="Reason, recorded in the audit log.")
@dry_run_option
@output.output_option
@with_client
def edit(
    client: BrainClient,
    job: str,
    cpu: int | None,
    memory: int | None,
    replicas: int | None,
    gpus: int | None,
    batch: int | None,
    role: str | None,
    why: str,
    dry_run: bool,
    form: str,
) -> None:
    """Change what each replica of a running job reserves, its size, or its batch.

    \b
    brain edit digits --memory 4Gi
    brain edit digits --cpu 2 --replicas 3 --dry-run
    brain edit ads --role ps --replicas 3 --memory 2Gi
    brain edit digits --role large --replicas 2
    brain edit digits --batch 512
    """
    if cpu is memory is replicas is gpus is batch is None:
        raise click.UsageError(
            "nothing to change; give --cpu, --memory, --replicas, --gpus or --batch"
        )
    wanted = JobEdit(
        cpu_millis=cpu,
        memory_bytes=memory,
        replicas=replicas,
        gpus=gpus,
        batch=batch,
        role=role,
        why=why,
    )
    made = client.send(calls.edit(job, wanted, dry_run=dry_run))
    say_dry_run(dry_run, form)
    _show([made], form)
    if form in ("table", "wide"):
        click.echo(made.plan.explanation.next_step)


def _decision(name: str, call: Callable[..., Any], about: str, state: PlanState) -> click.Command:
    words = (
        "PLAN is JOB/GENERATION, or JOB for its newest plan; JOB/GENERATION@VERSION if Brain "
        "has renewed the plan."
    )

    @click.command(name, help=f"{about}\n\n{words}")
    @click.argument("plan")
    @click.option("--why", default="", help="Reason, recorded in the audit log.")
    @dry_run_option
    @output.output_option
    @with_client
    def decide(client: BrainClient, plan: str, why: str, dry_run: bool, form: str) -> None:
        seen = find(client, plan, state)
        if name == "approve" and "@" not in plan and _renewed(seen):
            raise BadInput(_look_again(seen), field="plan")
        decision = PlanDecision(version=seen.plan.version, why=why)
        decided = client.send(call(seen.plan.job, seen.plan.generation, decision, dry_run=dry_run))
        say_dry_run(dry_run, form)
        _show([decided], form)

    return decide


approve = _decision(
    "approve", calls.approve, "Approve a plan in its present version.", PlanState.PROPOSED
)
reject = _decision("reject", calls.reject, "Reject a plan.", PlanState.PROPOSED)
rollback = _decision(
    "rollback", calls.rollback, "Return to the size before a plan.", PlanState.VERIFIED
)


def find(client: BrainClient, plan: str, state: PlanState) -> PlanView:
    """Return the plan ``JOB/GENERATION``; for ``JOB``, the newest plan, preferably one in
    ``state``.

    Raises:
        UnknownPlan: the job has no such plan.
        BadInput: the plan no longer has the version that ``@VERSION`` names.
    """
    named, at, version = plan.partition("@")
    job, slash, generation = named.partition("/")
    if slash and not generation.isdecimal():
        raise BadInput(
            f"{plan!r} is neither JOB nor JOB/GENERATION; `brain plans` lists the plans",
            field="plan",
        )
    seen = client.send(calls.plan(job, int(generation))) if slash else _newest(client, job, state)
    if at and version != str(seen.plan.version):
        raise BadInput(f"{plan} has changed since you saw it. {_look_again(seen)}", field="plan")
    return seen


def _newest(client: BrainClient, job: str, state: PlanState) -> PlanView:
    """Return the newest plan of a job in ``state``; if there is none, the newest plan."""
    newest: PlanView | None = None
    for view in _plans_of(client, job):
        if view.plan.state is state:
            return view
        newest = newest or view
    if newest is None:
        raise UnknownPlan(f"{job} has no plan; `brain plans` lists the plans")
    return newest


def _plans_of(client: BrainClient, job: str) -> Iterator[PlanView]:
    yield from pages(client, lambda token: calls.plans_of(job, page_token=token))


def _renewed(view: PlanView) -> bool:
    """Return True for a proposal whose numbers changed since it was first shown."""
    return view.plan.state is PlanState.PROPOSED and view.plan.updated_at > view.plan.created_at


def _named(view: PlanView) -> str:
    """Return the plan's name for ``brain approve``, with its version if the plan was renewed."""
    version = f"@{view.plan.version}" if _renewed(view) else ""
    return f"{view.job_name}/{view.plan.generation}{version}"


def _look_again(view: PlanView) -> str:
    plan = view.plan
    return (
        f"Brain renewed plan {view.job_name}/{plan.generation} at "
        f"{output.clock(plan.updated_at)}: {plan.current.replicas} → {plan.target.replicas} "
        f"replicas, with {output.rate(plan.promised)} promised and {output.rate(plan.measured)} "
        f"measured; if you still want this plan, approve {_named(view)}"
    )


@click.command()
@click.argument("job")
@click.option("-o", "--output", "form", type=click.Choice(["text", "json", "yaml"]), default="text")
@with_client
def explain(client: BrainClient, job: str, form: str) -> None:
    """Explain why a job has its size: the reason, the evidence, and the rejected alternatives."""
    if form != "text":
        output.dump(client.send(calls.recommendation(job)), form)
        return
    detail = client.send(calls.job(job))
    seen = detail.job
    text = _why(seen, datetime.now(UTC))
    click.echo(text)
    if said := output.groups(seen):
        click.echo(said)
    if missed := _missed(seen):
        click.echo(missed)
    for each in seen.conditions:
        if each.kind in _ALSO and each.reason not in text:
            click.echo(f"{each.reason[:1].upper()}{each.reason[1:]}.")
    for line in output.finding(detail.worlds, whole=True):
        click.echo(line)


@click.command("what-if")
@click.argument("job")
@output.output_option
@with_client
def what_if(client: BrainClient, job: str, form: str) -> None:
    """Predict a job's throughput at every size it may have."""
    scaling = client.send(calls.what_if(job))
    marks = {scaling.current: "the job's size", scaling.recommended: "recommended"}
    columns = (
        output.Column[WhatIf]("REPLICAS", lambda size: str(size.replicas), right=True),
        output.Column[WhatIf]("PREDICTED", lambda size: output.rate(size.prediction), right=True),
        output.Column[WhatIf]("MEASURED", lambda size: output.rate(size.measured), right=True),
        output.Column[WhatIf]("", lambda size: size.undetermined or marks.get(size.replicas, "")),
    )
    output.show(scaling.sizes, columns, form, name=lambda size: str(size.replicas))
    if form in ("table", "wide"):
        click.echo(scaling.basis)


def _missed(job: JobView) -> str:
    """Return a sentence on the newest promise if it was missed; empty otherwise."""
    plan = job.plan
    if plan is None or job.verdict not in MISSED:
        return ""
    if plan.restores:
        return f"Rolled back by plan {plan.generation}: {plan.explanation.reason}"
    said = (
        f"Plan {plan.generation}, {plan_change(plan)}, fell short of its promise; the new size "
        "stays"
    )
    return f"{said}: {plan.outcome.detail}"


def _why(job: JobView, now: datetime) -> str:
    if job.finished_at is not None:
        return f"{job.name} {standing(job.state, job.reason)}"
    if job.plan is not None and job.plan.active:
        return plan_text(job.name, job.plan, job.unit_of_throughput, job.decision, now)
    if job.decision is None:
        return "Brain has not evaluated this job yet; try again in a few seconds."
    return _text(job.decision, job.unit_of_throughput, now)


def plan_text(
    name: str, plan: ScalePlan, unit: str, newest: Recommendation | None, now: datetime
) -> str:
    """Return the text that shows an active plan, with the commands to approve or reject the plan.

    ``newest`` is the newest decision. Once a person has approved the plan, this decision says what
    the plan waits for.
    """
    advice = Recommendation(
        current=plan.current,
        target=plan.target,
        measured=plan.measured,
        predicted=plan.promised,
        restart_seconds=plan.restart_seconds,
        payback_seconds=plan.payback_seconds,
        explanation=plan.explanation,
        decided_at=plan.updated_at if plan.state is PlanState.PROPOSED else plan.created_at,
    )
    if plan.state is not PlanState.PROPOSED:
        next_step = newest.explanation.next_step if newest and newest.hold else ""
        advice = replace(advice, explanation=replace(plan.explanation, next_step=next_step))
    lines = [f"Plan {plan.generation} is {plan.state}.", _text(advice, unit, now, plan)]
    if plan.state is PlanState.PROPOSED:
        lines.append(f"Approve with `brain approve {name}`, reject with `brain reject {name}`.")
    return "\n".join(lines)


def _text(decision: Recommendation, unit: str, now: datetime, plan: ScalePlan | None = None) -> str:
    why = decision.explanation
    sizes = reallocation(decision.current, decision.target) if plan is None else plan_change(plan)
    hold = decision.hold and plan is None
    head = f"Hold at {decision.current.replicas}" if hold else sizes
    lines = [f"{head[:1].upper()}{head[1:]}: {why.reason}"]
    if decision.predicted and not hold:
        lines.append(
            f"Promised {output.rate(decision.predicted)} "
            f"{unit}{(' (exploring)' if decision.predicted.exploring else '')}, restart "
            f"{duration(decision.restart_seconds)}, pays back in "
            f"{duration(decision.payback_seconds)}"
        )
    lines += [f"  {fact.label}: {fact.value}" for fact in why.evidence]
    age = (now - decision.decided_at).total_seconds()
    if age > _FRESH_SECONDS:
        lines.append(f"This prediction is {duration(age)} old.")
    if why.alternatives:
        lines.append("Why not:")
    lines += [
        f"  {count(other.replicas, 'replica')}: {other.why_not}"
        + ("" if other.gain is None else f" ({change(other.gain)})")
        for other in why.alternatives
    ]
    return "\n".join([*lines, *([f"Next: {why.next_step}"] if why.next_step else [])])


def _show(found: list[PlanView], form: str) -> None:
    output.show(found, COLUMNS, form, name=_named)
