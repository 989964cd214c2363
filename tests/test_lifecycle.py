"""Who moves what: jobs, plans and worlds, by the tables of brain.types."""

from dataclasses import replace
from typing import Any

import pytest

from brain import lifecycle
from brain.errors import BadInput, Conflict, IllegalTransition, NameTaken, VersionMismatch
from brain.types.allocation import Allocation, Bounds
from brain.types.job import ApprovalPolicy, Intent, Job, JobState, PolicyMode, Restarts, Secret
from brain.types.plan import PlanKind, PlanState, ScalePlan, Verdict
from brain.types.pool import Freeze, FreezeScope
from brain.types.recommendation import Prediction
from brain.types.resources import Resources
from brain.types.world import Cause, Replica, ReplicaExit, ReplicaState, WorldEvent
from tests import builders
from tests.virtual import QUICK, Laptop, scaling_by


def laptop(**fields: Any) -> Laptop:
    """Four cores and a job of one to four replicas that waits for people."""
    fields.setdefault("policy", ApprovalPolicy(mode=PolicyMode.APPROVE))
    return Laptop(scaling_by(0.9), **({"cpus": 4} | fields))


def running(**fields: Any) -> Laptop:
    return laptop(**fields).start()


def request(here: Laptop, replicas: int, *, by: str = "ada") -> ScalePlan:
    with here.transaction() as (tx, job):
        return lifecycle.request(
            tx, job, replicas, by=by, why="", settings=here.settings, now=here.now
        )


def exited(id: int, exit: ReplicaExit, *, seconds: float = 60, **fields: Any) -> Replica:
    return builders.replica(
        id,
        **({"state": ReplicaState.EXITED, "exit": exit, "ended_at": builders.at(seconds)} | fields),
    )


class TestSubmitting:
    def test_a_job_is_queued_and_admitted_by_the_next_turn(self):
        here = laptop()
        assert here.job.state is JobState.QUEUED

        here.turn()

        assert here.job.state is JobState.STARTING
        assert here.events("job.") == ["job.Queued", "job.Starting"]

    def test_more_than_the_machine_has_is_refused_with_what_it_has(self):
        with pytest.raises(
            BadInput, match=r"replicas\.min 9 does not fit.*room for 4 replicas"
        ) as refused:
            laptop(replicas=Bounds(min=9, max=9))

        said = str(refused.value)
        assert "each replica needs 1 000 mCPU; the pool has 4 000 mCPU; lower replicas.min" in said

    def test_gpus_that_are_lacking_are_counted_in_whole_numbers(self):
        with pytest.raises(BadInput, match=r"needs 1 000 mCPU, 1 GPU; the pool has .*, 0 GPUs"):
            laptop(resources=Resources(cpu_millis=1000, gpus=1))

    def test_without_any_node_it_waits_and_says_so(self):
        here = laptop()
        with here.stores.transaction() as tx:
            job = lifecycle.submit(
                tx,
                builders.document("elsewhere"),
                job_id=builders.JobId("j2"),
                owner="ada",
                pool=builders.PoolName("cluster"),
                settings=QUICK,
                now=here.now,
            )
            lifecycle.admit(tx, [job], now=here.now)
            waiting = tx.jobs.get(job.id)

        assert (waiting.state, waiting.reason) == (
            JobState.QUEUED,
            "no node of pool cluster has registered yet",
        )

    def test_what_does_not_fit_beside_what_runs_waits_and_says_what_is_missing(self):
        here = laptop(replicas=Bounds(min=3, max=3)).start()
        here.submit(builders.document("second", replicas=Bounds(min=2, max=2)), id="j2")

        here.turn()

        with here.stores.transaction() as tx:
            second = tx.jobs.get("j2")
        assert second.state is JobState.QUEUED
        assert second.reason == "pool local has room for 1 of 2 replicas now"

    def test_priority_goes_before_age(self):
        here = laptop(replicas=Bounds(min=3, max=3))
        here.submit(builders.document("urgent", replicas=Bounds(min=3, max=3), priority=5), id="j2")

        assert here.turn().admitted == ("j2",)

    def test_a_growing_job_has_reserved_what_it_is_wished(self):
        here = running()
        request(here, 4)
        here.submit(builders.document("second"), id="j2")

        assert here.turn().admitted == ()

    def test_the_same_name_twice_is_refused(self):
        here = laptop()

        with pytest.raises(NameTaken):
            here.submit(here.document, id="j2")

    def test_values_of_the_environment_are_not_kept(self):
        environment = {"TOKEN": "s3cret", "KEY": Secret(from_file="/run/key")}

        kept = laptop(environment=environment).job.document.environment

        assert kept == {"TOKEN": "", "KEY": Secret(from_file="/run/key")}


