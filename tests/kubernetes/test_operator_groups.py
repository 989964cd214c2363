"""Replicas that differ by group: resized in place, asked for, and admitted each by their own
template. Kubelets are played."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest

from brain import calls
from brain.errors import Unavailable
from brain.types.record import Role
from brain.views import JobEdit
from scaler.kubernetes.kinds.reading import read_elastic_job
from scaler.kubernetes.operator.jobs import JOB
from scaler.kubernetes.pods.asking import ASKS
from scaler.kubernetes.pods.fitting import infeasible
from scaler.kubernetes.pods.gang import fitting_first, pod_group
from scaler.kubernetes.pods.identity import GROUP, group_of
from scaler.kubernetes.pods.orders import specimens
from scaler.kubernetes.pods.placement import Capacity
from scaler.kubernetes.runtime.cluster import POD
from scaler.kubernetes.status.job_status import Findings, status
from tests.kubernetes import jobs
from tests.kubernetes.apiserver.core.kinds import Json
from tests.kubernetes.clusters import here
from tests.kubernetes.kubelet import node
from tests.kubernetes.operating import (
    Place,
    Stage,
    living,
    operating,
    plan,
    replaced,
    until,
)

ELSEWHERE = {"pool": "v100"}


@pytest.fixture
def place(stage: Stage, tmp_path: Path) -> Iterator[Place]:
    with operating(stage.ground, tmp_path) as made, living(made):
        yield made


def a_job(large: int = 1, **where: Any) -> Json:
    """Two replicas of 1 CPU and 2 GiB, and ``large`` ones of 2 CPUs and 4 GiB."""
    made = jobs.job(
        "torchrun",
        "t.py",
        resources={"cpu": "1", "memory": "2Gi"},
        replicas=2 + large,
        minReplicas=2 + large,
        maxReplicas=6,
    )
    own = jobs.job("torchrun", "t.py", resources={"cpu": "2", "memory": "4Gi"})
    template = own["spec"]["replicaSpecs"]["worker"]["template"]
    template["spec"].update(here(where) if where else {})
    group = {"replicas": large, "processesPerReplica": 2, "template": template}
    made["spec"]["replicaSpecs"]["worker"]["groups"] = {"large": group}
    return made


def memory(place: Place) -> list[tuple[str, str]]:
    """Group and memory of each pod that runs, as its kubelet says."""
    return sorted(
        (group_of(pod), pod["status"]["containerStatuses"][0]["resources"]["requests"]["memory"])
        for pod in place.pods().values()
        if pod["status"]["phase"] == "Running"
    )


def test_an_edit_of_a_groups_memory_resizes_its_pods_alone(place: Place):
    made = running(place)
    uids = {pod["metadata"]["uid"] for pod in place.pods().values()}
    with place.api.client(Role.ADMIN) as admin:
        wanted = JobEdit(role="large", memory_bytes=5 * 2**30)
        admin.send(calls.edit(made["metadata"]["uid"], wanted))

    others = [("worker", "2Gi"), ("worker", "2Gi")]
    until("the group has more", lambda: memory(place) == [("large", "5Gi"), *others])
    until("the plan is done", lambda: place.job(made).job.plan.state in ("Applied", "Verified"))
    assert {pod["metadata"]["uid"] for pod in place.pods().values()} == uids

    def told() -> dict[str, tuple[int, str]]:
        (role,) = place.status(made)["roles"]
        return {one["name"]: (one["ready"], one["resources"]["memory"]) for one in role["groups"]}

    until("the object tells it", lambda: told() == {"worker": (2, "2Gi"), "large": (1, "5Gi")})


def test_a_group_that_no_node_takes_asks_for_nodes_by_its_own_template(place: Place):
    made = place.apply(a_job(2, nodeSelector=ELSEWHERE))

    def asking() -> list[Json]:
        found = place.cluster.list(POD, place.namespace, label_selector=ASKS).items
        return [dict(pod) for pod in found]

    until("both ask", lambda: len(asking()) == 2, lambda: place.status(made))
    for pod in asking():
        assert pod["metadata"]["labels"][GROUP] == "large"
        assert pod["spec"]["nodeSelector"].items() >= ELSEWHERE.items()
    assert not place.pods()


def edited(place: Place, made: Json, **groups: int) -> Json:
    """The job with other numbers of replicas in its groups."""
    told = {name: {"replicas": count} for name, count in groups.items()}
    spec = {"replicaSpecs": {"worker": {"groups": told}}}
    return place.cluster.merge(JOB, place.namespace, "digits", {"spec": spec})


def request(place: Place, made: Json) -> Json:
    found: Json = place.status(made).get("request") or {}
    return found


def running(place: Place) -> Json:
    made = place.apply(a_job())
    until("three run", lambda: len(place.run()) == 3, lambda: place.status(made))
    until("Brain knows that it trains", lambda: place.job(made).job.state == "Running")
    return made


def test_an_edit_of_a_group_beyond_the_bounds_is_refused_and_not_repeated(place: Place):
    made = running(place)
    edited(place, made, large=9)
    until("it is answered", lambda: request(place, made).get("outcome") == "refused")
    answer = request(place, made)
    assert answer["groups"] == {"large": 9}
    assert "3 to 6" in answer["message"]
    assert len(place.run()) == 3


def test_the_limits_of_a_job_count_each_group_with_its_own_amounts(place: Place):
    made = a_job()
    made["spec"]["resourceLimits"] = {"cpu": "5"}
    made = place.apply(made)
    until("three run", lambda: len(place.run()) == 3, lambda: place.status(made))
    until("Brain knows that it trains", lambda: place.job(made).job.state == "Running")
    edited(place, made, large=2)
    until("it is answered", lambda: request(place, made).get("outcome") == "refused")
    refused = request(place, made)["message"]
    assert "4 replicas reserve 6 CPUs, but resourceLimits allow 5" in refused
    asked = place.apply(plan(6))
    place.says(asked, "Clamped", "True", "OutOfBounds", "its resourceLimits allow 4")
    until("four run", lambda: len(place.run()) == 4, lambda: place.status(made))


def test_an_edit_of_a_group_that_brain_did_not_hear_is_asked_again(
    place: Place, monkeypatch: pytest.MonkeyPatch
):
    def away(*_: object, **__: object) -> None:
        raise Unavailable("no answer")

    made = running(place)
    with monkeypatch.context() as patch:
        patch.setattr(place.operator.brain, "resize", away)
        edited(place, made, large=2)
        until("it waits", lambda: request(place, made).get("outcome") == "waiting")
        assert request(place, made)["groups"] == {"large": 1}
    until("it is accepted", lambda: request(place, made).get("outcome") == "accepted")
    until("four run", lambda: len(place.run()) == 4, lambda: place.status(made))

    def desired() -> list[int]:
        return [one["desired"] for one in place.status(made)["roles"][0]["groups"]]

    until("the object tells it", lambda: desired() == [2, 2], lambda: place.status(made))


def sizes(place: Place, made: Json) -> dict[str, int]:
    (role,) = place.status(made)["roles"]
    return {one["name"]: one["desired"] for one in role["groups"]}


def test_after_brain_lost_its_database_groups_keep_the_sizes_that_run(stage: Stage, tmp_path: Path):
    with operating(stage.ground, tmp_path / "before") as place:
        with living(place):
            made = running(place)
            edited(place, made, large=3)
            until("five run", lambda: len(place.run()) == 5, lambda: place.status(made))
            grown = {"worker": 2, "large": 3}
            until("the object tells it", lambda: sizes(place, made) == grown)
            edited(place, made, large=9)
            until("it is refused", lambda: request(place, made).get("outcome") == "refused")
        before = {pod["metadata"]["uid"] for pod in place.pods().values()}
        with replaced(place, stage.ground, tmp_path / "after") as anew, living(anew):
            until("Brain knows it", lambda: anew.operator.brain.view(made["metadata"]["uid"]))
            until("it trains", lambda: anew.job(made).job.state == "Running")
            wished = {one.name: one.replicas_wished for one in anew.job(made).job.groups}
            assert wished == grown
            now = {pod["metadata"]["uid"] for pod in anew.pods().values()}
            assert now == before, (now, before)
            # An edit of the object later does not take them back.
            edited(anew, made, large=2)
            until("four run", lambda: len(anew.run()) == 4, lambda: anew.status(made))
            shrunk = {"worker": 2, "large": 2}
            until("the object tells it", lambda: sizes(anew, made) == shrunk)
            assert {pod["metadata"]["uid"] for pod in anew.pods().values()} < before


@pytest.mark.parametrize(
    ("specs", "says"),
    [
        (
            {"large": {"replicas": 2}, "worker": {"replicas": 5}},
            "spec.replicaResourceSpecs.large: a plan that changes a group can change nothing else",
        ),
        (
            {"small": {"replicas": 2}},
            "spec.replicaResourceSpecs.small: plans only resize worker, large",
        ),
    ],
)
def test_a_plan_that_no_group_can_have_is_rejected(place: Place, specs: Json, says: str):
    running(place)
    asked = place.apply(jobs.plan({"ownerJob": "digits", "replicaResourceSpecs": specs}))
    until("it is rejected", lambda: place.status(asked).get("phase") == "Rejected")
    assert says in place.status(asked)["message"]


def test_the_object_keeps_the_sizes_of_its_groups_while_brain_is_away():
    groups = [{"name": "worker", "desired": 2}, {"name": "large", "desired": 3}]
    known = {"roles": [{"name": "worker", "desired": 5, "observed": 5, "groups": groups}]}
    obj = a_job() | {"status": known}
    told = status(obj, read_elastic_job(obj), None, (), Findings(), datetime.now(UTC))
    (role,) = told["roles"]
    assert (role["desired"], role["observed"], role["groups"]) == (5, 0, groups)


def like(large: int = 1, **where: Any) -> list[Json]:
    """Pods as those of the job, the group first."""
    found = specimens(read_elastic_job(a_job(large, **where)), 2 + large, {"large": large})
    return [dict(pod) for pods in found.values() for pod in pods]


def marked(*nodes: Json) -> list[Json]:
    """Nodes that templates of tests for a real cluster accept, too."""
    for each in nodes:
        each["metadata"]["labels"] |= here({}).get("nodeSelector", {})
    return list(nodes)


def test_a_job_is_feasible_if_each_group_is_by_its_own_template():
    one, other = marked(node("n0", cpu="2"), node("n1", cpu="2", labels=ELSEWHERE))
    assert infeasible(like(nodeSelector=ELSEWHERE), [one, other]) is None
    refusal = infeasible(like(nodeSelector=ELSEWHERE), [one])
    assert refusal is not None
    assert "no node accepts a replica" in refusal
    assert "needs at least 4 replicas, but only 2 fit" in str(infeasible(like(2), [one, other]))


def test_pods_of_a_group_without_room_hold_back_no_other_group():
    nodes = {"n0": marked(node("n0", cpu="2"))[0]}
    free = {"n0": {"cpu": 2, "memory": 2**38, "pods": 110}}
    room = Capacity(nodes=nodes, free=cast(Any, free), pods=())
    ordered = fitting_first(like(nodeSelector=ELSEWHERE), room)
    assert [group_of(pod) for pod in ordered] == ["worker", "worker", "large"]


def test_volcano_is_asked_for_the_sum_of_all_groups():
    job = read_elastic_job(a_job())
    alike = specimens(job, 3, {"large": 1})
    made = pod_group(namespace="t", job="j", uid="u", least=3, priority=None, alike=alike)
    assert made["spec"] == {
        "minMember": 3,
        "minResources": {"cpu": "4", "memory": str(8 * 2**30)},
    }


def test_groups_that_outgrew_the_least_size_count_no_more_than_it():
    job = read_elastic_job(a_job(4))
    found = specimens(job, 3, {"large": 4})
    assert {name: len(pods) for name, pods in found.items()} == {"large": 2, "worker": 1}
    made = pod_group(namespace="t", job="j", uid="u", least=3, priority=None, alike=found)
    assert made["spec"]["minResources"] == {"cpu": "5", "memory": str(10 * 2**30)}
    (node_of_five,) = marked(node("n0", cpu="5"))
    assert (
        infeasible([dict(pod) for pods in found.values() for pod in pods], [node_of_five]) is None
    )
