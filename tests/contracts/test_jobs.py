"""The contracts of ``JobStore`` and ``PlanStore``."""

import threading
from dataclasses import replace

import pytest

from brain.errors import (
    Conflict,
    NameTaken,
    StalePlan,
    UnknownJob,
    UnknownPlan,
    VersionMismatch,
)
from brain.ports import StoredFit, Stores
from brain.types.allocation import Allocation
from brain.types.job import (
    ApprovalPolicy,
    BatchBounds,
    Intent,
    JobId,
    JobState,
    ObjectCondition,
    PolicyMode,
    Secret,
)
from brain.types.plan import Approval, Outcome, PlanState, Verdict
from brain.types.recommendation import Prediction
from brain.types.resources import PoolName, Resources
from tests.builders import JOB, NOW, at, document, finished, job, plan, recommendation

LOCAL = PoolName("local")


class TestJobStore:
    def test_returns_every_field_as_it_was_given(self, stores: Stores) -> None:
        full = replace(
            job(),
            document=document(
                project="vision",
                epochs=3,
                batch=BatchBounds(global_size=256),
                policy=ApprovalPolicy(mode=PolicyMode.AUTO),
                resources=Resources(cpu_millis=500, memory_bytes=2**40, gpus=1),
                environment={"SEED": "1", "KEY": Secret(from_file="/run/key")},
            ),
            intent=Intent.SUSPEND,
            advise_only="rolled back twice",
            amounts=Resources(cpu_millis=250, memory_bytes=2**41),
            failures=2,
            exit_code=-9,
            state=JobState.FAILED,
            conditions=(ObjectCondition(type="Feasible", status=None, reason="New", since=NOW),),
            finished_at=at(0.000001),
        )
        with stores.transaction() as t:
            t.jobs.add(full)
            assert t.jobs.get(full.id) == full

    def test_tells_ids_of_jobs_from_what_is_none(self, stores: Stores) -> None:
        with stores.transaction() as t:
            t.jobs.add(job())
            assert t.jobs.known([JOB, "gone", "digits"]) == {JOB}
            assert t.jobs.known([]) == frozenset()

    def test_finds_a_job_by_its_name_in_its_project(self, stores: Stores) -> None:
        with stores.transaction() as t:
            t.jobs.add(job("a", project="vision"))
            assert t.jobs.get("digits", "vision").id == "a"
            with pytest.raises(UnknownJob, match="default"):
                t.jobs.get("digits")

    def test_finds_the_fitted_among_the_newest_jobs(self, stores: Stores) -> None:
        with stores.transaction() as t:
            for number, id in enumerate("abcd"):
                t.jobs.add(replace(job(id, name=id), created_at=at(number)))
            for id, kind in (("a", "points"), ("b", "points"), ("c", "usage"), ("d", "points")):
                fit = StoredFit(job=JobId(id), kind=kind, parameters="[]", fitted_at=NOW)
                t.fits.put(fit)
            assert [one.id for one in t.jobs.fitted("points", among=3)] == ["d", "b"]
            assert t.jobs.fitted("other", among=3) == []

    def test_knows_the_projects_that_have_a_job_of_a_name(self, stores: Stores) -> None:
        with stores.transaction() as t:
            for id, project in (("a", "vision"), ("b", "speech"), ("c", "default")):
                t.jobs.add(job(id, project=project, name="other" if id == "c" else "digits"))
            t.jobs.add(finished(job("d", project="speech"), JobState.FAILED))
            assert list(t.jobs.projects("digits")) == ["speech", "vision"]
            assert list(t.jobs.projects("none")) == []

    def test_prefers_the_unfinished_job_of_a_name_to_a_newer_one(self, stores: Stores) -> None:
        with stores.transaction() as t:
            t.jobs.add(job("a", created_at=at(0)))
            t.jobs.add(finished(job("b", created_at=at(9)), JobState.FAILED))
            assert t.jobs.get("digits").id == "a"

    def test_finds_the_newest_of_finished_jobs(self, stores: Stores) -> None:
        with stores.transaction() as t:
            for id, seconds in (("b", 0), ("a", 9)):
                t.jobs.add(finished(job(id, created_at=at(seconds)), JobState.SUCCEEDED))
            assert t.jobs.get("digits").id == "a"

    def test_refuses_a_name_that_an_unfinished_job_has(self, stores: Stores) -> None:
        with stores.transaction() as t:
            t.jobs.add(job("a"))
            with pytest.raises(NameTaken, match="digits"):
                t.jobs.add(job("b"))
            t.jobs.add(job("c", project="another"))
            t.jobs.add(job("d", name="another"))

    def test_gives_a_name_free_when_its_job_finished(self, stores: Stores) -> None:
        with stores.transaction() as t:
            t.jobs.add(job("a"))
            t.jobs.put(finished(t.jobs.get("a"), JobState.CANCELLED))
            t.jobs.add(job("b"))
            assert t.jobs.get("digits").id == "b"

    def test_refuses_an_id_twice(self, stores: Stores) -> None:
        with stores.transaction() as t:
            t.jobs.add(job("a"))
            with pytest.raises(NameTaken, match="never reused"):
                t.jobs.add(job("a", name="another"))

    def test_grows_the_version_with_each_change(self, stores: Stores) -> None:
        with stores.transaction() as t:
            t.jobs.add(job())
            stored = t.jobs.put(job().moved(JobState.STARTING, "fits", at(1)))
            assert (stored.version, t.jobs.get(JOB)) == (2, stored)

    def test_refuses_a_change_of_an_old_version(self, stores: Stores) -> None:
        with stores.transaction() as t:
            t.jobs.add(job())
            t.jobs.put(job())
            with pytest.raises(VersionMismatch, match="version 2, not 1"):
                t.jobs.put(job())

    def test_refuses_a_change_of_a_job_never_added(self, stores: Stores) -> None:
        with stores.transaction() as t, pytest.raises(UnknownJob):
            t.jobs.put(job())

    def test_lists_unfinished_jobs_of_a_pool_oldest_first(self, stores: Stores) -> None:
        with stores.transaction() as t:
            t.jobs.add(job("c", name="1", created_at=at(1)))
            t.jobs.add(job("a", name="2", created_at=at(2)))
            t.jobs.add(job("b", name="3", created_at=at(1)))
            t.jobs.add(job("d", name="4", pool=PoolName("cluster")))
            t.jobs.add(finished(job("e", name="5"), JobState.FAILED))
            assert [each.id for each in t.jobs.unfinished(LOCAL)] == ["b", "c", "a"]

    def test_pages_from_the_newest_id(self, stores: Stores) -> None:
        with stores.transaction() as t:
            for id in ("a-1", "B-2", "a_2", "a-10"):
                t.jobs.add(job(id, name=id))
            first = t.jobs.page(after=None, size=2)
            rest = t.jobs.page(after=(first[-1].id,), size=2)
        assert [each.id for each in (*first, *rest)] == ["a_2", "a-10", "a-1", "B-2"]

    def test_lists_pools_with_unfinished_jobs(self, stores: Stores) -> None:
        with stores.transaction() as t:
            t.jobs.add(job("a", name="1", pool=PoolName("b")))
            t.jobs.add(job("b", name="2", pool=PoolName("a")))
            t.jobs.add(finished(job("c", name="3", pool=PoolName("c")), JobState.FAILED))
            assert list(t.jobs.pools()) == ["a", "b"]


