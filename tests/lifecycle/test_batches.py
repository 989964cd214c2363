"""Scripts that ask are told a batch: what their document says, what is best, what teaches."""

import math
from dataclasses import replace
from typing import Any

import pytest

from brain import lifecycle, wire
from brain.lifecycle.desired import BATCH, AskedBatch, asked_batch
from brain.lifecycle.observed import points
from brain.lifecycle.work import earlier_runs, gain_of, still_to_come
from brain.models.earlier import noises_of
from brain.models.fitting import Point
from brain.models.sizes import Size
from brain.ports import StoredFit
from brain.types.allocation import Bounds
from brain.types.batch import BatchWish
from brain.types.job import ApprovalPolicy, BatchBounds, PolicyMode
from brain.types.plan import PlanState
from brain.types.pool import Freeze, FreezeScope
from brain.types.resources import Resources
from tests import builders
from tests.virtual import Laptop


class Script(Laptop):
    """A script that makes whatever batch it is told; ``obeys`` says whether it does."""

    def __init__(self, *, obeys: bool = True, **fields: Any) -> None:
        # A micro-batch costs 20 ms and half a millisecond per example.
        super().__init__(lambda replicas: self._step_seconds(), **fields)
        self.obeys = obeys

    @property
    def told(self) -> tuple[int, int]:
        wish = self.wish().batch
        if wish is None or not self.obeys:
            return 8, 4
        return wish.split(max(1, self.size))

    @property
    def asked(self) -> AskedBatch | None:
        with self.transaction() as (tx, job):
            return asked_batch(tx, job)

    def live(self, seconds: float, *, every: int = 2) -> list[Any]:
        turns = []
        for _ in range(round(seconds / every)):
            local, accumulation = self.told
            self.global_batch = local * self.size
            self.also["accumulation"] = accumulation
            turns += super().live(every, every=every)
        return turns

    def _step_seconds(self) -> float:
        local, accumulation = self.told
        return accumulation * (0.02 + 0.0005 * local)


def script(*, tune: bool = True, batch: dict[str, int] | None = None, **fields: Any) -> Script:
    given = {"global_size": 64, "local_max": 32} if batch is None else batch
    made: dict[str, Any] = {"replicas": Bounds(min=2, max=2), "noise": 0.02}
    here = Script(**(made | {"batch": BatchBounds(tune=tune, **given)} | fields))
    here.start()
    return here


#: Sums of gradients from which a noise scale of 2 000 examples follows.
NOISE = {
    "gns_steps": 50,
    "gns_small_batch": 16,
    "gns_small_square": 1 + 2000 / 16,
    "gns_big_batch": 64,
    "gns_big_square": 1 + 2000 / 64,
}
#: So far above the first batch goodput grows with the batch.
WIDE = {"global_size": 64, "global_max": 1024, "local_max": 128}


def noisy(**fields: Any) -> Script:
    here = script(batch=WIDE, **fields)
    here.also.update(NOISE)
    return here


def test_a_script_that_asks_is_told_what_its_document_declares():
    assert script().wish().batch == BatchWish(global_size=64, local_most=32)


def test_a_script_that_does_not_ask_is_told_nothing():
    here = noisy(tune=False)
    here.live(60)

    assert (here.wish().batch, here.asked) == (None, None)


@pytest.mark.parametrize(
    "command",
    [
        ("dlrover-run", "--auto_tunning", "train.py"),
        ("sh", "-c", "dlrover-run --auto_tunning train.py"),
    ],
)
def test_the_flag_of_dlrover_run_asks_too(command: tuple[str, ...]):
    here = script(tune=False, command=command)

    assert here.wish().batch == BatchWish(global_size=64, local_most=32)


def test_the_batch_of_most_goodput_is_asked_for_without_a_restart():
    here = noisy()
    here.live(60)

    wish = here.wish().batch
    assert wish.global_size > 128
    assert 1 < wish.learning_rate_scale <= wish.global_size / 64
    assert (here.world and here.world.epoch, here.events("batch.")) == (1, ["batch.asked"])


def test_a_wish_of_another_batch_is_another_wish():
    here = noisy()
    before = here.wish()
    here.live(60)

    assert here.wish().etag != before.etag


def test_where_the_noise_of_gradients_is_not_measured_the_global_batch_stays():
    here = script(batch=WIDE)
    here.live(60)

    assert here.wish().batch.global_size == 64


def test_a_script_that_does_not_follow_is_asked_nothing_more():
    here = noisy()
    here.live(20)
    here.obeys = False
    here.live(120)

    assert here.events("batch.") == ["batch.asked"]