class TestWishes:
    def test_a_queued_job_wishes_nothing(self):
        assert laptop().wish().replicas == 0

    def test_generation_0_is_the_submitted_document(self):
        wish = running().wish()

        assert (wish.generation, wish.replicas) == (0, 1)

    def test_the_target_of_a_plan_being_applied_is_wished_for(self):
        here = running()

        request(here, 3)

        assert (here.wish().generation, here.wish().replicas) == (1, 3)

    def test_an_applied_target_stands(self):
        here = running()
        request(here, 3)
        here.coordinate()

        with here.transaction() as (tx, job):
            assert lifecycle.standing(tx.plans.of(job.id), job)[0] == 1

    @pytest.mark.parametrize("act", ["plan", "suspend", "freeze", "settings"])
    def test_the_version_changes_with_whatever_changes(self, act: str):
        here = running()
        before = here.wish()

        match act:
            case "plan":
                request(here, 2)
            case "suspend":
                with here.transaction() as (tx, job):
                    lifecycle.suspend(tx, job, by="ada", now=here.now)
            case "freeze":
                with here.transaction() as (tx, _):
                    freeze = Freeze(scope=FreezeScope.ALL, by="ada", why="x", at=here.now)
                    lifecycle.freeze(tx, freeze)
            case "settings":
                here.settings = replace(here.settings, patience_seconds=5.0)

        assert here.wish().version != before.version

    def test_the_version_stands_still_while_nothing_changes(self):
        here = running()
        before = here.wish()

        here.turn()
        here.report(WorldEvent.STEPPING)

        assert here.wish() == before

    @pytest.mark.parametrize(
        ("scope", "target", "covers"),
        [
            (FreezeScope.ALL, "", True),
            (FreezeScope.PROJECT, "default", True),
            (FreezeScope.PROJECT, "vision", False),
            (FreezeScope.JOB, builders.JOB, True),
            (FreezeScope.JOB, "j2", False),
        ],
    )
    def test_a_freeze_covers_its_scope(self, scope: FreezeScope, target: str, covers: bool):
        here = running()

        with here.transaction() as (tx, job):
            lifecycle.freeze(tx, Freeze(scope=scope, target=target, by="ada", why="x", at=here.now))
            assert (lifecycle.frozen(tx, job) is not None) is covers


