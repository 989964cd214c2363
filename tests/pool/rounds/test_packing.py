"""A job that was spread over nodes comes to fewer of them once there is room, if that pays."""

from dataclasses import replace

from brain.types.allocation import Bounds
from brain.types.job import JobState
from brain.types.plan import PlanState, Verdict
from tests.pool.rounds.fleet import Fleet, scaling_by


def spread(*, apart: float) -> Fleet:
    """A job that grew to two replicas on two nodes, one of which has room for both since now.

    A step on two nodes takes ``apart`` times as long as on one.
    """
    fleet = Fleet({"a": 2, "b": 2})
    fleet.apart = apart
    for name in ("first", "one", "other"):
        fleet.submit(name, scaling_by(0.9), replicas=Bounds(min=1, max=1))
        fleet.live(4)
    fleet.finish("first")
    fleet.submit("wide", scaling_by(0.9), replicas=Bounds(min=1, max=2, start=1))
    fleet.live(60)
    assert nodes(fleet) == {"a", "b"}
    fleet.finish("other")
    return fleet


def nodes(fleet: Fleet) -> set[str]:
    """Nodes of the job."""
    return {str(replica.node) for replica in fleet.jobs["wide"].replicas.values()}


def test_a_job_that_exchanges_slowly_between_nodes_is_packed_on_one():
    fleet = spread(apart=1.6)

    fleet.live(120)

    plan = fleet.plans("wide")[0]
    assert (nodes(fleet), fleet.size("wide")) == ({"b"}, 2)
    assert (plan.explanation.code, plan.state) == ("moves", PlanState.VERIFIED)
    assert plan.outcome.verdict is Verdict.KEPT


def test_a_job_that_exchanges_fast_stays_where_it_is():
    fleet = spread(apart=1.02)
    before = len(fleet.plans("wide"))

    fleet.live(240)

    assert (nodes(fleet), len(fleet.plans("wide"))) == ({"a", "b"}, before)


def test_a_move_whose_nodes_get_no_room_is_given_up_and_the_job_goes_on():
    fleet = spread(apart=1.6)
    fleet.stuck.add("wide")
    fleet.settings = replace(fleet.settings, verify_seconds=60.0)

    fleet.live(160)

    plan = fleet.plans("wide")[0]
    assert (nodes(fleet), plan.state) == ({"a", "b"}, PlanState.FAILED)
    assert "the job stays where it is" in plan.outcome.detail
    assert fleet.job(plan.job).state is JobState.RUNNING
