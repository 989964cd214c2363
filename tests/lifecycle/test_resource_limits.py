"""Limits of the amounts that all replicas of a job together may reserve."""

from dataclasses import replace
from typing import Any

import pytest

from brain import lifecycle
from brain.errors import BadInput, ImpossibleBounds
from brain.optimizer import recommend
from brain.types.allocation import Bounds
from brain.types.job import ApprovalPolicy, JobDocument, PolicyMode, ResourceLimits
from brain.types.plan import ScalePlan
from brain.types.resources import Resources
from brain.types.roles import RoleSize
from tests.optimizer.test_policies import situation
from tests.virtual import Laptop, scaling_by

ONE = Resources(cpu_millis=1000)
LARGE = RoleSize(replicas=1, processes_per_replica=2, resources=Resources(cpu_millis=2000))


def training(cpus: float, **document: Any) -> Laptop:
    """Two replicas of a CPU and a large one of two, on a machine for sixteen."""
    given: dict[str, Any] = {
        "policy": ApprovalPolicy(mode=PolicyMode.AUTO),
        "replicas": Bounds(min=2, max=9, start=3),
        "resources": ONE,
        "groups": {"large": LARGE},
        "resource_limits": ResourceLimits(cpu_millis=round(1000 * cpus)),
    }
    return Laptop(scaling_by(0.99), cpus=16, **(given | document)).start().train(70)


def edit(here: Laptop, **wanted: Any) -> ScalePlan:
    nothing = {"cpu_millis": None, "memory_bytes": None, "replicas": None, "why": ""}
    given = {"by": "ada", "settings": here.settings, "now": here.now}
    with here.transaction() as (tx, job):
        return lifecycle.edit(tx, job, **(nothing | given | wanted))


def request(here: Laptop, replicas: int) -> ScalePlan:
    with here.transaction() as (tx, job):
        given = {"by": "ada", "why": "", "settings": here.settings, "now": here.now}
        return lifecycle.request(tx, job, replicas, **given)


def test_another_replica_of_a_group_counts_with_its_own_amounts():
    here = training(5)
    with pytest.raises(BadInput, match="job digits: 4 replicas reserve 6 CPUs, but resourceLimits"):
        edit(here, role="large", replicas=2)
    assert edit(here, role="worker", replicas=3).target.total.cpu_millis == 5000


@pytest.mark.parametrize("role", ["large", "worker"])
def test_amounts_beyond_the_limits_are_refused_with_field_and_remedy(role: str):
    with pytest.raises(BadInput, match=r"or raise resourceLimits\.cpuMillis") as refused:
        edit(training(4.5), role=role, cpu_millis=3000)
    assert refused.value.field == "resourceLimits.cpuMillis"


def test_a_requested_size_is_lowered_to_the_limits():
    plan = request(training(6), 9)
    assert plan.target.replicas == 5
    assert plan.explanation.reason == "ada asked for 9 replicas; its resourceLimits allow 5"


def test_limits_below_the_present_size_still_let_a_job_shrink():
    here = training(6)
    with here.stores.transaction() as tx:
        job = tx.jobs.get(here.id)
        limits = ResourceLimits(cpu_millis=3000)
        document = replace(job.document, resource_limits=limits)
        tx.jobs.put(replace(job, document=document))
    with pytest.raises(BadInput, match="resourceLimits allow 3"):
        edit(here, role="worker", replicas=3)
    assert edit(here, role="worker", replicas=1).target.total.cpu_millis == 3000


def test_brain_chooses_no_size_beyond_the_limits():
    alike = {"groups": {}, "replicas": Bounds(min=1, max=8)}
    free = training(16, **alike)
    limited = training(3.5, **alike)
    for here in (free, limited):
        here.live(600)
    assert free.job.sized(1) == limited.job.sized(1)
    assert max(plan.target.replicas for plan in free.plans) > 3
    assert max(plan.target.replicas for plan in limited.plans) == 3


def test_a_choice_beyond_the_limits_gives_way_to_the_best_one_within_them():
    here = training(2, groups={}, replicas=Bounds(min=1, max=4))
    with here.transaction() as (tx, job):
        given = situation({1: 100.0, 2: 199.0, 4: 390.0}, job=job, current=job.sized(1))
        _, choice = lifecycle.choose(tx, given, here.now, lambda *_: 16)
        alone = given.without_target(1, "no other division")
    assert recommend(given).target.replicas == 4
    assert choice.target.replicas == 2
    assert (alone.sizes, alone.served) == ((1,), None)


def test_a_job_that_could_not_begin_within_its_limits_is_refused():
    limits = ResourceLimits(memory_bytes=2**30)
    large = Resources(cpu_millis=1000, memory_bytes=2**30)
    document = JobDocument(
        name="large",
        command=("python", "t.py"),
        replicas=Bounds(min=1, max=4, start=2),
        resources=large,
        resource_limits=limits,
    )
    with pytest.raises(ImpossibleBounds, match="2 replicas reserve 2 GiB, but") as refused:
        document.check()
    assert refused.value.field == "resourceLimits.memoryBytes"