class TestRequests:
    def test_asking_is_approving(self):
        plan = request(running(), 3)

        assert plan.approval is not None
        assert (plan.kind, plan.state, plan.approval.by) == (
            PlanKind.REQUEST,
            PlanState.APPLYING,
            "ada",
        )

    @pytest.mark.parametrize(
        ("bounds", "asked", "given", "why"),
        [
            (Bounds(min=1, max=3), 9, 3, "its bounds allow 1 to 3"),
            (Bounds(min=2, max=4), 1, 2, "its bounds allow 2 to 4"),
            (Bounds(min=2, max=4, unit=2), 3, 2, "in steps of 2"),
            (Bounds(min=1, max=9), 8, 4, "the pool has room for 4 now"),
            (
                Bounds(min=1, max=9),
                99,
                4,
                "its bounds allow 1 to 9 and the pool has room for 4 now",
            ),
        ],
    )
    def test_a_size_that_cannot_be_is_clamped_and_says_why(
        self, bounds: Bounds, asked: int, given: int, why: str
    ):
        here = running(replicas=bounds)
        with here.transaction() as (tx, job):
            size, said = lifecycle.clamp(tx, job, job.document.allocation, asked, here.now)

        assert size == given
        assert why in said

    def test_no_replicas_at_all_is_refused_with_what_to_do_instead(self):
        with pytest.raises(BadInput, match="suspend or cancel"):
            request(running(), 0)

    def test_the_present_size_is_refused(self):
        with pytest.raises(Conflict, match="already at 1 replica"):
            request(running(), 1)

    def test_a_newer_request_supersedes_what_is_under_way(self):
        here = running()
        first = request(here, 2)

        second = request(here, 3)

        assert second.generation == first.generation + 1
        assert [plan.state for plan in here.plans] == [PlanState.APPLYING, PlanState.SUPERSEDED]

    def test_going_back_while_growing_is_applied_at_once_because_the_world_is_there(self):
        here = running()
        request(here, 2)

        back = request(here, 1)

        assert back.state is PlanState.APPLIED
        assert here.job.state is JobState.RUNNING

    def test_a_frozen_job_keeps_what_is_being_applied(self):
        here = running()
        request(here, 2)
        with here.transaction() as (tx, _):
            freeze = Freeze(scope=FreezeScope.ALL, by="bob", why="audit", at=here.now)
            lifecycle.freeze(tx, freeze)

        with pytest.raises(Conflict, match="frozen by bob: audit"):
            request(here, 3)

    def test_what_a_person_asked_for_is_never_rolled_back(self):
        here = (
            Laptop(lambda replicas: 0.2, policy=ApprovalPolicy(mode=PolicyMode.OFF))
            .start()
            .train(30)
        )
        request(here, 2)
        here.coordinate().train(30).turn()

        (plan,) = here.plans
        assert (plan.state, plan.outcome.verdict) == (PlanState.VERIFIED, Verdict.FELL_SHORT)

    def test_a_finished_job_takes_no_requests(self):
        here = running()
        here.report(WorldEvent.FINISHED)

        with pytest.raises(Conflict, match="Succeeded"):
            request(here, 2)


