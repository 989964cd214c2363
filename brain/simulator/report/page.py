"""The page: the simulation, a table of its measures, and the plots."""

from collections.abc import Callable, Sequence
from html import escape

from brain.simulator.measures import Summary
from brain.simulator.policies import ORACLE
from brain.simulator.report import figures
from brain.simulator.run import PolicyOutcome
from brain.simulator.spec import Spec
from brain.typeset import change, count, duration, number, percent, ratio

#: Rows of the table: label, unit, and the value of a summary.
MEASURES: tuple[tuple[str, Callable[[Summary], str]], ...] = (
    ("Completion time, mean, s", lambda s: number(s.jct_mean, digits=4)),
    ("Completion time, p50, s", lambda s: number(s.jct_p50, digits=4)),
    ("Completion time, p99, s", lambda s: number(s.jct_p99, digits=4)),
    ("Makespan, s", lambda s: number(s.makespan, digits=4)),
    ("GPU-hours", lambda s: number(s.accelerator_hours)),
    ("Accelerators held", lambda s: percent(s.utilization)),
    ("Restarts a job", lambda s: f"{s.restarts_per_job:.2f}"),
    ("Fairness ρ, mean", lambda s: f"{s.rho_mean:.2f}"),
    ("Fairness ρ, worst", lambda s: f"{s.rho_max:.2f}"),
    ("Jobs with ρ above 1", lambda s: percent(s.unfair)),
)


def rows(outcomes: Sequence[PolicyOutcome]) -> list[tuple[str, list[str]]]:
    """Return the rows of the table of measures: each has a label and a cell per policy. If the
    policy ``oracle`` was run, one row compares the other policies with it.
    """
    found = [(label, [say(outcome.summary) for outcome in outcomes]) for label, say in MEASURES]
    best = next((one.summary.jct_mean for one in outcomes if one.policy == ORACLE), None)
    if best is not None:
        behind = [
            "—" if one.policy == ORACLE else change(one.summary.jct_mean / best - 1)
            for one in outcomes
        ]
        found.insert(1, ("Mean against the oracle's", behind))
    found.append(("A decision, mean (longest)", [_policy_time(outcome) for outcome in outcomes]))
    return found


def page(outcomes: Sequence[PolicyOutcome], *, title: str, styles: str) -> str:
    """Return an HTML page about simulations of one workload, without references to other files.

    Args:
        title: Name of the simulation, usually the names of the files.
        styles: The design's tokens and the page's own rules, as CSS.
    """
    until = max(job.finished for outcome in outcomes for job in outcome.jobs)
    body = [
        _head(outcomes[0], title),
        _answer(outcomes),
        _table(outcomes),
        _figure("Completion times", "share of jobs, by time", [figures.completion(outcomes)]),
        _times(outcomes),
        *(_policy(outcome, until) for outcome in outcomes),
        _foot(outcomes[0]),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)} · Brain</title>"
        f"<style>{styles}</style></head>\n<body><main>{''.join(body)}</main></body></html>\n"
    )


def _head(outcome: PolicyOutcome, title: str) -> str:
    jobs = count(len(outcome.jobs), "job")
    return (
        f"<header><p class='quiet'>Brain · simulation</p><h1>{escape(title)}</h1>"
        f"<p class='mut'>{jobs} on {escape(cluster(outcome.spec))}; seed {outcome.seed}. "
        "Everything here happened in virtual time.</p></header>"
    )


def cluster(spec: Spec) -> str:
    """Return a phrase that describes a cluster's nodes.

    >>> from brain.simulator.spec import read_spec
    >>> cluster(read_spec({"nodes": {"t4": {"count": 2, "gpus": 4}}}))
    '2 × 4 t4'
    """
    return " + ".join(f"{kind.count} × {kind.gpus} {name}" for name, kind in spec.nodes.items())


def _answer(outcomes: Sequence[PolicyOutcome]) -> str:
    """Return the dominant finding in one sentence."""
    first, rest = outcomes[0], outcomes[1:]
    mean = duration(first.summary.jct_mean)
    if not rest:
        return f"<p class='reason'>Under {first.policy} a job took {mean} on average.</p>"
    said = []
    for other in rest:
        factor = first.summary.jct_mean / other.summary.jct_mean
        said.append(f"{ratio(factor)} that under {other.policy}")
    return (
        f"<p class='reason'>Under {first.policy} a job took {mean} on average: "
        f"{escape(', '.join(said))}.</p>"
    )


