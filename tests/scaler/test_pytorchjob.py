"""PyTorchJobs: sizes within bounds, the Master first, hands off where somebody else decides."""

import base64

import pytest

from brain.errors import BadInput
from brain.types.job import JobId, PolicyMode
from brain.types.world import ReplicaExit
from scaler.adapters.foreign import MANAGED_BY, MAX, MIN, UNIT
from scaler.adapters.kubeflow import PyTorchJobs
from scaler.adapters.training import document
from scaler.kubernetes.runtime.cluster import SECRET
from scaler.ports import Observed, ReplicaPhase
from tests.scaler.kubeflow import Kubeflow, elastic
from tests.scaler.wished import JOB, NOW, wish

ALLOWED = {MANAGED_BY: "brain"}
training = PyTorchJobs().training


def observed(kubeflow: Kubeflow) -> Observed:
    return kubeflow.backend().observe(JOB, NOW)


# What is read.


def test_a_document_has_the_jobs_bounds_and_size():
    made = document(training(elastic(workers=2, most=3)))

    assert (made.name, made.project) == ("digits", "team")
    assert (made.replicas.min, made.replicas.max, made.replicas.start) == (1, 3, 2)
    assert (made.resources.cpu_millis, made.restarts.limit) == (1500, 100)


@pytest.mark.parametrize(
    ("annotations", "mode"), [({}, PolicyMode.SHADOW), (ALLOWED, None)], ids=["none", "allowed"]
)
def test_without_its_owners_word_brain_only_advises(
    annotations: dict[str, str], mode: PolicyMode | None
):
    assert document(training(elastic(annotations=annotations))).policy.mode is mode


def test_a_master_counts_as_the_first_replica():
    read = training(elastic(workers=3, master=True))

    assert read.replicas == 4
    assert [read.pod_name(position) for position in (0, 1, 3)] == [
        "digits-master-0",
        "digits-worker-0",
        "digits-worker-2",
    ]


def test_annotations_narrow_what_the_policy_allows():
    read = training(elastic(annotations=ALLOWED | {MIN: "2", MAX: "20", UNIT: "2"}))

    assert list(read.bounds.sizes()) == [2, 4, 6, 8]


@pytest.mark.parametrize(
    ("annotations", "says"),
    [
        ({MAX: "many"}, "max-replicas 'many' is not a whole number"),
        ({MIN: "9"}, "allow no size between 1 and 8"),
    ],
)
def test_annotations_that_cannot_be_are_named(annotations: dict[str, str], says: str):
    with pytest.raises(BadInput, match=says):
        training(elastic(annotations=annotations))


def test_a_policy_that_allows_nothing_is_named():
    with pytest.raises(BadInput, match="minReplicas 4 and maxReplicas 2"):
        training(elastic(least=4, most=2))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"annotations": {}}, "kubectl annotate pytorchjob digits"),
        ({"elasticPolicy": None}, "no elasticPolicy"),
        ({"elasticPolicy": {"rdzvBackend": "c10d"}}, "no elasticPolicy with minReplicas"),
        (
            {"elasticPolicy": {"minReplicas": 1, "maxReplicas": 3, "metrics": [{"type": "x"}]}},
            "remove the metrics to let Brain resize the job",
        ),
        ({"runPolicy": {"managedBy": "kueue.x-k8s.io/multikueue"}}, "managed by kueue"),
    ],
    ids=["advise only", "not elastic", "no bounds", "metrics", "managed elsewhere"],
)
def test_hands_off_and_why(given: dict[str, object], says: str):
    refusal = training(elastic(**given)).refusal  # type: ignore[arg-type]

    assert refusal is not None
    assert says in refusal