class TestDeciding:
    def proposed(self, **fields: Any) -> tuple[Laptop, ScalePlan]:
        here = running(**fields)
        plan = builders.plan(promised=Prediction(examples_per_second=1, low=1, high=1))
        with here.transaction() as (tx, _):
            tx.plans.add(plan)
        return here, plan

    def test_an_approval_of_another_version_than_was_seen_is_refused(self):
        here, plan = self.proposed()

        with here.transaction() as (tx, _), pytest.raises(VersionMismatch):
            lifecycle.approve(tx, plan, by="ada", version=7, settings=QUICK, now=here.now)

    def test_a_plan_is_not_approved_twice(self):
        here, plan = self.proposed()
        with here.transaction() as (tx, _):
            again = lifecycle.approve(tx, plan, by="ada", version=1, settings=QUICK, now=here.now)

        with here.transaction() as (tx, _), pytest.raises(Conflict, match="is Applying"):
            lifecycle.approve(tx, again, by="bob", version=None, settings=QUICK, now=here.now)

    def test_a_shadow_plan_cannot_be_approved(self):
        here, plan = self.proposed(policy=ApprovalPolicy(mode=PolicyMode.SHADOW))

        with here.transaction() as (tx, _), pytest.raises(Conflict, match="shadow"):
            lifecycle.approve(tx, plan, by="ada", version=1, settings=QUICK, now=here.now)

    def test_a_plan_that_nobody_decided_lapses_with_its_job(self):
        here, _ = self.proposed()
        here.report(WorldEvent.FINISHED)

        plan = here.plans[0]
        assert (plan.state, here.events("plan.Failed")) == (PlanState.EXPIRED, [])
        assert "nobody had decided about 1 → 2 replicas" in plan.outcome.detail

    def test_an_approved_plan_that_had_not_begun_lapses_with_its_job(self):
        here, plan = self.proposed()
        with here.transaction() as (tx, _):
            lifecycle.freeze(tx, Freeze(scope=FreezeScope.ALL, by="ada", why="", at=here.now))
            lifecycle.approve(tx, plan, by="ada", version=1, settings=QUICK, now=here.now)
        here.report(WorldEvent.FINISHED)

        assert here.plans[0].state is PlanState.EXPIRED
        assert "1 → 2 replicas had not begun" in here.plans[0].outcome.detail

    def test_a_rejected_plan_leaves_what_stands(self):
        here, plan = self.proposed()
        with here.transaction() as (tx, _):
            lifecycle.reject(tx, plan, by="ada", version=1, why="not today", now=here.now)

        assert (here.plans[0].state, here.wish().replicas) == (PlanState.REJECTED, 1)

    def test_what_has_begun_cannot_be_rejected(self):
        here = running()
        plan = request(here, 2)

        with here.transaction() as (tx, _), pytest.raises(IllegalTransition) as refused:
            lifecycle.reject(tx, plan, by="ada", version=None, why="", now=here.now)
        name = here.job.document.name
        assert str(refused.value) == (
            f"plan {plan.generation} of {name} is Applying and cannot be rejected; "
            f"`brain rollback {name}` returns to the size before the plan"
        )

    def test_a_person_rolls_back_what_stands(self):
        here = running()
        plan = request(here, 2)
        here.coordinate()
        with here.transaction() as (tx, _):
            back = lifecycle.rollback(
                tx,
                tx.plans.get(plan.job, plan.generation),
                by="ada",
                version=None,
                why="",
                settings=QUICK,
                now=here.now,
            )

        assert (back.kind, back.target.replicas) == (PlanKind.ROLLBACK, 1)
        assert here.wish().replicas == 1

    def test_only_what_stands_can_be_rolled_back(self):
        here = running()
        first = request(here, 2)
        here.coordinate()
        request(here, 3)
        here.coordinate()

        with here.transaction() as (tx, job), pytest.raises(Conflict, match="not in force"):
            lifecycle.rollback(
                tx,
                tx.plans.get(job.id, first.generation),
                by="ada",
                version=None,
                why="",
                settings=QUICK,
                now=here.now,
            )

    def test_every_move_is_in_the_audit_log_with_who_and_why(self):
        here = running()
        request(here, 2)

        with here.transaction() as (tx, _):
            entries = [(e.actor, e.action) for e in tx.audit.page(after=None, size=10)]
        assert ("ada", "plan.Approved") in entries
        assert ("brain", "plan.Applying") in entries


