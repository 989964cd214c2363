"""What turns keep in mind must never be older than what they decide by."""

from dataclasses import replace
from datetime import timedelta

from brain import lifecycle
from brain.lifecycle.ledger import Holding, Ledger, Share
from brain.models.earlier import earlier_run
from brain.models.job_fit import fit
from brain.pool.rounds import Memo
from brain.types.allocation import Allocation, Bounds
from brain.types.job import JobId, OptimizeMode
from brain.types.plan import PlanState
from brain.types.resources import Resources
from tests.builders import event, job, node
from tests.models.test_job import point
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


def test_a_job_that_only_news_can_change_is_left_alone_for_minutes():
    fleet = Fleet({"a": 4})
    rigid = fleet.submit(
        "rigid",
        scaling_by(0.9),
        replicas=Bounds(min=2, max=2),
        optimize_mode=OptimizeMode.SINGLE_JOB,
    )
    fleet.memo = Memo(POOL)
    fleet.live(20)

    looked = fleet.memo.looked[rigid]
    fleet.pass_time(250)
    fleet.turn()
    assert fleet.memo.looked[rigid] is looked
    fleet.pass_time(60)
    fleet.turn()
    assert fleet.memo.looked[rigid] is not looked


def test_a_job_whose_size_changes_is_left_alone_until_something_happens_to_it():
    """Else each of many turns would look at all jobs that wait for a safe point."""
    fleet = Fleet({"a": 4})
    id = fleet.submit("grows", scaling_by(0.9), optimize_mode=OptimizeMode.SINGLE_JOB)
    fleet.memo = Memo(POOL)
    fleet.live(5)
    with fleet.stores.transaction() as tx:
        job = tx.jobs.get(id)
        more = job.document.replicas.max
        lifecycle.request(tx, job, more, by="ada", why="", settings=fleet.settings, now=fleet.now)
        assert tx.plans.of(id)[0].state is PlanState.APPLYING
    fleet.turn()
    fleet.turn()
    looked = fleet.memo.looked[id]

    fleet.turn()
    assert fleet.memo.looked[id] is looked
    fleet.live(5)
    assert fleet.memo.looked[id] is not looked
    with fleet.stores.transaction(read_only=True) as tx:
        assert tx.plans.of(id)[0].reached


def test_between_two_jobs_of_a_turn_only_what_others_changed_is_read_again():
    fleet = Fleet({"a": 4})
    ids = [fleet.submit(name, scaling_by(0.9)) for name in ("ends", "stays")]
    memo = Memo(POOL)
    with fleet.stores.transaction() as tx:
        memo.catch_up(tx, fleet.now)
        lives, marks = [memo.life(ids[1])], memo.marks
        lifecycle.cancel(tx, tx.jobs.get(ids[0]), by="ada", now=fleet.now)
        memo.catch_up(tx, fleet.now)
        assert [job.id for job in memo.jobs()] == ids[1:]
        assert (memo.life(ids[1]), memo.marks) == (lives[0], marks)

        for change in (lifecycle.suspend, lifecycle.resume):
            change(tx, tx.jobs.get(ids[1]), by="ada", now=fleet.now)
            memo.catch_up(tx, fleet.now)
            lives.append(memo.life(ids[1]))
        assert memo.jobs() == [tx.jobs.get(ids[1])]
        tx.nodes.put(node("b"))
        tx.events.add(event(kind="node.registered", job=None))
        memo.catch_up(tx, fleet.now)
    assert len(set(lives)) == 3, "each change is one to whoever looked before"
    assert [one.name for one in memo.nodes] == ["a", "b"]


def test_what_a_job_waits_for_is_not_expected_on_a_drained_node():
    drained = replace(node("a", cpus=2), schedulable=False)
    each = Resources(cpu_millis=1000)
    shares, two = (Share(each=each, wished=2),), Allocation(replicas=2, resources=each)
    waits = Holding(job=JobId("waits"), shares=shares, target=two)

    ledger = Ledger([drained, node("b", cpus=2)], [waits])

    assert ledger.held(JobId("waits")) == {"b": 2}
    other = job("other", name="other")
    assert ledger.room(replace(other, document=replace(other.document, resources=each))) == 0


def test_kinds_that_a_job_knows_only_from_earlier_runs_tell_its_pool_nothing():
    """Else a hundred jobs of one script count the measurement of one as a hundred."""
    had = [point(2, 100.0, accelerator="A100"), point(2, 50.0, accelerator="T4")]
    earlier = earlier_run("before", "before", had, None)
    heir = fit(point(2, 100.0, accelerator="A100"), runs=[earlier])
    both = fit(had[1], had[:1], runs=[earlier])
    memo = Memo(POOL)

    with Fleet({"a": 4}).stores.transaction(read_only=True) as tx:
        inherited = memo.speeds(tx, JobId("heir"), heir)
        measured = memo.speeds(tx, JobId("both"), both)

    assert set(heir.times.ratios) == {"A100", "T4"}
    assert not inherited.index
    assert set(measured.index) == {"A100", "T4"}
    assert measured.ratio("T4", "A100").log_mean < 0
