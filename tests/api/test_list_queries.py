"""Lists, and requests for a size, ask a number of questions that does not grow with the jobs."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from brain.db import SqlStores
from brain.types.job import JobId
from brain.types.plan import PlanState
from brain.types.record import Role
from brain.types.resources import Resources
from tests.api.app import Api
from tests.builders import node, plan
from tests.fleets import LOOKED_AT, fill, job_id
from tests.statements import statements

LISTS = {
    "/api/v1/jobs?page_size=500": Role.VIEWER,
    "/api/v1/pools/local/wishes": Role.SCALER,
    "/api/v1/nodes": Role.VIEWER,
    "/api/v1/plans?page_size=500": Role.VIEWER,
    "/api/v1/plans?page_size=500&filter=state:Proposed": Role.VIEWER,
    "/api/v1/savings": Role.VIEWER,
    "/api/v1/models": Role.VIEWER,
    "/api/v1/digest?owner=ada": Role.VIEWER,
    "/api/v1/pools": Role.VIEWER,
    "/api/v1/pools/local": Role.VIEWER,
    "/api/v1/policies": Role.VIEWER,
    "/api/v1/freeze": Role.VIEWER,
    "/api/v1/audit": Role.ADMIN,
    "/api/v1/tokens": Role.ADMIN,
}


@pytest.fixture
def eight(tmp_path: Path, sqlite_url: str) -> Iterator[Api]:
    """An app over an SQLite database with eight jobs."""
    with closing(SqlStores(sqlite_url)) as stores:
        fill(stores, 8)
        yield Api(tmp_path, stores=stores, now=LOOKED_AT)


def test_lists_of_many_ask_no_more_than_lists_of_few(tmp_path: Path, database_url: str) -> None:
    few, many = (16, 40)
    with closing(SqlStores(database_url)) as stores:
        api = Api(tmp_path, stores=stores, now=LOOKED_AT)
        fill(stores, few)
        expected = {path: asked(api, path) for path in LISTS}
        fill(stores, many, already=few)
        assert {path: asked(api, path) for path in LISTS} == expected
        assert max(map(len, expected.values())) <= 24


def test_lists_read_no_proposals_that_came_to_nothing(eight: Api) -> None:
    with eight.stores.transaction() as tx:
        tx.plans.put(replace(tx.plans.get(job_id(0), 2), state=PlanState.EXPIRED))
        for generation in range(3, 303):
            tx.plans.add(plan(generation, job=job_id(0), state=PlanState.EXPIRED))
        tx.plans.read_ahead([job_id(0)])
        assert [one.generation for one in tx.plans.effective(job_id(0))] == [302, 1]
    for path in ("/api/v1/jobs", "/api/v1/pools/local/wishes", "/metrics"):
        of_plans = [one for one in asked(eight, path) if "FROM plans" in one]
        # Metrics count the states of a page of plans.
        known = ("sum(plans.version)", "LIMIT")
        others = [one for one in of_plans if not any(word in one for word in known)]
        assert not others, path


def test_decisions_of_many_jobs_are_read_at_once_and_only_if_they_are_shown(eight: Api) -> None:
    paths = ("/api/v1/jobs", "/api/v1/pools/local/wishes")
    of_decisions = [
        [one for one in asked(eight, path) if "FROM decisions" in one] for path in paths
    ]
    assert list(map(len, of_decisions)) == [1, 0]


def test_a_request_for_a_size_sets_savepoints_only_for_changed_plans(eight: Api) -> None:
    with eight.http(eight.token(Role.ADMIN)) as http, statements() as every:
        path, once = f"/api/v1/jobs/{job_id(4)}/plans", {"Idempotency-Key": "once"}
        answer = http.post(path, json={"replicas": 3}, headers=once)
    assert answer.status_code == 201, answer.text
    saved = [then for one, then in pairwise(every) if one.startswith("SAVEPOINT")]
    assert saved
    assert all(one.startswith("UPDATE plans") for one in saved)


def test_a_request_for_a_size_reads_its_job_and_world_once(eight: Api) -> None:
    told = [one.rpartition("WHERE ")[2] for one in resized(eight, job_id(4))]
    for of_job in ("jobs.id = ?", "worlds.job = ?"):
        assert len([one for one in told if one.startswith(of_job)]) <= 1, of_job


def test_a_poll_without_news_reads_no_job_plan_or_fit(eight: Api) -> None:
    with eight.http(eight.token(Role.SCALER)) as http:
        etag = http.get("/api/v1/pools/local/wishes").headers["etag"]
        with statements() as every:
            answer = http.get("/api/v1/pools/local/wishes", headers={"If-None-Match": etag})
    assert answer.status_code == 304
    read = [one for one in every if one.startswith("SELECT") and "FROM tokens" not in one]
    assert len([one for one in read if "FROM freezes" not in one]) == 1
    assert "document" not in read[0]


def test_a_page_of_nodes_reads_no_other_nodes(eight: Api) -> None:
    of_nodes = [one for one in asked(eight, "/api/v1/nodes") if "FROM nodes" in one]
    assert len(of_nodes) == 1
    assert "LIMIT" in of_nodes[0]


def asked(api: Api, path: str) -> list[str]:
    """The questions that a list asks the database; signing in apart."""
    with api.http(api.token(LISTS.get(path, Role.VIEWER))) as http:
        http.get(path)  # the token's use is noted
        with statements() as every:
            answer = http.get(path)
    assert answer.status_code == 200
    told = [one.partition(" IN (")[0] for one in every]
    return [one for one in told if one.startswith("SELECT") and "FROM tokens" not in one]


def test_a_request_for_a_size_reads_the_pool_once_however_many_jobs_it_has(
    tmp_path: Path, sqlite_url: str, postgresql_url: str
) -> None:
    few, many = (8, 40)
    for url in (sqlite_url, postgresql_url):
        with closing(SqlStores(url)) as stores:
            api = Api(tmp_path, stores=stores, now=LOOKED_AT)
            fill(stores, few)
            large = Resources(cpu_millis=2**20, memory_bytes=2**50, gpus=2**10)
            with stores.transaction() as tx:
                tx.nodes.put(replace(node("large", seen_at=LOOKED_AT), capacity=large))
            expected = resized(api, job_id(0))
            fill(stores, many, already=few)
            assert resized(api, job_id(4)) == expected
            assert len([one for one in expected if "FROM nodes" in one]) == 1


def resized(api: Api, job: JobId) -> list[str]:
    """The questions that a request for a size asks the database; signing in apart."""
    with api.http(api.token(Role.ADMIN)) as http:
        http.get("/api/v1/nodes")  # the token's use is noted
        with statements() as every:
            answer = http.post(f"/api/v1/jobs/{job}/plans", json={"replicas": 3})
    assert answer.status_code == 201, answer.text
    told = [one.partition(" IN (")[0] for one in every]
    return [one for one in told if one.startswith("SELECT") and "FROM tokens" not in one]


@pytest.mark.parametrize("action", ["suspend", "resume", "cancel"])
def test_an_action_on_many_jobs_asks_no_more_than_on_few(
    action: str, tmp_path: Path, sqlite_url: str, postgresql_url: str
) -> None:
    few, many = (8, 40)
    for url in (sqlite_url, postgresql_url):
        with closing(SqlStores(url)) as stores:
            api = Api(tmp_path, stores=stores, now=LOOKED_AT)
            fill(stores, few)
            expected = acted(api, action, range(few))
            fill(stores, many, already=few)
            assert acted(api, action, range(few, many)) == expected
            assert len(expected) <= 20


def acted(api: Api, action: str, numbers: range) -> list[str]:
    """The questions that an action on jobs asks the database; signing in apart."""
    names = [f"job-{number}" if number % 2 else job_id(number) for number in numbers]
    with api.http(api.token(Role.ADMIN)) as http:
        http.get("/api/v1/nodes")  # the token's use is noted
        if action == "resume":
            http.post("/api/v1/jobs:suspend", json={"jobs": names})
        with statements() as every:
            answer = http.post(f"/api/v1/jobs:{action}", json={"jobs": names})
    outcomes = answer.json()["items"]
    assert [each["asked"] for each in outcomes] == names
    assert len([each for each in outcomes if each["job"]]) == 3 * len(names) // 4
    told = [one.partition(" IN (")[0] for one in every]
    return [one for one in told if one.startswith("SELECT") and "FROM tokens" not in one]
