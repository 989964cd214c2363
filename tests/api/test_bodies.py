"""Bodies that people send: a field that is none is refused by the name that was meant."""

from typing import Any

import pytest

from brain import calls
from brain.api import openapi
from brain.types.record import Role
from tests.api.app import Api, digits

#: Method, path, a body with a slip, the field that is refused, and the name that was meant.
SLIPS = [
    ("PATCH", "/jobs/digits", {"cpu_milis": 500}, "cpu_milis", "cpu_millis"),
    ("PATCH", "/jobs/digits", {"memory": 500, "replicas": 2}, "memory", "memory_bytes"),
    # Brain reserves one amount, so no limit can be below a request.
    ("PATCH", "/jobs/digits", {"limits": {"cpu": 1}}, "limits", "known: cpu_millis"),
    (
        "POST",
        "/jobs",
        digits(name="two", resources={"cpuMillis": 2000, "limits": {"cpuMillis": 1000}}),
        "resources.limits",
        "did you mean",
    ),
    ("POST", "/jobs/digits/plans", {"replica": 2}, "replica", "replicas"),
    ("POST", "/plans/digits/1:approve", {"verison": 2}, "verison", "version"),
    ("POST", "/plans/digits/1:reject", {"comment": "late"}, "comment", "known: version, why"),
    ("POST", "/plans/digits/1:rollback", {"Why": "late"}, "Why", "why"),
    ("POST", "/freeze", {"scope": "all", "tarhet": "a"}, "tarhet", "target"),
    ("POST", "/tokens", {"name": "ci", "role": "viewer", "day": 3}, "day", "days"),
    ("POST", "/sign-in-codes", {"nam": "Ada"}, "nam", "name"),
    ("POST", "/sign-in", {"cod": "x"}, "cod", "code"),
    (
        "POST",
        "/jobs:estimate",
        {"document": digits(), "question": {"step": 5}},
        "question.step",
        "question.steps",
    ),
]


@pytest.fixture
def queued(api: Api) -> Api:
    """A service with a job."""
    api.add_node()
    with api.client() as admin:
        admin.send(calls.submit(digits()))
    return api


def ask(api: Api, method: str, path: str, body: Any, role: Role = Role.ADMIN) -> Any:
    """An answer to a bare request."""
    with api.http(api.token(role)) as http:
        return http.request(method, f"/api/v1{path}", json=body)


@pytest.mark.parametrize(("method", "path", "body", "field", "meant"), SLIPS)
def test_a_field_that_is_none_is_refused_by_name(
    queued: Api, method: str, path: str, body: Any, field: str, meant: str
) -> None:
    answer = ask(queued, method, path, body)

    assert (answer.status_code, answer.json()["field"]) == (422, field)
    assert answer.json()["type"] == "/problems/UnknownField"
    assert meant in answer.json()["detail"].partition(" is not a known field; ")[2]


def test_a_slip_changes_nothing(queued: Api) -> None:
    before = ask(queued, "GET", "/jobs/digits", None).json()
    assert ask(queued, "PATCH", "/jobs/digits", {"replicas": 2, "memori": 1}).status_code == 422
    assert ask(queued, "GET", "/jobs/digits", None).json() == before


@pytest.mark.parametrize(
    ("method", "path"), [("PATCH", "/jobs/digits"), ("POST", "/jobs/digits/plans")]
)
def test_fields_of_a_later_scaler_are_tolerated(queued: Api, method: str, path: str) -> None:
    later = {"replicas": 2, "of_a_later_version": True}
    assert ask(queued, method, path, later, Role.SCALER).status_code in (200, 201)
    assert ask(queued, method, path, later, Role.OPERATOR).status_code == 422


def test_openapi_tells_that_people_may_add_no_fields(api: Api) -> None:
    described = openapi.document(api.app)
    for method, path, *_ in SLIPS:
        told = path.replace("digits", "{job}").replace("/1:", "/{generation}:")
        operation = described["paths"][f"/api/v1{told}"][method.lower()]
        body = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"]
        schema = described["components"]["schemas"][body.rpartition("/")[2]]
        assert schema["additionalProperties"] is False, path


@pytest.mark.parametrize("days", [0, -1, 36_501, 1e141])
def test_a_token_lasts_more_than_no_time_and_less_than_a_century(api: Api, days: float) -> None:
    body = {"name": "ci", "role": "viewer", "days": days}
    answer = ask(api, "POST", "/tokens", body)
    assert (answer.status_code, answer.json()["field"]) == (422, "days")
    assert ask(api, "POST", "/tokens", body | {"days": 36_500}).status_code == 201