def test_where_people_approve_the_batch_is_the_documents():
    here = noisy(policy=ApprovalPolicy(mode=PolicyMode.APPROVE))
    here.live(60)

    assert here.asked is None


def test_another_size_makes_the_same_global_batch():
    wish = BatchWish(global_size=256, local_most=64)

    assert [wish.split(workers) for workers in (1, 2, 4, 8)] == [(64, 4), (64, 2), (64, 1), (32, 1)]


def test_a_trial_is_run_where_doubt_blocks_a_decision_once_and_then_ended():
    here = script(replicas=Bounds(min=2, max=8, unit=2), cpus=8)
    trials = []
    for _ in range(20):
        here.live(2)
        trials.append(here.asked.trial if here.asked else None)

    assert trials.count(4) in range(1, 6)
    assert trials[-1] is None
    assert here.wish().batch == BatchWish(global_size=64, local_most=32)


def test_what_a_trial_measured_stays_known_beside_its_world():
    here = script(replicas=Bounds(min=2, max=8, unit=2), cpus=8)
    here.live(40)

    model = here.sight.model
    assert model is not None
    assert sorted({point.accumulation for point in model.points}) == [1, 4]
    assert {point.epoch for point in model.points} == {1}


class Exchanging(Script):
    """A script that exchanges gradients for 50 ms once it has more than two replicas: at a small
    batch more of them do little, at a large one they do more."""

    def _step_seconds(self) -> float:
        local, accumulation = self.told
        return accumulation * (0.05 + 0.0005 * local) + (0.05 if self.size > 2 else 0.0)


def exchanging(**fields: Any) -> Exchanging:
    made: dict[str, Any] = {"replicas": Bounds(min=2, max=4, unit=2), "cpus": 4, "noise": 0.01}
    here = Exchanging(**(made | {"batch": BatchBounds(tune=True, **WIDE)} | fields))
    here.start()
    return here


def test_a_growth_brings_the_batch_of_its_size_along():
    here = exchanging()
    here.also.update(NOISE)
    here.live(60)

    grown = next(plan for plan in here.plans if plan.target.replicas == 4)
    assert grown.current.batch is not None
    assert grown.target.batch is not None
    assert grown.target.batch.global_size > grown.current.batch.global_size
    assert here.size == 4


def test_nothing_grows_before_the_noise_of_gradients_is_known():
    here = exchanging()
    here.live(40)
    found = here.turn().decisions[here.id].explanation.alternatives
    waits = [other.why_not for other in found]

    assert (here.plans, waits) == ([], ["Brain first measures the noise of gradients"])


def test_one_worker_is_asked_for_two_micro_batches_to_tell_noise_by():
    here = script(batch=WIDE, replicas=Bounds(min=1, max=1))
    here.live(20)
    assert here.asked is not None
    assert (here.asked.wish.split(1), here.asked.trial) == ((32, 2), 1)

    here.also.update(NOISE)
    here.live(60)
    assert here.wish().batch.global_size > 64


def test_noise_that_was_known_stays_known_at_another_batch():
    here = noisy()
    here.live(60)
    for name in NOISE:
        del here.also[name]
    here.live(20)

    model = here.sight.model
    assert model is not None
    assert model.present.noise_scale == pytest.approx(2000, rel=0.1)


def test_noise_that_was_known_at_another_batch_was_not_measured_at_this_one():
    here = noisy()
    for _ in range(12):
        here.live(5)
        if here.asked is not None:
            break
    for name in NOISE:
        del here.also[name]
    here.live(40)

    model = here.sight.model
    assert model is not None
    assert model.present.examples_per_step == here.wish().batch.global_size > 64
    assert model.present.noise_batch == 64
    with here.stores.transaction(read_only=True) as tx:
        handed_on = noises_of(points(tx, tx.jobs.get(here.id)), 64.0)
    assert {round(math.exp(one.log_batch)) for one in handed_on} == {64}


def test_a_size_is_judged_with_its_own_batch():
    """With another one it falls short, and is asked to take its own before anything is undone."""
    here = exchanging()
    here.also.update(NOISE)
    while not here.plans:
        here.live(2)
    small = BatchWish(global_size=64, local_most=16)
    plan = here.plans[0]
    with here.stores.transaction() as tx:
        asked = AskedBatch(wish=small, at=here.now, reason="a test")
        made = wire.encode(asked).decode()
        tx.fits.put(StoredFit(job=here.id, kind=BATCH, parameters=made, fitted_at=here.now))
    here.live(60)

    assert [each.state for each in here.plans if each.generation == plan.generation] == [
        PlanState.VERIFIED
    ]