def test_a_queue_of_kueue_decides_alone():
    job = elastic()
    job["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "gpu"}

    assert "Kueue admitted" in (training(job).refusal or "")


# What is done.


def test_an_autoscaler_beside_keeps_brain_away():
    kubeflow = Kubeflow(elastic(workers=2))
    kubeflow.autoscaler("by-load")

    kubeflow.backend().start(wish(3), 2, {}, NOW)

    assert "HorizontalPodAutoscaler by-load" in (observed(kubeflow).lacking or "")
    assert kubeflow.workers == 2


def test_advice_changes_nothing():
    kubeflow = Kubeflow(elastic(workers=2, annotations={}))
    backend = kubeflow.backend()

    backend.start(wish(3), 2, {}, NOW)
    backend.stop(JOB, 0, force=True, now=NOW)

    assert (kubeflow.workers, len(kubeflow.pods), kubeflow.written) == (2, 2, [])


def test_pods_that_were_there_before_are_replicas():
    kubeflow = Kubeflow(elastic(workers=2, master=True))

    assert [each.id for each in observed(kubeflow).replicas] == [0, 1, 2]
    assert kubeflow.backend().jobs() == [JOB]


def test_ids_outlive_a_crash_of_the_scaler():
    kubeflow = Kubeflow(elastic(workers=3))
    before = observed(kubeflow).replicas
    kubeflow.lose("digits-worker-0")

    after = {each.id: each.phase for each in observed(kubeflow).replicas}

    assert [each.id for each in before] == [0, 1, 2]
    assert after == {0: ReplicaPhase.GONE, 1: ReplicaPhase.STARTING, 2: ReplicaPhase.STARTING}


def test_a_pod_made_anew_is_a_new_replica():
    kubeflow = Kubeflow(elastic(workers=2))
    observed(kubeflow)
    kubeflow.lose("digits-worker-1")
    kubeflow.reconcile()

    found = observed(kubeflow)

    assert [(each.id, each.phase) for each in found.replicas] == [
        (0, ReplicaPhase.STARTING),
        (1, ReplicaPhase.GONE),
        (2, ReplicaPhase.STARTING),
    ]


def test_growing_is_scaling_by_workers():
    kubeflow = Kubeflow(elastic(workers=1, master=True))
    backend = kubeflow.backend()
    first = backend.observe(JOB, NOW).next_id

    for replica in (first, first + 1):
        backend.start(wish(4), replica, {}, NOW)

    assert (kubeflow.workers, observed(kubeflow).next_id) == (3, 4)


def test_growth_beyond_the_bounds_fails_with_the_reason():
    kubeflow = Kubeflow(elastic(workers=2, most=2))
    backend = kubeflow.backend()
    backend.start(wish(3), backend.observe(JOB, NOW).next_id, {}, NOW)

    last = observed(kubeflow).replicas[-1]

    assert (kubeflow.workers, last.exit) == (2, ReplicaExit.FAILED)
    assert last.detail == "PyTorchJob digits allows at most 2 replicas"


def test_one_below_goes_once_those_above_it_may():
    kubeflow = Kubeflow(elastic(workers=3))
    backend = kubeflow.backend()
    backend.observe(JOB, NOW)

    backend.stop(JOB, 1, force=False, now=NOW)
    first = kubeflow.workers
    backend.stop(JOB, 2, force=False, now=NOW)

    assert (first, kubeflow.workers) == (3, 1)


def test_never_below_what_the_policy_allows():
    kubeflow = Kubeflow(elastic(workers=3, least=2))
    backend = kubeflow.backend()
    backend.observe(JOB, NOW)

    for replica in (2, 1):
        backend.stop(JOB, replica, force=False, now=NOW)

    assert kubeflow.workers == 2


def test_nothing_at_all_is_suspension_and_comes_back_small():
    kubeflow = Kubeflow(elastic(workers=2))
    backend = kubeflow.backend()
    for replica in (1, 0):
        backend.observe(JOB, NOW)
        backend.stop(JOB, replica, force=False, now=NOW)
    suspended = kubeflow.job["spec"]["runPolicy"]["suspend"], kubeflow.pods
    backend.start(wish(1), backend.observe(JOB, NOW).next_id, {}, NOW)

    assert suspended == (True, [])
    assert (kubeflow.pods, observed(kubeflow).replicas[-1].id) == (["digits-worker-0"], 2)


def test_how_pods_end_is_told():
    kubeflow = Kubeflow(elastic(workers=3))
    observed(kubeflow)
    fatal = {"name": "pytorch", "state": {"terminated": {"exitCode": 1}}}
    kubeflow.phase("digits-worker-0", "Succeeded")
    kubeflow.phase("digits-worker-1", "Failed", containerStatuses=[fatal])
    kubeflow.phase("digits-worker-2", "Failed", reason="Evicted")

    found = observed(kubeflow).replicas

    assert [(each.phase, each.exit, each.exit_code) for each in found] == [
        (ReplicaPhase.ENDED, ReplicaExit.SUCCEEDED, 0),
        (ReplicaPhase.ENDED, ReplicaExit.FAILED, 1),
        (ReplicaPhase.GONE, None, None),
    ]


def test_a_job_that_is_gone_has_nothing():
    assert Kubeflow(elastic()).backend().observe(JobId("other"), NOW).replicas == ()


def test_a_secret_of_an_earlier_job_of_the_name_is_not_ours():
    kubeflow = Kubeflow(elastic(workers=1))
    kubeflow.backend().put_token(JOB, "brn_old")
    kubeflow.job["metadata"]["uid"] = "successor"

    assert not kubeflow.backend().has_token(JobId("successor"))


@pytest.mark.parametrize("record", [b"none", b"\xff"])
def test_a_record_that_somebody_edited_keeps_only_its_own_job_from_going_on(record: bytes):
    kubeflow = Kubeflow(elastic(suspended=True))
    path = SECRET.path("team", "digits-brain")
    kubeflow.backend().put_token(JOB, "brn_x")
    kubeflow.objects[path]["data"]["record"] = base64.b64encode(record).decode()
    backend = kubeflow.backend()

    assert backend.jobs() == [JOB]
    assert backend.has_token(JOB)
    with pytest.raises(BadInput, match="somebody edited the Secret digits-brain"):
        backend.observe(JOB, NOW)
