"""Commands for operators: nodes, freezes, tokens, the audit log, settings and the doctor."""

import os
import sys
from collections.abc import Callable
from dataclasses import fields, replace
from functools import cache, partial
from typing import Any

import click

from brain import calls, extras
from brain.cli import output
from brain.cli.connect import (
    link,
    pages,
    say_dry_run,
    service_url,
    somebody,
    state_directory,
    with_client,
    written_settings,
)
from brain.cli.documents import read_document
from brain.client import BrainClient
from brain.errors import NotFound
from brain.settings import Settings, settings_from, settings_in_environment
from brain.types.pool import Freeze, FreezeScope
from brain.types.record import AuditEntry, Role
from brain.types.resources import Resources
from brain.types.sharing import JobShare, PoolRound
from brain.typeset import number
from brain.views import NodeView, PoolView, TokenView

NODE_COLUMNS = (
    output.Column[NodeView]("STATE", lambda node: _state_of(node), rank=0, least=12),
    output.Column[NodeView]("NODE", lambda node: node.name, rank=0, least=12),
    output.Column[NodeView]("ACCELERATOR", lambda node: node.accelerator, least=8),
    output.Column[NodeView]("CPU", lambda node: _cores(node.reserved, node.capacity), right=True),
    output.Column[NodeView](
        "MEMORY GiB", lambda node: _gibibytes(node.reserved, node.capacity), right=True
    ),
    output.Column[NodeView]("GPUS", lambda node: str(node.capacity.gpus), right=True),
    output.Column[NodeView]("JOBS", lambda node: ", ".join(node.jobs) or "—", rank=2, least=12),
    output.Column[NodeView]("SEEN", lambda node: output.clock(node.seen_at), wide=True),
)
SHARE_COLUMNS = (
    output.Column[JobShare]("ROUND", lambda share: share.outcome, rank=0),
    output.Column[JobShare]("JOB", lambda share: share.name, rank=0, least=12),
    output.Column[JobShare]("PROJECT", lambda share: share.project, rank=3, least=8),
    output.Column[JobShare]("REPLICAS", lambda share: _replicas(share), right=True),
    output.Column[JobShare]("LOST TO", lambda share: share.lost_to or "—", rank=2, least=8),
    output.Column[JobShare]("WHY", lambda share: share.reason, least=16),
)
AUDIT_COLUMNS = (
    output.Column[AuditEntry]("AT", lambda entry: output.clock(entry.at), rank=0),
    output.Column[AuditEntry]("WHO", lambda entry: entry.actor, least=8),
    output.Column[AuditEntry]("DID", lambda entry: entry.action, rank=0),
    output.Column[AuditEntry]("TO", lambda entry: entry.target, least=12),
    output.Column[AuditEntry]("BEFORE", lambda entry: entry.before, wide=True),
    output.Column[AuditEntry]("AFTER", lambda entry: entry.after, wide=True),
    output.Column[AuditEntry]("WHY", lambda entry: entry.why, least=12),
)
TOKEN_COLUMNS = (
    output.Column[TokenView]("ID", lambda token: token.id, rank=0),
    output.Column[TokenView]("NAME", lambda token: token.name, rank=0, least=12),
    output.Column[TokenView]("ROLE", lambda token: token.role),
    output.Column[TokenView]("JOB", lambda token: token.job or "—", rank=3, least=8),
    output.Column[TokenView]("EXPIRES", lambda token: output.clock(token.expires_at)),
    output.Column[TokenView]("REVOKED", lambda token: output.clock(token.revoked_at)),
    output.Column[TokenView]("USED", lambda token: output.clock(token.last_used_at)),
)


@click.command()
@output.sort_option
@output.output_option
@with_client
def nodes(client: BrainClient, sort: str, form: str) -> None:
    """List nodes and the resources that are reserved on them."""
    found = list(pages(client, lambda token: calls.nodes(page_token=token, sort=sort)))
    output.show(found, NODE_COLUMNS, form, name=lambda node: node.name)


@click.command()
@click.argument("name", default="local")
@click.option(
    "--divide",
    "path",
    metavar="FILE",
    help=("Write the pool's policy from this file; - reads standard input."),
)
@click.option("--dry-run", is_flag=True, help="Check the policy without saving it.")
@output.output_option
@with_client
def pool(client: BrainClient, name: str, path: str | None, form: str, dry_run: bool) -> None:
    """Show how a pool is divided, or divide it among projects.

    \b
    brain pool
    brain pool --divide policy.yaml
    """
    if path is not None:
        stored = client.send(
            calls.put_policy(name, read_document(path, begins="projects"), dry_run=dry_run)
        )
        say_dry_run(dry_run, form)
        projects = ", ".join(sorted(stored.policy.projects)) or "no project"
        click.echo(f"Projects of pool {name}: {projects}", err=form in ("json", "yaml", "name"))
    found = client.send(calls.pool(name))
    if form in ("json", "yaml"):
        output.dump(found, form)
        return
    if form != "name":
        click.echo(_divided(found))
    if found.round is not None:
        output.show(found.round.shares, SHARE_COLUMNS, form, name=lambda share: share.job)


