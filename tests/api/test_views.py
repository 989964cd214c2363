"""What lists and pages show, built from what the stores hold."""

from dataclasses import replace
from datetime import timedelta

import pytest

from brain import calls, lifecycle
from brain.lifecycle.observed import look
from brain.types.diagnosis import Diagnosis, FailureKind
from brain.types.job import Job, JobId, JobState
from brain.types.plan import Outcome, PlanState, Verdict
from brain.types.recommendation import Prediction
from brain.types.telemetry import Phase
from brain.types.world import MemoryCheckpoint, ReplicaState, WorldEvent, WorldReport
from brain.views import JobView, MemoryView
from tests.api.app import Api
from tests.builders import at, explanation, plan, recommendation, replica, throughput, world

PROMISE = Prediction(examples_per_second=600, low=500, high=700)


def view(api: Api, job: str) -> JobView:
    """The job as the list shows it."""
    with api.client() as client:
        return client.send(calls.job(job)).job


def test_throughput_is_that_of_the_world_over_the_last_minute(api: Api, running: JobId) -> None:
    shown = view(api, running)
    assert shown.throughput is not None
    assert shown.throughput.examples_per_second == pytest.approx(640, rel=0.05)
    assert shown.throughput.low <= 640 <= shown.throughput.high + 1
    assert shown.unit_of_throughput == "examples/s"
    assert (shown.replicas, shown.epoch) == (2, 1)


def test_shares_are_means_of_the_last_minute(api: Api, running: JobId) -> None:
    shown = view(api, running)
    assert shown.data_wait_share == pytest.approx(0.2)
    assert (shown.cpu_share, shown.memory_share, shown.gpu_share) == (0.5, 0.5, None)


def test_no_worker_waits_for_more_than_its_whole_step(api: Api, running: JobId) -> None:
    late = {"data_wait_seconds": 0.15, "exchange_wait_seconds": 0.12}
    with api.stores.transaction() as tx:
        tx.worlds.put(
            replace(world(2, replicas=1, formed_at=at(61), stepping_at=at(61)), job=running)
        )
        samples = [throughput(n, job=running, epoch=2, source="w", **late) for n in range(70, 90)]
        tx.telemetry.add(samples, received_at=at(90))
    api.now = at(90)
    with api.client() as client:
        for metric in ("data_wait_share", "exchange_wait_share"):
            span = {"since": at(70), "until": at(90), "width": 20}
            drawn = client.send(calls.series("digits", metric, **span))
            assert {(p.mean, p.low, p.high) for p in drawn.points} == {(1.0, 1.0, 1.0)}
    assert view(api, running).data_wait_share == 1.0


def test_progress_is_steps_of_the_declared_ones(api: Api, running: JobId) -> None:
    shown = view(api, running)
    assert (shown.step, shown.progress) == (600, 0.06)
    assert shown.ends_at == at(60 + 9400 * 0.1)


def test_steps_are_summed_over_worlds_without_those_made_again(api: Api, running: JobId) -> None:
    with api.stores.transaction() as tx:
        second = world(2, replicas=2, formed_at=at(61), stepping_at=at(62), steps_redone=40)
        tx.worlds.put(replace(second, job=running))
        tx.telemetry.add(
            [throughput(63, job=running, epoch=2, source="new", step=20)], received_at=at(64)
        )
    api.now = at(64)
    assert view(api, running).step == 600 - 40 + 20


