"""Column types, and the few expressions that differ between SQLite and PostgreSQL."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from enum import StrEnum
from functools import cache, lru_cache
from operator import itemgetter
from typing import Any, Generic, TypeVar

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from brain import wire
from brain.clocks import at_microseconds, microseconds_of
from brain.types.order import Order, Place

T = TypeVar("T")
E = TypeVar("E", bound=StrEnum)

#: Most decoded values in the cache, and longest text of one: 8 MiB of text at most.
_REMEMBERED, _LONGEST_REMEMBERED = 4096, 2048
#: Text that sorts by its bytes everywhere; a locale would order pages differently from Python.
Name = sa.String().with_variant(sa.String(collation="C"), "postgresql")
#: A 64-bit key that the database assigns.
RisingId = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


class Instant(sa.TypeDecorator[datetime]):
    """A timezone-aware instant: ``timestamptz`` on PostgreSQL, whole microseconds since 1970 on
    SQLite.
    """

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def load_dialect_impl(self, dialect: sa.Dialect) -> sa.types.TypeEngine[Any]:
        """Store instants as integers on SQLite, which has no time zones; integers sort, subtract
        and index well.
        """
        kind = sa.BigInteger() if dialect.name == "sqlite" else sa.DateTime(timezone=True)
        return dialect.type_descriptor(kind)

    def process_bind_param(self, value: datetime | None, dialect: sa.Dialect) -> Any:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"{value.isoformat()} has no time zone")
        return microseconds_of(value) if dialect.name == "sqlite" else value

    def process_result_value(self, value: Any, dialect: sa.Dialect) -> datetime | None:
        if value is None:
            return None
        if isinstance(value, datetime):
            return value.astimezone(UTC)
        return at_microseconds(value)

    def result_processor(self, dialect: sa.Dialect, coltype: object) -> Any:
        """On SQLite, convert without calling the base class, because a turn reads thousands of
        instants.
        """
        if dialect.name == "sqlite":
            return _instant_of
        return super().result_processor(dialect, coltype)


class Micros(sa.TypeDecorator[datetime]):
    """An instant stored as whole microseconds since 1970 on both databases."""

    impl = sa.BigInteger
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: sa.Dialect) -> Any:
        return None if value is None else microseconds_of(value)

    def process_result_value(self, value: Any, dialect: sa.Dialect) -> datetime | None:
        return _instant_of(value)

    def result_processor(self, dialect: sa.Dialect, coltype: object) -> Any:
        return _instant_of


class Value(sa.TypeDecorator[T], Generic[T]):
    """A frozen value as JSON; values that are never searched need no columns of their own."""

    impl = sa.JSON(none_as_null=True).with_variant(
        postgresql.JSONB(none_as_null=True), "postgresql"
    )
    cache_ok = True

    def __init__(self, kind: Any) -> None:
        super().__init__()
        self.kind = kind

    def process_bind_param(self, value: T | None, dialect: sa.Dialect) -> Any:
        return None if value is None else wire.plain(value)

    def process_result_value(self, value: str | None, dialect: sa.Dialect) -> T | None:
        """Decode JSON, which the drivers return as text because ``brain.db.engine`` configures them
        so.
        """
        if value is None:
            return None
        decode = _decoded if len(value) <= _LONGEST_REMEMBERED else wire.decode
        found: T = decode(value, self.kind)
        return found


@lru_cache(maxsize=_REMEMBERED)
def _decoded(text: str, kind: Any) -> Any:
    """Return the decoded value, from a cache: documents, plans and worlds are read repeatedly."""
    return wire.decode(text, kind)


class Word(sa.TypeDecorator[E], Generic[E]):
    """One word of an enumeration, stored as text so that a new word needs no migration."""

    impl = sa.String
    cache_ok = True

    def __init__(self, kind: type[E]) -> None:
        super().__init__()
        self.kind = kind

    def process_bind_param(self, value: E | None, dialect: sa.Dialect) -> str | None:
        return None if value is None else str(value)

    def process_result_value(self, value: str | None, dialect: sa.Dialect) -> E | None:
        return None if value is None else self.kind(value)

    def result_processor(self, dialect: sa.Dialect, coltype: object) -> Any:
        """Convert each word by one look-up in a table, because a turn reads thousands of words."""
        known: dict[str | None, E | None] = {None: None, **{str(one): one for one in self.kind}}
        kind = self.kind

        def word(value: str | None) -> E | None:
            found = known.get(value)
            return kind(value) if found is None and value is not None else found

        return word


def _instant_of(microseconds: int | None) -> datetime | None:
    return None if microseconds is None else at_microseconds(microseconds)


class AskedRows(FunctionElement[Any]):
    """The rows of a query about many jobs, which are sent to the database as one parameter
    (``asked_rows``).
    """

    inherit_cache = True
    name = "asked"


#: A table of ``asked_rows``, to be joined with the queried table.
ASKED = (
    AskedRows(sa.bindparam("asked", type_=sa.Text))
    .table_valued(
        sa.column("job", Name),
        sa.column("since", Instant()),
        sa.column("until", Instant()),
        sa.column("width", sa.BigInteger),
        # The same two instants in microseconds.
        sa.column("since_at", Micros()),
        sa.column("until_at", Micros()),
    )
    .alias("asked")
)


class Microseconds(FunctionElement[int]):
    """An instant column as whole microseconds since 1970."""

    type = sa.BigInteger()
    inherit_cache = True
    name = "microseconds"


class Minute(FunctionElement[datetime]):
    """The beginning of the minute of an instant in microseconds."""

    type = Instant()
    inherit_cache = True
    name = "minute"
    micros = 60_000_000


class Hour(Minute):
    """The beginning of the hour of an instant in microseconds."""

    inherit_cache = True
    name = "hour"
    micros = 60 * Minute.micros


@compiles(AskedRows, "sqlite")
def _asked_sqlite(element: AskedRows, compiler: SQLCompiler, **kw: Any) -> str:
    given = compiler.process(element.clauses, **kw)
    return (
        "(SELECT json_extract(value, '$[0]') AS job, json_extract(value, '$[1]') AS since, "
        "json_extract(value, '$[2]') AS until, json_extract(value, '$[3]') AS width, "
        "json_extract(value, '$[1]') AS since_at, json_extract(value, '$[2]') AS until_at "
        f"FROM json_each({given}))"
    )


@compiles(AskedRows, "postgresql")
def _asked_postgresql(element: AskedRows, compiler: SQLCompiler, **kw: Any) -> str:
    given = compiler.process(element.clauses, **kw)
    since, until = (
        f"timestamptz 'epoch' + (value->>{place})::bigint * interval '1 microsecond'"
        for place in (1, 2)
    )
    return (
        f"(SELECT value->>0 AS job, {since} AS since, {until} AS until, "
        "(value->>3)::bigint AS width, (value->>1)::bigint AS since_at, "
        f"(value->>2)::bigint AS until_at FROM jsonb_array_elements(CAST({given} AS jsonb)))"
    )


@compiles(Microseconds, "sqlite")
def _microseconds_sqlite(element: Microseconds, compiler: SQLCompiler, **kw: Any) -> str:
    return compiler.process(element.clauses, **kw)


@compiles(Microseconds, "postgresql")
def _microseconds_postgresql(element: Microseconds, compiler: SQLCompiler, **kw: Any) -> str:
    return (
        f"CAST(extract(epoch FROM {compiler.process(element.clauses, **kw)}) * 1000000 AS BIGINT)"
    )


@compiles(Minute, "sqlite")
def _minute_sqlite(element: Minute, compiler: SQLCompiler, **kw: Any) -> str:
    column = compiler.process(element.clauses, **kw)
    return f"({column} - {column} % {element.micros})"


@compiles(Minute, "postgresql")
def _minute_postgresql(element: Minute, compiler: SQLCompiler, **kw: Any) -> str:
    column = compiler.process(element.clauses, **kw)
    return f"to_timestamp({column} / {element.micros} * {element.micros // 1_000_000})"


def asked_rows(rows: Iterable[tuple[str, datetime, datetime | None, int | None]]) -> dict[str, str]:
    """Return the parameter ``ASKED``, which holds many rows as one JSON text.

    Each row has a job, the beginning and end of a time range, and the width of a bucket. Times and
    widths are in microseconds.
    """
    asked = [
        (job, microseconds_of(since), None if until is None else microseconds_of(until), width)
        for job, since, until, width in rows
    ]
    return {"asked": json.dumps(asked)}


def insert(connection: sa.Connection, table: sa.Table) -> Any:
    """Return an INSERT for the connection's dialect; its ON CONFLICT methods are the same for
    SQLite and PostgreSQL.
    """
    return _INSERT[connection.dialect.name](table)


def insert_new(connection: sa.Connection, table: sa.Table, row: Mapping[str, Any]) -> bool:
    """Store a row; return False if a row with its key, or with another unique value of it, is
    already stored.
    """
    return connection.execute(_insert_new(connection.dialect.name, table), row).first() is not None


@cache
def _insert_new(dialect: str, table: sa.Table) -> Any:
    return _INSERT[dialect](table).on_conflict_do_nothing().returning(*table.primary_key)


_INSERT: Mapping[str, Callable[[sa.Table], Any]] = {
    "sqlite": sqlite.insert,
    "postgresql": postgresql.insert,
}


def change(table: sa.Table) -> sa.Update:
    """Return an UPDATE of the row that has a given key and version.

    The statement's parameters ``of_<column>`` give the key and the version; the other parameters
    give the new row.
    """
    marks = [*table.primary_key, table.c.version]
    return sa.update(table).where(*(c == sa.bindparam(f"of_{c.name}", type_=c.type) for c in marks))


def upsert(connection: sa.Connection, table: sa.Table, rows: Iterable[Mapping[str, Any]]) -> None:
    """Store rows; each row replaces the stored row with the same primary key."""
    stored = list(rows)
    if stored:
        connection.execute(_upsert(connection.dialect.name, table), stored)


@cache
def _upsert(dialect: str, table: sa.Table) -> Any:
    statement = _INSERT[dialect](table)
    keys = [column.name for column in table.primary_key]
    changed = {c.name: statement.excluded[c.name] for c in table.c if c.name not in keys}
    return statement.on_conflict_do_update(index_elements=keys, set_=changed)


def builder(kind: type[T], part: str, names: Sequence[str]) -> Callable[[Any, Sequence[Any]], T]:
    """Return a function that builds a value from one given field and a row with the other fields.

    ``part`` names the given field. The constructor of a frozen value costs three times as much,
    because it sets every field by name.
    """
    assert sorted((part, *names)) == sorted(_names(kind))
    assert not hasattr(kind, "__post_init__")
    put_part, slots = getattr(kind, part).__set__, [getattr(kind, name).__set__ for name in names]
    new = object.__new__

    def build(of: Any, values: Sequence[Any]) -> T:
        made = new(kind)
        put_part(made, of)
        # The row is longer: its last columns made the part.
        for put, one in zip(slots, values, strict=False):
            put(made, one)
        return made

    return build


_names: Callable[[Any], tuple[str, ...]] = cache(lambda kind: tuple(f.name for f in fields(kind)))


def page(table: sa.Table, order: Order, after: Place | None, size: int) -> sa.Select[Any]:
    """Return the query for up to ``size`` rows that follow the place ``after`` in an order."""
    fields = [table.c[field.rpartition(".")[2]] for field in order.fields]
    sorts = [field.desc() if order.descending else field.asc() for field in fields]
    rows = sa.select(table).order_by(*sorts).limit(size)
    if after is None:
        return rows
    place = sa.tuple_(*fields)
    return rows.where(place < after if order.descending else place > after)


def row(value: Any) -> dict[str, Any]:
    """Return the fields of a value, as columns with the same names."""
    return {name: getattr(value, name) for name in _names(type(value))}


def value(kind: type[T], found: Mapping[Any, Any]) -> T:
    """Return a value from the columns that are named like its fields; other columns are ignored."""
    return kind(**{name: found[name] for name in _names(kind)})


def values(kind: type[T], found: sa.CursorResult[Any]) -> list[T]:
    """Return a value for each row, from the columns that are named like the value's fields."""
    read: Callable[[Sequence[Any]], T] = reader(kind, tuple(found.keys()))  # type: ignore[arg-type]
    return [read(each) for each in found.all()]


@cache
def reader(kind: type[T], columns: Sequence[str]) -> Callable[[Sequence[Any]], T]:
    """Return a function that makes a value from a row with these columns; other columns are
    ignored.

    The function sets fields without calling the constructor, which would cost three times as much.
    """
    names = _names(kind)
    pick = itemgetter(*map(columns.index, names))
    if hasattr(kind, "__post_init__"):
        return lambda row: kind(**dict(zip(names, pick(row), strict=True)))
    slots, new = [getattr(kind, name).__set__ for name in names], object.__new__

    def read(row: Sequence[Any]) -> T:
        made = new(kind)
        for put, one in zip(slots, pick(row), strict=True):
            put(made, one)
        return made

    return read
