"""The machinery at an API server over HTTP, and what it does when that breaks."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from brain.errors import BadInput
from scaler.kubernetes.machinery import Key, Kind, Manager, Result, Terms, write_status
from scaler.kubernetes.machinery.cluster import (
    NAMESPACE,
    POD,
    AlreadyExists,
    Cluster,
    Conflict,
    Gone,
    Invalid,
    Limits,
    NotFound,
    TooMany,
    Unreachable,
    connect,
)
from scaler.kubernetes.machinery.store import meant
from tests.kubernetes.apiserver import Server, serving
from tests.kubernetes.apiserver.core.api import Ask
from tests.kubernetes.apiserver.core.removal import Deletion, delete

PLAN = Kind("elastic.iml.github.io", "v1alpha1", "scaleplans", "ScalePlan")
JOB = Kind("elastic.iml.github.io", "v1alpha1", "elasticjobs", "ElasticJob")
BUDGET = Kind("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
TERMS = Terms(namespace="team", lease_seconds=1.5, renew_seconds=1.0, retry_seconds=0.2)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("apiserver"), bookmark_seconds=0.2) as running:
        with connected(running) as cluster:
            cluster.create(NAMESPACE, {"metadata": {"name": "team"}})
        yield running


@contextmanager
def connected(server: Server) -> Iterator[Cluster]:
    cluster = Cluster(connect(kubeconfig=str(server.kubeconfig)), Limits(silence_seconds=20.0))
    try:
        yield cluster
    finally:
        cluster.close()


@pytest.fixture
def cluster(server: Server) -> Iterator[Cluster]:
    server.faults.clear()
    with connected(server) as cluster:
        yield cluster


def plan(name: str, replicas: int = 4) -> dict[str, Any]:
    return {
        "apiVersion": PLAN.api_version,
        "kind": PLAN.kind,
        "metadata": {"name": name, "namespace": "team"},
        "spec": {"ownerJob": "j", "replicaResourceSpecs": {"worker": {"replicas": replicas}}},
    }


def pod(name: str, **spec: Any) -> dict[str, Any]:
    containers = [{"name": "main", "image": "train:1"}]
    labels = {"job": "j"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "team", "labels": labels},
        "spec": {"containers": containers, "restartPolicy": "Never", **spec},
    }


def test_a_name_that_is_taken_and_one_that_is_not_there(cluster: Cluster) -> None:
    cluster.create(PLAN, plan("taken"))
    with pytest.raises(AlreadyExists):
        cluster.create(PLAN, plan("taken"))
    with pytest.raises(NotFound, match="nowhere"):
        cluster.get(PLAN, "team", "nowhere")


def test_a_field_that_cannot_be_used_is_named(cluster: Cluster) -> None:
    with pytest.raises(Invalid) as caught:
        cluster.create(PLAN, plan("bad", replicas=-1))
    assert caught.value.field == "spec.replicaResourceSpecs.worker.replicas"


def test_a_status_of_a_version_that_passed_is_a_conflict(cluster: Cluster) -> None:
    stored = cluster.create(PLAN, plan("raced"))
    write_status(cluster, PLAN, stored, {"phase": "Pending"})
    with pytest.raises(Conflict):
        write_status(cluster, PLAN, stored, {"phase": "Applied"})


def test_a_child_applied_twice_is_one_child_that_did_not_change(cluster: Cluster) -> None:
    first = cluster.apply(POD, pod("child"))
    again = cluster.apply(POD, pod("child"))
    assert again["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    assert first["metadata"]["managedFields"][0]["manager"] == "brain-scaler"


def test_a_deletion_meant_for_another_object_of_that_name_is_a_conflict(cluster: Cluster) -> None:
    stored = cluster.create(POD, pod("replaced"))
    with pytest.raises(Conflict):
        cluster.delete(POD, "team", "replaced", uid="another", grace_seconds=0)
    cluster.delete(POD, "team", "replaced", uid=stored["metadata"]["uid"], grace_seconds=0)
    with pytest.raises(NotFound):
        cluster.get(POD, "team", "replaced")


def test_a_budget_keeps_a_pod_from_eviction(cluster: Cluster) -> None:
    needed = pod("needed")
    needed["metadata"]["labels"] = {"app": "needed"}
    cluster.create(POD, needed)
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    cluster.merge_status(POD, "team", "needed", {"status": ready})
    budget = {"minAvailable": 1, "selector": {"matchLabels": {"app": "needed"}}}
    cluster.create(BUDGET, {"metadata": {"name": "b", "namespace": "team"}, "spec": budget})
    with pytest.raises(TooMany, match="disruption budget"):
        cluster.evict("team", "needed")


def test_replicas_are_asked_for_through_the_scale_of_a_job(cluster: Cluster) -> None:
    template = {"spec": pod("x")["spec"]}
    spec = {"replicaSpecs": {"worker": {"replicas": 2, "template": template}}}
    cluster.create(JOB, {"metadata": {"name": "scaled", "namespace": "team"}, "spec": spec})
    cluster.scale(JOB, "team", "scaled", 5)
    stored = cluster.get(JOB, "team", "scaled")
    assert stored["spec"]["replicaSpecs"]["worker"]["replicas"] == 5


def test_pages_hold_what_was_there_when_the_first_was_read(cluster: Cluster) -> None:
    for number in range(5):
        cluster.create(POD, pod(f"paged-{number}"))
    first = cluster.list(POD, "team", limit=3, label_selector="job=j")
    cluster.delete(POD, "team", "paged-4", grace_seconds=0)
    second = cluster.list(POD, "team", limit=500, continue_=first.continue_, label_selector="job=j")
    names = [item["metadata"]["name"] for item in (*first.items, *second.items)]
    assert {f"paged-{number}" for number in range(4)} <= set(names)
    assert len(names) == len(set(names))


def test_a_watch_from_a_forgotten_version_is_gone(server: Server, cluster: Cluster) -> None:
    cluster.create(PLAN, plan("old"))
    server.expire()
    cluster.create(PLAN, plan("newer"))
    with pytest.raises(Gone), cluster.watch(PLAN, "team", resource_version="1") as watch:
        list(watch)


def test_nobody_there_is_an_error_that_says_so(tmp_path: Path) -> None:
    with serving(tmp_path, definitions=[]) as server, connected(server) as cluster:
        with server.outage(), pytest.raises(Unreachable, match="refused"):
            cluster.hasty(5.0).get(POD, "team", "a")
        assert cluster.list(POD, "team").items == []


def test_a_kubeconfig_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"missing\.yaml"):
        connect(kubeconfig=str(tmp_path / "missing.yaml"))


class Operator:
    """Says of every plan how many replicas it asks for."""

    def __init__(self, server: Server, terms: Terms | None = None) -> None:
        self._cluster = Cluster(connect(kubeconfig=str(server.kubeconfig)))
        self.manager = Manager(self._cluster, terms=terms, namespaces=["team"], random=Random(1))
        self.store = self.manager.store(PLAN)
        self.manager.control("plans", PLAN, self.reconcile, when=meant)

    def reconcile(self, key: Key) -> Result:
        obj = self.store.get(key)
        if obj is not None:
            replicas = obj["spec"]["replicaResourceSpecs"]["worker"]["replicas"]
            answer = write_status(
                self.manager.cluster, PLAN, obj, {"phase": "Applied", "message": f"{replicas}"}
            )
            if answer is not None:
                self.store.learn(answer)
        return Result()

    def stop(self) -> None:
        self.manager.stop()
        self._cluster.close()


@contextmanager
def running(server: Server, terms: Terms | None = None) -> Iterator[Operator]:
    operator = Operator(server, terms)
    operator.manager.start()
    try:
        yield operator
    finally:
        operator.stop()


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 90.0
    while not holds():
        assert time.monotonic() < end, "it does not come to hold"
        time.sleep(0.02)


def unsaid(server: Server) -> list[str]:
    """Plans of which nothing was said yet."""
    plans = server.objects("scaleplans", "elastic.iml.github.io", "team")
    return [each["metadata"]["name"] for each in plans if "phase" not in each.get("status", {})]


def storm(server: Server) -> None:
    server.faults.answer(410, times=2, watches=True)
    server.expire()


BREAKS: dict[str, Callable[[Server], object]] = {
    "410 storm": storm,
    "429 to writes": lambda server: server.faults.answer(
        429, times=3, method="PATCH", retry_after_seconds=0
    ),
    "500 to all": lambda server: server.faults.answer(500, times=6),
    "watch cut in a line": lambda server: server.faults.cut(times=2),
    "answers cut": lambda server: server.faults.cut(times=2, watches=False),
    "watches ended": lambda server: server.drop_watches(),
    "restart": lambda server: server.restart(),
}


@pytest.mark.parametrize("what", BREAKS)
def test_plans_made_while_it_breaks_are_reconciled_all_the_same(
    server: Server, cluster: Cluster, what: str
) -> None:
    name = what.replace(" ", "-")
    with running(server) as operator:
        until(operator.manager.synced)
        until(lambda: not unsaid(server))
        BREAKS[what](server)
        server.call(lambda: _make(server, name))
        until(lambda: not unsaid(server))
        until(lambda: operator.manager.trouble == [])


def test_what_was_deleted_and_made_in_an_outage_is_known_after_it(server: Server) -> None:
    server.faults.clear()
    server.call(lambda: _make(server, "before"))
    with running(server) as operator:
        until(lambda: Key("team", "before-0") in operator.store)
        with server.outage():
            until(lambda: operator.manager.trouble != [])
            server.call(lambda: _make(server, "meanwhile"))
            server.call(lambda: _delete(server, "before-0"))
        until(lambda: not unsaid(server))
        until(lambda: Key("team", "before-0") not in operator.store)


def test_another_operator_goes_on_where_one_stopped_and_nothing_is_written_twice(
    server: Server,
) -> None:
    server.faults.clear()
    with running(server, TERMS) as first, running(server, TERMS) as second:
        until(lambda: first.manager.leading or second.manager.leading)
        leader, other = (first, second) if first.manager.leading else (second, first)
        until(lambda: not unsaid(server))
        before = server.traffic.writes("elastic.iml.github.io/scaleplans/status")
        server.call(lambda: _make(server, "one"))
        until(lambda: not unsaid(server))
        leader.stop()
        server.call(lambda: _make(server, "two"))
        until(lambda: not unsaid(server))
        assert other.manager.leading
    writes = server.traffic.writes("elastic.iml.github.io/scaleplans/status")
    assert writes - before == 6


def _make(server: Server, name: str) -> None:
    kind = server.api.kinds.find(PLAN.group, PLAN.version, PLAN.plural)
    assert kind is not None
    for number in range(3):
        server.api.create(kind, "team", plan(f"{name}-{number}"), Ask(manager="kubectl"))


def _delete(server: Server, name: str) -> None:
    kind = server.api.kinds.find(PLAN.group, PLAN.version, PLAN.plural)
    assert kind is not None
    delete(server.api, kind, "team", name, Deletion())