class TestWorlds:
    def test_a_formed_world_runs_before_its_first_step(self):
        here = laptop()
        here.turn()

        job = here.report(WorldEvent.FORMED, size=1)

        assert (job.state, job.reason) == (JobState.RUNNING, "no step seen yet")

    def test_a_plan_is_applied_when_the_world_that_meets_it_steps(self):
        here = running()
        request(here, 2)
        here.report(WorldEvent.FORMED, epoch=2, size=2, cause=Cause.PLAN)
        assert here.plans[0].state is PlanState.APPLYING

        here.report(WorldEvent.STEPPING, epoch=2, size=2, downtime_seconds=4.0, steps_redone=7)

        plan = here.plans[0]
        assert plan.state is PlanState.APPLIED
        assert (plan.outcome.downtime_seconds, plan.outcome.steps_redone) == (4.0, 7)

    def test_a_world_that_is_short_of_its_wish_is_degraded(self):
        here = running()
        request(here, 4)

        job = here.report(WorldEvent.STEPPING, epoch=2, size=3, cause=Cause.PLAN)

        assert (job.state, job.reason) == (JobState.DEGRADED, "3 of 4 replicas train")
        assert here.plans[0].state is PlanState.APPLYING

    @pytest.mark.parametrize("event", list(WorldEvent))
    def test_repeating_a_report_changes_nothing(self, event: WorldEvent):
        here = running()
        request(here, 2)
        cause, size = Cause.FAILURE, 1
        generation = here.wish().generation
        here.report(event, cause=cause, size=size, generation=generation)
        before = (here.job, here.plans, here.world, here.events(""))

        here.report(event, cause=cause, size=size, generation=generation)

        assert (here.job, here.plans, here.world, here.events("")) == before

    def test_a_report_of_an_older_epoch_is_ignored(self):
        here = running()
        request(here, 2)
        here.coordinate()
        before = (here.job, here.world)

        here.report(WorldEvent.LOST, epoch=1, cause=Cause.FAILURE, final=True)

        assert (here.job, here.world) == before

    def test_a_step_that_was_told_before_its_world_is_enough(self):
        here = laptop()
        here.turn()

        job = here.report(WorldEvent.STEPPING, size=1)

        assert (job.state, job.reason) == (JobState.RUNNING, "1 replica trains")
        assert here.world is not None
        assert here.world.stepping_at is not None

    def test_a_held_change_fails_and_what_stands_is_restored(self):
        here = running()
        request(here, 2)

        here.report(WorldEvent.HELD, detail="no safe point within 120 s")

        restore, failed = here.plans
        assert (failed.state, failed.outcome.detail) == (
            PlanState.FAILED,
            "no safe point within 120 s",
        )
        assert (restore.kind, restore.state) == (PlanKind.RESTORE, PlanState.APPLIED)
        assert (here.wish().generation, here.wish().replicas) == (2, 1)
        assert here.job.state is JobState.RUNNING

    def test_a_restore_goes_back_from_what_was_seen_not_from_what_was_planned(self):
        held, partly = running(), running()
        request(held, 2)
        request(partly, 3)
        partly.report(WorldEvent.STEPPING, epoch=2, size=2, cause=Cause.PLAN)

        for here in (held, partly):
            here.report(WorldEvent.HELD, detail="no safe point came")

        sizes = [(h.plans[0].current.replicas, h.plans[0].target.replicas) for h in (held, partly)]
        assert sizes == [(1, 1), (2, 1)]

    def test_a_restore_that_is_held_goes_on_because_there_is_nothing_else_to_go_back_to(self):
        here = running()
        request(here, 3)
        here.report(WorldEvent.STEPPING, epoch=2, size=2, cause=Cause.PLAN)
        here.report(WorldEvent.HELD, detail="no safe point came")

        here.report(WorldEvent.HELD, detail="no safe point came, again")

        assert (here.plans[0].kind, here.plans[0].state) == (PlanKind.RESTORE, PlanState.APPLYING)
        assert (len(here.plans), here.wish().replicas) == (2, 1)

    def test_a_suspension_that_is_held_says_why(self):
        here = running()
        with here.transaction() as (tx, job):
            lifecycle.suspend(tx, job, by="ada", now=here.now)

        job = here.report(WorldEvent.HELD, detail="no checkpoint was seen")

        assert job.reason == (
            "no checkpoint was seen, so the job is not suspended yet; its next save suspends "
            "the job, "
            "and `brain cancel` ends it"
        )

    def test_a_change_that_failed_leaves_the_job_to_advice(self):
        here = running()
        request(here, 2)

        here.report(WorldEvent.FORMED, epoch=3, size=1, cause=Cause.REVERT)
        here.report(WorldEvent.CHANGE_FAILED, epoch=3, detail="the checkpoint was not loaded")

        assert here.job.advise_only == "a change failed: the checkpoint was not loaded"
        assert [plan.state for plan in here.plans][-1] is PlanState.FAILED
        assert here.wish().replicas == 1

    def test_a_lost_world_degrades_the_job_and_counts_as_a_failure(self):
        here = running()

        job = here.report(WorldEvent.LOST, cause=Cause.FAILURE, detail="worker 0 exited with 1")

        assert (job.state, job.failures) == (JobState.DEGRADED, 1)

    def test_a_lost_replica_is_no_failure_of_the_script(self):
        assert running().report(WorldEvent.LOST, cause=Cause.MEMBERSHIP).failures == 0

    def test_the_last_loss_fails_the_job_with_its_exit_code(self):
        here = running()
        plan = request(here, 2)
        here.report(WorldEvent.LOST, cause=Cause.FAILURE, final=True, exit_code=3, detail="boom")

        assert (here.job.state, here.job.exit_code, here.job.reason) == (
            JobState.FAILED,
            3,
            "boom",
        )
        assert here.plans[0].state is PlanState.FAILED
        assert (here.plans[0].generation, here.wish().replicas) == (plan.generation, 0)

    def test_workers_that_all_end_with_0_succeed(self):
        here = running()

        assert here.report(WorldEvent.FINISHED).state is JobState.SUCCEEDED


