"""What runs beside an API server, as the emulator has it or (bare) has not; quotas; definitions."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.kubernetes.apiserver import Server, serving

Json = dict[str, Any]
DEFAULT = "/api/v1/namespaces/default"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
MERGE = {"Content-Type": "application/merge-patch+json"}


@pytest.fixture
def http(tmp_path: Path) -> Iterator[httpx2.Client]:
    with serving(tmp_path) as server, httpx2.Client(base_url=server.url, timeout=60) as client:
        yield client


@pytest.fixture
def bare(tmp_path: Path) -> Iterator[Server]:
    with serving(tmp_path, definitions=[], bare=True) as server:
        yield server


def pod(name: str, **requests: str) -> Json:
    container = {"name": "main", "image": "image:1", "resources": {"requests": requests}}
    return {"metadata": {"name": name}, "spec": {"containers": [container]}}


def test_a_definition_that_only_gets_a_label_is_kept(http: httpx2.Client) -> None:
    path = f"{DEFINITIONS}/elasticjobs.elastic.iml.github.io"
    patch = {"metadata": {"labels": {"by": "kubectl"}}}
    answer = http.patch(path, headers=MERGE, json=patch)
    assert (answer.status_code, answer.json()["metadata"]["labels"]) == (200, {"by": "kubectl"})


def test_a_pod_beyond_a_quota_is_forbidden_with_what_is_spent(http: httpx2.Client) -> None:
    hard = {"metadata": {"name": "q"}, "spec": {"hard": {"requests.cpu": "3"}}}
    http.post(f"{DEFAULT}/resourcequotas", json=hard)
    codes = [http.post(f"{DEFAULT}/pods", json=pod(n, cpu="2")).status_code for n in ("a", "b")]
    told = http.post(f"{DEFAULT}/pods", json=pod("b", cpu="2")).json()["message"]
    assert codes == [201, 403]
    assert told == (
        'pods "b" is forbidden: exceeded quota: q, requested: requests.cpu=2, '
        "used: requests.cpu=2, limited: requests.cpu=3"
    )


def test_a_pod_that_asks_for_nothing_fails_a_quota_of_it(http: httpx2.Client) -> None:
    hard = {"metadata": {"name": "q"}, "spec": {"hard": {"requests.cpu": "3"}}}
    http.post(f"{DEFAULT}/resourcequotas", json=hard)
    told = http.post(f"{DEFAULT}/pods", json=pod("a")).json()["message"]
    assert "failed quota: q: must specify requests.cpu for: " in told


def test_bare_nothing_goes_with_its_owner_and_namespaces_stay(bare: Server) -> None:
    with httpx2.Client(base_url=bare.url, timeout=60) as http:
        http.post("/api/v1/namespaces", json={"metadata": {"name": "team"}})
        maps = "/api/v1/namespaces/team/configmaps"
        owner = http.post(maps, json={"metadata": {"name": "owner"}}).json()["metadata"]
        by = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["uid"]}
        http.post(maps, json={"metadata": {"name": "child", "ownerReferences": [by]}})
        http.delete(f"{maps}/owner")
        http.delete("/api/v1/namespaces/team")

        assert http.get(f"{maps}/child").status_code == 200
        phase = http.get("/api/v1/namespaces/team").json()["status"]["phase"]
        accounts = http.get("/api/v1/namespaces/team/serviceaccounts").json()["items"]
    assert (phase, accounts) == ("Terminating", [])


def test_a_pod_with_tolerations_that_is_applied_twice_does_not_change(http: httpx2.Client) -> None:
    made = {"apiVersion": "v1", "kind": "Pod", **pod("a")}
    made["spec"]["tolerations"] = [{"key": "ours", "operator": "Exists"}]
    versions = [
        http.patch(
            f"{DEFAULT}/pods/a",
            params={"fieldManager": "us"},
            headers={"Content-Type": "application/apply-patch+yaml"},
            json=made,
        ).json()["metadata"]["resourceVersion"]
        for _ in range(2)
    ]
    assert versions[0] == versions[1]
