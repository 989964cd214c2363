"""Events of ScalePlans: a missed promise is a warning, also where its size stays."""

import pytest

from brain.types.plan import Outcome, PlanKind, PlanState, Verdict
from scaler.kubernetes.status.progress import event_of, progress
from tests.builders import plan


@pytest.mark.parametrize(
    ("state", "verdict", "told"),
    [
        (PlanState.VERIFIED, Verdict.KEPT, ("Normal", "Verified")),
        (PlanState.VERIFIED, Verdict.FELL_SHORT, ("Warning", "FellShort")),
        (PlanState.VERIFIED, Verdict.INCONCLUSIVE, ("Normal", "Verified")),
        (PlanState.ROLLED_BACK, Verdict.FELL_SHORT, ("Warning", "RolledBack")),
        (PlanState.EXPIRED, Verdict.FELL_SHORT, ("Warning", "Expired")),
    ],
)
def test_the_event_of_a_missed_promise_is_a_warning(
    state: PlanState, verdict: Verdict, told: tuple[str, str]
):
    assert event_of(plan(state=state, outcome=Outcome(verdict=verdict))) == told


def test_a_rollback_that_was_measured_makes_no_statement_on_a_promise():
    measured = Outcome(verdict=Verdict.FELL_SHORT, detail="968 examples/s measured")
    back = plan(kind=PlanKind.ROLLBACK, state=PlanState.VERIFIED, outcome=measured)
    said = {one.type: (one.status, one.reason) for one in progress(back)[0]}
    assert said["Verified"] == (None, "Restored")
    assert event_of(back) == ("Normal", "Verified")
