"""Pods that a policy, a webhook or their own schema keeps from being made."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from brain.errors import BrainError
from brain.types.job import JobId, JobState
from scaler.kubernetes.operator.backend import KubernetesBackend
from scaler.kubernetes.operator.jobs import JOB
from scaler.kubernetes.pods.orders import Installation
from scaler.kubernetes.replicas.cache import JobCache
from scaler.kubernetes.runtime.cluster import (
    POD,
    Cluster,
    Denied,
    Invalid,
    NotFound,
    TooMany,
    Unreachable,
    connect,
)
from scaler.kubernetes.runtime.cluster.errors import Status, refusal
from scaler.kubernetes.runtime.store import Store
from tests.kubernetes import jobs
from tests.kubernetes.apiserver import Server, serving
from tests.kubernetes.apiserver.core.kinds import Json, Kind
from tests.kubernetes.eventually import eventually
from tests.kubernetes.operating import Place, Stage, job, living, operating, until
from tests.scaler.wished import NOW, wish

GROUP = "admissionregistration.k8s.io"
ROOTLESS = "pods run as nobody here: set runAsNonRoot"


@pytest.fixture
def place(stage: Stage, tmp_path: Path) -> Iterator[Place]:
    with operating(stage.ground, tmp_path) as made, living(made):
        yield made


def policy(name: str, namespace: str) -> tuple[Json, Json]:
    """A policy with its binding to one namespace, as people write them."""
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["pods"],
    }
    holds = (
        "has(object.spec.securityContext) && has(object.spec.securityContext.runAsNonRoot) "
        "&& object.spec.securityContext.runAsNonRoot"
    )
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": holds, "message": ROOTLESS}],
    }
    chosen = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    bound = {
        "policyName": name,
        "validationActions": ["Deny"],
        "matchResources": {"namespaceSelector": chosen},
    }
    metadata = {"metadata": {"name": name}}
    return {**metadata, "spec": spec}, {**metadata, "spec": bound}


@contextmanager
def denying(stage: Stage, namespace: str) -> Iterator[None]:
    """A policy that keeps root away, for a while."""
    kinds = ((GROUP, "validatingadmissionpolicies"), (GROUP, "validatingadmissionpolicybindings"))
    hands = stage.ground.hands
    for kind, made in zip(kinds, policy("rootless", namespace), strict=True):
        hands.create(kind, made)
    try:
        # A server takes a moment to act by a policy.
        eventually(lambda: "denied request" in tried(stage, namespace))
        yield
    finally:
        for kind in kinds:
            hands.delete(kind, ("", "rootless"))


def tried(stage: Stage, namespace: str) -> str:
    """What the server says of a pod that runs as root."""
    config = f"--kubeconfig={stage.ground.kubeconfig}"
    words = ["kubectl", config, "-n", namespace, "run", "p", "--image=x", "--dry-run=server"]
    return subprocess.run(words, capture_output=True, text=True, check=False).stderr


def state(place: Place, made: Json) -> JobState:
    found: JobState = place.job(made).job.state
    return found


def test_what_a_policy_denies_is_told_in_its_words_and_made_once_it_allows_it(
    stage: Stage, place: Place
):
    with denying(stage, place.namespace):
        made = place.apply(job(replicas=1))
        place.says(made, "Scheduled", "False", "DeniedByPolicy", f"denies it: {ROOTLESS}")
        place.told("DeniedByPolicy", "policy 'rootless'")
        assert state(place, made) not in (JobState.FAILED, JobState.CANCELLED)
        assert place.condition(made, "Failed") is None

    until("it runs", lambda: len(place.run()) == 1, lambda: place.status(made))
    place.says(made, "Scheduled", "True", "GangAdmitted")


def test_a_template_that_does_as_the_policy_says_is_made(stage: Stage, place: Place):
    with denying(stage, place.namespace):
        made = job(replicas=1)
        template = made["spec"]["replicaSpecs"]["worker"]["template"]["spec"]
        template["securityContext"] = {"runAsNonRoot": True}
        place.apply(made)
        until("it runs", lambda: len(place.run()) == 1, place.pods)


def test_what_a_webhook_denies_is_told_in_its_words_and_made_once_it_allows_it(
    stage: Stage, place: Place
):
    if not isinstance(stage.ground, Server):
        pytest.skip("webhooks are played by the emulator alone")

    def webhook(kind: Kind, old: Json | None, obj: Json) -> str | None:
        here = obj["metadata"].get("namespace") == place.namespace
        return "name a cost centre" if kind.plural == "pods" and here else None

    stage.ground.api.webhooks["cost.example.com"] = webhook
    try:
        made = place.apply(job(replicas=1))
        place.says(made, "Scheduled", "False", "DeniedByPolicy", "name a cost centre")
        assert state(place, made) is not JobState.FAILED
    finally:
        del stage.ground.api.webhooks["cost.example.com"]
    until("it runs", lambda: len(place.run()) == 1, lambda: place.status(made))


def test_a_pod_that_breaks_its_schema_ends_its_job(place: Place):
    made = job(replicas=1)
    # Nothing that our own look at templates knows of.
    jobs.main_of(made)["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    made = place.apply(made)

    until("Brain knows it", lambda: place.operator.brain.view(made["metadata"]["uid"]))
    until("it fails", lambda: state(place, made) is JobState.FAILED, lambda: place.status(made))
    place.says(made, "Failed", "True", "ExitCode", "fix the pod template")
    place.cluster.delete(JOB, place.namespace, "digits")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[Server, Cluster]]:
    with serving(tmp_path) as server:
        yield server, Cluster(connect(kubeconfig=str(server.kubeconfig)))


def a_pod(**container: object) -> Json:
    made = {"name": "main", "image": "x", **container}
    return {"metadata": {"name": "p", "namespace": "default"}, "spec": {"containers": [made]}}


def test_the_apiserver_denies_as_a_real_one_does(cluster: tuple[Server, Cluster]):
    server, door = cluster
    for plural, made in zip(("policies", "policybindings"), policy("p", "default"), strict=True):
        server.hands.create((GROUP, f"validatingadmission{plural}"), made)

    with pytest.raises(Denied) as denied:
        door.create(POD, a_pod())

    whose = "ValidatingAdmissionPolicy 'p' with binding 'p'"
    assert f'pods "p" is forbidden: {whose} denied request: {ROOTLESS} (422)' in str(denied.value)
    server.hands.delete((GROUP, "validatingadmissionpolicies"), ("", "p"))
    server.api.webhooks["w"] = lambda kind, old, new: "no"
    with pytest.raises(Denied, match=r'admission webhook "w" denied the request: no \(400\)'):
        door.create(POD, a_pod())


def test_only_what_breaks_the_schema_is_final(cluster: tuple[Server, Cluster]):
    _, door = cluster
    for wrong in ({"image": 7}, {"volumeMounts": [{"name": "a", "mountPath": "/a"}]}):
        with pytest.raises(Invalid) as refused:
            door.create(POD, a_pod(**wrong))
        assert refused.value.final

    proxied = refusal(400, Status(message="Bad Request"), "create pods")
    assert isinstance(proxied, Invalid)
    assert not proxied.final


class Failing:
    """A cluster that makes no pod."""

    def __init__(self, why: BrainError) -> None:
        self.why = why

    def get(self, *_: object) -> None:
        raise NotFound("no Secret")

    def create(self, *_: object) -> None:
        raise self.why

    merge = create


@pytest.mark.parametrize(
    ("why", "pauses"),
    [
        (Denied("no"), [10, 20, 40, 80, 160, 300, 300]),
        (Unreachable("no answer"), [10] * 7),
        (TooMany("slow down", retry_after_seconds=1), [10] * 7),
    ],
)
def test_pods_are_asked_for_ever_more_seldom_where_somebody_says_no(
    why: BrainError, pauses: list[int]
):
    made = job(replicas=1)
    made["metadata"] |= {"uid": "u", "namespace": "team"}
    backend = KubernetesBackend(
        cast(Any, Failing(why)),
        pods=Store(),
        nodes=Store(),
        find=lambda job: made,
        house=Installation,
        pool="pool",
    )
    at, seen = NOW, list[int]()
    for _ in pauses:
        backend.start(wish(1, job=JobId("u")), 0, {}, at)
        asked = at
        until("it is refused", lambda at=asked: backend.observe(JobId("u"), at).lacking)
        while backend.observe(JobId("u"), at).lacking:
            at += timedelta(seconds=1)
        seen.append(round((at - asked).total_seconds()))
    backend.close_down()

    assert seen == pauses


def test_pods_that_are_refused_again_and_again_are_asked_for_ever_more_seldom():
    known, at, pauses = JobCache(), NOW, []
    for _ in range(8):
        known.refuse("no", at)
        known.refuse("no", at)
        assert known.refused is not None
        pauses.append((known.refused.until - at).total_seconds())
        assert known.refusal(at + timedelta(seconds=pauses[-1] - 1)) == "no"
        at = known.refused.until
        assert known.refusal(at) is None

    assert pauses == [10, 20, 40, 80, 160, 300, 300, 300]
