"""Pods that a plan moves, pods of a lost node, pods that a quota refuses: at work on a cluster."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from brain.errors import BadInput, Overloaded
from scaler.kubernetes.kinds.reading import read_elastic_job, read_scale_plan
from scaler.kubernetes.plans.migration import Migrations, left_by, marked
from scaler.kubernetes.pods import identity
from scaler.kubernetes.pods.sight import look
from scaler.kubernetes.runtime.cluster import Kind
from scaler.kubernetes.runtime.store import Store
from scaler.kubernetes.status.progress import only_moves
from tests.kubernetes import jobs
from tests.kubernetes.operating import Place, Stage, accepted, living, operating, staged, until

Json = dict[str, Any]
QUOTA = Kind("", "v1", "resourcequotas", "ResourceQuota")


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with staged(tmp_path_factory.mktemp("apiserver")) as made:
        yield made


@pytest.fixture
def place(stage: Stage, tmp_path: Path) -> Iterator[Place]:
    with operating(stage.ground, tmp_path, lost_node_seconds=0.5) as made:
        yield made


def move(*names: str, **spec: Any) -> Json:
    return jobs.plan({"ownerJob": "digits", "migratePods": [{"name": n} for n in names]} | spec)


def test_a_pod_is_replaced_elsewhere_before_it_goes(place: Place):
    accepted(place, replicas=1, minReplicas=1, maxReplicas=2)
    with living(place):
        until("it runs", lambda: place.run() == {"0"}, place.pods)
        first = place.pods()["0"]["spec"]["nodeName"]
        asked = place.apply(move("digits-edljob-worker-0"))

        until("another runs alone", lambda: place.run() == {"1"}, place.pods)
        place.says(asked, "Complete", "True", "Applied")

    assert place.pods()["1"]["spec"]["nodeName"] != first
    assert place.status(asked)["phase"] == "Verified"
    assert place.status(asked)["target"] == {"migrate": {"digits-edljob-worker-0": {}}}


def test_a_pod_that_is_not_there_is_named(place: Place):
    accepted(place, replicas=1, minReplicas=1, maxReplicas=2)
    asked = place.apply(move("digits-edljob-worker-7"))

    place.says(asked, "Accepted", "False", "OutOfBounds", "spec.migratePods.0.name")


def test_replicas_of_a_silent_node_run_elsewhere_soon(stage: Stage, place: Place):
    accepted(place, replicas=1, minReplicas=1, maxReplicas=2)
    with living(place):
        until("it runs", lambda: place.run() == {"0"}, place.pods)
        lost = place.pods()["0"]["spec"]["nodeName"]
        stage.kubelet.lose_node(lost)
        try:
            until("another runs", lambda: "1" in place.run(), place.pods)
        finally:
            stage.kubelet.find_node(lost)


def test_a_quota_that_holds_no_pod_is_told_on_the_job(stage: Stage, place: Place):
    if not stage.ground.collects:
        pytest.skip("nobody counts what quotas allow here")
    hard = {"metadata": {"name": "small", "namespace": place.namespace}}
    place.cluster.create(QUOTA, hard | {"spec": {"hard": {"cpu": "500m"}}})
    made = accepted(place, replicas=1, minReplicas=1, maxReplicas=2)
    with living(place):
        place.says(made, "Feasible", "False", "QuotaExceeded", "quota small allows")
    place.told("QuotaExceeded", "raise it, or ask for less")


# -- without a cluster -----------------------------------------------------------------------------


def a_pod(id: int, phase: str = "Running", moved_by: str = "") -> Json:
    labels = identity.labels("digits", "u", "worker", id, rank=id, relaunches=0)
    name = identity.pod_name("digits", "worker", id)
    annotations = {identity.MOVES: moved_by} if moved_by else {}
    metadata = {"namespace": "team", "name": name, "labels": labels, "annotations": annotations}
    return {"metadata": metadata, "spec": {"nodeName": f"n{id}"}, "status": {"phase": phase}}


class Hands:
    """A cluster that evicts what no budget keeps."""

    def __init__(self, *kept: str) -> None:
        self.kept, self.evicted = kept, list[str]()

    def evict(self, namespace: str, name: str, *, uid: str | None) -> None:
        if name in self.kept:
            raise Overloaded("a budget says no", retry_after_seconds=1.0)
        self.evicted.append(name)


def carried_out(hands: Hands, *pods: Json, wished: int, at_once: bool = False) -> str:
    seen = [look(pod, number) for number, pod in enumerate(pods)]
    moves = Migrations(cast(Any, hands), Store())
    moving = [pod for pod in pods if marked(pod)]
    return moves.carry_out(moving, seen, wished, at_once=lambda pod: at_once)


def test_nothing_goes_before_others_run():
    hands = Hands()

    said = carried_out(hands, a_pod(0, moved_by="p"), a_pod(1, "Pending"), wished=1)

    assert (said, hands.evicted) == ("1 pods move once 1 others run elsewhere", [])


def test_what_others_stand_in_for_is_evicted():
    hands = Hands()

    assert carried_out(hands, a_pod(0, moved_by="p"), a_pod(1), wished=1) == ""
    assert hands.evicted == ["digits-edljob-worker-0"]


def test_a_job_of_fixed_ranks_lets_the_old_one_go_first():
    hands = Hands()

    carried_out(hands, a_pod(0, moved_by="p"), wished=1, at_once=True)

    assert hands.evicted == ["digits-edljob-worker-0"]


def test_a_budget_is_respected_and_named():
    hands = Hands("digits-edljob-worker-0")

    said = carried_out(hands, a_pod(0, moved_by="p"), a_pod(1), wished=1)

    assert said == "a disruption budget keeps digits-edljob-worker-0 for now"


def test_no_replacement_goes_to_the_node_that_is_left():
    assert left_by([a_pod(0, moved_by="p"), a_pod(1)]) == {"n0"}


def test_a_pod_that_is_over_does_not_move():
    pods = Store()
    ended = a_pod(0, "Failed")
    ended["metadata"]["labels"][identity.UID] = "u"
    pods.put(ended)
    obj = jobs.job("brain-run", "t.py", replicas=1)
    obj["metadata"]["uid"] = "u"
    plan = read_scale_plan(move("digits-edljob-worker-0"))

    with pytest.raises(BadInput, match="there are none"):
        Migrations(cast(Any, None), pods).begin(plan, read_elastic_job(obj))


def test_a_plan_with_a_size_is_no_mere_move():
    job = read_elastic_job(jobs.job("brain-run", "t.py", replicas=1))
    sized = {"replicaResourceSpecs": {"worker": {"replicas": 2}}}

    assert only_moves(read_scale_plan(move("a")), job)
    assert not only_moves(read_scale_plan(move("a", **sized)), job)