def allocated(last: PoolRound) -> str:
    """Return how many accelerators of each kind a round allocated, and their price.

    Held jobs keep their accelerators.
    """
    return ", ".join(
        f"{last.used.get(kind, 0):g} of {last.capacity[kind]:g} "
        f"{last.units.get(kind, 'core')}s of {kind} allocated, price {number(price)} each"
        for kind, price in sorted(last.prices.items())
        if last.capacity.get(kind)
    )


def _divided(found: PoolView) -> str:
    last = found.round
    if last is None:
        return "No job shares this pool yet: none of its jobs has `optimizeMode: cluster`."
    gap = f"a better division would add at most {100 * (found.gap or 0):.2g} %"
    shares = allocated(last) or "all jobs are held"
    return f"Divided at {output.clock(last.decided_at)}: {shares}; {gap}."


def _replicas(share: JobShare) -> str:
    return (
        f"{share.before} → {share.replicas}"
        if share.before != share.replicas
        else str(share.replicas)
    )


@click.command()
@click.argument("job", required=False)
@click.option("--project", help="Freeze all jobs of this project.")
@click.option("--all", "everything", is_flag=True, help="Freeze everything.")
@click.option("--off", is_flag=True, help="Apply plans again.")
@click.option("--why", default="", help="Reason, recorded in the audit log.")
@output.output_option
@with_client
def freeze(
    client: BrainClient,
    job: str | None,
    project: str | None,
    everything: bool,
    off: bool,
    why: str,
    form: str,
) -> None:
    """Stop applying plans of a job, a project or all jobs; without a target, list the freezes.

    Brain still decides, and still replaces replicas that die.
    """
    chosen = [
        (scope, target)
        for scope, target in (
            (FreezeScope.JOB, job),
            (FreezeScope.PROJECT, project),
            (FreezeScope.ALL, "" if everything else None),
        )
        if target is not None
    ]
    if len(chosen) > 1:
        raise click.UsageError("a freeze has one scope; give one of JOB, --project NAME or --all")
    if not chosen and (off or why):
        raise click.UsageError(
            f"no target was named to {'thaw' if off else 'freeze'}; give JOB, --project NAME "
            "or --all"
        )
    if not chosen:
        call = calls.freezes()
    else:
        scope, target = chosen[0]
        if scope is FreezeScope.JOB:
            target = client.send(calls.job(target)).job.id
        call = calls.thaw(scope, target) if off else calls.freeze(scope, target, why=why)
    found = client.send(call).items
    columns = (
        output.Column[Freeze]("SCOPE", lambda freeze: freeze.scope),
        output.Column[Freeze]("TARGET", lambda freeze: _frozen(client, freeze), rank=0, least=16),
        output.Column[Freeze]("BY", lambda freeze: freeze.by, least=8),
        output.Column[Freeze]("SINCE", lambda freeze: output.clock(freeze.at), rank=2),
        output.Column[Freeze]("WHY", lambda freeze: freeze.why, least=16),
    )
    if not found and form == "table":
        click.echo("Nothing is frozen.")
        return
    output.show(found, columns, form, name=lambda freeze: freeze.target)


def _frozen(client: BrainClient, freeze: Freeze) -> str:
    """Return the target of a freeze with the job's name, because a freeze stores the job's id."""
    if freeze.scope is not FreezeScope.JOB:
        return freeze.target or "everything"
    return _name_of(client, freeze.target)


def _name_of(client: BrainClient, job: str) -> str:
    """Return the name of a job; its id if the job is gone."""
    try:
        return client.send(calls.job(job)).job.name
    except NotFound:
        return job


@click.command()
@click.option("--mint", metavar="NAME", help="Create a token with this name.")
@click.option(
    "--role",
    type=click.Choice([role.value for role in Role]),
    default="viewer",
    show_default=True,
    help="Role of the token that --mint makes.",
)
@click.option("--days", type=float, help="Days until the token expires; default: never.")
@click.option("--revoke", metavar="ID", help="End a token.")
@output.output_option
@with_client
def tokens(
    client: BrainClient,
    mint: str | None,
    role: str,
    days: float | None,
    revoke: str | None,
    form: str,
) -> None:
    """List tokens; --mint creates a token and prints its secret, which is not shown again."""
    if mint is not None:
        click.echo(client.send(calls.mint_token(mint, role, days=days)).secret)
        return
    if revoke is not None:
        client.send(calls.revoke_token(revoke))
    found = client.send(calls.tokens()).items
    output.show(found, TOKEN_COLUMNS, form, name=lambda token: token.id)


