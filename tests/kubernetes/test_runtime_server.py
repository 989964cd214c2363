"""The runtime at an API server over HTTP, and what it does when that breaks."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from brain.errors import BadInput
from scaler.kubernetes.runtime import ElectionTerms, Key, Kind, Manager, Result, write_status
from scaler.kubernetes.runtime.cluster import (
    LEASE,
    NAMESPACE,
    POD,
    AlreadyExists,
    ClientLimits,
    Cluster,
    Conflict,
    Gone,
    Invalid,
    NotFound,
    TooMany,
    Unreachable,
    connect,
)
from scaler.kubernetes.runtime.pace import Backoff, SystemClock
from scaler.kubernetes.runtime.reflector import Reflector
from scaler.kubernetes.runtime.store import Store, meant
from tests.kubernetes.apiserver import serving
from tests.kubernetes.clusters import here, namespace
from tests.kubernetes.eventually import eventually
from tests.kubernetes.real import Ground, ground

PLAN = Kind("elastic.iml.github.io", "v1alpha1", "scaleplans", "ScalePlan")
JOB = Kind("elastic.iml.github.io", "v1alpha1", "elasticjobs", "ElasticJob")
BUDGET = Kind("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
TEAM = namespace("runtime")
PLANS = ("elastic.iml.github.io", "scaleplans")
#: A leader that stands still for a while stays one.
TERMS = ElectionTerms(namespace=TEAM, lease_seconds=60.0, renew_seconds=40.0, retry_seconds=0.5)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    with ground(tmp_path_factory.mktemp("apiserver"), bookmark_seconds=0.2) as running:
        with connected(running) as cluster:
            cluster.create(NAMESPACE, {"metadata": {"name": TEAM}})
        yield running


@contextmanager
def connected(server: Ground) -> Iterator[Cluster]:
    cluster = Cluster(
        connect(kubeconfig=str(server.kubeconfig)), ClientLimits(silence_seconds=20.0)
    )
    try:
        yield cluster
    finally:
        cluster.close()


@pytest.fixture
def cluster(server: Ground) -> Iterator[Cluster]:
    server.faults.clear()
    with connected(server) as cluster:
        yield cluster


def plan(name: str, replicas: int = 4) -> dict[str, Any]:
    return {
        "apiVersion": PLAN.api_version,
        "kind": PLAN.kind,
        "metadata": {"name": name, "namespace": TEAM},
        "spec": {"ownerJob": "j", "replicaResourceSpecs": {"worker": {"replicas": replicas}}},
    }


def pod(name: str, **spec: Any) -> dict[str, Any]:
    containers = [{"name": "main", "image": "train:1"}]
    labels = {"job": "j"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": TEAM, "labels": labels},
        "spec": here({"containers": containers, "restartPolicy": "Never", **spec}),
    }


def test_a_name_that_is_taken_and_one_that_is_not_there(cluster: Cluster) -> None:
    cluster.create(PLAN, plan("taken"))
    with pytest.raises(AlreadyExists):
        cluster.create(PLAN, plan("taken"))
    with pytest.raises(NotFound, match="nowhere"):
        cluster.get(PLAN, TEAM, "nowhere")


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
        cluster.delete(POD, TEAM, "replaced", uid="another", grace_seconds=0)
    cluster.delete(POD, TEAM, "replaced", uid=stored["metadata"]["uid"], grace_seconds=0)
    with pytest.raises(NotFound):
        cluster.get(POD, TEAM, "replaced")


def test_a_budget_keeps_a_pod_from_eviction(cluster: Cluster) -> None:
    needed = pod("needed")
    needed["metadata"]["labels"] = {"app": "needed"}
    cluster.create(POD, needed)
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    cluster.merge_status(POD, TEAM, "needed", {"status": ready})
    budget = {"minAvailable": 1, "selector": {"matchLabels": {"app": "needed"}}}
    cluster.create(BUDGET, {"metadata": {"name": "b", "namespace": TEAM}, "spec": budget})
    with pytest.raises(TooMany, match="disruption budget"):
        cluster.evict(TEAM, "needed")


def test_replicas_are_asked_for_through_the_scale_of_a_job(cluster: Cluster) -> None:
    template = {"spec": pod("x")["spec"]}
    spec = {"replicaSpecs": {"worker": {"replicas": 2, "template": template}}}
    told = {"apiVersion": JOB.api_version, "kind": JOB.kind}
    cluster.create(JOB, told | {"metadata": {"name": "scaled", "namespace": TEAM}, "spec": spec})
    cluster.scale(JOB, TEAM, "scaled", 5)
    stored = cluster.get(JOB, TEAM, "scaled")
    assert stored["spec"]["replicaSpecs"]["worker"]["replicas"] == 5


def test_pages_hold_what_was_there_when_the_first_was_read(cluster: Cluster) -> None:
    for number in range(5):
        cluster.create(POD, pod(f"paged-{number}"))
    first = cluster.list(POD, TEAM, limit=3, label_selector="job=j")
    cluster.delete(POD, TEAM, "paged-4", grace_seconds=0)
    second = cluster.list(POD, TEAM, limit=500, continue_=first.continue_, label_selector="job=j")
    names = [item["metadata"]["name"] for item in (*first.items, *second.items)]
    assert {f"paged-{number}" for number in range(4)} <= set(names)
    assert len(names) == len(set(names))


def test_a_watch_from_a_forgotten_version_is_gone(server: Ground, cluster: Cluster) -> None:
    cluster.create(PLAN, plan("old"))
    server.expire()
    cluster.create(PLAN, plan("newer"))
    with pytest.raises(Gone), cluster.watch(PLAN, TEAM, resource_version="1") as watch:
        list(watch)


def test_nobody_there_is_an_error_that_says_so(tmp_path: Path) -> None:
    with serving(tmp_path, definitions=[]) as server, connected(server) as cluster:
        with server.outage(), pytest.raises(Unreachable, match="refused"):
            cluster.hasty(5.0).get(POD, TEAM, "a")
        assert cluster.list(POD, TEAM).items == []


def test_a_kubeconfig_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"missing\.yaml"):
        connect(kubeconfig=str(tmp_path / "missing.yaml"))


class Operator:
    """Says of every plan how many replicas it asks for."""

    def __init__(self, server: Ground, terms: ElectionTerms | None = None) -> None:
        self._cluster = Cluster(connect(kubeconfig=str(server.kubeconfig)))
        self.manager = Manager(self._cluster, terms=terms, namespaces=[TEAM], random=Random(1))
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
def running(server: Ground, terms: ElectionTerms | None = None) -> Iterator[Operator]:
    operator = Operator(server, terms)
    operator.manager.start()
    try:
        yield operator
    finally:
        operator.stop()


def unsaid(server: Ground) -> list[str]:
    """Plans of which the operator has not said all yet, those that a test wrote about included."""
    plans = server.objects("scaleplans", "elastic.iml.github.io", TEAM)
    phases = {p["metadata"]["name"]: p.get("status", {}).get("phase") for p in plans}
    return [name for name, phase in phases.items() if phase != "Applied"]


def storm(server: Ground) -> None:
    server.faults.answer(410, times=2, watches=True)
    server.expire()


BREAKS: dict[str, Callable[[Ground], object]] = {
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
    server: Ground, cluster: Cluster, what: str
) -> None:
    name = what.replace(" ", "-")
    with running(server) as operator:
        eventually(operator.manager.synced)
        eventually(lambda: not unsaid(server))
        BREAKS[what](server)
        _make(server, name)
        eventually(lambda: not unsaid(server))
        eventually(lambda: operator.manager.trouble == [])


def test_what_was_deleted_and_made_in_an_outage_is_known_after_it(server: Ground) -> None:
    server.faults.clear()
    _make(server, "before")
    with running(server) as operator:
        eventually(lambda: Key(TEAM, "before-0") in operator.store)
        with server.outage():
            eventually(lambda: operator.manager.trouble != [])
            _make(server, "meanwhile")
            _delete(server, "before-0")
        eventually(lambda: not unsaid(server))
        eventually(lambda: Key(TEAM, "before-0") not in operator.store)


def test_another_operator_goes_on_where_one_stopped_and_nothing_is_written_twice(
    server: Ground, cluster: Cluster
) -> None:
    # Nobody's: so the first one need not wait for its end.
    metadata = {"namespace": TERMS.namespace, "name": TERMS.name}
    cluster.create(LEASE, {"metadata": metadata, "spec": {"holderIdentity": ""}})
    with running(server, TERMS) as first, running(server, TERMS) as second:
        eventually(lambda: first.manager.leading or second.manager.leading)
        leader, other = (first, second) if first.manager.leading else (second, first)
        eventually(lambda: not unsaid(server))
        before = server.traffic.writes("elastic.iml.github.io/scaleplans/status")
        _make(server, "one")
        eventually(lambda: not unsaid(server))
        leader.stop()
        _make(server, "two")
        eventually(lambda: not unsaid(server))
        assert other.manager.leading
    writes = server.traffic.writes("elastic.iml.github.io/scaleplans/status")
    assert writes - before == 6


def _make(server: Ground, name: str) -> None:
    for number in range(3):
        server.hands.create(PLANS, plan(f"{name}-{number}"))


def _delete(server: Ground, name: str) -> None:
    server.hands.delete(PLANS, (TEAM, name))


def test_watches_without_bookmarks_follow_each_other_at_once(tmp_path: Path) -> None:
    # As a real API server answers of a kind of which it has seen no event.
    with serving(tmp_path, bookmark_seconds=3600.0) as silent:
        limits = ClientLimits(silence_seconds=1.0)
        cluster = Cluster(connect(kubeconfig=str(silent.kubeconfig)), limits)
        pauses = Backoff(first_seconds=0.1, longest_seconds=0.8, jitter=0.0)
        reflector = Reflector(
            cluster, PLAN, Store(), clock=SystemClock(), random=Random(1), pauses=pauses
        )
        asked = [reflector.step() for _ in range(4)]
        cluster.close()
    assert asked == [0.1] * 4
    assert silent.traffic.watches == 4
