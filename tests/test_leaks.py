"""A job whose memory leaks is restarted at a save before it runs out: proposed, bound, verified."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from brain import estimates, lifecycle
from brain.types.advice import ResourceAdvice
from brain.types.allocation import Bounds
from brain.types.diagnosis import Diagnosis, FailureKind
from brain.types.explanation import Explanation
from brain.types.job import ApprovalPolicy, OptimizeMode, PolicyMode
from brain.types.plan import PlanKind, PlanState, PlanVerdict, ScalePlan, Verdict
from brain.types.pool import Freeze, FreezeScope
from brain.types.resources import Resources
from brain.types.telemetry import SourceId
from brain.types.world import Cause, WorldEvent
from tests import builders
from tests.virtual import Laptop, scaling_by

GIB = 2**30
RESERVED = Resources(cpu_millis=1000, memory_bytes=2 * GIB)
#: Bytes a second: a world that begins with half a GiB lasts for 21 minutes.
LEAK = 1.2 * 2**20
#: Seconds in which every world that leaks runs out.
LONG = 22 * 60


class Leaking(Laptop):
    """A job whose replica keeps memory until its world ends, and saves every few seconds."""

    def __init__(self, mode: PolicyMode = PolicyMode.AUTO, **given: Any) -> None:
        self.saves_every, self.leak, self.kept, self.saved = 120, LEAK, 0.0, 0
        bounds = {"replicas": Bounds(min=1, max=1), "policy": ApprovalPolicy(mode=mode)}
        super().__init__(scaling_by(0.9), resources=RESERVED, **(bounds | given))
        self.start()
        self.observe(builders.replica(resources=RESERVED))

    @property
    def memory(self) -> int:
        """What its replica uses."""
        world = self.world
        assert world is not None
        age = (self.now - world.formed_at).total_seconds()
        return int(min(GIB // 2 + self.kept + self.leak * age, RESERVED.memory_bytes))

    def go_on(self, seconds: float, *, coordinated: bool = True) -> None:
        """Train; the script saves, memory is read, Brain turns, and the coordinator acts."""
        for _ in range(round(seconds / 10)):
            self.train(10)
            self._save()
            self.observe(builders.replica(resources=self.wish().resources or RESERVED))
            use = {"job_cpu_millis": 300, "job_memory_bytes": self.memory}
            second = int(self.now.timestamp())
            reading = builders.host(second, job=self.id, measured_at=self.now, **use)
            with self.stores.transaction() as tx:
                tx.telemetry.add([reading], received_at=self.now)
            self.turn()
            if coordinated:
                self.coordinate()

    def until_a_restart(self) -> ScalePlan:
        """Train until Brain plans a restart."""
        for _ in range(LONG // 10):
            self.go_on(10, coordinated=False)
            if self.restarts:
                return self.restarts[0]
        raise AssertionError(f"no restart: {self.decision}")

    @property
    def advice(self) -> ResourceAdvice:
        """The advice on each replica."""
        with self.transaction() as (tx, job):
            found = estimates.advised(tx, job, self.settings, self.now)
        assert found is not None
        return found

    @property
    def restarts(self) -> list[ScalePlan]:
        return [plan for plan in self.plans if plan.kind is PlanKind.RESTART]

    def runs_out(self, kind: FailureKind = FailureKind.MEMORY) -> None:
        """Its world is lost, for lack of memory, and another forms."""
        world = self.world
        assert world is not None
        self.wait(5)
        why = Diagnosis(kind=kind, sentence="out of memory")
        self.report(WorldEvent.LOST, cause=Cause.FAILURE, diagnosis=why)
        for event in (WorldEvent.FORMED, WorldEvent.STEPPING):
            self.report(event, epoch=world.epoch + 1, size=1, cause=Cause.FAILURE)

    def _save(self) -> None:
        if int(self.now.timestamp()) % self.saves_every >= 10 or self.world is None:
            return
        self.saved += 1
        save = builders.save(self.saved, measured_at=self.now)
        source = SourceId(f"{self.world.epoch}-0")
        save = replace(save, place=replace(save.place, job=self.id, source=source))
        with self.stores.transaction() as tx:
            tx.telemetry.add([save], received_at=self.now)


def test_a_leaking_job_is_restarted_at_a_save_and_its_memory_is_freed():
    here = Leaking()
    planned = here.until_a_restart()

    left = (RESERVED.memory_bytes - here.memory) / LEAK
    assert 120 < left < 600, "as late as two more saves allow: each restart costs"
    assert planned.state is PlanState.APPLYING
    assert planned.current == planned.target
    assert "the job leaks memory and runs out of it in" in planned.explanation.reason
    assert "a restart at a save costs" in planned.explanation.reason
    facts = {fact.label: fact.value for fact in planned.explanation.evidence}
    assert facts["running out of memory costs"] == "1 min 5 s"
    assert planned.promised == planned.measured
    assert here.wish().anew

    here.go_on(120)
    (plan,) = here.restarts
    assert (plan.state, plan.outcome.verdict) == (PlanState.VERIFIED, Verdict.KEPT), plan.outcome
    assert here.world is not None
    assert (here.world.epoch, here.world.cause) == (2, Cause.PLAN)
    assert not here.wish().anew

    here.go_on(LONG)
    assert len(here.restarts) == 2, "it leaks on, and is restarted each time"
    assert here.job.failures == 0


def test_a_person_is_asked_as_soon_as_the_leak_is_known_and_may_refuse():
    here = Leaking(PolicyMode.APPROVE)
    plan = here.until_a_restart()

    left = timedelta(seconds=(RESERVED.memory_bytes - here.memory) / LEAK)
    assert left > timedelta(minutes=7)
    assert plan.state is PlanState.PROPOSED
    assert plan.expires_at - here.now == pytest.approx(left, rel=0.1)
    with here.transaction() as (tx, _):
        lifecycle.reject(tx, plan, by="ada", version=None, why="", now=here.now)
    here.go_on(600)
    assert len(here.restarts) == 1, "nobody is asked twice a day"


def test_an_approved_restart_begins_and_a_person_reads_of_it_by_name():
    here = Leaking(PolicyMode.APPROVE)
    plan = here.until_a_restart()
    given = {"by": "ada", "version": None, "settings": here.settings, "now": here.now}
    with here.transaction() as (tx, _):
        lifecycle.approve(tx, plan, **given)
        said = [event.message for event in tx.events.after(0)]
    assert "ada approved the restart of 1 replica" in said
    here.go_on(120)
    assert here.restarts[0].outcome.verdict is Verdict.KEPT


@pytest.mark.parametrize("mode", [PolicyMode.OFF, PolicyMode.SHADOW])
def test_nothing_restarts_where_brain_may_not_act(mode: PolicyMode):
    here = Leaking(mode)
    here.go_on(LONG)
    assert here.world is not None
    assert here.world.epoch == 1
    assert {plan.state for plan in here.restarts} <= {PlanState.PROPOSED, PlanState.EXPIRED}


def test_a_freeze_keeps_a_restart_from_beginning():
    here = Leaking()
    freeze = Freeze(scope=FreezeScope.ALL, target="", by="ada", at=here.now, why="")
    with here.stores.transaction() as tx:
        tx.freezes.put(freeze)
    assert here.until_a_restart().state is PlanState.APPROVED
    here.go_on(LONG / 2)
    assert "could not begin in time: frozen by ada" in here.restarts[0].outcome.detail
    assert here.world is not None
    assert here.world.epoch == 1


def test_a_job_that_shares_its_pool_is_restarted_as_well():
    here = Leaking(optimize_mode=OptimizeMode.CLUSTER)
    here.until_a_restart()
    here.go_on(120)
    assert here.restarts[0].outcome.verdict is Verdict.KEPT


def test_a_restart_that_frees_no_memory_falls_short_and_is_not_repeated_that_day():
    here = Leaking()
    here.until_a_restart()
    here.kept, here.leak = here.memory - GIB // 2, 0.0
    here.go_on(600)
    (plan,) = here.restarts
    assert plan.outcome.verdict is Verdict.FELL_SHORT
    assert "GiB after the restart" in plan.outcome.detail
    with here.transaction() as (tx, _):
        told = lifecycle.verdicts(tx.plans.of(here.id))
    assert told[plan.generation] is PlanVerdict.FELL_SHORT
    here.leak = LEAK / 10
    here.go_on(LONG)
    assert len(here.restarts) == 1


def test_a_restart_that_memory_did_not_wait_for_is_given_up():
    here = Leaking()
    here.until_a_restart()
    here.runs_out()
    here.go_on(30)
    (plan,) = here.restarts
    assert plan.state is PlanState.FAILED
    assert plan.outcome.detail == "world 2 began before the restart (failure)"
    assert not here.wish().anew


def test_a_restart_that_found_no_safe_point_in_time_is_given_up():
    here = Leaking()
    plan = here.until_a_restart()
    here.leak = 0.0
    here.kept = here.memory - GIB // 2
    seconds = (plan.expires_at - here.now).total_seconds() + 20
    here.go_on(seconds, coordinated=False)
    assert here.restarts[-1].state is PlanState.FAILED
    assert "no safe point came" in here.restarts[-1].outcome.detail


def test_a_proposal_ends_with_the_world_that_leaked():
    here = Leaking(PolicyMode.APPROVE)
    here.until_a_restart()
    here.runs_out()
    here.go_on(10)
    assert here.restarts[0].state is PlanState.EXPIRED


def test_a_job_that_saves_too_rarely_is_left_alone():
    here = Leaking()
    here.saves_every = 36_000
    here.go_on(LONG)
    assert here.restarts == []


def test_memory_that_leaked_before_a_restart_is_no_reason_to_reserve_more():
    here = Leaking()
    here.saves_every = 20
    here.until_a_restart()
    here.go_on(LONG)
    assert len(here.restarts) == 2
    assert [plan for plan in here.plans if plan.changes_resources] == []
    advice = here.advice.memory
    assert advice is not None
    assert advice.used > 0.9 * RESERVED.memory_bytes
    assert advice.target == RESERVED.memory_bytes
    assert "memory leaked until a restart freed it" in advice.reason


def test_memory_is_raised_again_once_a_world_after_the_restart_ran_out():
    here = Leaking()
    here.saves_every = 20
    here.until_a_restart()
    here.go_on(120)
    here.runs_out()
    here.go_on(120)
    (raised,) = [plan for plan in here.plans if plan.changes_resources]
    assert raised.target.resources.memory_bytes > RESERVED.memory_bytes


@pytest.mark.parametrize("optimizes", [OptimizeMode.SINGLE_JOB, OptimizeMode.CLUSTER])
def test_a_restart_takes_the_place_of_a_proposal_that_nobody_answered(optimizes: OptimizeMode):
    sizes = Bounds(min=1, max=2, start=1)
    here = Leaking(PolicyMode.APPROVE, replicas=sizes, optimize_mode=optimizes)
    here.live(60)
    waiting = here.plans[0]
    assert (waiting.kind, waiting.state) == (PlanKind.RESIZE, PlanState.PROPOSED)

    assert here.until_a_restart().state is PlanState.PROPOSED
    old = next(plan for plan in here.plans if plan.generation == waiting.generation)
    assert old.state is PlanState.SUPERSEDED
    assert old.outcome.detail.startswith("withdrawn: the job leaks memory and runs out of it in ")
    assert f"plan.Superseded {old.generation}" in here.events("plan.")
    assert here.decision.explanation.reason.endswith("the restart of 1 replica, waits for approval")


def test_a_restart_in_a_shared_pool_takes_the_place_of_amounts_that_nobody_answered():
    here = Leaking(PolicyMode.APPROVE, optimize_mode=OptimizeMode.CLUSTER)
    here.go_on(60)
    given = {"settings": here.settings, "now": here.now}
    with here.transaction() as (tx, job):
        _, current = lifecycle.standing(tx.plans.of(job.id), job)
        more = replace(current, resources=replace(RESERVED, cpu_millis=1500))
        why = Explanation(code="resources", reason="too little", next_step="")
        raised = lifecycle.propose_amounts(tx, job, more, why, None, **given)
    assert (raised.state, raised.changes_resources) == (PlanState.PROPOSED, True)

    assert here.until_a_restart().state is PlanState.PROPOSED
    old = next(plan for plan in here.plans if plan.generation == raised.generation)
    assert old.state is PlanState.SUPERSEDED
    assert old.outcome.detail.startswith("withdrawn: the job leaks memory and runs out of it in ")


def test_a_world_without_agents_of_brain_is_not_restarted_because_it_knows_no_safe_point():
    here = Leaking()
    with here.stores.transaction() as tx:
        world = tx.worlds.latest(here.id)
        assert world is not None
        members = tuple(replace(member, address="") for member in world.members)
        tx.worlds.put(replace(world, members=members))
    here.go_on(LONG)
    assert here.restarts == []


@pytest.mark.parametrize(
    ("kind", "verdict"),
    [
        (FailureKind.MEMORY, Verdict.FELL_SHORT),
        (FailureKind.NODE, Verdict.INCONCLUSIVE),
    ],
)
def test_a_new_world_that_is_lost_at_once_says_nothing_unless_it_ran_out(
    kind: FailureKind, verdict: Verdict
):
    here = Leaking()
    here.until_a_restart()
    here.coordinate()
    here.runs_out(kind)
    here.go_on(150)
    assert here.restarts[0].outcome.verdict is verdict
