"""Reads the time range of a request from its parameters ``since`` and ``until``."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from pydantic import BeforeValidator

from brain.errors import BadInput


def _dated(given: Any) -> Any:
    """Raise for a bare number, which pydantic would read as seconds since 1970."""
    if isinstance(given, str) and "-" not in given[1:]:
        raise ValueError("must be a date and a time, such as 2026-11-25T20:00:00Z")
    return given


#: Type of a query parameter with an RFC 3339 time.
Instant = Annotated[datetime, BeforeValidator(_dated)]

_LONGEST = timedelta(days=400)
#: Earliest and latest accepted time; beyond these, a sum could leave the range of ``datetime``.
_FIRST, _LAST = datetime(2, 1, 1, tzinfo=UTC), datetime(9998, 1, 1, tzinfo=UTC)


def span_of(
    since: datetime | None, until: datetime | None, now: datetime, *, default: timedelta
) -> tuple[datetime, datetime]:
    """Return the beginning and end of the range. By default it ends now, and its length is
    ``default``.

    Raises:
        BadInput: a time has no time zone or is out of range, or the range is empty or longer than
            400 days.
    """
    end = _instant("until", until, now)
    begin = _instant("since", since, end - default)
    if not timedelta(0) < end - begin <= _LONGEST:
        raise BadInput(
            f"since={begin.isoformat()} must be before until={end.isoformat()}, and at most 400 "
            "days before it",
            field="since",
        )
    return begin, end


def range_of(since: datetime | None, until: datetime | None) -> Callable[[datetime], bool]:
    """Return a function that returns True for a time in the range; a bound that is None does not
    limit the range.

    Raises:
        BadInput: a time has no time zone or is out of range.
    """
    begin, end = _instant("since", since, _FIRST), _instant("until", until, _LAST)
    return lambda at: begin <= at < end


def _instant(name: str, given: datetime | None, default: datetime) -> datetime:
    if given is not None and given.tzinfo is None:
        raise BadInput(f"{name} {given.isoformat()} has no time zone; append Z", field=name)
    if given is not None and not _FIRST < given < _LAST:
        raise BadInput(
            f"{name} {given.isoformat()} must be between the years 2 and 9997; correct it",
            field=name,
        )
    return given or default
