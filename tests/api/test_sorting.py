"""Lists in an order of the client's choice, page by page, over every adapter of the stores."""

from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from brain.api.orders import JOBS, PLANS
from brain.db import SqlStores
from brain.inmemory import MemoryStores
from brain.ports import Stores
from brain.types.job import JobState
from brain.types.plan import PlanKind, PlanState
from brain.types.record import AuditEntry, Role
from brain.types.resources import PoolName
from tests.api.app import Api
from tests.builders import NOW, at, finished, job, node, plan


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def api(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """An app over stores of one kind, with some of everything in them."""
    stores: Stores = (
        MemoryStores()
        if request.param == "memory"
        else SqlStores(request.getfixturevalue(f"{request.param}_url"))
    )
    with closing(stores):
        _fill(stores)
        yield Api(tmp_path, stores=stores)


def _fill(stores: Stores) -> None:
    with stores.transaction() as tx:
        for number in range(9):
            one = job(
                f"j{number}",
                name=f"n{number * 4 % 9}",
                project=f"p{number % 2}",
                pool=PoolName(f"pool{number % 4}"),
                owner=("ada", "Ada", "bob")[number % 3],
                created_at=at(number % 5),
                updated_at=at(100 - number // 2),
            )
            tx.jobs.add(finished(one, JobState.FAILED) if number % 2 else one)
            kind = PlanKind.RESIZE if number % 2 else PlanKind.ROLLBACK
            state = PlanState.REJECTED if number % 3 else PlanState.SUPERSEDED
            changed = at(number * 7 % 4)
            tx.plans.add(plan(number + 1, job="j0", kind=kind, state=state, updated_at=changed))
            tx.nodes.put(node(f"m{number}", pool=f"pool{number % 2}", seen_at=at(number % 3)))
            told = {
                "actor": f"a{number % 3}",
                "action": f"do{number % 2}",
                "target": f"job/{number}",
            }
            tx.audit.add(AuditEntry(at=NOW, **told))


def every(api: Api, path: str, sort: str) -> list[Any]:
    """All items of a list, which come two at a time."""
    items, token = list[Any](), ""
    with api.http(api.token(Role.ADMIN)) as http:
        while token is not None:
            asked = {"sort": sort, "page_size": "2", "page_token": token}
            answer = http.get(f"/api/v1/{path}", params=asked)
            assert answer.status_code == 200, answer.text
            items += answer.json()["items"]
            token = answer.json()["next_page_token"]
    return items


#: Lists with the fields to sort by, where an item has them, and what tells any two items apart.
LISTS = {
    "jobs": ([name.rpartition(".")[2] for name in JOBS.fields], lambda each: each, "id"),
    "plans": (list(PLANS.fields), lambda each: each["plan"], "generation"),
    "nodes": (["name", "pool", "accelerator", "seen_at"], lambda each: each, "name"),
    "audit": (["at", "actor", "action", "target"], lambda each: each, "id"),
}


@pytest.mark.parametrize("path", LISTS)
def test_pages_of_any_order_have_each_row_once(api: Api, path: str) -> None:
    names, value, apart = LISTS[path]
    for name in names:
        up, down = every(api, path, name), every(api, path, f"-{name}")
        assert len({value(each)[apart] for each in up}) == 9
        assert down == up[::-1]
        for one, next_one in pairwise(map(value, up)):
            # Rows of equal fields have an order of their own.
            assert (one[name], one[apart]) < (next_one[name], next_one[apart]), (path, name)


def test_an_order_holds_while_rows_come(api: Api) -> None:
    with api.http(api.token(Role.ADMIN)) as http:
        asked = {"sort": "name", "page_size": "4", "fields": "name"}
        first = http.get("/api/v1/jobs", params=asked).json()
        with api.stores.transaction() as tx:
            tx.jobs.add(job("k1", name="n0", project="later"))
            tx.jobs.add(job("k2", name="n8", project="later"))
        token = first["next_page_token"]
        rest = http.get("/api/v1/jobs", params=asked | {"page_token": token, "page_size": "9"})
    names = [each["name"] for each in (*first["items"], *rest.json()["items"])]
    assert names == [*(f"n{number}" for number in range(9)), "n8"]


@pytest.mark.parametrize(
    ("query", "field", "says"),
    [
        ("sort=nme", "sort", "cannot sort by 'nme'; choose one of created_at, name, owner"),
        ("sort=-", "sort", "cannot sort by ''"),
        ("sort=name,owner", "sort", "cannot sort by 'name,owner'"),
        ("sort=document.name", "sort", "cannot sort by 'document.name'"),
        ("sort=owner&page_token={name}", "page_token", "from a list with sort='name', not 'owner'"),
        ("sort=created_at&page_token={name}", "page_token", "page_token"),
        ("page_token={name}", "page_token", "page_token"),
        ("sort=name&page_token=x", "page_token", "is not from this list"),
    ],
)
def test_an_order_that_is_none_is_refused_by_name(
    api: Api, query: str, field: str, says: str
) -> None:
    with api.http(api.token(Role.ADMIN)) as http:
        token = http.get("/api/v1/jobs?sort=name&page_size=1").json()["next_page_token"]
        answer = http.get(f"/api/v1/jobs?{query.format(name=token)}")
    assert (answer.status_code, answer.json()["field"]) == (422, field)
    assert says in answer.json()["detail"]
