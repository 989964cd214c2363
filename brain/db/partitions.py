"""Partitions of the large tables of samples on PostgreSQL, each with the rows of some hours.

Partitions are made before their hours begin. When all rows of a partition are old, the partition is
dropped, which writes nothing per row and gives the space back to the disk. A default partition
stores rows of all other times, so that no sample is refused: samples from a clock that was wrong,
and samples of hours whose partition was not made in time.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import sqlalchemy as sa

from brain.clocks import at_microseconds, microseconds_of
from brain.db.samples import SLOT, host_rows, throughput_rows
from brain.errors import Unavailable

#: Tables with many rows; saves and losses are few.
PARTITIONED = (throughput_rows, host_rows)
#: Slots of the shortest partition, three hours; a partition has a multiple.
PERIOD = 36
#: Partitions that divide the time for which rows are stored: with more of them each query would
#: take longer to plan, and with fewer of them old rows would stay longer.
_PARTS = 8
#: Partitions that begin later than now: the service may be stopped that long.
_AHEAD = 4
#: Time to wait for a lock, because samples wait meanwhile.
_PATIENCE = "200ms"


class Partition(NamedTuple):
    """A partition with its first slot (None: all before), and the slot after its last."""

    name: str
    first: int | None
    end: int

    def holds(self, slot: sa.ColumnElement[int]) -> sa.ColumnElement[bool]:
        return sa.and_(slot < self.end, *([] if self.first is None else [slot >= self.first]))


def partitions(connection: sa.Connection, table: sa.Table) -> Sequence[Partition]:
    """Return the partitions of a table except the default one, oldest first."""
    if connection.dialect.name != "postgresql" or table not in PARTITIONED:
        return []
    found = connection.exec_driver_sql(_PARTITIONS, (table.name,))
    return [
        Partition(name, None if first is None else int(first), int(end))
        for name, first, end in found
    ]


def old(found: Sequence[Partition], before: datetime) -> Sequence[Partition]:
    """Return the partitions whose rows are all older than ``before``, by at least a slot: no sample
    that is accepted now belongs there.
    """
    return [each for each in found if each.end < microseconds_of(before) // SLOT]


def boundary(found: Sequence[Partition], before: datetime) -> datetime:
    """Return the time before which rows are retired: not later than the first partition that stays,
    because a partition is retired as a whole.
    """
    gone = old(found, before)
    stay = [each.first for each in found if each not in gone and each.first is not None]
    return min([before, *(at_microseconds(first * SLOT) for first in stay)])


def make_ahead(connection: sa.Connection, now: datetime, keep: timedelta) -> None:
    """Make the partitions that are missing for the next hours, in the caller's transaction.

    A partition that cannot be made now, because its table is in use, is made by the next call.
    """
    length = -(-keep // (timedelta(microseconds=SLOT) * PERIOD * _PARTS)) * PERIOD
    for table in PARTITIONED:
        if not connection.exec_driver_sql(_IS_PARTITIONED, (table.name,)).scalar_one():
            continue
        found = partitions(connection, table)
        for first, end in missing(found, microseconds_of(now) // SLOT, max(length, PERIOD)):
            _make(connection, table.name, first, end)


def missing(found: Sequence[Partition], slot: int, length: int) -> Iterator[tuple[int, int]]:
    """Yield the slots (first, end) of the partitions to make, for ``slot`` and the time after it.

    >>> list(missing([Partition("before", None, 40)], 37, 36))[:2]
    [(40, 72), (72, 108)]
    """
    until = (slot // length + 1 + _AHEAD) * length
    while slot < until:
        has = [each.end for each in found if (each.first or 0) <= slot < each.end]
        if has:
            slot = has[0]
            continue
        begin = slot // length * length
        first = max([begin, *(each.end for each in found if each.end <= slot)])
        later = (each.first for each in found if each.first is not None and each.first > slot)
        slot = min([begin + length, *later])
        yield first, slot


def drop(connection: sa.Connection, names: Sequence[str]) -> bool:
    """Drop partitions; False if one is in use: samples do not wait until its readers end."""
    return _briefly(connection, f"DROP TABLE {', '.join(names)}")


def _make(connection: sa.Connection, table: str, first: int, end: int) -> None:
    asked = f"SELECT max(slot) FROM {table}_rest WHERE slot >= {first} AND slot < {end}"
    newest = connection.exec_driver_sql(asked).scalar_one()
    # Rows of the default partition stay there, and the new partition begins after them.
    first = first if newest is None else newest + 1
    if first == end:
        return
    name = f"{table}_{first}"
    _briefly(
        connection,
        f"CREATE TABLE {name} (LIKE {table})",
        # Unlike PARTITION OF, this lets samples be written to other partitions meanwhile.
        f"ALTER TABLE {table} ATTACH PARTITION {name} FOR VALUES FROM ({first}) TO ({end})",
    )


def _briefly(connection: sa.Connection, *statements: str) -> bool:
    """Execute statements that wait for locks only a moment; return True if they were executed."""
    patience = connection.exec_driver_sql("SHOW lock_timeout").scalar_one()
    try:
        with connection.begin_nested():
            _wait(connection, _PATIENCE)
            for statement in statements:
                connection.exec_driver_sql(statement)
            _wait(connection, patience)
    # A row that came to the default partition meanwhile belongs to the new one.
    except (Unavailable, sa.exc.IntegrityError):
        return False
    return True


def _wait(connection: sa.Connection, patience: str) -> None:
    connection.exec_driver_sql("SELECT set_config('lock_timeout', %s, true)", (patience,))


_IS_PARTITIONED = """
SELECT EXISTS (SELECT FROM pg_partitioned_table WHERE partrelid = to_regclass(%s))
"""
_PARTITIONS = """
SELECT name, (regexp_match(bound, 'FROM \\((\\d+)'))[1], (regexp_match(bound, 'TO \\((\\d+)'))[1]
FROM (
    SELECT c.relname AS name, pg_get_expr(c.relpartbound, c.oid) AS bound
    FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid
    WHERE i.inhparent = to_regclass(%s)
) AS leaf
WHERE bound <> 'DEFAULT'
ORDER BY (regexp_match(bound, 'TO \\((\\d+)'))[1]::int
"""