def test_steps_progress_and_end_of_a_job_with_many_worlds_are_shown(
    api: Api, running: JobId
) -> None:
    deadline = at(0)
    with api.stores.transaction() as tx:
        job = tx.jobs.get(running)
        tx.jobs.put(replace(job, document=replace(job.document, deadline=deadline)))
        for epoch in range(2, 22):
            formed = 60 * epoch
            late = world(epoch, formed_at=at(formed), stepping_at=at(formed), steps_redone=2)
            tx.worlds.put(replace(late, job=running))
            sample = throughput(formed + 59, job=running, epoch=epoch, source=f"{epoch}", step=10)
            tx.telemetry.add([sample], received_at=at(formed + 59))
    api.now = at(60 * 22)
    shown = view(api, running)
    assert (shown.epoch, shown.step, shown.progress) == (21, 600 + 20 * (10 - 2), 0.076)
    assert shown.ends_at == api.now + timedelta(seconds=(10_000 - 760) * 0.1)
    assert [one.kind for one in shown.conditions] == ["Late"]


def test_a_job_that_is_suspended_for_days_keeps_its_steps_and_progress(
    api: Api, running: JobId
) -> None:
    with api.client() as client:
        client.send(calls.suspend("digits"))
    api.now = at(3 * 86_400)
    old = at(2 * 86_400)
    with api.stores.transaction() as tx:
        tx.telemetry.retire(raw_before=old, means_before=old, hours_before=old)
    shown = view(api, running)
    assert (shown.step, shown.progress) == (600, 0.06)
    later = 3 * 86_400 + 60
    with api.stores.transaction() as tx:
        tx.worlds.put(replace(world(2, formed_at=at(later), steps_redone=40), job=running))
        again = throughput(later + 9, job=running, epoch=2, source="again", step=20)
        tx.telemetry.add([again], received_at=at(later + 9))
    assert view(api, running).step == 600 - 40 + 20


def test_without_a_batch_size_steps_are_counted(api: Api, running: JobId) -> None:
    with api.stores.transaction() as tx:
        tx.worlds.put(replace(world(2, formed_at=at(120), stepping_at=at(121)), job=running))
        samples = [
            throughput(n, job=running, epoch=2, source="new", examples_per_second=None)
            for n in range(121, 150)
        ]
        tx.telemetry.add(samples, received_at=at(150))
    api.now = at(190)
    shown = view(api, running)
    assert shown.unit_of_throughput == "steps/s"
    assert shown.throughput is not None
    assert shown.throughput.examples_per_second == pytest.approx(10, rel=0.05)


def test_old_telemetry_is_told_as_stale(api: Api, running: JobId) -> None:
    api.pass_time(minutes=5)
    shown = view(api, running)
    assert shown.telemetry_age_seconds == 301
    assert [condition.kind for condition in shown.conditions] == ["StaleTelemetry"]
    assert shown.throughput is None


def test_telemetry_is_not_stale_while_the_world_changes(api: Api, running: JobId) -> None:
    with api.stores.transaction() as tx:
        tx.jobs.put(replace(tx.jobs.get(running), state=JobState.CHANGING))
    api.pass_time(minutes=5)
    assert view(api, running).conditions == ()


def test_a_job_that_will_miss_its_deadline_says_by_how_much(api: Api, running: JobId) -> None:
    ends_at = view(api, running).ends_at
    assert ends_at is not None
    with api.stores.transaction() as tx:
        job = tx.jobs.get(running)
        deadline = ends_at - timedelta(hours=2)
        tx.jobs.put(replace(job, document=replace(job.document, deadline=deadline)))
    told = view(api, running).conditions
    assert [(each.kind, each.reason) for each in told] == [
        ("Late", "at the present pace the job ends 2 h after its deadline")
    ]


def test_a_world_that_stands_still_is_told_as_hung(api: Api, running: JobId) -> None:
    found = Diagnosis(kind=FailureKind.HANG, sentence="rank 2 is the one that the others wait for")
    with api.stores.transaction() as tx:
        known = tx.worlds.latest(running)
        assert known is not None
        tx.worlds.put(replace(known, diagnosis=found))
    assert view(api, running).conditions == ()
    api.pass_time(minutes=5)
    told = view(api, running).conditions
    assert [(each.kind, each.reason) for each in told] == [("Hung", found.sentence)]


