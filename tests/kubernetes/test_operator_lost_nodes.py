"""Replicas of nodes that are silent, out of service or about to be drained."""

import json
from datetime import timedelta
from typing import Any, cast

import pytest

from brain.types.job import JobId
from brain.types.world import ReplicaExit
from scaler.kubernetes.dependents.upkeep import endpoint_of
from scaler.kubernetes.operator.backend import KubernetesBackend
from scaler.kubernetes.pods import identity
from scaler.kubernetes.pods.orders import Installation, past
from scaler.kubernetes.replicas.losses import NodeLoss, NodeLosses
from scaler.kubernetes.runtime.cluster import Key
from scaler.kubernetes.runtime.status import instant
from scaler.kubernetes.runtime.store import Store, StoreChange
from scaler.ports import ReplicaPhase
from tests.kubernetes.kubelet import node
from tests.scaler.wished import NOW

JOB = JobId("u")
Json = dict[str, Any]


def a_node(ready: bool = True, *taints: str) -> Json:
    made = node("n0")
    status = {"type": "Ready", "status": "True" if ready else "Unknown"}
    return made | {
        "spec": {"taints": [{"key": each, "effect": "NoExecute"} for each in taints]},
        "status": {**made["status"], "conditions": [status]},
    }


def heard(*nodes: Json | None) -> NodeLosses:
    losses, before = NodeLosses(timedelta(seconds=30)), None
    for each in nodes:
        losses.changed(StoreChange(Key("", "n0"), before, each), NOW)
        before = each
    return losses


def a_pod(id: int, where: str, **metadata: Any) -> Json:
    labels = identity.labels("digits", JOB, "worker", id, rank=id, relaunches=0)
    return {
        "metadata": {"namespace": "team", "name": f"p{id}", "labels": labels, **metadata},
        "spec": {"nodeName": where, "containers": [{"name": "main"}]},
        "status": {"phase": "Running"},
    }


def backend(losses: NodeLosses, *pods: Json) -> KubernetesBackend:
    store = Store()
    made = KubernetesBackend(
        cast(Any, None),
        pods=store,
        nodes=Store(),
        find=lambda job: None,
        house=Installation,
        pool="pool",
        losses=losses,
    )
    for each in pods:
        store.put(each)
    return made


LATER = NOW + timedelta(seconds=30)


@pytest.mark.parametrize(
    ("nodes", "loss"),
    [
        ([a_node()], None),
        ([a_node(False)], NodeLoss.SILENT),
        ([a_node(False), a_node()], None),
        ([a_node(), None], NodeLoss.OUT),
        ([a_node(False, "node.kubernetes.io/out-of-service")], NodeLoss.OUT),
        ([a_node(True, "ToBeDeletedByClusterAutoscaler")], NodeLoss.DRAINING),
        ([a_node(), None, a_node()], None),
        ([], None),
    ],
)
def test_how_a_node_is_lost(nodes: list[Json | None], loss: NodeLoss | None) -> None:
    assert heard(*nodes).of("n0", LATER) is loss


def test_a_node_that_is_not_ready_for_a_moment_is_not_lost():
    losses = heard(a_node(False), a_node(False))

    assert losses.of("n0", NOW + timedelta(seconds=29)) is None


@pytest.mark.parametrize(
    ("seconds", "seen_ready", "loss"),
    [(-31, False, NodeLoss.SILENT), (-29, False, None), (600, False, None), (-31, True, None)],
)
def test_a_node_that_was_silent_before_the_operator_began_stays_lost(
    seconds: int, seen_ready: bool, loss: NodeLoss | None
) -> None:
    silent = a_node(ready=False)
    since = instant(NOW + timedelta(seconds=seconds))
    silent["status"]["conditions"][0]["lastTransitionTime"] = since

    losses = heard(a_node(), silent) if seen_ready else heard(silent)

    assert losses.of("n0", NOW) is loss


