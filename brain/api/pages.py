"""Keyset pages: a page token contains the key of the last row, so a page is found without counting
rows.
"""

import base64
import binascii
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Annotated, Any, TypeVar

import msgspec

from brain.errors import BadInput
from brain.views import Page

Row = TypeVar("Row")
Key = TypeVar("Key")

#: The largest generation of a plan that a store can compare.
HIGHEST_GENERATION = 2**31 - 1

#: Types of the values in a token; both databases can compare each value of these types with a
#: column of its kind.
Text = Annotated[str, msgspec.Meta(pattern=r"^[^\x00]*\Z")]
Instant = Annotated[datetime, msgspec.Meta(tz=True)]
Number = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
PlanKey = Annotated[int, msgspec.Meta(ge=0, le=HIGHEST_GENERATION)]

#: Most rows of a page, and most rows that one request searches for matches of a filter.
LARGEST = 500
LOOKED_THROUGH = 5_000


def token_of(key: object) -> str:
    """Return an opaque token with a key, which consists of JSON values and datetimes."""
    return base64.urlsafe_b64encode(msgspec.json.encode(key)).decode().rstrip("=")


def key_of(token: str, kind: type[Key] | Any) -> Key | None:
    """Return the key in a token; None for the empty token of the first page.

    Raises:
        BadInput: the token is not from this list.
    """
    if not token:
        return None
    try:
        raw = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
        return msgspec.json.decode(raw, type=kind)
    except (binascii.Error, msgspec.MsgspecError, UnicodeDecodeError, ValueError) as bad:
        raise BadInput(
            f"page_token {token!r} is not from this list; leave it out to start at the first page",
            field="page_token",
        ) from bad


def named_page(
    rows: Sequence[Row], name: Callable[[Row], str], *, page_token: str, size: int
) -> Page[Row]:
    """Return a page of rows that are all in memory, in the order of their names.

    Raises:
        BadInput: the token is not from this list.
    """
    return page_of(
        lambda after, count: [row for row in rows if after is None or name(row) > after][:count],
        name,
        after=key_of(page_token, Text),
        size=size,
    )


def page_of(
    read: Callable[[Key | None, int], Sequence[Row]],
    key: Callable[[Row], Key],
    *,
    after: Key | None,
    size: int,
    wanted: Callable[[Row], bool] = lambda row: True,
) -> Page[Row]:
    """Collect ``size`` matching rows from ``read(after, count)``, which lists rows in key order.

    A filter with few matches ends the page early after ``LOOKED_THROUGH`` rows; the token then
    continues from there.
    """
    found: list[Row] = []
    looked = 0
    while looked < LOOKED_THROUGH:
        rows = read(after, size + 1)
        for row in rows:
            if len(found) == size:
                return Page(items=tuple(found), next_page_token=token_of(after))
            after = key(row)
            looked += 1
            if wanted(row):
                found.append(row)
        if len(rows) <= size:
            return Page(items=tuple(found))
    return Page(items=tuple(found), next_page_token=token_of(after))
