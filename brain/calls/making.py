"""Builds the calls of the API."""

from typing import Any

from brain import storable, wire
from brain.client import Call, idempotency_key
from brain.errors import BadInput

V1 = "/api/v1"


def part(name: str) -> str:
    """Return a name as the part of a path; any other text would address another route.

    Raises:
        BadInput: the text is not a name.
    """
    if "/" in name or name in (".", ".."):
        raise BadInput(f"{name!r} is not a name: names have no `/`, and are not `.` or `..`")
    return name


def get(path: str, reads: Any, **query: str) -> Call[Any]:
    given = {key: value for key, value in query.items() if value}
    return Call(method="GET", path=V1 + path, reads=reads, query=given)


def poll(path: str, reads: Any, etag: str | None, wait_seconds: float) -> Call[Any]:
    return Call(
        method="GET",
        path=V1 + path,
        reads=reads,
        query={"wait": str(wait_seconds)} if wait_seconds else {},
        headers={"If-None-Match": etag} if etag else {},
        timeout_seconds=wait_seconds + 10.0,
    )


def tell(path: str, report: object) -> Call[None]:
    """Send a report; a repeated report changes nothing, so it needs no idempotency key."""
    return Call(method="POST", path=V1 + path, reads=type(None), body=wire.encode(report))


def post(
    path: str, body: object, reads: Any, *, dry_run: bool = False, method: str = "POST"
) -> Call[Any]:
    return Call(
        method=method,
        path=V1 + path,
        reads=reads,
        query={"dry_run": "true"} if dry_run else {},
        body=encoded(body),
        headers=idempotency_key(),
    )


def encoded(body: object) -> bytes:
    """Encode a person's request; NaN and infinite numbers are refused, because they would be sent
    as null, and a limit would be dropped without a word.
    """
    storable.refuse(wire.plain(body))
    return wire.encode(body)