def test_replicas_of_a_silent_node_are_replaced_and_nothing_is_claimed_of_them():
    placed = backend(heard(a_node(False)), a_pod(0, "n0"), a_pod(1, "n1"))

    seen = placed.observe(JOB, LATER).replicas

    assert [(each.alive, each.phase) for each in seen] == [
        (False, ReplicaPhase.RUNNING),
        (True, ReplicaPhase.RUNNING),
    ]
    assert placed.proved_gone(JOB, LATER) == []


def test_a_silent_node_that_comes_back_has_its_replicas_again():
    placed = backend(heard(a_node(False), a_node()), a_pod(0, "n0"))

    assert placed.observe(JOB, LATER).replicas[0].alive


def test_replicas_of_a_node_that_is_out_of_service_are_gone_for_the_others():
    placed = backend(heard(a_node(), None), a_pod(0, "n0"), a_pod(1, "n1"))

    assert placed.observe(JOB, NOW).replicas[0].phase is ReplicaPhase.GONE
    assert placed.proved_gone(JOB, NOW) == [0]


def test_the_word_of_the_cluster_that_a_pod_goes_is_passed_on():
    going = a_pod(0, "n0", deletionTimestamp="2026-01-01T00:00:00Z")

    assert backend(heard(a_node(False)), going).proved_gone(JOB, LATER) == [0]


def test_a_replacement_takes_the_rank_of_what_it_replaces():
    pods = [a_pod(0, "n0"), a_pod(1, "n1")]

    assert (past(pods).rank, past(pods, going=[0]).rank) == (2, 0)


def test_whether_a_failure_ends_a_job_is_said_by_the_master_that_runs_it():
    failed = a_pod(0, "n0")
    ended = {"name": "main", "state": {"terminated": {"exitCode": 1}}}
    failed["status"] = {"phase": "Failed", "containerStatuses": [ended]}
    made = backend(heard(a_node()), failed)
    ours = made.observe(JOB, NOW).replicas[0].exit
    made._advised = lambda job: True

    assert (ours, made.observe(JOB, NOW).replicas[0].exit) == (ReplicaExit.FAILED, ReplicaExit.LOST)


def at_home(pod: Json, told: str = "") -> Json:
    """With an address, and what it was told of where the others are."""
    pod["status"]["podIP"] = f"10.0.0.{pod['metadata']['name'][1:]}"
    place = json.dumps({"endpoint": told}) if told else ""
    return pod | {"metadata": pod["metadata"] | {"annotations": {identity.PLACE: place}}}


FIRST, SECOND = "10.0.0.0:29399", "10.0.0.1:29399"


@pytest.mark.parametrize(
    ("cut_off", "members", "named"),
    [
        ((), (0, 1), FIRST),
        ((0,), (0, 1), SECOND),
        # A newcomer would form a world alone; whoever knows none is waited for.
        ((0,), (0,), FIRST),
        ((0,), (), FIRST),
    ],
)
def test_of_a_world_that_is_cut_in_two_those_who_come_are_sent_to_a_member_that_is_reached(
    cut_off: tuple[int, ...], members: tuple[int, ...], named: str
) -> None:
    pods = [at_home(a_pod(0, "n0"), FIRST), at_home(a_pod(1, "n1"), FIRST)]

    assert endpoint_of(pods, cut_off, members) == named


def test_who_is_cut_off_is_who_is_silent():
    placed = backend(heard(a_node(False)), a_pod(0, "n0"), a_pod(1, "n1"))

    assert placed.cut_off(JOB, LATER) == {0}
    assert placed.cut_off(JOB, NOW) == frozenset()


def test_one_that_had_ended_before_its_node_went_ended_as_it_did():
    ended = a_pod(0, "n0", deletionTimestamp="2026-01-01T00:00:00Z")
    ended["status"] = {"phase": "Succeeded"}

    seen = backend(heard(a_node(), None), ended).observe(JOB, NOW).replicas[0]

    assert (seen.phase, seen.exit) == (ReplicaPhase.ENDED, ReplicaExit.SUCCEEDED)
