"""What begins together, by gates and by Volcano; and who goes on where a leader was lost."""

from contextlib import suppress
from pathlib import Path

from brain import calls
from brain.views import ResizeRequest
from scaler.kubernetes.operator.jobs import JOB
from scaler.kubernetes.pods.gang import POD_GROUP
from scaler.kubernetes.runtime.cluster import POD, NotFound
from tests.kubernetes import jobs
from tests.kubernetes.apiserver.core.kinds import Json
from tests.kubernetes.operating import (
    Place,
    Stage,
    living,
    looping,
    operating,
    placed,
    retire,
    until,
)

POD_GROUPS = Path(__file__).parent / "volcano-podgroups.yaml"


def on_gpus(place: Place, name: str, replicas: int) -> Json:
    """A job of replicas of 8 GPUs each, which begin together; Brain takes it to run."""
    resources = {"cpu": "1", "nvidia.com/gpu": "8"}
    made = jobs.job("brain-run", "t.py", resources=resources, replicas=replicas)
    jobs.main_of(made)["resources"] = {"requests": resources, "limits": resources}
    made["metadata"]["name"] = name
    made["spec"]["replicaSpecs"]["worker"] |= {"minReplicas": replicas, "maxReplicas": replicas}
    made = place.apply(made)
    until("Brain knows it", lambda: place.operator.brain.view(made["metadata"]["uid"]))
    place.running(made)
    return made


def of(place: Place, job: str) -> list[Json]:
    found = place.cluster.list(POD, place.namespace).items
    return [dict(pod) for pod in found if pod["metadata"]["name"].startswith(f"{job}-")]


def holding(place: Place, job: str) -> int:
    """How many of a job's pods have a node, and so its GPUs."""
    return sum(bool(pod["spec"].get("nodeName")) for pod in of(place, job))


def end(place: Place, job: str) -> None:
    """Delete a job of one pod, and the pod, which not every cluster collects."""
    place.cluster.delete(JOB, place.namespace, job)
    for pod in of(place, job):
        with suppress(NotFound):
            place.cluster.delete(POD, place.namespace, pod["metadata"]["name"])


def test_half_a_gang_never_holds_gpus(place: Place):
    on_gpus(place, "first", 1)
    with looping(place):
        until("the first has a node", lambda: holding(place, "first") == 1)
        made = on_gpus(place, "both", 2)
        until("both are made", lambda: len(of(place, "both")) == 2)
        until("it waits", lambda: "wait for room" in place.status(made).get("message", ""))
        assert [bool(p["spec"].get("schedulingGates")) for p in of(place, "both")] == [True, True]
        assert holding(place, "both") == 0
        end(place, "first")
        until("both begin", lambda: holding(place, "both") == 2, lambda: place.status(made))


def test_another_operator_finishes_the_plan_in_whose_middle_the_leader_was_lost(
    stage: Stage, tmp_path: Path
):
    with operating(stage.ground, tmp_path, elect=True) as first:
        until("the first leads", lambda: first.operator.manager.leading)
        second = placed(stage.ground, first.api, first.namespace, elect=True)
        made = jobs.job("torchrun", "t.py", resources={"cpu": "1"}, replicas=2)
        made["spec"]["replicaSpecs"]["worker"] |= {"minReplicas": 2, "maxReplicas": 6}
        made = first.apply(made)
        with living(first):
            until("two run", lambda: len(first.run()) == 2)
            first.line.pods_left = 2
            with first.api.client(name="ada") as client:
                client.send(calls.resize(made["metadata"]["uid"], ResizeRequest(replicas=6)))
            until("it is lost with half of them made", lambda: first.line.dead)
        until("the second leads", lambda: second.operator.manager.leading)
        with living(second):
            until("six run", lambda: len(second.run()) == 6, second.pods)
        retire(second)

        # None was made twice, none was forgotten.
        assert len(of(second, "digits")) == 6


def test_volcano_admits_a_gang_where_it_is_installed(stage: Stage, tmp_path: Path):
    stage.ground.install(POD_GROUPS)
    with operating(stage.ground, tmp_path) as place, looping(place):
        on_gpus(place, "first", 1)
        until("the first has a node", lambda: holding(place, "first") == 1)
        on_gpus(place, "both", 2)
        until(
            "the scheduler says why they wait",
            lambda: any(map(unplaced, of(place, "both"))),
        )
        groups = place.cluster.list(POD_GROUP, place.namespace).items
        assert [group["spec"]["minMember"] for group in groups] == [2]
        assert not any(pod["spec"].get("schedulingGates") for pod in of(place, "both"))
        end(place, "first")
        until("both begin", lambda: holding(place, "both") == 2)


def unplaced(pod: Json) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any("needs 2 pods" in condition.get("message", "") for condition in conditions)
