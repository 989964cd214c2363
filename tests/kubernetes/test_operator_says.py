"""What the operator says where something is refused to it, and what it gives pods."""

from datetime import UTC, datetime
from typing import Any, cast

import pytest

from brain.errors import BadInput, BrainError, Conflict, KeyReused, NotAllowed, UnknownJob
from scaler.kubernetes.dependents.upkeep import Upkeep
from scaler.kubernetes.kinds import JobCondition, Reason
from scaler.kubernetes.kinds.documents import job_document
from scaler.kubernetes.kinds.reading import read_elastic_job
from scaler.kubernetes.pods import identity
from scaler.kubernetes.pods.failures import over_quota
from scaler.kubernetes.runtime.cluster import Kind, Object
from scaler.kubernetes.runtime.store import Store
from scaler.kubernetes.status.conditions import held_up
from scaler.kubernetes.status.job_status import beside_state
from scaler.kubernetes.status.progress import why_refused
from tests.kubernetes import jobs
from tests.kubernetes.test_pods_manifest import pod

NOW = datetime(2026, 1, 1, tzinfo=UTC)
USED_UP = (
    'pods "a" is forbidden: exceeded quota: team, requested: cpu=2,pods=1, used: cpu=7,pods=3, '
    "limited: cpu=8,pods=3 (403)"
)


@pytest.mark.parametrize(
    ("refusal", "reason"),
    [
        (BadInput("max is 4"), Reason.OUT_OF_BOUNDS),
        (UnknownJob("no such job"), Reason.NO_JOB),
        (NotAllowed("role viewer"), Reason.NOT_ALLOWED),
        (KeyReused("another body"), Reason.REFUSED),
        (Conflict("plan 3 is being applied, and n0 is away"), Reason.ANOTHER_ACTIVE),
    ],
)
def test_every_refusal_of_a_plan_has_its_word(refusal: BrainError, reason: Reason):
    assert why_refused(refusal) is reason


def test_a_quota_that_is_used_up_is_named_with_what_it_lacks():
    said = held_up(USED_UP)

    assert (said.type, said.status, said.reason) == (
        JobCondition.SCHEDULED,
        False,
        Reason.NO_QUOTA,
    )
    assert said.message.startswith("quota team is used up: a pod needs cpu=2,pods=1")


def test_a_quota_that_is_too_small_for_one_pod_makes_the_job_infeasible():
    said = held_up(
        "exceeded quota: team, requested: memory=8Gi, used: memory=0, limited: memory=4Gi"
    )

    assert (said.type, said.reason) == (JobCondition.FEASIBLE, Reason.NO_QUOTA)
    assert "allows memory=4Gi, but one pod needs memory=8Gi" in said.message


def test_a_quota_on_what_the_template_does_not_say_asks_for_it():
    said = over_quota('pods "a" is forbidden: failed quota: team: must specify limits.cpu (403)')

    assert said is not None
    assert said.message == "quota team requires limits.cpu of every container; add them"


def test_brain_is_told_what_it_does_not_know_itself():
    since = "2026-01-01T00:00:00Z"
    listed = [
        {"type": "Running", "status": "True", "reason": "WorldFormed", "lastTransitionTime": since},
        {"type": "Feasible", "status": "False", "reason": "NeverFits", "lastTransitionTime": since},
        {"type": "Probed", "status": "Unknown", "reason": "ByOthers", "lastTransitionTime": since},
        {"type": "Undated", "status": "True", "reason": "ByOthers"},
    ]

    told = beside_state(listed)

    assert [(one.type, one.status, one.since) for one in told] == [
        ("Feasible", False, NOW),
        ("Probed", None, NOW),
    ]


def test_other_refusals_are_said_as_they_are():
    said = held_up("create pods: admission webhook says no (403)")

    assert (said.type, said.reason) == (JobCondition.SCHEDULED, Reason.FORBIDDEN)
    assert over_quota("create pods: admission webhook says no (403)") is None


def test_services_of_the_namespace_put_no_names_before_the_script():
    assert pod(jobs.seed())["spec"]["enableServiceLinks"] is False


def test_a_template_that_asks_for_them_gets_them():
    seed = jobs.seed()
    seed["spec"]["replicaSpecs"]["worker"]["template"]["spec"]["enableServiceLinks"] = True

    assert pod(seed)["spec"]["enableServiceLinks"] is True


class Applied:
    """A cluster that only remembers what was applied."""

    def __init__(self) -> None:
        self.objects: list[Object] = []

    def apply(self, kind: Kind, obj: Object) -> None:
        self.objects.append(obj)


@pytest.mark.parametrize(("said", "named"), [("0.5", "high"), ("0", "low"), ("night", "night")])
def test_a_pod_group_has_the_class_with_which_its_gang_begins(said: str, named: str):
    cluster, made = Applied(), jobs.seed()
    made["metadata"]["uid"] = "u"
    made["spec"]["replicaSpecs"]["worker"]["priority"] = said
    job = read_elastic_job(made)

    Upkeep(cast(Any, cluster), Store(), Store()).pod_group(job, job_document(job))

    assert cluster.objects[0]["spec"]["priorityClassName"] == named


def test_a_relaunched_pod_that_is_not_ready_has_the_job_looked_at_in_time():
    made = jobs.seed()
    made["spec"]["replicaSpecs"]["worker"]["restartTimeout"] = 300
    job = read_elastic_job(made)
    labels = identity.labels("digits", "u", "worker", 1, rank=0, relaunches=1)
    pending = {
        "metadata": {"name": "p", "labels": labels, "creationTimestamp": "2026-01-01T00:00:00Z"},
        "status": {"phase": "Pending"},
    }
    upkeep = Upkeep(cast(Any, None), Store(), Store())

    assert upkeep.patience(job, [pending], NOW.timestamp() + 100) == 200
    assert upkeep.patience(job, [], NOW.timestamp()) is None
    assert list(upkeep.late(job, [pending], NOW.timestamp() + 301)) == [pending]


def copying(**container: Any) -> dict[str, Any]:
    seed = jobs.seed()
    jobs.main_of(seed).update(container)
    made: dict[str, Any] = pod(seed)["spec"]["initContainers"][0]
    return made


def test_the_container_that_brings_our_agent_has_the_rights_and_amounts_of_the_one_it_serves():
    rights = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    made = copying(securityContext=rights)

    assert made["securityContext"] == rights
    assert made["resources"]["limits"] == {"cpu": 2, "memory": "3Gi"}
    assert made["resources"]["requests"] == {"cpu": 2, "memory": "3Gi"}


def test_where_the_job_says_nothing_it_says_nothing_either():
    made = copying(resources={})

    assert made["resources"] == {}
    assert "securityContext" not in made
