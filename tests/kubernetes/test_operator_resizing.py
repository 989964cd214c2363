"""Plans that change what replicas reserve, from the service to ``kubectl get pod -o yaml``.

Kubelets are played: they say what a real one says of a resize, and no control group changes.
"""

import subprocess
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from brain import calls, lifecycle
from brain.types.explanation import Explanation
from brain.types.job import ApprovalPolicy, JobId, PolicyMode
from brain.types.plan import PlanState, ScalePlan
from brain.types.record import Role
from brain.types.resources import Resources
from brain.views import JobEdit, PlanDecision
from scaler.kubernetes.pods.identity import UNENFORCED
from scaler.kubernetes.runtime.cluster import POD, VPA
from tests.kubernetes import jobs
from tests.kubernetes.apiserver.core.kinds import Json
from tests.kubernetes.apiserver.server import Server
from tests.kubernetes.clusters import here
from tests.kubernetes.operating import Place, Stage, accepted, living, operating, until

GIB = 2**30


def a_job(limits: Json | None = None) -> Json:
    """Two replicas of 1 CPU and 2 GiB that run without our agent."""
    made = jobs.job("torchrun", "t.py", resources={"cpu": "1", "memory": "2Gi"}, replicas=2)
    main = jobs.main_of(made)
    main["resources"]["limits"] = limits or {}
    return made


def running(place: Place, made: Json) -> Json:
    made = place.apply(made)
    until("it trains", lambda: len(place.run()) == 2, lambda: place.status(made))
    until("Brain knows that it trains", lambda: place.job(made).job.state == "Running")
    return made


def plan(resource: Json, name: str = "more", **worker: Any) -> Json:
    roles = {"worker": {"resource": resource, **worker}}
    return jobs.plan({"ownerJob": "digits", "replicaResourceSpecs": roles}, name=name)


def apply_amounts(place: Place, made: Json, each: Resources) -> None:
    """As ``brain edit`` does."""
    with place.api.client(Role.ADMIN) as admin:
        wanted = JobEdit(cpu_millis=each.cpu_millis, memory_bytes=each.memory_bytes)
        admin.send(calls.edit(made["metadata"]["uid"], wanted))


