"""Values that a database cannot hold are refused by name, whichever database it is."""

from typing import Any

import pytest

from brain import storable
from brain.api import openapi
from brain.errors import BadInput
from brain.types.record import Role
from tests.api.app import Api, digits

#: Method, path, body and the field that is refused.
NUL: list[tuple[str, str, Any, str]] = [
    ("GET", "/jobs/a%00b", None, "job"),
    ("GET", "/jobs/digits?project=a%00b", None, "project"),
    ("GET", "/jobs?filter=owner:a%00b", None, "filter"),
    ("GET", "/policies/a%00b", None, "pool"),
    ("POST", "/tokens", {"name": "a\0b", "role": "viewer"}, "name"),
    ("POST", "/freeze", {"scope": "all", "why": "a\0b"}, "why"),
    ("POST", "/jobs/digits/plans", {"replicas": 2, "why": "a\0b"}, "why"),
    (
        "POST",
        "/jobs",
        digits(name="two", batch={"localMaxOn": {"a\0b": 1}}),
        "batch.localMaxOn.a\0b",
    ),
    ("POST", "/jobs", digits(name="two", image="a\0b"), "image"),
    ("POST", "/jobs", digits(name="two", checkpoint={"path": "a\0b"}), "checkpoint.path"),
]
COUNTS = ("steps", "epochs", "processesPerReplica")


def ask(api: Api, method: str, path: str, body: Any) -> Any:
    with api.http(api.token(Role.ADMIN)) as http:
        return http.request(method, f"/api/v1{path}", json=body)


@pytest.mark.parametrize(("method", "path", "body", "field"), NUL)
def test_a_nul_character_is_refused_by_the_name_of_its_field(
    submitted: Api, method: str, path: str, body: Any, field: str
) -> None:
    answer = ask(submitted, method, path, body)

    assert (answer.status_code, answer.json().get("field")) == (422, field)
    assert "has a NUL character; re" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("environment", "field"),
    [({"KEY": "hidden\0"}, "environment.KEY"), (["KEY=hidden\0"], "environment[0]")],
)
def test_the_secret_value_of_a_variable_is_not_shown(
    submitted: Api, environment: Any, field: str
) -> None:
    answer = ask(submitted, "POST", "/jobs", digits(name="two", environment=environment))

    assert (answer.status_code, answer.json()["field"]) == (422, field)
    assert "hidden" not in answer.text


def test_only_a_refused_value_is_written_out() -> None:
    class Silent(list[object]):
        def __repr__(self) -> str:
            raise AssertionError("each level of a nested body would be written out again")

    storable.refuse({"x": Silent([Silent([1.5])])})
    with pytest.raises(BadInput, match=r"x\[0\] 'a.x00' has a NUL character"):
        storable.refuse({"x": Silent(["a\0"])})


@pytest.mark.parametrize("size", [2**63, 10**400])
def test_a_count_beyond_64_bits_is_refused(submitted: Api, size: int) -> None:
    document = digits(name="two")
    asked = [
        ("/jobs:estimate", {"document": document, "question": {"steps": size}}, "question.steps"),
        *(("/jobs", document | {count: size}, count) for count in COUNTS),
    ]
    for path, body, field in asked:
        answer = ask(submitted, "POST", path, body)
        assert (answer.status_code, answer.json()["field"]) == (422, field)
        assert "does not fit into 64 bits; give a smaller number" in answer.json()["detail"]


def test_the_largest_count_can_be_estimated_and_stored(submitted: Api) -> None:
    document = digits(name="two", steps=2**63 - 1)
    question = {"document": digits(), "question": {"steps": 2**63 - 1}}

    assert ask(submitted, "POST", "/jobs:estimate", question).status_code == 200
    assert ask(submitted, "POST", "/jobs:estimate", {"document": document}).status_code == 200
    assert ask(submitted, "POST", "/jobs", document).status_code == 201
    assert ask(submitted, "GET", "/jobs/two", None).json()["document"]["steps"] == 2**63 - 1


def test_openapi_tells_the_largest_count(submitted: Api) -> None:
    schemas = openapi.document(submitted.app)["components"]["schemas"]
    for kind, field in (("JobDocument", "steps"), ("EstimateQuestion", "steps")):
        assert schemas[kind]["properties"][field]["anyOf"][0]["maximum"] == 2**63 - 1
