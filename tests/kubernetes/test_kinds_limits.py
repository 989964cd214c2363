"""``resourceLimits`` of objects whose replicas differ, and those of documents."""

from typing import Any

import pytest

from brain.errors import ImpossibleBounds
from brain.types.allocation import Bounds
from brain.types.job import JobDocument, ResourceLimits
from scaler.kubernetes.kinds import ElasticJob
from scaler.kubernetes.kinds.documents import elastic_job, job_document
from scaler.kubernetes.kinds.reading import read_elastic_job
from scaler.kubernetes.status.roles import roles
from tests.kubernetes.jobs import Object, job
from tests.kubernetes.test_kinds_documents import RUN, document


def _limited(limits: Object, **fields: Any) -> Object:
    """A job of replicas of 1 CPU, of which those of the group ``large`` have 2 CPUs."""
    own = job(*RUN, resources={"cpu": 2})["spec"]["replicaSpecs"]["worker"]["template"]
    worker = {"replicas": 4, "minReplicas": 2, "maxReplicas": 9, **fields}
    worker["groups"] = {"large": {"replicas": worker.pop("large", 1), "template": own}}
    return job(*RUN, resources={"cpu": 1}, spec={"resourceLimits": limits}, **worker)


def roles_shown(made: ElasticJob) -> list[Object]:
    return roles(made, None, (), {})


def test_limits_count_each_group_with_its_own_amounts() -> None:
    found = document(_limited({"cpu": "4"}))
    assert found.resource_limits == ResourceLimits(cpu_millis=4000)
    # Another group may shrink later, so the largest size stays.
    assert found.replicas == Bounds(min=2, max=9, start=3)
    assert found.allocation.total.cpu_millis == 4000


@pytest.mark.parametrize(("servers", "left"), [(0, 4000), (1, 3000), (2, 2000)])
def test_limits_leave_what_the_replicas_of_other_roles_do_not_reserve(
    servers: int, left: int
) -> None:
    made = job(*RUN, resources={"cpu": 1}, spec={"resourceLimits": {"cpu": "4"}})
    specs = made["spec"]["replicaSpecs"]
    specs["ps"] = {**specs["worker"], "replicas": servers}
    assert document(made).resource_limits == ResourceLimits(cpu_millis=left)
    shown = {each["name"]: each["desired"] for each in roles_shown(read_elastic_job(made))}
    assert shown == {"worker": 1, "ps": servers}


def test_limits_that_hold_no_least_size_of_groups_are_refused() -> None:
    with pytest.raises(ImpossibleBounds, match=r"\(cpu 2\) allow 1 replicas of worker") as refused:
        document(_limited({"cpu": "2"}))
    assert refused.value.field == "spec.resourceLimits"


def test_an_edit_that_the_limits_refuse_leaves_a_job_that_has_begun_valid() -> None:
    groups = [{"name": "worker", "desired": 2}, {"name": "large", "desired": 1}]
    roles = [{"name": "worker", "desired": 3, "groups": groups}]
    request = {"replicas": 3, "groups": {"large": 9}, "outcome": "refused"}
    begun = {"status": {"request": request, "roles": roles}}
    found = document(_limited({"cpu": "4"}, large=9) | begun)
    assert found.groups["large"].replicas == 1
    assert found.replicas.first == 3


def test_limits_of_a_document_become_those_of_its_object_and_back() -> None:
    limits = ResourceLimits(cpu_millis=4500, memory_bytes=2**33, gpus=4)
    original = JobDocument(name="limited", image="digits:1", resource_limits=limits)
    made = elastic_job(original)
    assert made["spec"]["resourceLimits"] == {"cpu": "4500m", "memory": str(2**33), "gpu": "4"}
    assert job_document(read_elastic_job(made)).resource_limits == limits
