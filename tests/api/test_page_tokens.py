"""No page token, however forged, makes a list fail."""

from datetime import datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brain.api import orders
from brain.api.pages import token_of
from tests.api.app import Api

#: Lists, each with its orders; None if it has one order.
LISTS = {
    "/jobs": orders.JOBS,
    "/plans": orders.PLANS,
    "/nodes": orders.NODES,
    "/audit": orders.AUDIT,
    "/jobs/digits/plans": None,
    "/policies": None,
    "/pools": None,
}

texts = st.text(st.characters(exclude_categories=["Cs"])) | st.sampled_from(["a\0b", "a"])
integers = st.integers() | st.sampled_from([1, 2**31, 2**63 - 1, 2**63, -(2**63) - 1, 10**400])
instants = st.datetimes(timezones=st.none() | st.timezones()).map(datetime.isoformat) | (
    st.sampled_from(["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
)
values = st.none() | st.floats(allow_nan=False, allow_infinity=False) | texts | integers | instants
#: Values that a decoder might take for one of a list's types.
FORGED: dict[Any, st.SearchStrategy[Any]] = {
    orders.Text: texts,
    orders.Number: integers,
    orders.PlanKey: integers,
    orders.Instant: instants,
}


def forged_of(order: orders.Orders | None) -> st.SearchStrategy[tuple[str, object]]:
    """``sort``, and a key that may have as many parts as the order has fields."""
    anything = values | st.lists(values)
    if order is None:
        return st.tuples(st.just(""), anything)
    types = {**order.fields, **order.apart}
    fields = {field.rpartition(".")[2]: (field, *order.apart) for field in order.fields}

    def of(sort: str) -> st.SearchStrategy[tuple[str, object]]:
        parts = dict.fromkeys(fields[sort] if sort else order.default.fields)
        key = st.tuples(st.just(sort), *(FORGED[types[field]] for field in parts))
        return st.tuples(st.just(sort), key | key | anything)

    return st.sampled_from(["", *fields]).flatmap(of)


@pytest.mark.parametrize("path", LISTS)
def test_a_forged_page_token_is_a_page_or_is_refused(submitted: Api, path: str) -> None:
    with submitted.http(submitted.token()) as http:

        @settings(max_examples=40, deadline=None, database=None)
        @given(forged_of(LISTS[path]))
        def ask(key: tuple[str, object]) -> None:
            sort, forged = key
            asked = {"page_token": token_of(forged)} | ({"sort": sort} if sort else {})
            answer = http.get(f"/api/v1{path}", params=asked)
            assert answer.status_code in (200, 422), answer.text
            if answer.status_code == 422:
                assert answer.json()["field"] == "page_token"
                assert "leave it out" in answer.json()["detail"]

        ask()


def test_every_list_with_pages_is_asked(submitted: Api) -> None:
    paged = {
        path
        for path, methods in submitted.app.openapi()["paths"].items()
        for one in methods.get("get", {}).get("parameters", [])
        if one["name"] == "page_token"
    }
    assert paged == {f"/api/v1{path}".replace("digits", "{job}") for path in LISTS}