@click.command("sign-in")
@click.option(
    "--for", "name", help=("Name of the person who will use the link; default: your user name.")
)
@with_client
def sign_in(client: BrainClient, name: str | None) -> None:
    """Print a link that signs a browser in as administrator; it works once, for ten minutes.

    The link is printed only to a terminal, because anyone who reads it in a log could sign in.
    """
    if not sys.stdout.isatty():
        raise click.UsageError(
            "brain sign-in prints its link to a terminal only, and its output is not a "
            "terminal; run it in a terminal (in a pod: kubectl exec -it)"
        )
    click.echo(link(service_url(), client.send(calls.sign_in_code(name or somebody()))))


@click.command()
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True)
@output.sort_option
@output.output_option
@with_client
def audit(client: BrainClient, limit: int, sort: str, form: str) -> None:
    """List all actions, including Brain's own, with their authors, newest first.

    -o wide shows jobs by their ids.
    """
    entries = pages(client, lambda token: calls.audit(page_token=token, sort=sort))
    found = [entry for entry, _ in zip(entries, range(limit), strict=False)]
    if form == "table":
        name = cache(partial(_name_of, client))
        found = [replace(entry, target=_by_name(entry.target, name)) for entry in found]
    output.show(found, AUDIT_COLUMNS, form, name=lambda entry: str(entry.id))


def _by_name(target: str, name: Callable[[str], str]) -> str:
    """``plan/ID/3`` and ``freeze/job/ID`` with the job's name for its id.

    >>> _by_name("plan/0197/3", {"0197": "digits"}.__getitem__), _by_name("token/12", str.upper)
    ('plan/digits/3', 'token/12')
    """
    parts = target.split("/")
    kinds = ("", *parts[:-1])
    return "/".join(
        name(part) if kind in ("job", "plan") else part
        for kind, part in zip(kinds, parts, strict=True)
    )


@click.command()
def config() -> None:
    """Show every setting that `brain up` would use here, with its value and its source."""
    home = state_directory()
    record = home / "brain.toml"
    written = written_settings(record)
    environment = settings_in_environment(os.environ)
    settings = settings_from(written, environment)
    click.echo(
        "# The settings that `brain up` would use if started from this shell; its state "
        f"directory is {home}"
    )
    for field in fields(Settings):
        source = (
            f"BRAIN_{field.name.upper()}"
            if field.name in environment
            else str(record)
            if field.name in written
            else "default"
        )
        click.echo(f"{field.name} = {getattr(settings, field.name)!r}  # {source}")


@click.command()
@click.option("--cluster", is_flag=True, help="Check a Kubernetes cluster instead of this machine.")
@click.option("--kubeconfig", help="Kubeconfig of the cluster; default: $KUBECONFIG.")
@click.option("--context", help="Of the kubeconfig.")
@click.option(
    "--namespace", "namespaces", multiple=True, help=("Namespace that has jobs; repeat for more.")
)
@click.option("--own", default="brain", help="Namespace of the operator; default: brain.")
@click.option(
    "--as",
    "user",
    help=(
        "Check the rights of this user, such as system:serviceaccount:brain:brain-scaler; "
        "default: your own rights."
    ),
)
@click.option("--prometheus", help="URL of a Prometheus that scrapes dcgm-exporter.")
def doctor(cluster: bool, **asked: Any) -> None:
    """Check this installation and print remedies; exit with 1 if something is broken."""
    from brain.cli.doctor import ClusterToCheck, examine, examine_cluster

    if cluster:
        extras.expect("`brain doctor --cluster`", "kubernetes")
    broken = False
    for finding in examine_cluster(ClusterToCheck(**asked)) if cluster else examine():
        mark = {"ok": "ok  ", "note": "note", "bad": "BAD "}[finding.level]
        click.echo(f"{mark}  {finding.what}" + (f": {finding.remedy}" if finding.remedy else ""))
        broken |= finding.level == "bad"
    if broken:
        raise click.exceptions.Exit(1)


def _state_of(node: NodeView) -> str:
    if not node.ready:
        return "silent"
    if node.left:
        return f"avoided by {', '.join(each.job_name for each in node.left)}"
    return "ready" if node.schedulable else "drained"


def _gibibytes(reserved: Resources, capacity: Resources) -> str:
    used, all = (round(one.memory_bytes / 2**30, 1) for one in (reserved, capacity))
    return f"{used:g} of {all:g}"


def _cores(reserved: Resources, capacity: Resources) -> str:
    return f"{reserved.cpu_millis / 1000:g} of {capacity.cpu_millis / 1000:g}"