def test_declared_steps_are_of_the_declared_batch():
    here = noisy(steps=10_000)
    here.live(120)

    seen = here.sight
    with here.transaction() as (tx, job):
        rest = still_to_come(
            job, seen, tx.worlds.of(job.id), elapsed=1e9, past=earlier_runs(tx, job)
        )
    present = seen.present
    assert isinstance(present, Point)
    gained = gain_of(present, 64.0)
    assert gained > 1.5
    assert rest.seconds < 10_000 * present.step_seconds / gained


def test_a_growth_says_what_becomes_of_the_learning_rate():
    here = exchanging()
    here.also.update(NOISE)
    while not here.plans:
        here.live(2)

    plan = here.plans[0]
    assert plan.target.batch is not None
    scale = f"{plan.target.batch.learning_rate_scale:g}"
    assert {one.label: one.value for one in plan.explanation.evidence}["batch"] == (
        f"{plan.target.batch.global_size} examples a step, learning rate × {scale}, which the "
        "script applies"
    )
    assert here.asked is not None
    assert here.asked.reason.endswith(f"multiplies the learning rate of its first batch by {scale}")
    assert here.events("batch.")[0] == "batch.asked"


@pytest.mark.parametrize("mode", [PolicyMode.APPROVE, PolicyMode.SHADOW])
def test_where_brain_may_not_act_sizes_are_compared_at_the_declared_batch(mode: PolicyMode):
    here = exchanging(policy=ApprovalPolicy(mode=mode))
    here.also.update(NOISE)
    here.live(40)

    model = here.sight.model
    assert model is not None
    found = model.runs(Size(replicas=4))
    assert found is not None
    assert found.batch == 64
    assert all(plan.target.batch is None for plan in here.plans)


def ask(here: Script, batch: BatchWish) -> AskedBatch:
    """Ask a script for a batch, beside every plan."""
    asked = AskedBatch(wish=batch, at=here.now, reason="a test")
    made = wire.encode(asked).decode()
    with here.stores.transaction() as tx:
        tx.fits.put(StoredFit(job=here.id, kind=BATCH, parameters=made, fitted_at=here.now))
    return asked


@pytest.mark.parametrize("by", ["brain", "ada"])
def test_amounts_leave_the_batch_that_was_chosen_since_the_last_plan(by: str):
    here = exchanging()
    here.also.update(NOISE)
    here.live(60)
    small = BatchWish(global_size=64, local_most=16)
    ask(here, small)
    given, rate = {"settings": here.settings, "now": here.now}, here.sight.now
    with here.transaction() as (tx, job):
        _, stands = lifecycle.standing(tx.plans.of(job.id), job)
        assert stands.batch not in (None, small)
        if by == "brain":
            aim = replace(stands, resources=Resources(cpu_millis=100))
            why = builders.explanation("resources")
            plan = lifecycle.propose_amounts(tx, job, aim, why, rate, **given)
        else:
            fields = {"memory_bytes": None, "replicas": None, "by": by, "why": "", **given}
            plan = lifecycle.edit(tx, job, cpu_millis=200, **fields)
    assert not plan.changes_batch
    assert here.wish().batch == small


def test_a_frozen_script_is_asked_for_no_batch_to_be_judged_with():
    here = exchanging()
    here.also.update(NOISE)
    while not here.plans:
        here.live(2)
    asked = ask(here, BatchWish(global_size=64, local_most=16))
    with here.stores.transaction() as tx:
        job = tx.jobs.get(here.id)
        freeze = Freeze(scope=FreezeScope.JOB, target=job.id, by="ada", why="a paper", at=here.now)
        lifecycle.freeze(tx, freeze)
    here.live(8)

    assert here.asked == asked


class Lone(Script):
    """One worker, whose gradients tell their noise only in several micro-batches, and no sooner
    than a while after it was asked for them."""

    def live(self, seconds: float, *, every: int = 2) -> list[Any]:
        turns = []
        for _ in range(round(seconds / every)):
            asked = self.asked
            waited = asked is not None and (self.now - asked.at).total_seconds() > 20
            pairs = self.told[1] > 1 and waited
            self.also = {**self.also, **{key: NOISE[key] if pairs else None for key in NOISE}}
            turns += super().live(every, every=every)
        return turns


def test_a_trial_that_told_the_noise_late_is_remembered_as_one_that_told_it():
    here = Lone(replicas=Bounds(min=1, max=1), noise=0.02, batch=BatchBounds(tune=True, **WIDE))
    here.start()
    here.live(120)

    asked = [event for event in here.events("batch.") if event == "batch.asked"]
    assert here.wish().batch.global_size > 64
    with here.transaction() as (tx, job):
        tried = [point for point in points(tx, job) if point.accumulation > 1]
    assert tried[-1].noise_scale is not None
    assert len(asked) <= 4
