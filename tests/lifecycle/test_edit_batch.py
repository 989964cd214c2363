"""Batch and accelerators of a job, edited: now, at its next start, or refused with the remedy."""

from dataclasses import replace
from typing import Any

import pytest

from brain import lifecycle
from brain.errors import BadInput, Conflict
from brain.types.document import BatchBounds
from brain.types.job import JobState, OptimizeMode
from brain.types.plan import PlanState, Verdict
from brain.types.resources import Resources
from tests import builders
from tests.lifecycle.test_edits import AUTO, GIB, edit, training
from tests.virtual import Laptop

TUNED = BatchBounds(global_size=256, global_max=1024, local_max=64, tune=True)


def edited(here: Laptop, match: str, **wanted: Any) -> str | None:
    """The field of a refusal that says ``match``."""
    with pytest.raises(BadInput, match=match) as refused:
        edit(here, **wanted)
    return refused.value.field


def test_a_batch_is_asked_for_at_once_and_no_world_changes():
    here = training(batch=TUNED)
    before = here.world
    plan = edit(here, batch=512, why="larger steps")

    assert plan.explanation.reason == "ada asked for batch 256 → 512: larger steps"
    assert (
        plan.explanation.next_step
        == "The new batch applies when the script next asks for its batch."
    )
    asked = here.wish().batch
    assert (asked.global_size, asked.local_most) == (512, 64)
    here.train(10).turn()
    here.train(70).turn()
    assert here.world == before, "nothing restarted"
    (plan,) = here.plans
    assert (plan.state, plan.outcome.verdict) == (PlanState.VERIFIED, Verdict.INCONCLUSIVE)
    assert plan.outcome.measured is not None, "nothing was promised, and it is measured"
    assert here.wish().batch == asked, "only people choose it in the mode manual"


def test_a_batch_and_a_size_come_in_one_plan_and_each_says_when():
    here = training(batch=TUNED)
    plan = edit(here, batch=512, replicas=2)
    assert plan.explanation.next_step == (
        "The new batch applies when the script next asks for its batch. The size changes "
        "at the next safe point."
    )
    assert here.wish().batch.global_size == 512
    here.coordinate()
    assert here.size == 2


def test_a_batch_that_a_person_undoes_is_that_of_before():
    here = training(batch=TUNED)
    edit(here, batch=512)
    here.train(10).turn()
    given = {"by": "ada", "version": None, "why": "", "settings": here.settings, "now": here.now}
    (plan,) = here.plans
    with here.transaction() as (tx, _):
        lifecycle.rollback(tx, plan, **given)
    assert here.wish().batch.global_size == 256


def test_brain_says_that_it_chooses_again_where_it_may():
    here = training(AUTO, batch=TUNED, optimize_mode=OptimizeMode.SINGLE_JOB)
    assert edit(here, batch=512).explanation.next_step.endswith(
        "Brain may choose another batch later; to prevent that, set optimizeMode to manual."
    )


def test_a_batch_that_cannot_be_taken_is_refused_with_the_remedy():
    untold = training()
    assert edited(untold, "declare batch.tune, and submit the job again", batch=512) == "batch"
    here = training(batch=TUNED)
    assert (
        edited(here, "batch 2048 is outside the range of 1 to 1,024 examples", batch=2048)
        == "batch"
    )
    assert edited(here, "batch 0 is outside the range", batch=0) == "batch"
    with pytest.raises(Conflict, match="already has these values"):
        edit(here, batch=256)
    assert here.plans == []


def test_accelerators_are_kept_by_running_replicas_and_changed_once_they_are_suspended():
    here = training(resources=Resources(cpu_millis=1000, memory_bytes=2 * GIB))
    with here.stores.transaction() as tx:
        whole = Resources(cpu_millis=4000, memory_bytes=8 * GIB, gpus=2)
        tx.nodes.put(replace(builders.node(), capacity=whole))
    assert edited(here, "run `brain suspend .*`, then this edit, then `brain resume", gpus=2) == (
        "gpus"
    )
    with here.transaction() as (tx, job):
        tx.jobs.put(replace(job, state=JobState.SUSPENDED))
    assert edited(here, "gpus 3 fits no node .* 2 GPUs: ask for less", gpus=3) == "gpus"
    assert edited(here, "gpus -1 is negative", gpus=-1) == "gpus"
    plan = edit(here, gpus=2)
    assert (plan.state, here.job.resources.gpus) == (PlanState.VERIFIED, 2)
    assert plan.explanation.next_step.startswith("The edit applies now: the job has no")
