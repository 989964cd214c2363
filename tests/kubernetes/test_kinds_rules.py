"""What the API server refuses at once, by the definitions that we ship."""

from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import pytest

from scaler.kubernetes.kinds import ElasticJob, ScalePlan
from scaler.kubernetes.kinds.fields import GROUP, VERSION
from scaler.kubernetes.kinds.reading import read_elastic_job
from scaler.kubernetes.runtime.cluster import NAMESPACE, Cluster, Invalid, Kind, connect
from tests.kubernetes.clusters import namespace
from tests.kubernetes.jobs import Object, job, plan, seed
from tests.kubernetes.real import ground

JOBS = Kind(GROUP, VERSION, ElasticJob.PLURAL, "ElasticJob")
PLANS = Kind(GROUP, VERSION, ScalePlan.PLURAL, "ScalePlan")
RUN = ("torchrun", "train.py")
TEAM = namespace("team")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with ground(tmp_path_factory.mktemp("apiserver")) as server:
        cluster = Cluster(connect(kubeconfig=str(server.kubeconfig)))
        for name in ("team", "dlrover"):
            cluster.create(NAMESPACE, {"metadata": {"name": namespace(name)}})
        yield cluster
        cluster.close()


def refused(cluster: Cluster, kind: Kind, obj: Object) -> str:
    with pytest.raises(Invalid) as caught:
        cluster.create(kind, obj, dry_run=True)
    return str(caught.value)


def test_the_articles_job_is_taken_as_it_stands_and_gets_defaults(cluster: Cluster) -> None:
    stored = cluster.create(JOBS, seed(), dry_run=True)
    assert (stored["spec"]["managedBy"], stored["spec"]["suspend"]) == ("brain", False)
    assert stored["spec"]["replicaSpecs"] == seed()["spec"]["replicaSpecs"]
    assert read_elastic_job(stored).spec.managed_by == "brain"


def test_what_a_pod_template_has_is_kept_whatever_it_is(cluster: Cluster) -> None:
    obj = job(*RUN)
    spec = obj["spec"]["replicaSpecs"]["worker"]["template"]["spec"]
    spec["containers"][0]["futureField"] = {"deep": [1, {"x": "y"}]}
    spec["hostNetwork"] = True
    stored = cluster.create(JOBS, obj, dry_run=True)
    assert stored["spec"]["replicaSpecs"]["worker"]["template"]["spec"] == spec


