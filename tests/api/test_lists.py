"""The filter grammar and keyset pages, without HTTP."""

import pytest

from brain.api.filters import parse_filter
from brain.api.pages import key_of, page_of, token_of
from brain.errors import BadInput

KEYS = {"state": frozenset({"Running", "Queued"}), "owner": None}


@pytest.mark.parametrize(
    ("text", "passes"),
    [
        ("", True),
        ("state:Running", True),
        ("state:queued,running", True),
        ("state:Queued", False),
        ("owner:ada", True),
        ('owner:"Ada"', True),
        ("owner:me", True),
        ("dig", True),
        ("DIG its", True),
        ("dog", False),
        ("state:Running owner:bob", False),
    ],
)
def test_all_terms_must_hold(text: str, passes: bool) -> None:
    row = {"state": "Running", "owner": "Ada"}
    assert parse_filter(text, KEYS, me="ada").matches(row, "digits") is passes


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("colour:red", "choose one of state, owner"),
        ("state:Runing", "did you mean Running"),
        ("state:x", "known: Queued, Running"),
        ('owner:"x', "close the quote"),
        ("state=Running", "write state:Running, with a colon"),
    ],
)
def test_what_is_no_filter_is_told(text: str, says: str) -> None:
    with pytest.raises(BadInput, match=says):
        parse_filter(text, KEYS)


def test_pages_together_are_the_list_once() -> None:
    rows, after, seen = list(range(9, 0, -1)), None, []
    while True:
        page = page_of(
            lambda after, size: [row for row in rows if after is None or row < after][:size],
            lambda row: row,
            after=after,
            size=2,
            wanted=lambda row: row % 2 == 1,
        )
        seen += page.items
        if page.next_page_token is None:
            break
        after = key_of(page.next_page_token, int)
    assert seen == [9, 7, 5, 3, 1]


def test_a_token_of_another_list_is_refused() -> None:
    with pytest.raises(BadInput, match="leave it out to start at the first page"):
        key_of(token_of("text"), int)
