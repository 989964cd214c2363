"""The weekly digest of an owner: what jobs requested, compared with use and advice, with costs.

    requested = amount × hours of replicas in the week
    wasted = max(0, requested - recommended)

The digest uses the job's present amounts, or its last amounts if it ended. The use and the advice
of a replica are computed for its role from the job's most recent days (``estimates.advised``), so a
job that spans weeks has the same use in each week. Amounts that are not reserved count neither as
requested nor as wasted.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from brain import estimates
from brain.errors import BadInput
from brain.lifecycle.work import role_hours
from brain.ports import SeriesStretch, Transaction
from brain.savings import Span, concerned
from brain.settings import Settings, prices_of
from brain.types.advice import AmountAdvice
from brain.types.digest import Digest, DigestJob, DigestLine, total
from brain.types.job import Job, JobId
from brain.types.roles import WORKER

#: Best and worst jobs that are named.
_NAMED = 3
_WEEK = re.compile(r"(\d{4})-W(\d{2})")
#: Unit of each resource, and amounts that make one.
_UNITS = {"cpu": ("core-h", 1000.0), "memory": ("GiB-h", 2.0**30), "accelerator": ("GPU-h", 1.0)}


def week_of(named: str, now: datetime) -> tuple[str, datetime, datetime]:
    """Return the name, beginning and end of an ISO week in UTC; without a name, of the present
    week.

    Raises:
        BadInput: there is no such week, or it has not begun.

    >>> week_of("2026-W01", datetime(2026, 5, 1, tzinfo=UTC))[1].date().isoformat()
    '2025-12-29'
    """
    year, number, _ = now.isocalendar()
    found = _WEEK.fullmatch(named or f"{year:04}-W{number:02}")
    try:
        if found is None:
            raise ValueError
        begin = datetime.fromisocalendar(int(found[1]), int(found[2]), 1).replace(tzinfo=UTC)
    except ValueError:
        raise BadInput(
            f"week {named!r} does not exist; write it as {year:04}-W{number:02}", field="week"
        ) from None
    if begin > now:
        raise BadInput(
            f"week {named} has not begun; the present one is {year:04}-W{number:02}", field="week"
        )
    return found[0], begin, min(now, begin + timedelta(days=7))


def digest(tx: Transaction, owner: str, week: str, settings: Settings, now: datetime) -> Digest:
    """Return the digest of an owner's week; empty if no job of the owner had a replica in that
    week.

    Raises:
        BadInput: there is no such week, or it has not begun.
    """
    name, since, until = week_of(week, now)
    span = Span(since=since, until=until)
    mine = (job for job in concerned(tx, since) if job.owner == owner)
    held = [
        (job, hours)
        for job in mine
        if (hours := role_hours(tx.worlds.of(job.id), job, since, until))
    ]
    drawn = _drawn(tx, [job for job, _ in held if job.resources.gpus], span)
    lines = {
        job.id: _lines(tx, job, hours, drawn.get(job.id), settings, now) for job, hours in held
    }
    seen = [
        _judged(job, sum(hours.values()), lines[job.id]) for job, hours in held if lines[job.id]
    ]
    totals: dict[str, DigestLine] = {}
    for line in (line for some in lines.values() for line in some):
        known = totals.get(line.resource)
        totals[line.resource] = known + line if known else line
    worst = sorted((one for one, waste in seen if waste > 0), key=_by_waste)[:_NAMED]
    rest = [one for one, _ in seen if one not in worst]
    best = sorted(rest, key=lambda one: -one.used_share)[:_NAMED]
    return Digest(
        owner=owner,
        week=name,
        since=since,
        until=until,
        currency=settings.currency,
        jobs=len(held),
        unmeasured=len(held) - len(seen),
        lines=tuple(totals.values()),
        cost=total(line.cost for line in totals.values()),
        wasted_cost=total(line.wasted_cost for line in totals.values()),
        worst=tuple(_advised(tx, one, settings, now) for one in worst),
        best=tuple(_advised(tx, one, settings, now) for one in best),
    )


def _lines(
    tx: Transaction,
    job: Job,
    hours: Mapping[str, float],
    drawn: float | None,
    settings: Settings,
    now: datetime,
) -> list[DigestLine]:
    """Return the resources of a job that somebody reserved and measured; ``drawn`` is the mean use
    of its accelerators, if that was measured.
    """
    prices, found = prices_of(settings.accelerator_prices), []
    for role, time in hours.items():
        advice = estimates.advised(tx, job, settings, now, role=role)
        for resource in ("cpu", "memory"):
            amount: AmountAdvice | None = getattr(advice, resource, None)
            if amount is not None and amount.reserved:
                used = amount.reserved * (1 - amount.reserved_unused)
                each = (amount.reserved, used, amount.target)
                found.append(_line(resource, each, time, prices.get(resource)))
    if drawn is not None:
        held, kind = float(job.resources.gpus), estimates.accelerator_of(tx, job)
        each = (held, held * drawn, held)
        line = _line("accelerator", each, hours.get(WORKER, 0.0), prices.get(kind, prices.get("*")))
        idle = 1 - drawn
        cost = None if line.cost is None else idle * line.cost
        found.append(replace(line, wasted=idle * line.requested, wasted_cost=cost))
    return found


def _drawn(tx: Transaction, jobs: Sequence[Job], span: Span) -> Mapping[JobId, float]:
    """Return the mean use of each job's accelerators, where it was measured."""
    asked = SeriesStretch("gpu_share", span.since, span.until)
    found = tx.telemetry.lines({job.id: asked for job in jobs}, points=1) if jobs else {}
    return {job: buckets[-1].mean for job, buckets in found.items()}


def _line(
    resource: str, each: tuple[float, float, float], hours: float, price: float | None
) -> DigestLine:
    """Return a line of what each replica requested, used and should have requested."""
    unit, one = _UNITS[resource]
    requested, used, recommended = (amount / one * hours for amount in each)
    wasted = max(0.0, requested - recommended)
    return DigestLine(
        resource=resource,
        unit=unit,
        requested=requested,
        used=used,
        recommended=recommended,
        wasted=wasted,
        cost=None if price is None else price * requested,
        wasted_cost=None if price is None else price * wasted,
    )


def _judged(job: Job, hours: float, lines: Sequence[DigestLine]) -> tuple[DigestJob, float]:
    """Return a job of the week, and the mean share that its requests wasted."""
    shares = [min(1.0, line.used / line.requested) for line in lines]
    waste = sum(line.wasted / line.requested for line in lines) / len(lines)
    told = DigestJob(
        job=job.id,
        name=job.document.name,
        replica_hours=hours,
        used_share=sum(shares) / len(shares),
        cost=total(line.cost for line in lines),
        wasted_cost=total(line.wasted_cost for line in lines),
        advice="",
    )
    return told, waste


def _advised(tx: Transaction, one: DigestJob, settings: Settings, now: datetime) -> DigestJob:
    """Return a job of the week with its advice, which only the jobs that are named need."""
    card = estimates.report(tx, tx.jobs.get(one.job), {}, settings, now)
    return replace(one, advice=card.headline)


def _by_waste(one: DigestJob) -> tuple[float, float]:
    """Return the key that puts the most wasted money first; without prices, the least used."""
    return -(one.wasted_cost or 0.0), one.used_share
