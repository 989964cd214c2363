"""What goes wrong is told in one form, whatever it is."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from fastapi import Request

from brain import errors
from brain.api.deps import open_body_of
from brain.api.problems import STATUS, status_of
from brain.client import _BY_TYPE
from brain.inmemory import MemoryStores
from brain.ports import Transaction
from brain.types.record import Role
from tests.api.app import Api, digits


class BrokenStores(MemoryStores):
    """Stores that can be taken away."""

    broken: Exception | None = None

    @contextmanager
    def transaction(self, *, read_only: bool = False) -> Iterator[Transaction]:
        if self.broken:
            raise self.broken
        with super().transaction(read_only=read_only) as tx:
            yield tx


@pytest.fixture
def stores() -> BrokenStores:
    """Stores that work, so far."""
    return BrokenStores()


@pytest.mark.parametrize("kind", _BY_TYPE.values(), ids=_BY_TYPE)
def test_every_error_of_the_tree_has_a_status(kind: type[errors.BrainError]) -> None:
    assert 400 <= status_of(kind) < 600
    assert set(STATUS) <= set(_BY_TYPE.values())


@pytest.mark.parametrize(
    ("method", "path", "status", "kind"),
    [
        ("GET", "/nothing", 404, "NotFound"),
        ("GET", "/api/v1/nothing", 404, "NotFound"),
        ("POST", "/nothing", 404, "NotFound"),
        ("PUT", "/api/v1/jobs", 405, "MethodNotAllowed"),
        ("GET", "/api/v1/jobs/none", 404, "UnknownJob"),
        ("GET", "/api/v1/jobs?page_size=0", 422, "BadInput"),
        ("GET", "/api/v1/jobs?page_size=many", 422, "BadInput"),
        ("GET", "/api/v1/jobs?page_token=!!", 422, "BadInput"),
        ("GET", "/api/v1/jobs?filter=colour:red", 422, "BadInput"),
        ("GET", "/api/v1/plans?page_token=Ng", 422, "BadInput"),
        ("GET", "/api/v1/jobs/digits/plans?page_token=!!", 422, "BadInput"),
        ("GET", "/api/v1/jobs/digits/plans/99999999999999999999", 422, "BadInput"),
        ("GET", "/api/v1/jobs/none/logs?replica=x", 422, "BadInput"),
        ("DELETE", "/api/v1/freeze/everything", 422, "BadInput"),
        ("DELETE", "/api/v1/tokens/none", 404, "NotFound"),
    ],
)
def test_a_request_that_means_nothing_is_a_problem(
    api: Api, method: str, path: str, status: int, kind: str
) -> None:
    with api.http(api.token()) as http:
        answer = http.request(method, path)
    told = answer.json()
    assert answer.headers["content-type"] == "application/problem+json"
    assert (answer.status_code, told["status"], told["type"]) == (
        status,
        status,
        f"/problems/{kind}",
    )
    assert told["request_id"] == answer.headers["x-request-id"]


def test_a_body_over_the_limit_is_refused(api: Api) -> None:
    with api.http(api.token()) as http:
        answer = http.post("/api/v1/jobs", content=b" " * (api.settings.body_limit_bytes + 1))
    assert (answer.status_code, answer.json()["type"]) == (413, "/problems/TooLarge")


def test_a_sender_that_ends_within_its_body_is_no_bug(api: Api) -> None:
    async def gone() -> dict[str, str]:
        return {"type": "http.disconnect"}

    request = Request({"type": "http", "headers": []}, gone)
    with pytest.raises(errors.BadInput, match="ended before the whole body arrived"):
        asyncio.run(open_body_of(request, api.context))


def test_a_lost_database_is_503_and_told_in_health(
    tmp_path_factory: pytest.TempPathFactory, stores: BrokenStores
) -> None:
    api = Api(tmp_path_factory.mktemp("home"), stores=stores)
    with api.http(api.token()) as http:
        stores.broken = errors.Unavailable("the database is read-only")
        lost = http.post("/api/v1/jobs", json=digits())
        stores.broken = None
        health = http.get("/api/v1/health").json()
        metrics = http.get("/metrics").text
    assert (lost.status_code, lost.headers["retry-after"]) == (503, "1")
    assert "database" in health["degraded"][0]
    assert 'brain_degraded{what="database"} 1.0' in metrics


def test_a_write_that_succeeds_mends_it(
    tmp_path_factory: pytest.TempPathFactory, stores: BrokenStores
) -> None:
    api = Api(tmp_path_factory.mktemp("home"), stores=stores)
    with api.http(api.token()) as http:
        stores.broken = errors.Unavailable("the disk is full")
        http.post("/api/v1/jobs", json=digits())
        stores.broken = None
        http.post("/api/v1/jobs", json=digits())
        assert http.get("/api/v1/health").json()["degraded"] == []


def test_a_bug_is_told_by_its_id_alone(
    tmp_path_factory: pytest.TempPathFactory, stores: BrokenStores
) -> None:
    api = Api(tmp_path_factory.mktemp("home"), stores=stores)
    with api.http(api.token(Role.VIEWER)) as http:
        stores.broken = ZeroDivisionError("secret internals")
        answer = http.get("/api/v1/jobs")
    assert answer.status_code == 500
    assert answer.json()["type"] == "/problems/InternalError"
    assert "secret" not in answer.text
    assert answer.json()["request_id"] in answer.json()["detail"]


@pytest.mark.parametrize(
    ("path", "allowed"),
    [("/api/v1/jobs", "GET, HEAD, POST"), ("/api/v1/jobs/one", "GET, HEAD, PATCH, PUT")],
)
def test_a_wrong_method_is_answered_with_all_right_ones(api: Api, path: str, allowed: str) -> None:
    with api.http(api.token()) as http:
        answer = http.request("OPTIONS", path)
    assert (answer.status_code, answer.headers["allow"]) == (405, allowed)


@pytest.mark.parametrize("target", ["../etc", "a b", "a\x00", "-", "a" * 64, "\u202egp"])
def test_a_project_that_cannot_exist_is_not_frozen(api: Api, target: str) -> None:
    with api.http(api.token()) as http:
        refused = http.post("/api/v1/freeze", json={"scope": "project", "target": target})
        frozen = http.get("/api/v1/freeze").json()["items"]
    assert (refused.status_code, refused.json()["field"], frozen) == (422, "target", [])