class TestIntents:
    def act(self, here: Laptop, name: str) -> Job:
        with here.transaction() as (tx, job):
            done: Job = getattr(lifecycle, name)(tx, job, by="ada", now=here.now)
            return done

    def test_a_queued_job_is_cancelled_at_once(self):
        assert self.act(laptop(), "cancel").state is JobState.CANCELLED

    def test_a_running_job_is_cancelled_when_it_has_stopped(self):
        here = running()

        assert self.act(here, "cancel").state is JobState.RUNNING
        assert here.wish().replicas == 0
        assert here.report(WorldEvent.STOPPED).state is JobState.CANCELLED

    def test_a_suspended_job_is_queued_again_when_resumed_and_keeps_its_size(self):
        here = running()
        request(here, 3)
        here.coordinate()
        self.act(here, "suspend")
        assert here.report(WorldEvent.STOPPED).state is JobState.SUSPENDED
        assert self.act(here, "resume").state is JobState.QUEUED

        here.turn()

        assert (here.job.state, here.wish().replicas) == (JobState.STARTING, 3)

    def test_resumed_before_it_had_stopped_it_queues_again(self):
        here = running()
        self.act(here, "suspend")
        self.act(here, "resume")

        job = here.report(WorldEvent.STOPPED)

        assert (job.state, job.intent) == (JobState.QUEUED, Intent.RUN)

    @pytest.mark.parametrize("exit", [ReplicaExit.LEFT, ReplicaExit.LOST, ReplicaExit.FAILED])
    def test_ends_of_replicas_that_are_told_after_the_stop_change_nothing(self, exit: ReplicaExit):
        here = running()
        self.act(here, "suspend")
        suspended = here.report(WorldEvent.STOPPED)

        assert here.observe(exited(0, exit)) == suspended

    def test_a_world_that_had_not_heard_of_the_stop_is_shown_as_it_is(self):
        here = running()
        self.act(here, "suspend")
        here.report(WorldEvent.STOPPED)
        here.report(WorldEvent.FORMED, epoch=9)

        job = here.report(WorldEvent.LOST, epoch=9)
        assert (job.state, job.intent) == (JobState.DEGRADED, Intent.SUSPEND)
        assert here.observe(exited(0, ReplicaExit.LEFT)).state is JobState.SUSPENDED

    def test_cancelling_twice_is_once(self):
        here = running()
        first = self.act(here, "cancel")

        assert self.act(here, "cancel") == first

    def test_what_runs_cannot_be_resumed(self):
        with pytest.raises(Conflict, match="not suspended"):
            self.act(running(), "resume")

    def test_a_starting_job_is_cancelled_when_its_replicas_are_gone_although_no_world_formed(self):
        here = laptop()
        here.turn()
        here.observe(builders.replica(0))
        self.act(here, "cancel")

        job = here.observe(exited(0, ReplicaExit.CANCELLED))

        assert job.state is JobState.CANCELLED


