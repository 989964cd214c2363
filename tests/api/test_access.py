"""Who may do what, by route and role."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fastapi.routing import APIRoute

from brain import calls
from brain.api import openapi
from brain.api.auth import ACCESS, COOKIE, OPEN
from brain.inmemory import MemoryStores, MemoryTransaction
from brain.types.record import Role
from tests.api.app import URL, Api, digits


def _routes(api: Api) -> Iterator[str]:
    described = api.app.openapi()
    for path, operations in described["paths"].items():
        for method in operations:
            yield f"{method.upper()} {path}"


def test_every_route_is_in_the_table_and_the_table_holds_no_other(api: Api) -> None:
    hidden = {"GET /livez", "GET /api/v1/openapi.json"}
    assert set(_routes(api)) | hidden == set(ACCESS) | OPEN


def _filled(path: str) -> str:
    return path.replace("{generation}", "1").replace("{scope}", "all").translate({123: "", 125: ""})


@pytest.mark.parametrize("route", sorted(ACCESS))
def test_a_route_refuses_exactly_the_roles_that_it_is_not_for(api: Api, route: str) -> None:
    method, path = route.split(" ", 1)
    # The event stream of a service that stops ends.
    api.context.bell.close()
    statuses = {}
    for role in Role:
        with api.http(api.token(role)) as http:
            statuses[role] = http.request(method, _filled(path)).status_code
    assert {role for role, status in statuses.items() if status != 403} == ACCESS[route]
    assert 401 not in statuses.values()


@pytest.mark.parametrize("route", sorted(ACCESS))
def test_a_route_needs_a_token(api: Api, route: str) -> None:
    method, path = route.split(" ", 1)
    with api.http() as http:
        answer = http.request(method, _filled(path))
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"


def test_an_agent_sees_its_own_job_only(api: Api) -> None:
    with api.client() as admin:
        mine = admin.send(calls.submit(digits(name="mine")))
        other = admin.send(calls.submit(digits(name="other")))
    with api.http(api.token(Role.AGENT, job=mine.id)) as agent:
        assert agent.get(f"/api/v1/jobs/{mine.id}/world").status_code == 200
        assert agent.get(f"/api/v1/jobs/{other.id}/world").status_code == 403


def test_no_cache_keeps_an_answer_with_a_secret(api: Api) -> None:
    with api.client() as admin:
        admin.send(calls.submit(digits()))
    asked = [
        (Role.ADMIN, "/tokens", {"name": "ci", "role": "viewer"}),
        (Role.ADMIN, "/sign-in-codes", {}),
        (Role.SCALER, "/jobs/digits/token", {}),
    ]
    for role, path, body in asked:
        with api.http(api.token(role)) as http:
            for _ in ("first", "replayed"):
                headers = {"Idempotency-Key": path}
                answer = http.post(f"/api/v1{path}", json=body, headers=headers)
                assert (answer.status_code, answer.headers["cache-control"]) == (201, "no-store")


@pytest.mark.parametrize("secret", ["", "brn_wrong", "no such thing"])
def test_a_wrong_token_is_refused(api: Api, secret: str) -> None:
    with api.http(secret) as http:
        assert http.get("/api/v1/jobs").status_code == 401


def test_an_expired_token_is_refused(api: Api) -> None:
    with api.client() as admin:
        minted = admin.send(calls.mint_token("ci", "viewer", days=1))
    with api.http(minted.secret) as ci:
        assert ci.get("/api/v1/jobs").status_code == 200
        api.pass_time(days=2)
        assert ci.get("/api/v1/jobs").status_code == 401


def test_a_revoked_token_is_refused_and_its_use_was_noted(api: Api) -> None:
    with api.client() as admin:
        minted = admin.send(calls.mint_token("ci", "viewer"))
        with api.http(minted.secret) as ci:
            assert ci.get("/api/v1/jobs").status_code == 200
            admin.send(calls.revoke_token(minted.id))
            assert ci.get("/api/v1/jobs").status_code == 401
        seen = next(one for one in admin.send(calls.tokens()).items if one.id == minted.id)
    assert seen.last_used_at == api.now
    assert seen.revoked_at == api.now


class _ReadThen(MemoryStores):
    """Something happens between the first reading transaction and what follows it."""

    then: Callable[[], object] | None = None

    @contextmanager
    def transaction(self, *, read_only: bool = False) -> Iterator[MemoryTransaction]:
        with super().transaction(read_only=read_only) as tx:
            yield tx
        if read_only and (then := self.then):
            self.then = None
            then()


def test_a_token_that_is_revoked_just_after_it_was_read_opens_no_long_poll(tmp_path: Path) -> None:
    stores = _ReadThen()
    api = Api(tmp_path, stores=stores)
    with api.client() as admin:
        job = admin.send(calls.submit(digits())).id
        minted = admin.send(calls.mint_token("ci", "scaler"))
        with api.http(minted.secret) as ci:
            stores.then = lambda: admin.send(calls.revoke_token(minted.id))
            assert ci.get(f"/api/v1/jobs/{job}/world").status_code == 401


def test_the_secret_of_a_token_is_neither_stored_nor_listed(api: Api) -> None:
    with api.http(api.token()) as http:
        key = {"Idempotency-Key": "once"}
        body = {"name": "ci", "role": "viewer"}
        secret = http.post("/api/v1/tokens", json=body, headers=key).json()["secret"]
        assert secret not in http.get("/api/v1/tokens").text
        again = http.post("/api/v1/tokens", json=body, headers=key)
        with api.stores.transaction() as tx:
            kept = tx.access.answer("once", "admin", "POST /api/v1/tokens")
    assert again.json()["secret"] == secret
    assert kept is not None
    assert secret not in kept[2]


@pytest.mark.parametrize(
    "body",
    [
        {"name": "x", "role": "king"},
        {"name": "x", "role": "viewer", "days": 0},
        {"name": " ", "role": "viewer"},
        {"a": 1},
    ],
)
def test_a_token_that_cannot_be_is_refused(api: Api, body: dict[str, Any]) -> None:
    with api.http(api.token()) as http:
        assert http.post("/api/v1/tokens", json=body).status_code == 422


def test_a_code_signs_a_browser_in_once(api: Api) -> None:
    with api.http(api.token()) as admin:
        code = admin.post("/api/v1/sign-in-codes").json()["code"]
    with api.http() as browser:
        signed_in = browser.post("/api/v1/sign-in", json={"code": code})
        cookie = signed_in.headers["set-cookie"]
        assert browser.get("/api/v1/health").json()["role"] == "admin"
    with api.http() as other:
        assert other.post("/api/v1/sign-in", json={"code": code}).status_code == 401
    assert cookie.startswith(f"{COOKIE}=brn_")
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie


def test_a_code_is_good_for_ten_minutes(api: Api) -> None:
    with api.http(api.token()) as admin:
        code = admin.post("/api/v1/sign-in-codes").json()["code"]
    api.pass_time(minutes=11)
    with api.http() as browser:
        assert browser.post("/api/v1/sign-in", json={"code": code}).status_code == 401


def test_signing_out_ends_the_session(api: Api) -> None:
    with api.http(api.token()) as admin:
        code = admin.post("/api/v1/sign-in-codes").json()["code"]
    with api.http() as browser:
        browser.post("/api/v1/sign-in", json={"code": code})
        session = browser.cookies[COOKIE]
        assert browser.post("/api/v1/sign-out", headers={"Origin": URL}).status_code == 204
    with api.http() as thief:
        thief.cookies.set(COOKIE, session)
        assert thief.get("/api/v1/health").status_code == 401


def test_signing_in_and_out_are_in_the_audit_log(api: Api) -> None:
    with api.client(name="ada") as admin, api.http() as browser:
        code = admin.send(calls.sign_in_code("ada")).code
        browser.post("/api/v1/sign-in", json={"code": code})
        browser.post("/api/v1/sign-out", headers={"Origin": URL})
        out, signed_in, *_ = admin.send(calls.audit()).items
    assert (out.actor, out.action, out.target) == ("ada", "sign out", "session")
    assert (signed_in.actor, signed_in.action, signed_in.after) == ("ada", "sign in", out.after)
    assert out.after.startswith("from ")


def test_a_foreign_host_is_refused(api: Api) -> None:
    with api.http(api.token()) as http:
        refused = http.get("/api/v1/jobs", headers={"Host": "evil.example"})
    assert refused.status_code == 403
    assert "allowed_hosts" in refused.json()["detail"]


def test_a_foreign_origin_cannot_post_and_our_own_can(api: Api) -> None:
    with api.http(api.token()) as http:
        foreign = http.post("/api/v1/jobs", json=digits(), headers={"Origin": "http://evil"})
        own = http.post("/api/v1/jobs", json=digits(), headers={"Origin": URL})
    assert (foreign.status_code, own.status_code) == (403, 201)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "none"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "same-origin"}, 204),
        ({"Origin": URL}, 204),
    ],
)
def test_a_cookie_signs_changes_of_our_own_pages_only(
    api: Api, headers: dict[str, str], status: int
) -> None:
    with api.http() as browser:
        browser.cookies.set(COOKIE, api.token())
        assert browser.post("/api/v1/sign-out", headers=headers).status_code == status
        assert browser.get("/api/v1/health").status_code == (401 if status == 204 else 200)


def test_actions_are_in_the_audit_log(api: Api) -> None:
    with api.client(name="ada") as admin:
        admin.send(calls.submit(digits()))
        admin.send(calls.mint_token("ci", "viewer"))
        entries = admin.send(calls.audit()).items
    assert [(entry.actor, entry.action) for entry in entries] == [
        ("ada", "mint token"),
        ("ada", "job.submit"),
    ]


def test_operation_ids_are_unique(api: Api) -> None:
    operations = [
        operation["operationId"]
        for path in openapi.document(api.app)["paths"].values()
        for operation in path.values()
    ]
    assert len(operations) == len(set(operations))


def test_no_route_is_left_to_be_built_by_the_first_request(api: Api) -> None:
    assert {type(route) for route in api.app.routes} == {APIRoute}


@pytest.mark.parametrize("name", ["a\nb", "a\x01b", "\u202eadmin", "x" * 101])
def test_a_token_whose_name_would_spoil_the_audit_log_is_refused(api: Api, name: str) -> None:
    with api.http(api.token(Role.ADMIN)) as http:
        refused = http.post("/api/v1/tokens", json={"name": name, "role": "viewer"})
    assert refused.status_code == 422
    assert "invisible characters" in refused.json()["detail"]
