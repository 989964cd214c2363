"""A script for one process is no job of several, and everything else still grows: ``brain up``."""

import glob
import os
import subprocess
import sys

import pytest

from brain import calls
from brain.types.plan import PlanKind, PlanState, Verdict
from brain.views import JobDetail
from tests.harness import SCRIPTS, Brain, running

AUTO = {"replicas": {"min": 1, "max": 2}, "policy": {"mode": "auto"}}


@pytest.fixture(scope="module")
def brain(tmp_path_factory: pytest.TempPathFactory):
    with running(tmp_path_factory.mktemp("n"), "--slots=4") as brain:
        yield brain


def plans(brain: Brain, job: str):
    return [view.plan for view in brain.send(calls.plans_of(job)).items]


def kept(brain: Brain, job: str, *, seconds: float = 120) -> None:
    """The job grows, and what its growth promised was kept."""

    def look(detail: JobDetail) -> bool:
        ended = plans(brain, job)[-1:]
        return bool(ended) and ended[0].state in (PlanState.VERIFIED, PlanState.ROLLED_BACK)

    brain.until("a judged plan", seconds, job, look)
    plan = plans(brain, job)[-1]
    assert (plan.target.replicas, plan.outcome.verdict) == (2, Verdict.KEPT), plan.outcome.detail
    brain.send(calls.cancel(job))
    brain.finished(job)


def test_a_script_for_one_process_grows_once_is_taken_back_and_told(brain: Brain):
    work = brain.work("cnn")
    work.mkdir(parents=True)
    words = ["submit", "--name=cnn", "--replicas=1:2", "--policy=auto"]
    command = [sys.executable, "-m", "brain.cli", *words, "--output=json", "--"]
    command += [sys.executable, str(SCRIPTS / "grouped.py")]
    named = {**os.environ, "BRAIN_HOME": str(brain.home)}
    subprocess.run(command, cwd=work, env=named, check=True, capture_output=True, timeout=60)
    job = next(one.id for one in brain.send(calls.jobs()).items if one.name == "cnn")

    def back(detail: JobDetail) -> bool:
        world, made = detail.world, plans(brain, job)
        alone = world is not None and world.stepping_at is not None and world.replicas == 1
        return bool(alone and made and made[0].kind is PlanKind.ROLLBACK)

    brain.until("one replica again", 150, job, back)
    undone = plans(brain, job)[-1]
    assert (undone.state, undone.target.replicas) == (PlanState.ROLLED_BACK, 2)
    assert "copies of one program" in undone.outcome.detail

    def held(detail: JobDetail) -> bool:
        decision = detail.job.decision
        return decision is not None and decision.explanation.code == "not-distributed"

    brain.until("a hold that says so", 100, job, held)
    detail = brain.detail(job)
    assert detail.job.decision is not None
    assert "independent: true" in detail.job.decision.explanation.next_step
    assert any("copies of one program" in one.reason for one in detail.job.conditions)
    assert [e.kind for e in brain.events(job)].count("job.not-distributed") == 1
    assert len(plans(brain, job)) == 2
    brain.send(calls.cancel(job))
    brain.finished(job)


@pytest.mark.slow
def test_replicas_that_are_meant_to_be_independent_add_up(brain: Brain):
    kept(brain, brain.submit("grouped.py", name="sweep", independent=True, **AUTO))


@pytest.mark.slow
@pytest.mark.parametrize("by", ["torch", "shards"])
def test_a_job_of_several_still_grows(brain: Brain, by: str):
    kept(brain, brain.submit("grouped.py", f"--by={by}", name=by, **AUTO))


@pytest.mark.slow
def test_a_script_of_accelerate_still_grows(brain: Brain):
    pytest.importorskip("accelerate", reason="accelerate is not installed here")
    kept(brain, brain.submit("grouped.py", "--by=accelerate", name="accelerate", **AUTO))


#: Interpreters that ``make corpus`` has made, with transformers in them.
_CORPUS = os.path.expanduser("~/.cache/elastic-brain/corpus/huggingface-*/bin/python")


@pytest.mark.slow
def test_a_script_of_transformers_trainer_still_grows(brain: Brain):
    pythons = sorted(glob.glob(_CORPUS), key=os.path.getmtime)
    if not pythons:
        pytest.skip("transformers is not installed here: make corpus ONLY=Trainer installs it")
    command = [pythons[-1], str(SCRIPTS / "trainer.py")]
    kept(brain, brain.submit("trainer.py", command=command, name="trainer", **AUTO))