BAD: dict[str, tuple[Kind, Object, str]] = {
    "min above max": (JOBS, job(*RUN, minReplicas=5, maxReplicas=2), "minReplicas is more than"),
    "a unit above the maximum": (JOBS, job(*RUN, unit=4, maxReplicas=3), "no multiple of unit"),
    "a unit without a multiple between": (
        JOBS,
        job(*RUN, unit=4, minReplicas=5, maxReplicas=7),
        "no multiple of unit",
    ),
    "an unknown word": (JOBS, job(*RUN, spec={"optimizeMode": "nonsense"}), "Unsupported value"),
    "an unknown strategy": (
        JOBS,
        job(*RUN, spec={"distributionStrategy": "Bogus"}),
        "Unsupported value",
    ),
    "is negative": (JOBS, job(*RUN, replicas=-5), "greater than or equal to 0"),
    "a role nobody knows": (
        JOBS,
        job(*RUN, spec={"replicaSpecs": {"boss": {}}}),
        "replicaSpecs has an unknown role",
    ),
    "a deadline of nobody knows what": (
        JOBS,
        job(*RUN, spec={"deadline": "2026-12-01T00:00:00Z"}),
        "declare steps",
    ),
    "a long name": (JOBS, job(*RUN) | {"metadata": {"name": "x" * 64, "namespace": TEAM}}, "63"),
    "a malformed quantity": (
        PLANS,
        plan({"replicaResourceSpecs": {"worker": {"resource": {"cpu": "two"}}}}),
        "should match",
    ),
    "an instant that is none": (PLANS, plan({"expiresAt": "soon"}), "date-time"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_can_be_seen_to_be_wrong_is_refused_at_once(cluster: Cluster, case: str) -> None:
    kind, obj, says = BAD[case]
    assert says in refused(cluster, kind, obj)


EDITS: dict[str, tuple[Kind, Object, Callable[[Object], Any], str]] = {
    "who manages a job": (
        JOBS,
        job(*RUN),
        lambda o: o["spec"].update(managedBy="dlrover"),
        "managedBy is immutable",
    ),
    "what a plan asks for": (
        PLANS,
        plan({"ownerJob": "digits", "replicaResourceSpecs": {"worker": {"replicas": 2}}}),
        lambda o: o["spec"]["replicaResourceSpecs"]["worker"].update(replicas=3),
        "immutable; create another plan",
    ),
    "the names of groups": (
        JOBS,
        job(*RUN, replicas=3, minReplicas=3, groups={"large": {"replicas": 1}}),
        lambda o: o["spec"]["replicaSpecs"]["worker"]["groups"].update(small={"replicas": 1}),
        "groups cannot be added or removed",
    ),
    "the groups of a job without any": (
        JOBS,
        job(*RUN, replicas=3),
        lambda o: o["spec"]["replicaSpecs"]["worker"].update(groups={"small": {"replicas": 1}}),
        "groups cannot be added or removed",
    ),
    "a least size without room for the groups": (
        JOBS,
        job(*RUN, replicas=3, minReplicas=3, groups={"a": {"replicas": 1}, "b": {"replicas": 1}}),
        lambda o: o["spec"]["replicaSpecs"]["worker"].update(minReplicas=2),
        "raise minReplicas above the number of groups",
    ),
    "when a plan expires": (
        PLANS,
        plan({"ownerJob": "digits", "removePods": [{"name": "digits-edljob-worker-1"}]}),
        lambda o: o["spec"].update(expiresAt="2030-01-01T00:00:00Z"),
        "immutable; create another plan",
    ),
}


@pytest.mark.parametrize("case", EDITS)
def test_what_never_changes_cannot_be_changed(cluster: Cluster, case: str) -> None:
    kind, obj, edit, says = EDITS[case]
    named = deepcopy(obj)
    named["metadata"]["name"] = case.replace(" ", "-")
    stored = cluster.create(kind, named)
    edit(stored)
    with pytest.raises(Invalid, match=says):
        cluster.merge(kind, TEAM, named["metadata"]["name"], {"spec": stored["spec"]})


def test_a_job_is_scaled_by_its_workers(cluster: Cluster) -> None:
    obj = job(*RUN, replicas=2, minReplicas=1, maxReplicas=4)
    obj["metadata"]["name"] = "scaled"
    cluster.create(JOBS, obj)
    cluster.scale(JOBS, TEAM, "scaled", 9)
    stored = cluster.get(JOBS, TEAM, "scaled")
    # More than the maximum is a request like any other: it is clamped, and that is said.
    assert stored["spec"]["replicaSpecs"]["worker"]["replicas"] == 9
    assert read_elastic_job(stored).metadata.generation == 2


def test_a_job_with_parameter_servers_applies_as_dlrovers_examples_have_it(
    cluster: Cluster,
) -> None:
    container = {"name": "main", "image": "deeprec:11", "command": ["python", "-m", "model"]}
    role = {
        "autoScale": False,
        "restartCount": 3,
        "priority": "high",
        "replicas": 0,
        "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
    }
    master = {"template": {"spec": {"containers": [{"name": "main", "imagePullPolicy": "Always"}]}}}
    obj = job(
        spec={
            "distributionStrategy": "ParameterServerStrategy",
            "resourceLimits": {"cpu": "15", "memory": "10000Mi"},
            "envs": {"A": {"name": "A", "value": "1"}},
            "brainService": "dlrover-brain.dlrover.svc:50001",
            "enableDynamicSharding": True,
            "replicaSpecs": {"ps": role, "worker": role, "dlrover-master": master},
        }
    )
    stored = cluster.create(JOBS, obj, dry_run=True)
    wanted = {**obj["spec"]["replicaSpecs"], "dlrover-master": {**master, "replicas": 1}}
    assert stored["spec"]["replicaSpecs"] == wanted
    assert read_elastic_job(stored).strategy == "ParameterServerStrategy"
