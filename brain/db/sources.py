"""Stores the counts and the clock of each source in one row, which writers of the source's samples
lock.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from brain import wire
from brain.clocks import SourceClock, microseconds_of
from brain.types.telemetry import LossSample, Sample

#: Job and source.
Source = tuple[str, str]
Clocks = dict[Source, SourceClock]
#: Newest time of a source that was locked before its first sample: the year 1.
_NEVER = -62_135_596_800_000_000


@dataclass(slots=True)
class Count:
    """Counts of one source's samples, to be added to ``sources``."""

    heard_at: datetime
    highest: int = -1
    stored: int = 0
    dropped: int = 0

    def add(self, samples: Sequence[Sample]) -> None:
        self.highest = max(self.highest, *(each.sequence for each in samples))
        self.stored += len(samples)
        if isinstance(samples[0], LossSample):
            self.dropped += sum(each.dropped for each in samples if isinstance(each, LossSample))


def add_up(
    connection: sa.Connection, counts: Mapping[Source, Count], clocks: Mapping[Source, SourceClock]
) -> None:
    """Add the counts of each source to its stored counts, and store the source's clock."""
    rows = []
    for source, of in sorted(counts.items()):
        clock = clocks[source]
        assert clock.newest is not None, "something was heard"
        seconds, heard = clock.offset / 1e6, microseconds_of(of.heard_at)
        rows.append((*source, of.highest, of.stored, of.dropped, seconds, heard, *clock.newest))
    if rows and connection.dialect.name == "postgresql":
        connection.exec_driver_sql(_COUNT_POSTGRESQL, (wire.encode(rows).decode(),))
    elif rows:
        connection.exec_driver_sql(_COUNT_SQLITE, rows)


def clocks_of(connection: sa.Connection, wanted: Iterable[Source]) -> Clocks:
    """Return the clocks of known sources; all sources are locked until the transaction ends."""
    asked = sorted(wanted)
    if connection.dialect.name == "sqlite":
        found = connection.exec_driver_sql(_CLOCKS_SQLITE, (wire.encode(asked).decode(),))
        return _read(found)
    # Batches of one source take turns; otherwise the later could be stored before the earlier one.
    clocks = _locked(connection, asked)
    if missing := [source for source in asked if source not in clocks]:
        connection.exec_driver_sql(_LOCKED, (wire.encode(missing).decode(),))
        # Another writer may have been faster.
        clocks |= _locked(connection, missing)
    return {source: clock for source, clock in clocks.items() if clock.newest != (_NEVER, _NEVER)}


def _locked(connection: sa.Connection, asked: Sequence[Source]) -> Clocks:
    given = (wire.encode(asked).decode(),)
    return _read(connection.exec_driver_sql(_CLOCKS_POSTGRESQL, given))


def _read(found: Iterable[Any]) -> Clocks:
    return {
        (job, source): SourceClock(round(seconds * 1e6), (stamp, instant))
        for job, source, seconds, stamp, instant in found
    }


_CLOCKS_SQLITE = """
SELECT s.job, s.source, s.offset_seconds, s.measured_at, s.corrected_at
FROM json_each(?) AS w CROSS JOIN sources AS s
ON s.job = json_extract(w.value, '$[0]') AND s.source = json_extract(w.value, '$[1]')
"""
#: A time by its microseconds since 1970.
_INSTANT = "timestamptz 'epoch' + {} * interval '1 microsecond'"
_ASKED_POSTGRESQL = "json_array_elements(%s::json) AS r"
_CLOCKS_POSTGRESQL = f"""
SELECT job, source, offset_seconds, (extract(epoch FROM measured_at) * 1000000)::int8,
    (extract(epoch FROM corrected_at) * 1000000)::int8 FROM sources
WHERE (job, source) IN (SELECT r->>0, r->>1 FROM {_ASKED_POSTGRESQL})
ORDER BY job, source FOR UPDATE
"""
_LOCKED = f"""
INSERT INTO sources (job, source, highest, stored, dropped, offset_seconds,
    heard_at, measured_at, corrected_at)
SELECT r->>0, r->>1, -1, 0, 0, 0, at, at, at
FROM {_ASKED_POSTGRESQL}, (SELECT {_INSTANT.format(_NEVER)} AS at) AS never
ON CONFLICT (job, source) DO NOTHING
"""
_COUNT = """
ON CONFLICT (job, source) DO UPDATE SET
highest = CASE WHEN excluded.highest > sources.highest
    THEN excluded.highest ELSE sources.highest END,
stored = sources.stored + excluded.stored,
dropped = sources.dropped + excluded.dropped,
heard_at = excluded.heard_at,
offset_seconds = CASE WHEN excluded.measured_at > sources.measured_at
    THEN excluded.offset_seconds ELSE sources.offset_seconds END,
corrected_at = CASE WHEN excluded.measured_at > sources.measured_at
    THEN excluded.corrected_at ELSE sources.corrected_at END,
measured_at = CASE WHEN excluded.measured_at > sources.measured_at
    THEN excluded.measured_at ELSE sources.measured_at END
"""
_SOURCES = (
    "job, source, highest, stored, dropped, offset_seconds, heard_at, measured_at, corrected_at"
)
_COUNT_SQLITE = f"INSERT INTO sources ({_SOURCES}) VALUES (?,?,?,?,?,?,?,?,?) {_COUNT}"
_COUNT_POSTGRESQL = f"""
INSERT INTO sources ({_SOURCES})
SELECT r->>0, r->>1, (r->>2)::int8, (r->>3)::int8, (r->>4)::int8, (r->>5)::float8,
    {_INSTANT.format("(r->>6)::int8")}, {_INSTANT.format("(r->>7)::int8")},
    {_INSTANT.format("(r->>8)::int8")}
FROM json_array_elements(%s::json) AS r {_COUNT}
"""
