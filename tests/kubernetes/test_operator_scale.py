"""``kubectl scale``, autoscalers, and sizes that another plan made."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from brain import calls
from brain.errors import Unavailable
from brain.types.record import Role
from brain.views import ResizeRequest
from scaler.kubernetes.operator.jobs import JOB
from scaler.kubernetes.runtime.cluster import HPA
from tests.kubernetes import jobs
from tests.kubernetes.apiserver.core.kinds import Json
from tests.kubernetes.operating import Place, accepted, job, operating, plan, staged, until
from tests.kubernetes.real import Ground

TARGET = {"apiVersion": "elastic.iml.github.io/v1alpha1", "kind": "ElasticJob", "name": "digits"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    with staged(tmp_path_factory.mktemp("apiserver")) as stage:
        yield stage.ground


@pytest.fixture
def place(server: Ground, tmp_path: Path) -> Iterator[Place]:
    with operating(server, tmp_path) as made:
        yield made


def kubectl(server: Ground, *words: str) -> str:
    config = f"--kubeconfig={server.kubeconfig}"
    done = subprocess.run(["kubectl", config, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def request_of(place: Place, made: Json) -> Json:
    found: Json = place.status(made).get("request") or {}
    return found


def answered(place: Place, made: Json, outcome: str) -> Json:
    until(
        outcome,
        lambda: request_of(place, made).get("outcome") == outcome,
        lambda: place.status(made),
    )
    return request_of(place, made)


def test_a_request_that_brain_did_not_hear_is_made_again_soon(
    server: Ground, place: Place, monkeypatch: pytest.MonkeyPatch
):
    def away(*_: object, **__: object) -> None:
        raise Unavailable("no answer")

    made = accepted(place, replicas=1, minReplicas=1, maxReplicas=4)
    answered(place, made, "accepted")
    with monkeypatch.context() as patch:
        patch.setattr(place.operator.brain, "resize", away)
        kubectl(server, "scale", "-n", place.namespace, "elasticjob/digits", "--replicas=2")
        answered(place, made, "waiting")
        until("it is asked again soon", place.looks_again_soon)
    answered(place, made, "accepted")


def test_the_answer_to_a_request_says_what_was_granted_and_who_asked(server: Ground, place: Place):
    made = accepted(place, replicas=1, minReplicas=1, maxReplicas=4)
    kubectl(server, "scale", "-n", place.namespace, "elasticjob/digits", "--replicas=9")

    answer = answered(place, made, "clamped")
    assert (answer["replicas"], answer["granted"]) == (9, 4)
    plan = place.job(made).job.plan
    assert plan.approval.by == f"kubectl (ElasticJob {place.namespace}/digits)"
    stored = place.cluster.get(JOB, place.namespace, "digits")
    assert stored["spec"]["replicaSpecs"]["worker"]["replicas"] == 9


def test_a_plan_is_approved_by_the_person_that_it_names(place: Place):
    made = accepted(place, replicas=1, minReplicas=1, maxReplicas=4)
    asked = place.apply(plan(3, annotations={"elastic.iml.github.io/owner": "ada"}))

    until("it is taken", lambda: place.status(asked).get("approval"), lambda: place.status(asked))
    named = f"ada (ScalePlan {place.namespace}/{asked['metadata']['name']})"
    assert place.status(asked)["approval"]["by"] == named
    assert place.job(made).job.plan.approval.by == named


def test_a_size_that_another_plan_made_is_told_with_what_works(server: Ground, place: Place):
    made = accepted(place, replicas=3, minReplicas=1, maxReplicas=4)
    place.says(made, "SizeDiffers", "False", "AsAsked")
    resized(place, made, 1)
    place.says(
        made, "SizeDiffers", "True", "AnotherPlan", "replicas is 3, but the size is 1, by plan 1"
    )
    place.told("SizeDiffers", f"`BRAIN_PROJECT={place.namespace} brain resize digits 3`")

    kubectl(server, "scale", "-n", place.namespace, "elasticjob/digits", "--replicas=3")
    assert place.job(made).job.plan.generation == 1

    place.cluster.merge(JOB, place.namespace, "digits", {"spec": {"suspend": True}})
    place.says(made, "SizeDiffers", "False", "AsAsked")
    place.cluster.merge(JOB, place.namespace, "digits", {"spec": {"suspend": False}})
    place.says(made, "SizeDiffers", "True", "AnotherPlan")

    resized(place, made, 3)
    place.says(made, "SizeDiffers", "False", "AsAsked")
    stored = place.cluster.get(JOB, place.namespace, "digits")
    assert stored["spec"]["replicaSpecs"]["worker"]["replicas"] == 3


def resized(place: Place, made: Json, replicas: int) -> None:
    """As ``brain resize`` does it; the plan is taken for begun."""
    with place.api.client(Role.ADMIN) as client:
        client.send(calls.resize(made["metadata"]["uid"], ResizeRequest(replicas=replicas)))
    place.look()


def test_replicas_that_nobody_wrote_are_one_so_that_a_job_can_be_scaled(
    server: Ground, place: Place
):
    made = job(minReplicas=1, maxReplicas=4)
    assert "replicas" not in made["spec"]["replicaSpecs"]["worker"]
    place.apply(made)

    scale = place.cluster.get(JOB, place.namespace, "digits", sub="scale")
    assert scale["spec"]["replicas"] == 1
    kubectl(server, "scale", "-n", place.namespace, "elasticjob/digits", "--replicas=2")


def test_a_default_that_came_with_an_upgrade_is_no_request(place: Place):
    made = accepted(place, replicas=3, minReplicas=1, maxReplicas=4)
    until("it is known", lambda: request_of(place, made).get("replicas") == 3)
    name = (place.namespace, "digits")
    before = place.status(made)["request"] | {"replicas": 2}
    place.cluster.merge_status(JOB, *name, {"status": {"request": before}})

    until("it is noted", lambda: request_of(place, made)["replicas"] == 3)
    assert place.job(made).job.plan is None


def test_a_job_without_workers_has_no_scale(place: Place, server: Ground):
    made = jobs.job("brain-run", "t.py")
    roles = made["spec"]["replicaSpecs"]
    roles["chief"] = roles.pop("worker")
    place.apply(made)
    config = f"--kubeconfig={server.kubeconfig}"
    words = ["kubectl", config, "scale", "-n", place.namespace, "ej/digits", "--replicas=2"]
    done = subprocess.run(words, capture_output=True, text=True)
    # Else the role would come into being, without a template.
    assert "worker has no template: give the role one" in done.stderr
    with pytest.raises(Unavailable, match=r"worker\.replicas.* does not exist"):
        place.cluster.get(JOB, place.namespace, "digits", sub="scale")


def test_where_an_autoscaler_sets_the_size_brain_only_advises(place: Place):
    made = job(replicas=1, minReplicas=1, maxReplicas=4)
    made["spec"]["policy"] = {"mode": "auto"}
    made = place.apply(made)
    place.says(made, "Conflict", "False", "NoOtherController")
    until("it acts", lambda: place.job(made).job.mode == "auto")

    spec = {"scaleTargetRef": TARGET, "minReplicas": 1, "maxReplicas": 4}
    place.cluster.create(
        HPA, {"metadata": {"name": "web", "namespace": place.namespace}, "spec": spec}
    )

    place.says(made, "Conflict", "True", "HorizontalPodAutoscaler", "Brain only advises")
    place.told("HorizontalPodAutoscaler", "web sets the size")
    until("it advises", lambda: place.job(made).job.mode == "shadow")

    place.cluster.delete(HPA, place.namespace, "web")
    place.says(made, "Conflict", "False", "NoOtherController")
    until("it acts again", lambda: place.job(made).job.mode == "auto")