def seen(stage: Stage, place: Place) -> list[Json]:
    """The main containers of the job's pods, as kubectl shows them, with what kubelets say."""
    words = ["kubectl", f"--kubeconfig={stage.ground.kubeconfig}", "-n", place.namespace]
    done = subprocess.run([*words, "get", "pods", "-o", "yaml"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    pods = yaml.safe_load(done.stdout)["items"]
    alive = [pod for pod in pods if pod["status"]["phase"] == "Running"]
    return [
        {
            "uid": pod["metadata"]["uid"],
            "class": pod["status"]["qosClass"],
            "spec": pod["spec"]["containers"][0]["resources"],
            "held": pod["status"]["containerStatuses"][0]["resources"],
            "restarts": pod["status"]["containerStatuses"][0]["restartCount"],
        }
        for pod in alive
    ]


def test_a_plan_that_changes_memory_resizes_running_pods_and_is_rolled_back(
    stage: Stage, place: Place
):
    with living(place):
        made = running(place, a_job({"cpu": "1", "memory": "2Gi"}))
        before = seen(stage, place)
        asked = place.apply(plan({"memory": "3Gi"}))
        place.says(asked, "Complete", "True", "Applied")

        after = seen(stage, place)
        same = {"cpu": "1", "memory": "3Gi"}
        assert [pod["uid"] for pod in after] == [pod["uid"] for pod in before]
        assert all(pod["spec"] == {"requests": same, "limits": same} for pod in after)
        assert all(pod["held"] == pod["spec"] for pod in after)
        assert {(pod["class"], pod["restarts"]) for pod in after} == {("Guaranteed", 0)}
        worker = place.status(asked)["target"]["roles"]["worker"]
        assert worker == {"replicas": 2, "resource": {"cpu": "1", "memory": "3Gi"}}
        assert place.job(made).job.resources.memory_bytes == 3 * GIB
        place.says(made, "Reserved", "True", "AsPlanned")
        place.told("Reserved", "each replica reserves cpu 1, memory 3Gi")

        with place.api.client(Role.ADMIN) as admin:
            admin.send(calls.rollback(made["metadata"]["uid"], 1, PlanDecision(why="too much")))

        def back() -> bool:
            found = place.job(made).job
            return found.plan.state is not PlanState.APPLYING and (
                found.resources.memory_bytes == 2 * GIB
            )

        until("it is rolled back", back, lambda: place.job(made).job.plan)
        assert [pod["uid"] for pod in seen(stage, place)] == [pod["uid"] for pod in before]
        assert [pod["held"] for pod in seen(stage, place)] == [pod["held"] for pod in before]


def test_a_burstable_pod_keeps_its_class_and_the_factor_of_its_limits(stage: Stage, place: Place):
    with living(place):
        running(place, a_job({"memory": "3Gi"}))
        asked = place.apply(plan({"memory": "4Gi", "cpu": "500m"}))
        place.says(asked, "Complete", "True", "Applied")
    (one, other) = seen(stage, place)
    assert one["spec"] == {
        "requests": {"cpu": "500m", "memory": "4Gi"},
        "limits": {"memory": "6Gi"},
    }
    assert (one["class"], other["held"]) == ("Burstable", one["spec"])


def test_a_plan_of_size_and_amounts_gives_new_replicas_the_new_amounts(stage: Stage, place: Place):
    with living(place):
        made = a_job()
        made["spec"]["replicaSpecs"]["worker"] |= {"minReplicas": 1, "maxReplicas": 4}
        running(place, made)
        asked = place.apply(plan({"memory": "3Gi"}, replicas=3))
        place.says(asked, "Complete", "True", "Applied")
    found = seen(stage, place)
    assert [pod["held"]["requests"]["memory"] for pod in found] == ["3Gi"] * 3


def test_what_no_node_holds_is_told_and_no_pod_is_touched(stage: Stage, place: Place):
    stage.kubelet.add_nodes("small", cpu="4", memory="8Gi", labels={"disk": "small"})
    with living(place):
        made = a_job()
        spec = made["spec"]["replicaSpecs"]["worker"]["template"]["spec"]
        spec["nodeSelector"] = {"disk": "small"}
        made = running(place, made)
        before = seen(stage, place)
        apply_amounts(place, made, Resources(cpu_millis=1000, memory_bytes=5 * GIB))
        place.says(
            made, "Reserved", "False", "NeverFits", "the job needs at least 2 replicas, but only 1"
        )
        place.told("NeverFits", "too little memory")
        assert seen(stage, place) == before
    stage.kubelet.remove_node("small")


def test_what_the_pool_has_no_room_for_is_refused_at_once(place: Place):
    with living(place):
        running(place, a_job())
        asked = place.apply(plan({"memory": "300Gi"}))
        place.says(asked, "Accepted", "False", "OutOfBounds", "fits no node")


BOUNDS = {
    "LimitRange": (
        ("", "limitranges"),
        {"limits": [{"type": "Container", "max": {"memory": "4Gi"}}]},
        "ForbiddenByCluster",
        "LimitRange bound: memory requests of 5Gi are more than 4Gi",
    ),
    "ResourceQuota": (
        ("", "resourcequotas"),
        {"hard": {"requests.memory": "8Gi"}},
        "QuotaExceeded",
        "needs 6Gi more",
    ),
}


@pytest.mark.parametrize("bound", BOUNDS)
def test_bounds_of_the_namespace_are_looked_at_before(stage: Stage, place: Place, bound: str):
    resource, spec, reason, part = BOUNDS[bound]
    with living(place):
        made = running(place, a_job({"memory": "2Gi"}))
        before = seen(stage, place)
        metadata = {"name": "bound", "namespace": place.namespace}
        stage.ground.hands.create(resource, {"metadata": metadata, "spec": spec})
        if bound == "ResourceQuota":
            # As the controller that counts quotas does, which the emulator has none of.
            counted = {"hard": spec["hard"], "used": {"requests.memory": "4Gi"}}
            key = (place.namespace, "bound")
            stage.ground.hands.write_status(resource, key, lambda _: counted)
        apply_amounts(place, made, Resources(cpu_millis=1000, memory_bytes=5 * GIB))
        place.says(made, "Reserved", "False", reason, part)
    assert seen(stage, place) == before


def test_where_the_server_resizes_no_pods_new_pods_have_the_new_amounts(stage: Stage, place: Place):
    place.operator.jobs.resizing.offered = False
    with living(place):
        made = running(place, a_job())
        before = seen(stage, place)
        asked = place.apply(plan({"memory": "3Gi"}))
        place.says(made, "Reserved", "False", "WaitsForRestart", "at their next restart")
        place.told("WaitsForRestart", "the API server cannot resize pods in place")
        assert seen(stage, place) == before

        place.operator.jobs.resizing.patience = timedelta()
        place.says(asked, "Complete", "True", "Applied")
    after = seen(stage, place)
    assert [pod["held"]["requests"]["memory"] for pod in after] == ["3Gi"] * 2
    assert not {pod["uid"] for pod in after} & {pod["uid"] for pod in before}


def test_a_node_without_room_now_is_told_and_the_others_are_resized(stage: Stage, place: Place):
    stage.kubelet.add_nodes("tight", cpu="4", memory="8Gi", labels={"disk": "tight"})
    with living(place):
        made = a_job()
        spec = made["spec"]["replicaSpecs"]["worker"]["template"]["spec"]
        spec["nodeSelector"] = {"disk": "tight"}
        made = running(place, made)
        other = {"name": "other", "image": "x", "resources": {"requests": {"memory": "3Gi"}}}
        guest = here({"containers": [other], "nodeName": "tight"})
        where = {"name": "guest", "namespace": place.namespace}
        place.cluster.create(POD, {"metadata": where, "spec": guest})
        apply_amounts(place, made, Resources(cpu_millis=1000, memory_bytes=3 * GIB))
        place.says(made, "Reserved", "False", "WaitsForRestart", "has no room for the change now")

        def held() -> list[str]:
            return sorted(pod["held"]["requests"].get("memory") for pod in seen(stage, place))

        until("the other is resized", lambda: held() == ["2Gi", "3Gi", "3Gi"], held)
    stage.kubelet.remove_node("tight")


def advised(place: Place, made: Json, each: Resources) -> int:
    """Have Brain give its own advice on amounts, where it acts; its generation."""
    now, uid = place.api.now, JobId(made["metadata"]["uid"])
    why = Explanation(code="resources", reason="it uses less", next_step="")
    given = {"settings": place.api.settings, "now": now}
    with place.api.stores.transaction() as tx:
        job = tx.jobs.get(uid)
        _, stands = lifecycle.standing(tx.plans.of(uid), job)
        auto = ApprovalPolicy(mode=PolicyMode.AUTO)
        acts = replace(job, document=replace(job.document, policy=auto))
        aim = replace(stands, resources=each)
        return lifecycle.propose_amounts(tx, acts, aim, why, None, **given).generation


def failed(place: Place, made: Json, generation: int, part: str) -> None:
    """Wait until a plan has failed with a reason, and the job goes on."""

    def plans() -> dict[int, ScalePlan]:
        with place.api.stores.transaction() as tx:
            return {one.generation: one for one in tx.plans.of(JobId(made["metadata"]["uid"]))}

    def over() -> bool:
        plan = plans()[generation]
        return plan.state is PlanState.FAILED and part in plan.outcome.detail

    until("the plan failed", over, plans)
    until("the job goes on", lambda: place.job(made).job.state == "Running", plans)


LESS, MORE = (Resources(cpu_millis=1000, memory_bytes=GIB * each) for each in (1, 3))


def test_a_pod_that_its_node_could_never_hold_restarts_on_another(stage: Stage, place: Place):
    """From 1.36 on the server says so (403), before it the kubelet (``Infeasible``)."""
    stage.kubelet.add_nodes("small", cpu="4", memory="4500Mi", labels={"disk": "fast"})
    with living(place):
        made = a_job()
        spec = made["spec"]["replicaSpecs"]["worker"]["template"]["spec"]
        spec["nodeSelector"] = {"disk": "fast"}
        made = running(place, made)
        stage.kubelet.add_nodes("large", cpu="8", memory="64Gi", labels={"disk": "fast"})
        before = seen(stage, place)
        asked = place.apply(plan({"memory": "5Gi"}))
        told = "node didn't have enough allocatable resources"
        place.says(made, "Reserved", "False", "WaitsForRestart", told)
        assert seen(stage, place) == before

        place.operator.jobs.resizing.patience = timedelta()
        place.says(asked, "Complete", "True", "Applied")
    assert [pod["held"]["requests"]["memory"] for pod in seen(stage, place)] == ["5Gi"] * 2
    for name in ("small", "large"):
        stage.kubelet.remove_node(name)


def test_advice_that_only_a_restart_could_carry_out_fails_and_restarts_nothing(
    stage: Stage, place: Place
):
    place.operator.jobs.resizing.offered = False
    place.operator.jobs.resizing.patience = timedelta()
    with living(place):
        made = running(place, a_job())
        before = seen(stage, place)
        failed(
            place, made, advised(place, made, MORE), "the API server cannot resize pods in place"
        )
        assert seen(stage, place) == before
        place.says(made, "Reserved", "True", "AsPlanned")

        def unnoted() -> bool:
            found = place.pods().values()
            return not any(UNENFORCED in pod["metadata"]["annotations"] for pod in found)

        until("nothing is said any more", unnoted)


def test_advice_that_an_older_server_refuses_fails_and_restarts_nothing(stage: Stage, place: Place):
    if not isinstance(stage.ground, Server):
        pytest.skip("a cluster that is not ours lowers memory as its version does")
    place.operator.jobs.resizing.patience = timedelta()
    stage.ground.api.resizes_as_latest = False
    try:
        with living(place):
            made = running(place, a_job({"memory": "2Gi"}))
            before = seen(stage, place)
            failed(place, made, advised(place, made, LESS), "memory limits cannot be decreased")
            assert seen(stage, place) == before
    finally:
        stage.ground.api.resizes_as_latest = True


def test_a_template_that_wants_containers_restarted_is_resized_without(stage: Stage, place: Place):
    """The server takes no such policy where containers are never restarted, as ours are."""
    with living(place):
        made = a_job()
        policy = {"resourceName": "memory", "restartPolicy": "RestartContainer"}
        jobs.main_of(made)["resizePolicy"] = [policy]
        running(place, made)
        asked = place.apply(plan({"memory": "3Gi"}))
        place.says(asked, "Complete", "True", "Applied")
    found = [(pod["held"]["requests"]["memory"], pod["restarts"]) for pod in seen(stage, place)]
    assert found == [("3Gi", 0)] * 2


TARGET = {"apiVersion": "elastic.iml.github.io/v1alpha1", "kind": "ElasticJob", "name": "digits"}


def test_amounts_that_a_vertical_autoscaler_owns_are_left_to_it(stage: Stage, tmp_path: Path):
    if not isinstance(stage.ground, Server):
        pytest.skip("a cluster that is not ours may have VerticalPodAutoscalers of its own")
    stage.ground.install(Path(__file__).parent / "verticalpodautoscalers.yaml")
    with operating(stage.ground, tmp_path) as place, living(place):
        made = running(place, a_job())
        spec = {"targetRef": TARGET, "updatePolicy": {"updateMode": "Recreate"}}
        where = {"name": "up", "namespace": place.namespace}
        named = {"apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler"}
        place.cluster.create(VPA, {**named, "metadata": where, "spec": spec})
        place.says(
            made, "Conflict", "True", "VerticalPodAutoscaler", "up sets the amounts of replicas"
        )
        before = seen(stage, place)
        failed(place, made, advised(place, made, LESS), "so Brain does not change them")
        asked = place.apply(plan({"memory": "3Gi"}))
        place.says(
            made, "Reserved", "False", "VerticalPodAutoscaler", "so Brain does not change them"
        )
        assert seen(stage, place) == before

        off = {"spec": {"updatePolicy": {"updateMode": "Off"}}}
        place.cluster.merge(VPA, place.namespace, "up", off)
        place.says(made, "Conflict", "False", "NoOtherController")
        place.says(asked, "Complete", "True", "Applied")
        assert [pod["held"]["requests"]["memory"] for pod in seen(stage, place)] == ["3Gi"] * 2


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"psHosts": ["a:1"]}, "spec.psHosts"),
        (
            {"replicaResourceSpecs": {"worker": {"resource": {"ephemeral-storage": "1Gi"}}}},
            "spec.replicaResourceSpecs.worker.resource.ephemeral-storage",
        ),
        (
            {"replicaResourceSpecs": {"ps": {"resource": {"cpu": "2"}}}},
            "spec.replicaResourceSpecs.ps",
        ),
        (
            {"migratePods": [{"name": "digits-edljob-worker-0", "resource": {"cpu": "2"}}]},
            "spec.migratePods.0.resource",
        ),
        (
            {"replicaResourceSpecs": {"worker": {"resource": {"nvidia.com/gpu": "2"}}}},
            "asks for 2 accelerators, but a replica has 0",
        ),
    ],
)
def test_what_no_plan_can_change_is_refused_with_its_field(place: Place, spec: Json, field: str):
    accepted(place, replicas=1, minReplicas=1, maxReplicas=4)
    asked = place.apply(jobs.plan({"ownerJob": "digits", **spec}))
    place.says(asked, "Accepted", "False", "OutOfBounds", field)
