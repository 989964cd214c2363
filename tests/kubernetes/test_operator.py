"""ElasticJobs and ScalePlans as the operator keeps them: a cluster, and a Brain in process."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from brain import calls
from brain.api.pages import LARGEST
from brain.errors import BadInput, Conflict
from brain.types.job import Intent
from brain.types.plan import PlanState
from brain.types.record import Role
from brain.types.world import ReplicaExit
from brain.views import ResizeRequest
from scaler.kubernetes.operator.dlrover import DLROVER_LEASE, dlrover_leads
from scaler.kubernetes.operator.jobs import JOB
from scaler.kubernetes.operator.operator import Operator
from scaler.kubernetes.operator.options import OperatorOptions
from scaler.kubernetes.plans.plans import PLAN
from scaler.kubernetes.pods.identity import secret_name
from scaler.kubernetes.replicas.secrets import JobSecrets
from scaler.kubernetes.runtime import Key
from scaler.kubernetes.runtime.cluster import LEASE, POD, SECRET
from tests.kubernetes import jobs
from tests.kubernetes.operating import Place, accepted, job, looping, operating, plan, staged, until
from tests.kubernetes.real import Ground


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    with staged(tmp_path_factory.mktemp("apiserver")) as stage:
        yield stage.ground


@pytest.fixture
def place(server: Ground, tmp_path: Path) -> Iterator[Place]:
    with operating(server, tmp_path) as made:
        yield made


def test_an_object_becomes_a_job_of_brains_under_its_uid(place: Place):
    made = place.apply(jobs.seed())
    place.says(made, "Accepted", "True", "Valid")

    found = place.job(made)
    assert (found.job.id, found.job.project) == (made["metadata"]["uid"], place.namespace)
    assert (found.job.replicas_min, found.job.replicas_max) == (1, 10)
    assert found.job.mode == "shadow"


def test_brain_hears_what_the_object_says(place: Place):
    made = place.apply(jobs.seed())

    def heard() -> bool:
        return "Accepted" in [each.type for each in place.job(made).object_conditions]

    place.says(made, "Accepted", "True", "Valid")
    until("Brain hears of it", heard)


def test_a_unit_that_never_fits_is_named(place: Place):
    made = job(maxReplicas=3)
    made["spec"]["parallelism"] = {"tensor": 4}
    made = place.apply(made)

    place.says(made, "Accepted", "False", "Invalid", "no multiple")
    place.told("Invalid", "no multiple")


def test_what_fits_no_nodes_says_so_at_once_and_after_a_while_for_good(place: Place):
    made = job(replicas=99)
    made["spec"]["gangPatience"] = 3
    made = place.apply(made)

    place.says(made, "Feasible", "Unknown", "WaitingForNodes", "fit on the 2 nodes")
    place.says(made, "Feasible", "False", "NeverFits", "fit on the 2 nodes")
    place.told("NeverFits", "lower minReplicas")
    assert place.status(made)["phase"] == "Queued"


def test_a_missing_image_is_named(place: Place):
    made = job()
    del jobs.main_of(made)["image"]
    made = place.apply(made)

    place.says(made, "Accepted", "False", "Invalid", "image")
    place.told("Invalid", "name the image")


def test_a_malformed_quantity_is_named(place: Place):
    made = job()
    jobs.main_of(made)["resources"] = {"requests": {"memory": "3 gigs"}}
    made = place.apply(made)

    place.says(made, "Accepted", "False", "Invalid", "3 gigs")
    place.told("Invalid", "3 gigs")


def test_a_limit_below_its_request_is_named_before_a_pod_is_made(place: Place):
    made = job()
    amounts = {"requests": {"memory": "3Gi"}, "limits": {"memory": "2Gi"}}
    jobs.main_of(made)["resources"] = amounts
    made = place.apply(made)

    place.says(made, "Accepted", "False", "Invalid", "limits.memory '2Gi' is below the request")
    assert place.pods() == {}


def test_another_controllers_job_is_left_alone(place: Place):
    made = job()
    made["spec"]["managedBy"] = "kueue.x-k8s.io/multikueue"
    made = place.apply(made)

    place.says(made, "Accepted", "False", "ManagedElsewhere")
    assert place.operator.brain.view(made["metadata"]["uid"]) is None


def test_a_job_may_name_this_operator_with_its_domain(place: Place):
    made = job()
    made["spec"]["managedBy"] = "elastic.iml.github.io/brain"

    place.says(place.apply(made), "Accepted", "True", "Valid")


def test_an_edit_of_replicas_is_a_request_that_is_answered(place: Place):
    made = accepted(place, replicas=1, minReplicas=1, maxReplicas=4)
    place.cluster.scale(JOB, place.namespace, "digits", 9)

    def answered() -> bool:
        request = place.status(made).get("request") or {}
        return request.get("outcome") == "clamped" and request["generation"] == 1

    until("the request is answered", answered, lambda: place.status(made))
    assert place.job(made).job.plan.target.replicas == 4


def test_suspending_the_object_suspends_the_job_and_back(place: Place):
    made = accepted(place)
    place.cluster.merge(JOB, place.namespace, "digits", {"spec": {"suspend": True}})
    until("it is suspended", lambda: place.job(made).job.intent is Intent.SUSPEND)
    place.look()
    place.says(made, "Suspended", "False", "Suspended")
    place.cluster.merge(JOB, place.namespace, "digits", {"spec": {"suspend": False}})
    until("it goes on", lambda: place.job(made).job.intent is Intent.RUN)


def test_a_deleted_object_is_a_cancelled_job(place: Place):
    made = accepted(place)
    place.cluster.delete(JOB, place.namespace, "digits")

    until("it is cancelled", lambda: place.job(made).job.intent is Intent.CANCEL)


def test_a_job_that_is_deleted_before_it_has_finished_is_forgotten(place: Place):
    uid = accepted(place)["metadata"]["uid"]
    named = place.operator.jobs._roles._named
    until("its services are known", lambda: uid in named)
    place.cluster.delete(JOB, place.namespace, "digits")

    until("it is forgotten", lambda: uid not in named)


def test_a_plan_is_taken_and_followed(place: Place):
    made = accepted(place, replicas=1, minReplicas=1, maxReplicas=4)
    asked = place.apply(plan(3))

    place.says(asked, "Accepted", "True", "Valid")
    status = place.status(asked)
    assert (status["generation"], status["target"]["roles"]["worker"]) == (1, {"replicas": 3})
    assert place.condition(asked, "Clamped") == ("False", "Valid", "")
    assert place.job(made).job.plan.target.replicas == 3


def test_a_plan_beyond_the_bounds_is_clamped_with_the_reason(place: Place):
    accepted(place, replicas=1, minReplicas=1, maxReplicas=4)
    asked = place.apply(plan(9))

    place.says(asked, "Clamped", "True", "OutOfBounds", "1 to 4")
    place.told("OutOfBounds", "1 to 4")
    assert place.status(asked)["target"]["roles"]["worker"] == {"replicas": 4}


def test_a_plan_beyond_the_jobs_quota_is_clamped_with_the_reason(place: Place):
    made = job(replicas=1, minReplicas=1, maxReplicas=4)
    made["spec"]["resourceLimits"] = {"cpu": "2"}
    made = place.apply(made)
    place.says(made, "Accepted", "True", "Valid")
    until("Brain knows the job", lambda: place.operator.brain.view(made["metadata"]["uid"]))
    place.running(made)
    asked = place.apply(plan(4))

    place.says(asked, "Clamped", "True", "QuotaExceeded", "resourceLimits.cpu")
    place.told("QuotaExceeded", "resourceLimits.cpu")


def test_what_a_plan_cannot_change_is_said(place: Place):
    accepted(place, replicas=1, minReplicas=1, maxReplicas=4)
    made = plan(3)
    made["spec"]["migratePods"] = [{"name": "digits-edljob-worker-0", "resource": {"cpu": "2"}}]
    asked = place.apply(made)

    field = "spec.migratePods.0.resource"
    place.says(
        asked, "Accepted", "False", "OutOfBounds", f"{field}: all replicas of a role reserve"
    )


def test_a_plan_for_no_job_waits_for_one(place: Place):
    asked = place.apply(plan(3))
    place.says(asked, "Accepted", "False", "JobNotFound", "ElasticJob digits")
    place.told("JobNotFound", "name another in spec.ownerJob")

    accepted(place, replicas=1, minReplicas=1, maxReplicas=4)
    place.says(asked, "Accepted", "True", "Valid")


def test_a_plan_of_a_passed_generation_is_refused(place: Place):
    accepted(place, replicas=1, minReplicas=1, maxReplicas=4)
    stale = place.apply(plan(3, annotations={"elastic.iml.github.io/generation": "0"}))

    place.says(stale, "Accepted", "False", "StaleGeneration")
    place.told("StaleGeneration", "create a plan without the generation annotation")


def test_of_two_plans_the_newer_supersedes_the_other(place: Place):
    accepted(place, replicas=1, minReplicas=1, maxReplicas=4)
    first = place.apply(plan(2, name="first"))
    place.says(first, "Accepted", "True", "Valid")
    second = place.apply(plan(3, name="second"))
    place.says(second, "Accepted", "True", "Valid")
    place.look()

    until("the first is over", lambda: place.status(first).get("phase") == "Superseded")


def test_a_plan_is_followed_below_a_page_of_newer_plans(place: Place):
    made = accepted(place, replicas=1, minReplicas=1, maxReplicas=4)
    asked = place.apply(plan(2))
    place.says(asked, "Accepted", "True", "Valid")
    with place.api.stores.transaction() as tx:
        (taken,) = tx.plans.of(made["metadata"]["uid"])
        tx.plans.put(replace(taken, state=PlanState.SUPERSEDED))
        for generation in range(2, 3 + LARGEST):
            tx.plans.add(replace(taken, generation=generation, state=PlanState.EXPIRED))
    place.look()

    until("it is over", lambda: place.status(asked).get("phase") == "Superseded")


def test_an_expired_plan_is_refused(place: Place):
    accepted(place, replicas=1, minReplicas=1, maxReplicas=4)
    made = plan(3)
    made["spec"]["expiresAt"] = "2020-01-01T00:00:00Z"

    place.says(place.apply(made), "Accepted", "False", "Expired")


def test_what_brain_plans_appears_as_an_object(place: Place):
    made = accepted(place, replicas=1, minReplicas=1, maxReplicas=4)
    with place.api.client(name="ada") as client:
        client.send(calls.resize(made["metadata"]["uid"], ResizeRequest(replicas=2)))
    place.look()

    def shown() -> bool:
        found = place.cluster.list(PLAN, place.namespace).items
        return [
            (p["metadata"]["name"], (p.get("status") or {}).get("generation")) for p in found
        ] == [("digits-plan-1", 1)]

    until("the plan has an object", shown)


def test_a_job_without_our_agent_trains_once_all_its_pods_run(place: Place):
    made = place.apply(jobs.job("torchrun", "t.py", resources={"cpu": "1"}, replicas=2))
    place.says(made, "Honoured", "False", "FieldsNotServed", "the job's size is fixed")
    until("Brain knows the job", lambda: place.operator.brain.view(made["metadata"]["uid"]))
    place.running(made)
    with looping(place):
        until("a world of two is told of", lambda: place.job(made).job.replicas == 2)
        place.look()
        until("it says so", lambda: place.status(made).get("readyReplicas") == 2)

    assert place.condition(made, "Telemetry") == (
        "False",
        "NodeOnly",
        "Brain's agent does not run the job's command, so Brain measures only the job's nodes",
    )


def test_thirty_lost_pods_come_back_together(place: Place):
    made = accepted(place, replicas=30, minReplicas=30, maxReplicas=30)

    def ends() -> list[ReplicaExit | None]:
        return [each.exit for each in sorted(place.job(made).replicas, key=lambda each: each.id)]

    with looping(place):
        until("thirty pods run", lambda: len(place.run()) == 30, place.run)
        for index in place.run():
            name = f"digits-edljob-worker-{index}"
            place.cluster.delete(POD, place.namespace, name, grace_seconds=0)
        # One after the other, each waiting for the one before, they would take minutes.
        until("thirty others run", lambda: place.run() == set(map(str, range(30, 60))), place.run)
        lost = [ReplicaExit.LOST] * 30
        until("Brain is told", lambda: ends()[:30] == lost, lambda: ends())


def test_ids_that_an_operator_before_may_have_used_are_not_used_again(place: Place):
    made = accepted(place, replicas=2)
    job = made["metadata"]["uid"]
    with looping(place):
        until("two pods are made", lambda: len(place.pods()) == 2, place.pods)

    jobs_of = place.operator.manager.store(JOB)
    found = jobs_of.get(Key(place.namespace, "digits"))
    assert JobSecrets(place.cluster, lambda _: found).used(job) > 2


def test_a_secret_of_the_job_before_is_not_taken(place: Place):
    made = accepted(place)
    name = secret_name("digits")
    body = {"metadata": {"name": name, "namespace": place.namespace}, "data": {"token": "eA=="}}
    place.cluster.create(SECRET, body)
    secrets = JobSecrets(place.cluster, lambda _: made)

    assert not secrets.has_token(made["metadata"]["uid"])
    with pytest.raises(Conflict, match="does not belong to this job"):
        secrets.put_token(made["metadata"]["uid"], "brn_x")


def test_what_makes_no_whole_unit_stays_warm(place: Place):
    made = accepted(place, replicas=5, unit=2)
    with looping(place):
        until("five pods run", lambda: place.status(made).get("replicas") == 5)

    assert place.job(made).job.replicas_wished == 4


def test_a_gang_begins_together(place: Place):
    made = accepted(place, replicas=3, minReplicas=3, maxReplicas=3)
    with looping(place):
        until("all have nodes", lambda: place.condition(made, "Scheduled"))
        place.says(made, "Scheduled", "True", "GangAdmitted", "3 pods")

    pods = place.cluster.list(POD, place.namespace).items
    assert not any(pod["spec"].get("schedulingGates") for pod in pods)


def test_the_operator_refuses_to_start_beside_dlrovers(place: Place, tmp_path: Path):
    renewed = datetime.now(UTC).isoformat().replace("+00:00", "Z")
    held = {"holderIdentity": "controller-0", "leaseDurationSeconds": 60, "renewTime": renewed}
    lease = {"metadata": {"name": DLROVER_LEASE, "namespace": place.namespace}, "spec": held}
    place.cluster.create(LEASE, lease)
    options = OperatorOptions(url="http://brain", token="", home=tmp_path)
    beside = Operator(options, place.cluster, place.api.client(Role.SCALER))

    with pytest.raises(BadInput, match="give Brain other namespaces"):
        beside.run()
    place.cluster.delete(LEASE, place.namespace, DLROVER_LEASE)


def test_dlrovers_lease_is_respected_while_it_is_renewed():
    now = datetime(2026, 11, 21, 12, tzinfo=UTC)
    lease = {
        "metadata": {"name": DLROVER_LEASE, "namespace": "dlrover"},
        "spec": {
            "holderIdentity": "controller-0",
            "leaseDurationSeconds": 15,
            "renewTime": "2026-11-21T11:59:50.000000Z",
        },
    }

    assert dlrover_leads([lease], now) == "controller-0 in namespace dlrover"
    assert dlrover_leads([lease], now + timedelta(minutes=5)) is None


def test_dlrovers_lease_is_respected_though_the_clock_of_its_holder_is_behind():
    now = datetime(2026, 11, 21, 12, tzinfo=UTC)
    written = [{"manager": "manager", "time": "2026-11-21T11:59:50Z"}, {"manager": "kubectl"}]
    renewed = {"holderIdentity": "controller-0", "renewTime": "2026-11-21T11:49:50.000000Z"}
    metadata = {"name": DLROVER_LEASE, "namespace": "dlrover", "managedFields": written}

    found = dlrover_leads([{"metadata": metadata, "spec": renewed}], now)

    assert found == "controller-0 in namespace dlrover"