def _table(outcomes: Sequence[PolicyOutcome]) -> str:
    heads = "".join(f"<th class='num'>{escape(o.policy)}</th>" for o in outcomes)
    lines = []
    for label, said in rows(outcomes):
        cells = "".join(f"<td class='num'>{cell}</td>" for cell in said)
        lines.append(f"<tr><th scope='row'>{label}</th>{cells}</tr>")
    table = (
        f"<table class='tbl'><thead><tr><td></td>{heads}</tr></thead>"
        f"<tbody>{''.join(lines)}</tbody></table>"
    )
    return f"<section>{_scrolled('Figures', table)}</section>"


def _policy_time(outcome: PolicyOutcome) -> str:
    mean, longest = (1000 * value for value in (outcome.time.mean, outcome.time.longest))
    return f"{number(mean)} ms ({number(longest)} ms)"


def _scrolled(title: str, inside: str) -> str:
    """Wrap content that may be wider than a phone, so that it also scrolls by keyboard."""
    label = escape(title, quote=True)
    return f"<div class='scroll' role='group' tabindex='0' aria-label='{label}'>{inside}</div>"


def _figure(title: str, unit: str, drawings: Sequence[str]) -> str:
    return (
        f"<figure><figcaption><b>{escape(title)}</b> {escape(unit)}</figcaption>"
        f"{_scrolled(title, ''.join(drawings))}</figure>"
    )


def _times(outcomes: Sequence[PolicyOutcome]) -> str:
    """Return the completion times of each job, as a table behind a click."""
    heads = "".join(f"<th class='num'>{escape(o.policy)}, s</th>" for o in outcomes)
    by_name = [{job.name: job for job in outcome.jobs} for outcome in outcomes]
    rows = []
    for job in outcomes[0].jobs:
        cells = "".join(f"<td class='num'>{each[job.name].jct:.0f}</td>" for each in by_name)
        about = f"<td>{escape(job.name)}</td><td>{escape(job.application)}</td>"
        rows.append(f"<tr>{about}{cells}</tr>")
    return (
        "<details class='astable'><summary class='link'>View as table</summary>"
        + _scrolled(
            "Completion time of each job",
            f"<table class='tbl'><thead><tr><th>Job</th><th>Application</th>{heads}</tr></thead>"
            f"<tbody>{''.join(rows)}</tbody></table>",
        )
        + "</details>"
    )


def _policy(outcome: PolicyOutcome, until: float) -> str:
    name = escape(outcome.policy)
    legend = "".join(
        f"<li><svg viewBox='0 0 14 8' aria-hidden='true'><rect class='{kind}' width='14' "
        f"height='8'/></svg>{label}</li>"
        for kind, label in (
            ("n1", "1"),
            ("n2", "2–3"),
            ("n3", "4–7"),
            ("n4", "8–15"),
            ("n5", "16 and more accelerators"),
            ("restart", "restarting"),
        )
    )
    lost = outcome.summary.lost
    losses = f", {count(lost, 'world')} lost with a node" if lost else ""
    return (
        f"<section><h2>{name}</h2>"
        + _figure(
            "Cluster use",
            "accelerators held (line) and training (area)",
            ["<div class='c-wrap'>" + figures.use(outcome, until) + "</div>"],
        )
        + _figure(
            "Timeline of the jobs",
            f"a row per job, in the order of arrival{losses}",
            [f"<ul class='legend'>{legend}</ul>", figures.who(outcome, until)],
        )
        + "</section>"
    )


def _foot(outcome: PolicyOutcome) -> str:
    spec = outcome.spec
    troubles = [
        (spec.failures.per_node_day, "failures"),
        (spec.stragglers.per_node_day, "slow spells"),
    ]
    said = [f"{number(rate)} {name} per node per day" for rate, name in troubles if rate] or [
        "no node fails or slows down"
    ]
    return (
        "<footer class='cap12'>Fairness ρ is the time a job took divided by the time it would "
        "have taken with an equal share of the cluster for itself; 1 is fair. A change of a "
        f"world costs {duration(spec.restart_seconds)} unless its application says otherwise; "
        f"{escape(' and '.join(said))}. Decision times were measured on the machine that ran the "
        "simulation. They are the only figures here that differ from run to run.</footer>"
    )
