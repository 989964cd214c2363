"""What turns keep in mind must never be older than what they decide by."""

from dataclasses import replace
from datetime import timedelta

from brain.lifecycle.capacity import Holding, Ledger
from brain.pool.rounds import Memo
from brain.types.job import JobId
from brain.types.resources import Resources
from tests.builders import job, node
from tests.pool.rounds.fleet import POOL, Fleet, scaling_by


def test_a_silent_job_is_looked_at_again_before_its_telemetry_is_stale():
    """Else a round would take replicas from a job by what was measured before it fell silent."""
    fleet = Fleet({"a": 4})
    silent = fleet.submit("silent", scaling_by(0.9))
    fleet.memo = Memo(POOL)
    fleet.live(20)
    heard = fleet.now

    for _ in range(5):
        fleet.train(11, silent="silent").turn()

    stale_at = heard + timedelta(seconds=fleet.settings.stale_seconds)
    assert fleet.now < stale_at
    assert fleet.memo.looked[silent].again_at <= stale_at


def test_what_a_job_waits_for_is_not_expected_on_a_drained_node():
    drained = replace(node("a", cpus=2), schedulable=False)
    waits = Holding(job=JobId("waits"), each=Resources(cpu_millis=1000), live={}, wished=2)

    ledger = Ledger([drained, node("b", cpus=2)], [waits])

    assert ledger.held(JobId("waits")) == {"b": 2}
    other = job("other", name="other")
    assert ledger.room(replace(other, document=replace(other.document, resources=waits.each))) == 0