class TestReplicas:
    def test_each_change_is_told_once(self):
        here = running()
        here.observe(builders.replica(0, state=ReplicaState.STARTING))
        here.observe(builders.replica(0))
        here.observe(builders.replica(0))

        assert here.events("replica.") == ["replica.starting 0", "replica.running 0"]

    def test_an_exit_is_final(self):
        here = running()
        here.observe(builders.replica(1), exited(0, ReplicaExit.LEFT))

        here.observe(builders.replica(0))

        with here.transaction() as (tx, job):
            assert tx.worlds.replicas(job.id)[0].state is ReplicaState.EXITED

    def test_a_script_that_does_not_exist_fails_the_job_in_its_own_words(self):
        here = laptop()
        here.turn()

        job = here.observe(exited(0, ReplicaExit.FAILED, detail="train.py does not exist"))

        assert (job.state, job.reason) == (JobState.FAILED, "train.py does not exist")

    def test_the_loss_of_every_agent_degrades_the_job_and_counts_once(self):
        here = running()
        here.observe(exited(0, ReplicaExit.LOST))

        job = here.observe(exited(0, ReplicaExit.LOST))

        assert (job.state, job.failures) == (JobState.DEGRADED, 1)

    @pytest.mark.parametrize(
        ("exit", "how"), [(ReplicaExit.LOST, "was lost"), (ReplicaExit.LEFT, "left")]
    )
    def test_a_replica_that_left_as_it_was_asked_is_not_called_lost(
        self, exit: ReplicaExit, how: str
    ):
        job = running().observe(exited(0, exit))

        assert job.reason == f"replica 0 {how}; another one starts from the checkpoint"

    def test_losses_beyond_the_limit_fail_the_job(self):
        here = running(restarts=Restarts(limit=0))

        assert here.observe(exited(0, ReplicaExit.LOST)).state is JobState.FAILED

    def test_a_loss_told_together_with_its_replacement_counts_all_the_same(self):
        here = running()

        job = here.observe(exited(0, ReplicaExit.LOST), builders.replica(1))

        assert (job.state, job.failures) == (JobState.DEGRADED, 1)

    def test_a_success_whose_report_was_lost_is_still_a_success(self):
        here = running()

        assert here.observe(exited(0, ReplicaExit.SUCCEEDED)).state is JobState.SUCCEEDED

    def test_why_a_job_waits_is_its_reason(self):
        here = laptop()
        here.turn()

        job = here.observe(waiting="replica 0 has been starting for 20 s")

        assert job.reason == "replica 0 has been starting for 20 s"


class TestCapacity:
    def test_nothing_begins_before_the_capacity_is_free(self):
        here = running()
        here.submit(builders.document("second", replicas=Bounds(min=2, max=2)), id="j2")
        here.turn()
        plan = builders.plan(replicas=3, target=Allocation(replicas=3))
        with here.transaction() as (tx, _):
            tx.plans.add(plan)
            waits = lifecycle.approve(tx, plan, by="ada", version=1, settings=QUICK, now=here.now)
            why = lifecycle.obstacle(tx, tx.jobs.get(here.id), waits, here.now)

        assert waits.state is PlanState.APPROVED
        assert why == "the pool has room for 2 of 3 replicas now"

    def test_it_begins_when_the_capacity_was_observed_free(self):
        here = running()
        here.submit(builders.document("second", replicas=Bounds(min=2, max=2)), id="j2")
        here.turn()
        with here.transaction() as (tx, _):
            plan = builders.plan(replicas=3)
            tx.plans.add(plan)
            lifecycle.approve(tx, plan, by="ada", version=1, settings=QUICK, now=here.now)
            lifecycle.end(tx, tx.jobs.get("j2"), JobState.FAILED, "gone", here.now)

        here.turn()

        assert here.plans[0].state is PlanState.APPLYING

    def test_a_node_of_another_accelerator_is_no_room(self):
        with pytest.raises(BadInput, match="room for 0"):
            laptop(accelerator="H100")

    def test_replicas_are_packed_node_by_node(self):
        here = laptop(resources=Resources(cpu_millis=3000), replicas=Bounds(min=1, max=2))
        with here.transaction() as (tx, job):
            tx.nodes.put(builders.node("second", cpus=2))
            assert lifecycle.clamp(tx, job, job.document.allocation, 2, here.now)[0] == 1

    def test_a_drained_node_is_no_room(self):
        here = laptop()
        with here.transaction() as (tx, _):
            tx.nodes.put(builders.node(cpus=4, schedulable=False))

        assert here.turn().admitted == ()
