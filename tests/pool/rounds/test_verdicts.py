"""What becomes of a growth of a pool's job that did less than was promised."""

from collections.abc import Callable

from brain.types.allocation import Bounds
from brain.types.plan import PlanKind, PlanState, Verdict
from tests.pool.rounds.fleet import Fleet


def grown(step_seconds: Callable[[int], float]) -> Fleet:
    """A job that scaled well so far, alone on four cores, after it may have tried three or four."""
    fleet = Fleet({"a": 4})
    fleet.submit("only", step_seconds, replicas=Bounds(min=1, max=4, start=1))
    fleet.live(400, every=5)
    return fleet


def test_a_growth_that_brought_less_than_promised_and_still_something_stays():
    fleet = grown(lambda size: {1: 1.0, 2: 0.5}.get(size, 0.5 / 1.07))

    first, *_ = [plan for plan in reversed(fleet.plans("only")) if plan.target.replicas > 2]
    assert (first.state, first.outcome.verdict) == (PlanState.VERIFIED, Verdict.FELL_SHORT)
    assert fleet.size("only") == first.target.replicas


def test_a_growth_that_brought_nothing_is_undone_and_brain_goes_on_acting():
    fleet = grown(lambda size: {1: 1.0, 2: 0.5}.get(size, 0.52))

    back = [plan for plan in fleet.plans("only") if plan.kind is PlanKind.ROLLBACK]
    assert back
    assert fleet.size("only") == 2
    assert fleet.job(fleet.jobs["only"].id).advise_only is None


def test_a_growth_whose_node_was_taken_meanwhile_says_nothing_of_that_node():
    fleet = Fleet({"a": 2, "b": 2})
    fleet.apart = 2.5
    fleet.submit("only", lambda size: 0.2 / size, replicas=Bounds(min=1, max=2, start=1))
    fleet.live(2)
    home = nodes(fleet)
    fleet.taken = set(home)
    fleet.live(24)
    back, growth = fleet.plans("only")
    assert (back.kind, {str(name) for name, _ in growth.target.nodes}) == (PlanKind.ROLLBACK, home)

    fleet.taken = set()
    fleet.live(120)

    assert (fleet.size("only"), nodes(fleet)) == (2, home)


def nodes(fleet: Fleet) -> set[str]:
    """Return the nodes of the fleet's only job."""
    return {str(replica.node) for replica in fleet.jobs["only"].replicas.values()}


def test_nothing_is_said_to_cost_0_where_accelerators_are_left():
    fleet = Fleet({"a": 4})
    fleet.submit("only", lambda size: 0.4 / size, replicas=Bounds(min=1, max=2, start=1))
    fleet.live(400, every=5)

    reason = fleet.decision("only").explanation.reason.replace("\u202f", " ")
    assert "1 replica would make" in reason
    assert reason.endswith("of that, and no other job wants the rest")
