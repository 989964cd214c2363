"""Folds raw samples into 1-minute means, and these means into 1-hour means.

``brain.series`` defines the rules for folding.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import sqlalchemy as sa

from brain.db import partitions, samples
from brain.db.columns import Hour, Instant, Micros, Microseconds, Minute, insert
from brain.db.samples import (
    host_contexts,
    host_samples,
    throughput_contexts,
    throughput_samples,
)
from brain.db.space import give_back
from brain.db.tables import hour_means, minute_means, retired_steps, sources
from brain.types.telemetry import Phase

Number = sa.ColumnElement[Any]
#: Key of the advisory lock of retentions on PostgreSQL.
_RETENTION = 0x72657469726573
#: Pages that SQLite gives back in one step.
_GIVEN_BACK = 50_000


class Metric(NamedTuple):
    """A metric as read from the rows of a table: ``brain.series.METRICS`` in SQL."""

    table: sa.Subquery
    value: Number
    weight: Number
    says: sa.ColumnElement[bool]


_steps = throughput_samples.c
_host = host_samples.c
_processes = sa.cast(sa.case((_steps.processes > 1, _steps.processes), else_=1), sa.Double)
_seconds = _steps.steps * _steps.step_seconds_mean / _processes
_measured = _seconds > 0
_trained = _measured & (_steps.phase == Phase.TRAINING)
_once = sa.cast(sa.literal_column("1"), sa.Double)
_per_second = 1.0 / _steps.step_seconds_mean


def _of_world(value: Number, says: sa.ColumnElement[bool]) -> Metric:
    return Metric(throughput_samples, sa.cast(value, sa.Double), _seconds, says)


_compared = _steps.gns_big_batch > _steps.gns_small_batch
_small, _big = (sa.cast(c, sa.Double) for c in (_steps.gns_small_batch, _steps.gns_big_batch))
_square = (_big * _steps.gns_big_square - _small * _steps.gns_small_square) / (_big - _small)
_variance = (_steps.gns_small_square - _steps.gns_big_square) / (1.0 / _small - 1.0 / _big)


def _of_gradients(value: Number) -> Metric:
    weight = sa.cast(_steps.gns_steps, sa.Double)
    return Metric(throughput_samples, value, weight, _compared)


def _share(used: Number, capacity: Number) -> Metric:
    share = sa.cast(used, sa.Double) / capacity
    return Metric(host_samples, share, _once, capacity > 0)


METRICS: Mapping[str, Metric] = {
    "examples_per_second": _of_world(
        sa.func.coalesce(_steps.examples_per_second, _per_second) * _steps.processes, _trained
    ),
    "steps_per_second": _of_world(_per_second, _trained),
    "step_seconds": _of_world(_steps.step_seconds, _trained),
    "data_wait_share": _of_world(_steps.data_wait_seconds / _steps.step_seconds_mean, _trained),
    "exchange_wait_share": _of_world(
        _steps.exchange_wait_seconds / _steps.step_seconds_mean,
        _trained & _steps.exchange_wait_seconds.is_not(None),
    ),
    "gradient_square": _of_gradients(_square),
    "gradient_variance": _of_gradients(_variance),
    "replicas": _of_world(_steps.replicas, _measured),
    "cpu_share": _share(_host.job_cpu_millis, _host.cpu_capacity_millis),
    "memory_share": _share(_host.job_memory_bytes, _host.memory_capacity_bytes),
    "gpu_share": Metric(host_samples, _host.gpu_share, _once, _host.gpu_share.is_not(None)),
    "gpu_memory_share": Metric(
        host_samples, _host.gpu_memory_share, _once, _host.gpu_memory_share.is_not(None)
    ),
}


def retire(
    connection: sa.Connection,
    *,
    raw_before: datetime,
    means_before: datetime,
    hours_before: datetime,
) -> int:
    """Fold and delete old samples in the caller's transaction, completely or not at all.

    If another transaction is folding samples now, do nothing, because both would fold the same
    rows.
    """
    if not _alone(connection):
        return 0
    parts = {rows: partitions.partitions(connection, rows) for rows in partitions.PARTITIONED}
    limits = {rows: partitions.boundary(found, raw_before) for rows, found in parts.items()}
    whole = {rows: partitions.old(found, raw_before) for rows, found in parts.items()}
    for name, metric in METRICS.items():
        of = samples.host_rows if metric.table is host_samples else samples.throughput_rows
        connection.execute(_fold(connection, name, metric, limits[of]))
    connection.execute(_keep_steps(connection, limits[samples.throughput_rows]))
    connection.execute(_fold_minutes(connection, means_before))
    gone = 0
    for dated in (minute_means.c.minute < means_before, hour_means.c.hour < hours_before):
        gone += connection.execute(sa.delete(dated.left.table).where(dated)).rowcount
    for contexts, rows, before in (
        (samples.throughput_contexts, samples.throughput_rows, raw_before),
        (samples.host_contexts, samples.host_rows, raw_before),
        (samples.loss_contexts, samples.loss_rows, raw_before),
        # Saves are few, and show how a job checkpoints, so they stay as long as the means.
        (samples.save_contexts, samples.save_rows, means_before),
    ):
        old = _before(rows.c.slot, samples.instant_of(rows), limits.get(rows, before))
        # Rows are deleted by their contexts, the key by which SQLite finds them.
        mine = rows.c.context.in_(sa.select(contexts.c.id))
        # Rows of the partitions that are dropped below.
        other = (sa.not_(each.holds(rows.c.slot)) for each in whole.get(rows, ()))
        gone += connection.execute(sa.delete(rows).where(mine, old, *other)).rowcount
        connection.execute(_forget(contexts, rows, raw_before))
    gone += _drop(connection, [each.name for found in whole.values() for each in found])
    if connection.dialect.name == "sqlite":
        give_back(connection, _GIVEN_BACK)
    return gone


def make_ahead(connection: sa.Connection, *, now: datetime, keep: timedelta) -> None:
    """Make the partitions of the next hours, unless another transaction makes them now."""
    if connection.dialect.name == "postgresql" and _alone(connection):
        partitions.make_ahead(connection, now, keep)


def _alone(connection: sa.Connection) -> bool:
    if connection.dialect.name != "postgresql":
        return True
    alone = sa.select(sa.func.pg_try_advisory_xact_lock(_RETENTION))
    return bool(connection.execute(alone).scalar_one())


def _drop(connection: sa.Connection, names: Sequence[str]) -> int:
    """Drop partitions, or empty them if one is in use; return the number of their rows."""
    old = [sa.table(name) for name in names]
    counts = [sa.select(sa.func.count()).select_from(rows) for rows in old]
    gone = sum(int(connection.execute(count).scalar_one()) for count in counts)
    # Last, because from here to the end of the transaction nobody can use the tables; all together,
    # because emptying a partition takes longer than samples may wait.
    if old and not partitions.drop(connection, names):
        for rows in old:
            connection.execute(sa.delete(rows))
    return gone


def _forget(contexts: sa.Table, rows: sa.Table, before: datetime) -> sa.Delete:
    """Return the deletion of contexts without samples whose sources were silent; contexts of
    active sources are locked.
    """
    silent = sa.select(sources.c.job).where(
        sources.c.job == contexts.c.job,
        sources.c.source == contexts.c.source,
        sources.c.heard_at < before,
    )
    used = sa.select(rows.c.slot).where(rows.c.context == contexts.c.id)
    return sa.delete(contexts).where(
        silent.with_for_update(skip_locked=True).exists(), ~used.exists()
    )


def joined(mean: Number, low: Number, high: Number, weight: Number) -> tuple[Number, ...]:
    """Return columns with the mean, low, high and weight of many rows combined."""
    total = sa.func.sum(weight)
    return sa.func.sum(mean * weight) / total, sa.func.min(low), sa.func.max(high), total


def _fold(connection: sa.Connection, name: str, metric: Metric, before: datetime) -> Any:
    rows = metric.table.c
    minute, old = Minute(rows.corrected_at), _before(rows.slot, rows.corrected_at, before)
    # SQLite would read every row otherwise.
    of = host_contexts if metric.table is host_samples else throughput_contexts
    by_context = rows.context.in_(sa.select(of.c.id))
    folded = (
        sa.select(
            rows.job,
            sa.literal(name).label("metric"),
            sa.type_coerce(minute, Instant).label("minute"),
            *joined(metric.value, metric.value, metric.value, metric.weight),
        )
        .where(old, metric.says, by_context)
        # The minute comes first: grouped by job first, SQLite would read every row in that order.
        .group_by(minute, rows.job)
    )
    return _into(connection, minute_means, folded)


def _keep_steps(connection: sa.Connection, before: datetime) -> Any:
    """Return the statement that keeps the last step of each world whose samples retire."""
    rows = throughput_samples.c
    last = (
        sa.select(rows.job, rows.epoch, sa.func.max(rows.step))
        .where(
            rows.rank == 0,
            _before(rows.slot, rows.corrected_at, before),
            rows.context.in_(sa.select(throughput_contexts.c.id)),
        )
        .group_by(rows.job, rows.epoch)
    )
    statement = insert(connection, retired_steps).from_select(["job", "epoch", "step"], last)
    new, known = statement.excluded.step, retired_steps.c.step
    return statement.on_conflict_do_update(
        index_elements=["job", "epoch"], set_={"step": sa.case((new > known, new), else_=known)}
    )


def _before(slot: Number, at: Number, limit: datetime) -> sa.ColumnElement[bool]:
    # A limit at the first instant of a slot leaves out that slot, and so its whole partition.
    last = sa.literal(limit - timedelta(microseconds=1), Micros())
    return (slot <= samples.slot_of(last)) & (at <= last)


def _fold_minutes(connection: sa.Connection, before: datetime) -> Any:
    old = minute_means.c
    hour = Hour(Microseconds(old.minute))
    folded = (
        sa.select(
            old.job,
            old.metric,
            sa.type_coerce(hour, Instant).label("hour"),
            *joined(old.mean, old.low, old.high, old.weight),
        )
        .where(old.minute < before)
        # The hour comes first for the same reason.
        .group_by(hour, old.job, old.metric)
    )
    return _into(connection, hour_means, folded)


def _into(connection: sa.Connection, means: sa.Table, folded: sa.Select[Any]) -> Any:
    """Return the statement that joins folded readings to those that are in ``means``: a late
    sample joins a minute that was folded before, and an hour is folded minute by minute.
    """
    statement = insert(connection, means).from_select([c.name for c in means.c], folded)
    new, known = statement.excluded, means.c
    weight = known.weight + new.weight
    return statement.on_conflict_do_update(
        index_elements=list(means.primary_key),
        set_={
            "mean": (known.mean * known.weight + new.mean * new.weight) / weight,
            "low": sa.case((new.low < known.low, new.low), else_=known.low),
            "high": sa.case((new.high > known.high, new.high), else_=known.high),
            "weight": weight,
        },
    )