def remembering(api: Api, running: JobId, *memory: MemoryCheckpoint | None) -> None:
    """The coordinator tells of checkpoints in memory, by member."""
    with api.stores.transaction() as tx:
        known = tx.worlds.latest(running)
        assert known is not None
        members = tuple(
            replace(member, memory=told) for member, told in zip(known.members, memory, strict=True)
        )
        report = WorldReport(
            job=running,
            event=WorldEvent.MEMORY,
            epoch=known.epoch,
            generation=known.generation,
            cause=known.cause,
            members=members,
            at=api.now,
        )
        lifecycle.world_reported(tx, report, settings=api.settings, now=api.now)


def test_a_job_shows_how_far_memory_is_ahead_of_storage(api: Api, running: JobId) -> None:
    remembering(api, running, MemoryCheckpoint(ahead_since=at(52), buddy=True), None)
    assert view(api, running).memory == MemoryView(ahead_seconds=8, buddy=True, off="")
    remembering(api, running, MemoryCheckpoint(buddy=False), MemoryCheckpoint(buddy=True))
    assert view(api, running).memory == MemoryView(ahead_seconds=0, buddy=False, off="")


def test_storage_that_falls_behind_and_memory_that_is_off_are_conditions(
    api: Api, running: JobId
) -> None:
    def conditions() -> list[str]:
        return [each.kind for each in view(api, running).conditions]

    before = conditions()
    remembering(api, running, MemoryCheckpoint(ahead_since=at(20)), None)
    behind = conditions()
    remembering(api, running, MemoryCheckpoint(off="no shared memory"), None)
    assert (before, behind, conditions()) == ([], ["StorageBehind"], ["NoMemoryCheckpoint"])


def test_a_clock_set_back_makes_no_negative_age(api: Api, running: JobId) -> None:
    api.pass_time(hours=-1)
    assert view(api, running).telemetry_age_seconds in (0, None)


def test_the_slowest_worker_has_the_step_time_of_the_throughput(api: Api, running: JobId) -> None:
    with api.stores.transaction() as tx:
        tx.worlds.put(replace(world(2, replicas=2, stepping_at=at(0)), job=running))
        few, many = {"steps": 2, "step_seconds": 0.104}, {"steps": 20, "step_seconds": 0.1}
        made = {"job": running, "epoch": 2, "replicas": 2, "processes": 2}
        uneven = [
            throughput(n, rank=rank, source=f"uneven-{rank}", **made, **(few if n % 3 else many))
            for n in range(60)
            for rank in range(2)
        ]
        tx.telemetry.add(uneven, received_at=at(60))
    with api.client() as client:
        slowest = max(one.step_seconds for one in client.send(calls.workers("digits")).items)
    measured = view(api, running).throughput
    assert measured is not None
    assert measured.examples_per_second * slowest == pytest.approx(64)


def test_a_slow_worker_is_a_straggler(api: Api, running: JobId) -> None:
    with api.stores.transaction() as tx:
        slow = [
            throughput(n, job=running, rank=2, step_seconds=0.13, source="slow") for n in range(60)
        ]
        tx.telemetry.add(slow, received_at=at(60))
    shown = view(api, running)
    with api.client() as client:
        workers = client.send(calls.workers("digits")).items
    assert [worker.straggler for worker in workers] == [False, False, True]
    assert [(one.kind, "30 %" in one.reason) for one in shown.conditions] == [("Straggler", True)]


def test_a_hold_is_shown_with_its_reason(api: Api, running: JobId) -> None:
    with api.stores.transaction() as tx:
        hold = recommendation(1, explanation=explanation("dwell"))
        tx.plans.decide(running, hold)
    shown = view(api, running)
    assert ("Holding", hold.explanation.reason) in [(c.kind, c.reason) for c in shown.conditions]


