"""Series of metrics, downsampled by the database; the rules are those of brain.series."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import sqlalchemy as sa

from brain.db import samples
from brain.db.columns import ASKED, Microseconds, asked_rows
from brain.db.retention import METRICS, joined
from brain.db.tables import minute_means
from brain.ports import SeriesBucket, SeriesStretch
from brain.series import MICROSECOND, Buckets, MetricReading, buckets
from brain.types.job import JobId


def lines(
    connection: sa.Connection, asked: Mapping[JobId, SeriesStretch], *, points: int
) -> Mapping[JobId, Sequence[SeriesBucket]]:
    """Return the points of a metric for each job, from raw samples and, where those retired, from
    means.

    One statement serves all jobs with the same metric.
    """
    drawn = {
        job: buckets(it.metric, since=it.since, until=it.until, points=points)
        for job, it in asked.items()
    }
    by_metric: defaultdict[str, list[JobId]] = defaultdict(list)
    for job, it in asked.items():
        by_metric[it.metric].append(job)
    readings: defaultdict[JobId, list[tuple[int, MetricReading]]] = defaultdict(list)
    for metric, jobs in by_metric.items():
        given = asked_rows(_row(job, drawn[job]) for job in jobs)
        for job, index, *reading in connection.execute(_statement(metric), given):
            readings[job].append((int(index), MetricReading(*map(float, reading))))
    return {job: drawn[job].drawn(found) for job, found in readings.items()}


def _row(job: JobId, drawn: Buckets) -> tuple[str, Any, Any, int]:
    return job, drawn.since, drawn.until, drawn.width // MICROSECOND


@cache
def _statement(metric: str) -> sa.CompoundSelect[Any]:
    """Return the statement for readings of raw samples and of means, joined by job and bucket."""
    raw, means = METRICS[metric], minute_means.c
    of, asked = raw.table.c, ASKED.c
    from_raw = _readings(
        raw.table,
        _after(of.corrected_at),
        joined(raw.value, raw.value, raw.value, raw.weight),
        samples.since(raw.table, asked.since_at)
        & samples.until(raw.table, asked.until_at)
        & (of.corrected_at < asked.until_at)
        & raw.says,
    )
    from_means = _readings(
        minute_means,
        _after(Microseconds(means.minute)),
        joined(means.mean, means.low, means.high, means.weight),
        (means.minute >= asked.since) & (means.minute < asked.until) & (means.metric == metric),
    )
    return sa.union_all(from_raw, from_means)


def _after(at: sa.ColumnElement[Any]) -> sa.ColumnElement[int]:
    """Return the microseconds of a time since the beginning of a line."""
    whole, since = (sa.type_coerce(each, sa.BigInteger) for each in (at, ASKED.c.since_at))
    return whole - since


def _readings(
    table: sa.FromClause,
    after: sa.ColumnElement[Any],
    reading: Sequence[sa.ColumnElement[Any]],
    says: sa.ColumnElement[bool],
) -> sa.Select[Any]:
    bucket = (after // ASKED.c.width).label("bucket")
    return (
        sa.select(table.c.job, bucket, *reading)
        .select_from(sa.join(ASKED, table, (table.c.job == ASKED.c.job) & says))
        .group_by(table.c.job, bucket)
    )
