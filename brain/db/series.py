"""Reads series of metrics, which the database downsamples by the rules of ``brain.series``."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import sqlalchemy as sa

from brain.db import samples
from brain.db.columns import ASKED, Microseconds, asked_rows
from brain.db.retention import METRICS, joined
from brain.db.tables import hour_means, minute_means
from brain.ports import SeriesBucket, SeriesStretch
from brain.series import MICROSECOND, Buckets, MetricReading, buckets
from brain.types.job import JobId


def lines(
    connection: sa.Connection, asked: Mapping[JobId, SeriesStretch], *, points: int
) -> Mapping[JobId, Sequence[SeriesBucket]]:
    """Return the points of a metric for each job, from raw samples; where raw samples were deleted,
    from means of minutes and hours.

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
    raw, asked = METRICS[metric], ASKED.c
    of = raw.table.c
    from_raw = _readings(
        raw.table,
        _after(of.corrected_at),
        joined(raw.value, raw.value, raw.value, raw.weight),
        samples.since(raw.table, asked.since_at)
        & samples.until(raw.table, asked.until_at)
        & (of.corrected_at < asked.until_at)
        & raw.says,
    )
    minutes, hours = (
        _readings(
            at.table,
            _after(Microseconds(at)),
            joined(at.table.c.mean, at.table.c.low, at.table.c.high, at.table.c.weight),
            (at >= asked.since) & (at < asked.until) & (at.table.c.metric == metric),
        )
        for at in (minute_means.c.minute, hour_means.c.hour)
    )
    return sa.union_all(from_raw, minutes, hours)


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