def test_a_job_that_is_not_being_decided_about_is_shown_as_such(api: Api, running: JobId) -> None:
    with api.stores.transaction() as tx:
        tx.plans.decide(running, recommendation(1, explanation=explanation("undecided")))
    assert "Undecided" in [one.kind for one in view(api, running).conditions]


def test_a_list_shows_the_throughput_that_decisions_rest_on(api: Api, running: JobId) -> None:
    with api.stores.transaction() as tx:
        found = look(tx, tx.jobs.get(running), settings=api.settings, now=api.now)
    assert found.now is not None
    assert view(api, running).throughput == found.now


def test_the_promise_shown_is_of_the_plan_that_stands(api: Api, running: JobId) -> None:
    with api.stores.transaction() as tx:
        tx.plans.add(
            plan(
                1,
                job=running,
                state=PlanState.VERIFIED,
                promised=PROMISE,
                outcome=Outcome(epoch=1, verdict=Verdict.KEPT),
            )
        )
    assert view(api, running).promised == PROMISE


def test_the_sparkline_has_gaps_where_nothing_was_measured(api: Api, running: JobId) -> None:
    api.pass_time(minutes=1)
    line = view(api, running).sparkline
    assert line[0] == pytest.approx(640, rel=0.05)
    assert line[-1] is None


def test_warm_up_counts_for_nothing(api: Api, running: JobId) -> None:
    with api.stores.transaction() as tx:
        warm = [
            throughput(n, job=running, source="w", phase=Phase.WARMUP, examples_per_second=9e9)
            for n in range(60)
        ]
        tx.telemetry.add(warm, received_at=at(60))
    shown = view(api, running)
    assert shown.throughput is not None
    assert shown.throughput.examples_per_second < 1000


def test_a_finished_job_shows_its_past_and_no_present(api: Api, running: JobId) -> None:
    with api.stores.transaction() as tx:
        job = tx.jobs.get(running)
        lifecycle.end(tx, job, JobState.SUCCEEDED, "all done", at(60), exit_code=0)
    api.pass_time(hours=5)
    shown = view(api, running)
    assert (shown.throughput, shown.conditions, shown.replicas) == (None, (), 0)
    assert any(shown.sparkline)


def test_a_series_has_no_more_points_than_fit(api: Api, running: JobId) -> None:
    with api.client() as client:
        drawn = client.send(
            calls.series("digits", "examples_per_second", since=at(0), until=at(60), width=20)
        )
    assert 0 < len(drawn.points) <= 10
    assert drawn.unit == "examples/s"


@pytest.mark.parametrize(
    "query",
    [
        "metric=colour",
        "since=2026-01-01T13:00:00Z",
        "since=2026-01-01T11:00:00",
        "since=2020-01-01T11:00:00Z",
        "width=1",
    ],
)
def test_a_series_that_cannot_be_is_refused(api: Api, running: JobId, query: str) -> None:
    with api.http(api.token()) as http:
        assert http.get(f"/api/v1/jobs/{running}/series?{query}").status_code == 422


def test_a_job_says_for_an_hour_which_node_it_keeps_off(api: Api, running: JobId) -> None:
    sick = replica(0, state=ReplicaState.EXITED, ended_at=at(30), unfit="it is slow")
    with api.stores.transaction() as tx:
        tx.worlds.put_replicas(running, [sick])
    reason = "the job avoids laptop until 13:00 UTC: it is slow"
    assert ("LeftNode", reason) in [(c.kind, c.reason) for c in view(api, running).conditions]
    api.now = at(3630)
    assert "LeftNode" not in [c.kind for c in view(api, running).conditions]


def test_an_advise_only_job_says_why(api: Api, running: JobId) -> None:
    with api.stores.transaction() as tx:
        job: Job = tx.jobs.get(running)
        tx.jobs.put(replace(job, advise_only="two rollbacks"))
    shown = view(api, running)
    assert ("AdviseOnly", "two rollbacks") in [(c.kind, c.reason) for c in shown.conditions]
