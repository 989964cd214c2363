"""Spans of time as requests name them: ``since`` and ``until``."""

from datetime import datetime, timedelta

from brain.errors import BadInput

_LONGEST = timedelta(days=400)


def span_of(
    since: datetime | None, until: datetime | None, now: datetime, *, default: timedelta
) -> tuple[datetime, datetime]:
    """Beginning and end; by default the last ``default`` up to now.

    Raises:
        BadInput: an instant has no time zone, or the span is none or longer than 400 days.
    """
    end = _instant("until", until, now)
    begin = _instant("since", since, end - default)
    if not timedelta(0) < end - begin <= _LONGEST:
        raise BadInput(
            f"since {begin.isoformat()} must be before until {end.isoformat()}, 400 days at most",
            field="since",
        )
    return begin, end


def _instant(name: str, given: datetime | None, default: datetime) -> datetime:
    if given is not None and given.tzinfo is None:
        raise BadInput(f"{name} {given.isoformat()} has no time zone; append Z", field=name)
    return given or default
