"""Query parameters of routes, pages and parts of lists, and HEAD."""

import json
from typing import Any

import pytest

from brain import calls
from brain.api import openapi
from brain.types.record import Role
from tests.api.app import Api, digits
from tests.builders import node


def ask(api: Api, path: str, method: str = "GET", role: Role = Role.ADMIN) -> Any:
    """An answer to a bare request."""
    with api.http(api.token(role)) as http:
        return http.request(method, f"/api/v1{path}")


@pytest.mark.parametrize(
    ("path", "field", "says"),
    [
        ("/jobs?page_sise=3", "page_sise", "did you mean page_size?"),
        (
            "/jobs?status=Running",
            "status",
            "known: fields, filter, page_size, page_token, since, sort",
        ),
        ("/freeze?x=1", "x", "the operation takes no parameters"),
        ("/nodes?pagetoken=", "pagetoken", "did you mean page_token?"),
        ("/plans?fields=plan,verdicts", "fields", "did you mean verdict?"),
        ("/jobs?since=2026-01-01T00:00:00", "since", "append Z"),
    ],
)
def test_a_parameter_that_is_none_is_refused_by_name(
    api: Api, path: str, field: str, says: str
) -> None:
    answer = ask(api, path)
    assert (answer.status_code, answer.json()["field"]) == (422, field)
    assert says in answer.json()["detail"]


def test_every_parameter_that_is_declared_is_known(api: Api) -> None:
    with api.client() as admin:
        admin.send(calls.submit(digits()))
    paths = openapi.document(api.app)["paths"]
    for path, operations in paths.items():
        for parameter in operations.get("get", {}).get("parameters", ()):
            if parameter["in"] == "query" and path.startswith("/api/v1/"):
                at = path.removeprefix("/api/v1").replace("{job}", "digits")
                answer = ask(api, f"{at}?{parameter['name']}=0")
                assert "no query parameter" not in answer.text, (path, parameter["name"])


def test_an_unknown_parameter_changes_nothing(api: Api) -> None:
    with api.client() as admin:
        admin.send(calls.submit(digits()))
    answer = ask(api, "/jobs/digits:suspend?dryrun=true", "POST")
    assert (answer.status_code, "did you mean dry_run?" in answer.text) == (422, True)
    assert ask(api, "/jobs/digits").json()["job"]["intent"] == "run"


def test_nodes_and_pools_come_in_pages(api: Api) -> None:
    with api.stores.transaction() as tx:
        for number in range(5):
            tx.nodes.put(node(f"n{number}", pool=f"p{number}"))
    for path, name in (("/nodes", lambda item: item["name"]), ("/pools", str)):
        found, token = [], ""
        while token is not None:
            page = ask(api, f"{path}?page_size=2&page_token={token}").json()
            assert len(page["items"]) <= 2
            found += [name(item) for item in page["items"]]
            token = page["next_page_token"]
        assert [each[1:] for each in found] == list("01234")
    assert ask(api, "/policies?page_size=2&page_token=x").status_code == 422


def test_a_list_is_cut_to_fields_and_to_a_time(api: Api) -> None:
    with api.client() as admin:
        for name in ("early", "late"):
            admin.send(calls.submit(digits(name=name)))
            api.pass_time(hours=1)
    cut = ask(api, "/jobs?fields=name,state&since=2026-01-01T13:00:00Z").json()
    assert cut["items"] == [{"name": "late", "state": "Queued"}]
    cut = ask(api, "/jobs?fields=name&until=2026-01-01T13:00:00Z").json()
    assert cut["items"] == [{"name": "early"}]
    assert ask(api, "/plans?until=2026-01-01T13:00:00Z").json()["items"] == []
    entries = ask(api, "/audit?since=2026-01-01T13:00:00Z").json()["items"]
    assert {entry["at"][:13] for entry in entries} <= {"2026-01-01T13"}


@pytest.mark.parametrize("path", ["/jobs", "/jobs/digits", "/nodes", "/events", "/nothing"])
def test_head_is_the_head_of_get(api: Api, path: str) -> None:
    with api.client() as admin:
        admin.send(calls.submit(digits()))
    head = ask(api, path, "HEAD")
    assert head.content == b""
    if path == "/events":
        assert (head.status_code, head.headers["cache-control"]) == (200, "no-store")
        return
    get = ask(api, path)
    kept = ("content-type", "content-length", "etag", "vary", "content-encoding")
    assert [head.headers.get(name) for name in kept] == [get.headers.get(name) for name in kept]
    assert head.status_code == get.status_code


def test_head_needs_the_sign_in_of_get(api: Api) -> None:
    with api.http() as http:
        assert http.head("/api/v1/jobs").status_code == 401


def test_every_route_declares_what_may_come_of_any(api: Api) -> None:
    paths = openapi.document(api.app)["paths"]
    missing = {
        (method, path): left
        for path, operations in paths.items()
        for method, operation in operations.items()
        if path.startswith("/api/v1/") and path != "/api/v1/sign-in"
        if (left := {"401", "403", "422", "429", "503"} - set(operation["responses"]))
    }
    assert not missing, json.dumps([*map(str, missing.items())], indent=1)