class TestPlanStore:
    def test_returns_every_field_as_it_was_given(self, stores: Stores) -> None:
        promised = Prediction(examples_per_second=620, low=500.5, high=700.25, exploring=True)
        full = plan(
            state=PlanState.VERIFIED,
            target=Allocation(replicas=2, processes_per_replica=4),
            measured=promised,
            promised=promised,
            restart_seconds=7.5,
            payback_seconds=90.0,
            approval=Approval(by="ada", at=at(3)),
            outcome=Outcome(epoch=2, downtime_seconds=1.5, verdict=Verdict.KEPT, measured=promised),
            after=((JobId("another"), 3),),
        )
        with stores.transaction() as t:
            t.plans.add(full)
            assert t.plans.get(JOB, 1) == full

    @pytest.mark.parametrize("generation", [1, 2])
    def test_refuses_a_generation_it_has_passed(self, stores: Stores, generation: int) -> None:
        with stores.transaction() as t:
            t.plans.add(plan(2, state=PlanState.REJECTED))
            with pytest.raises(StalePlan, match="propose the next generation"):
                t.plans.add(plan(generation))

    def test_goes_on_after_a_refusal(self, stores: Stores) -> None:
        with stores.transaction() as t:
            t.plans.add(plan(1, state=PlanState.REJECTED))
            with pytest.raises(StalePlan):
                t.plans.add(plan(1))
            t.plans.add(plan(2))
        with stores.transaction() as t:
            assert [each.generation for each in t.plans.of(JOB)] == [2, 1]

    def test_lets_one_of_two_that_race_win(self, stores: Stores) -> None:
        outcomes: list[str] = []
        together = threading.Barrier(2, timeout=10)

        def propose() -> None:
            together.wait()
            try:
                with stores.transaction() as t:
                    t.plans.add(plan(1))
                outcomes.append("stored")
            except StalePlan:
                outcomes.append("stale")

        threads = [threading.Thread(target=propose) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=30)
        assert sorted(outcomes) == ["stale", "stored"]

    def test_refuses_a_second_active_plan_of_a_job(self, stores: Stores) -> None:
        with stores.transaction() as t:
            t.plans.add(plan(1))
            with pytest.raises(Conflict, match="supersede it first"):
                t.plans.add(plan(2))
            t.plans.add(plan(1, job="another"))

    def test_takes_the_next_plan_once_the_active_one_is_superseded(self, stores: Stores) -> None:
        with stores.transaction() as t:
            t.plans.add(plan(1))
            t.plans.put(plan(1).moved(PlanState.SUPERSEDED, at(1)))
            t.plans.add(plan(2))
            active = t.plans.active(JOB)
        assert active
        assert active.generation == 2

    def test_refuses_to_make_a_second_plan_active(self, stores: Stores) -> None:
        with stores.transaction() as t:
            t.plans.add(plan(1, state=PlanState.REJECTED))
            t.plans.add(plan(2))
            with pytest.raises(Conflict, match="plan 2"):
                t.plans.put(plan(1))

    def test_grows_the_version_with_each_change(self, stores: Stores) -> None:
        with stores.transaction() as t:
            t.plans.add(plan())
            stored = t.plans.put(plan().moved(PlanState.APPROVED, at(1)))
            assert (stored.version, t.plans.get(JOB, 1)) == (2, stored)

    def test_refuses_a_change_of_an_old_version(self, stores: Stores) -> None:
        with stores.transaction() as t:
            t.plans.add(plan())
            t.plans.put(plan())
            with pytest.raises(VersionMismatch, match="version 2, not 1"):
                t.plans.put(plan())

    def test_knows_no_plan_that_was_never_added(self, stores: Stores) -> None:
        with stores.transaction() as t:
            with pytest.raises(UnknownPlan):
                t.plans.get(JOB, 1)
            with pytest.raises(UnknownPlan):
                t.plans.put(plan())
            assert t.plans.active(JOB) is None

    def test_pages_from_the_newest(self, stores: Stores) -> None:
        with stores.transaction() as t:
            t.plans.add(plan(1, job="b", created_at=at(1)))
            t.plans.add(plan(1, job="a", created_at=at(1)))
            t.plans.add(plan(1, job="c", created_at=at(2)))
            first = t.plans.page(after=None, size=2)
            last = first[-1]
            rest = t.plans.page(after=(last.created_at, last.job, last.generation), size=2)
        assert [each.job for each in (*first, *rest)] == ["c", "b", "a"]

    def test_pages_the_plans_of_a_job_from_the_highest_generation(self, stores: Stores) -> None:
        with stores.transaction() as t:
            for generation in (1, 2, 3):
                t.plans.add(plan(generation, state=PlanState.EXPIRED))
            t.plans.add(plan(9, job="other"))
            first = t.plans.page_of(JOB, below=None, size=2)
            rest = t.plans.page_of(JOB, below=first[-1].generation, size=2)
        assert [each.generation for each in first] == [3, 2]
        assert [each.generation for each in rest] == [1]

    def test_keeps_the_latest_decision_about_a_job(self, stores: Stores) -> None:
        with stores.transaction() as t:
            assert t.plans.decision(JOB) is None
            t.plans.decide(JOB, recommendation(2))
            t.plans.decide(JOB, recommendation(1))
            assert t.plans.decision(JOB) == recommendation(1)
