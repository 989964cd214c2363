"""Copies of a cluster's jobs: their truth is an object there, its scaler keeps them."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from brain import calls
from brain.errors import BadInput, ImpossibleBounds, NotAllowed
from brain.types.job import Intent, JobCopy, JobId, JobState, ObjectCondition
from brain.types.plan import Outcome, PlanState
from brain.types.record import Role
from brain.types.resources import PoolName
from brain.views import JobView, PlanDecision
from tests.api.app import Api, digits
from tests.builders import NOW, plan

UID = "5f0c8f6e-6f4b-4a53-9a53-1d8f3e9a0c11"


def copy(**document: Any) -> JobCopy:
    return JobCopy(document=digits(**document), pool=PoolName("kubernetes"), owner="ada")


def mirrored(api: Api, **document: Any) -> JobView:
    with api.client(Role.SCALER) as scaler:
        return scaler.send(calls.mirror(UID, copy(**document)))


def test_a_new_object_is_a_job_under_its_uid(api: Api) -> None:
    view = mirrored(api)

    assert (view.id, view.pool, view.owner) == (UID, "kubernetes", "ada")


def test_the_same_object_again_changes_nothing(api: Api) -> None:
    assert mirrored(api).version == mirrored(api).version


def test_bounds_follow_the_object_and_the_first_size_stays(api: Api) -> None:
    mirrored(api, replicas={"min": 1, "max": 4, "start": 2})
    view = mirrored(api, replicas={"min": 1, "max": 8, "start": 3})

    assert (view.replicas_max, view.replicas_wished) == (8, 0)
    with api.client() as client:
        assert client.send(calls.job(UID)).document["replicas"]["start"] == 2


def test_a_plan_beyond_bounds_that_the_object_lowered_is_neither_approved_nor_rolled_back_to(
    api: Api,
) -> None:
    mirrored(api, replicas={"min": 1, "max": 4})
    with api.stores.transaction() as tx:
        tx.plans.add(plan(1, job=UID, replicas=4, state=PlanState.VERIFIED))
        met = Outcome(epoch=2)
        smaller = plan(2, job=UID, replicas=2, state=PlanState.VERIFIED, outcome=met)
        tx.plans.add(replace(smaller, current=plan(1, replicas=4).target))
        tx.plans.add(replace(plan(3, job=UID, replicas=4), current=smaller.target))
    mirrored(api, replicas={"min": 1, "max": 2})

    with api.client() as admin:
        for call in (calls.approve(UID, 3, PlanDecision()), calls.rollback(UID, 2, PlanDecision())):
            with pytest.raises(BadInput, match="4 is not within the bounds 1:2"):
                admin.send(call)


ROLES = {
    "roles": {"ps": {"replicas": 1}},
    "replicas": {"min": 2, "max": 6},
    "processesPerReplica": 1,
}


def resumed(api: Api, sizes: dict[str, int], **document: Any) -> tuple[JobState, int, int]:
    """State, replicas and servers of a job that Brain gets with these ``sizes``."""
    with api.client(Role.SCALER) as scaler:
        scaler.send(calls.mirror(UID, replace(copy(**(ROLES | document)), sizes=sizes)))
    with api.stores.transaction() as tx:
        job = tx.jobs.get(JobId(UID))
    found = job.document.allocation
    return job.state, found.replicas, dict(found.roles)["ps"].replicas


def test_a_job_that_has_begun_goes_on_with_the_sizes_of_its_roles(api: Api) -> None:
    # Its scaler would stop the replicas of a queued job.
    assert resumed(api, {"worker": 2, "ps": 3}) == (JobState.STARTING, 5, 3)
    # From then on Brain's own sizes hold, whatever the object says.
    assert resumed(api, {"worker": 1, "ps": 1}, priority=1) == (JobState.STARTING, 5, 3)


@pytest.mark.parametrize(
    ("sizes", "document"),
    [
        ({}, {}),
        ({"worker": 4, "ps": 3}, {}),
        ({"worker": 2}, {}),
        ({"worker": 0, "ps": 2}, {}),
        ({"worker": 3, "ps": 1}, {"resourceLimits": {"cpuMillis": 3000}}),
    ],
)
def test_sizes_that_a_job_may_not_have_now_are_left_aside(
    api: Api, sizes: dict[str, int], document: Any
) -> None:
    assert resumed(api, sizes, **document) == (JobState.QUEUED, 2, 1)


def test_bounds_that_cannot_be_are_refused_and_the_copy_stays(api: Api) -> None:
    mirrored(api)
    with pytest.raises(ImpossibleBounds):
        mirrored(api, replicas={"min": 3, "max": 2})


def test_an_object_whose_deadline_has_passed_may_still_be_edited(api: Api) -> None:
    until = {"deadline": (NOW + timedelta(hours=1)).isoformat(), "steps": 100}
    mirrored(api, **until)
    api.pass_time(hours=2)

    view = mirrored(api, replicas={"min": 1, "max": 8}, **until)

    assert view.replicas_max == 8


def test_the_scaler_suspends_what_its_object_suspends(api: Api) -> None:
    mirrored(api)
    with api.client(Role.SCALER) as scaler:
        assert scaler.send(calls.suspend(UID)).intent is Intent.SUSPEND


def said(type: str, status: bool, reason: str, message: str = "") -> ObjectCondition:
    return ObjectCondition(type=type, status=status, reason=reason, message=message, since=NOW)


def test_what_a_cluster_says_of_an_object_is_kept_and_what_is_wrong_stands_beside_the_state(
    api: Api,
) -> None:
    mirrored(api)
    every = (
        said("Accepted", True, "Valid"),
        said("Feasible", False, "NeverFits", "no node has 9 GPUs"),
    )
    with api.client(Role.SCALER) as scaler:
        scaler.send(calls.conditions(UID, every))
    with api.client() as client:
        detail = client.send(calls.job(UID))
    assert detail.object_conditions == every
    shown = [(one.kind, one.reason) for one in detail.job.conditions]
    assert shown == [("NeverFits", "no node has 9 GPUs")]


def test_what_a_cluster_says_of_an_object_hurries_nobody(api: Api) -> None:
    mirrored(api)
    woken, rings = api.woken, api.context.bell.rings
    with api.client(Role.SCALER) as scaler:
        scaler.send(calls.conditions(UID, [said("Accepted", True, "Valid")]))
    assert (api.woken, api.context.bell.rings) == (woken, rings)


def test_the_same_conditions_again_change_nothing(api: Api) -> None:
    mirrored(api)
    with api.client(Role.SCALER) as scaler:
        for _ in range(2):
            scaler.send(calls.conditions(UID, [said("Accepted", True, "Valid")]))
    assert mirrored(api).version == 2


def test_nobody_else_keeps_copies(api: Api) -> None:
    with api.client(Role.SUBMITTER) as client, pytest.raises(NotAllowed):
        client.send(calls.mirror(UID, copy()))
