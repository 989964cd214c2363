"""The closed loop with real processes: service, scaler, agents, workers, probe, collector."""

import os
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import pytest
import torch

from brain import calls
from brain.errors import BadInput
from brain.types.plan import PlanState, ScalePlan, Verdict
from brain.types.world import World
from brain.views import JobDetail, Noise, ResizeRequest
from tests.harness import Brain, running
from tests.patience import Patience
from tests.postgresql import Server

EXAMPLES, BATCH = 64, 16


def undisturbed(steps: int) -> torch.Tensor:
    """How often each example is used when nothing ever happens."""
    return torch.bincount(torch.arange(steps * BATCH) % EXAMPLES, minlength=EXAMPLES)


def checkpoint(brain: Brain, name: str = "job") -> dict[str, object]:
    """The final checkpoint of ``counted.py``."""
    found: dict[str, object] = torch.load(brain.work(name) / "counted.pt")
    return found


#: What is done to a job takes as long as the machine is busy: it ends once that was seen.
ENDLESS = ("counted.py", "--steps=100000", "--until=enough")


def finished(brain: Brain, job: str, name: str = "job") -> int:
    """Have an ``ENDLESS`` job succeed, every example used as if nothing had ever happened; its
    steps."""
    (brain.work(name) / "enough").touch()
    assert brain.finished(job).job.state == "Succeeded"
    final = checkpoint(brain, name)
    steps = int(final["step"])  # type: ignore[call-overload]
    assert torch.equal(final["used"], undisturbed(steps))  # type: ignore[arg-type]
    return steps


def stepping(detail: JobDetail) -> World | None:
    return detail.world if detail.world and detail.world.stepping_at else None


def judged(brain: Brain, job: str, *, seconds: float = 110) -> ScalePlan:
    """The job's first plan, once its promise was compared with what was measured."""

    def look(detail: JobDetail) -> ScalePlan | None:
        found = [view.plan for view in brain.send(calls.plans_of(job)).items]
        done = found and found[-1].state in (PlanState.VERIFIED, PlanState.ROLLED_BACK)
        return found[-1] if done else None

    return brain.until("a judged plan", seconds, job, look)


def of_size(replicas: int):
    def look(detail: JobDetail) -> World | None:
        world = stepping(detail)
        return world if world and world.replicas == replicas else None

    return look


@pytest.fixture(scope="module")
def brain(tmp_path_factory: pytest.TempPathFactory):
    with running(tmp_path_factory.mktemp("b"), "--slots=4") as brain:
        yield brain


def close_the_loop(brain: Brain) -> None:
    """A job is measured, resized, and the promise is kept; no step or example is lost."""
    job = brain.submit(*ENDLESS, replicas={"min": 1, "max": 2}, policy={"mode": "auto"})
    plan = judged(brain, job)
    assert plan.outcome.verdict is Verdict.KEPT
    assert (plan.current.replicas, plan.target.replicas) == (1, 2)
    assert plan.promised is not None
    assert plan.promised.exploring
    assert plan.outcome.steps_redone == 0
    finished(brain, job)
    losses = brain.detail(job).job.losses
    assert (losses.gaps, losses.dropped) == (0, 0)


def test_a_job_is_measured_resized_and_the_promise_is_kept(brain: Brain):
    close_the_loop(brain)


@pytest.mark.slow
def test_the_same_on_postgresql(postgresql: Server, tmp_path: Path):
    with postgresql.database() as name:
        url = postgresql.url(name)
        with running(tmp_path, "--slots=4", f"--database-url={url}") as brain:
            close_the_loop(brain)


@pytest.mark.slow
def test_a_person_resizes_up_and_down_without_a_step_made_twice(brain: Brain):
    job = brain.submit(*ENDLESS, name="by-hand", replicas={"min": 1, "max": 2})
    brain.saved(job)
    brain.send(calls.resize(job, ResizeRequest(replicas=2)))
    grown = brain.until("two replicas", 40, job, of_size(2))
    brain.until("an applied plan", 20, job, lambda d: d.job.plan and d.job.plan.state == "Applied")
    brain.send(calls.resize(job, ResizeRequest(replicas=1)))
    shrunk = brain.until("one replica", 40, job, of_size(1))
    assert (grown.steps_redone, shrunk.steps_redone) == (0, 0)
    finished(brain, job, "by-hand")


@pytest.mark.slow
def test_a_promise_not_kept_is_rolled_back(brain: Brain):
    job = brain.submit(
        "counted.py",
        "--steps=100000",
        "--shared=0",
        "--alone=0.08",
        name="does-not-scale",
        replicas={"min": 1, "max": 2},
        policy={"mode": "auto"},
    )
    plan = judged(brain, job)
    assert plan.outcome.verdict is Verdict.FELL_SHORT
    back = brain.until("one replica again", 60, job, of_size(1))
    assert back.generation > plan.generation
    brain.send(calls.cancel(job))
    assert brain.finished(job).job.state == "Cancelled"


@pytest.mark.slow
def test_the_noise_of_gradients_is_measured_in_a_script_that_nobody_changed(brain: Brain):
    job = brain.submit("noisy.py", "100000", name="noisy", replicas={"min": 2, "max": 2, "unit": 2})

    def settled(detail: JobDetail) -> Noise | None:
        noise = brain.send(calls.model(job)).noise
        return noise if noise.low and noise.high and noise.high < 2 * noise.low else None

    noise = brain.until("a noise scale", 90, job, settled)
    assert noise.examples == pytest.approx(32, rel=0.6)
    begun = brain.detail(job).job.created_at
    hour = {"since": begun, "until": begun + timedelta(hours=1)}
    assert brain.send(calls.series(job, "exchange_wait_share", **hour)).points
    brain.send(calls.cancel(job))
    brain.finished(job)


def test_a_script_without_checkpoints_is_held_and_the_hold_says_what_it_would_lose(brain: Brain):
    job = brain.submit(
        "counted.py",
        "--steps=100000",
        "--no-save",
        name="no-checkpoint",
        replicas={"min": 1, "max": 2},
        policy={"mode": "auto"},
    )

    def held(detail: JobDetail) -> str | None:
        decision = detail.job.decision
        found = decision and decision.hold and decision.explanation.code == "no-checkpoint"
        return decision.explanation.reason if found and decision else None

    assert "lose" in brain.until("the hold", 50, job, held)
    assert brain.detail(job).job.plan is None
    brain.send(calls.cancel(job))
    brain.finished(job)


@pytest.mark.slow
def test_a_change_whose_world_ignores_the_checkpoint_is_undone(brain: Brain):
    job = brain.submit(
        "counted.py",
        "--steps=100000",
        "--no-load",
        name="ignores-checkpoint",
        replicas={"min": 1, "max": 2},
    )
    brain.saved(job)
    brain.send(calls.resize(job, ResizeRequest(replicas=2)))
    reason = brain.until("advise-only", 60, job, lambda detail: detail.job.advise_only)
    assert "checkpoint" in reason
    brain.until("one replica again", 40, job, of_size(1))
    done = subprocess.run(
        [sys.executable, "-m", "brain.cli", "lift-advise-only", "ignores-checkpoint"],
        env={"BRAIN_HOME": str(brain.home), "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, "ignores-checkpoint" in done.stdout) == (0, True), done.stderr
    assert brain.detail(job).job.advise_only is None
    brain.send(calls.cancel(job))
    brain.finished(job)


@pytest.mark.slow
def test_a_suspended_job_frees_the_node_and_goes_on_from_its_checkpoint(brain: Brain):
    job = brain.submit(*ENDLESS, name="paused")
    brain.saved(job)
    brain.send(calls.suspend(job))
    brain.until("suspension", 40, job, lambda d: d.job.state == "Suspended" or None)
    assert brain.detail(job).job.replicas == 0
    before = int(checkpoint(brain, "paused")["step"])  # type: ignore[call-overload]
    brain.send(calls.resume(job))
    assert finished(brain, job, "paused") > before


def test_a_script_that_never_steps_is_held_with_that_reason(brain: Brain):
    job = brain.submit("counted.py", "--hang", name="hangs", replicas={"min": 1, "max": 2})

    def no_steps(detail: JobDetail) -> bool | None:
        decision = detail.job.decision
        return (decision and decision.explanation.code == "no-steps") or None

    brain.until("the hold", 50, job, no_steps)
    brain.send(calls.cancel(job))
    assert brain.finished(job).job.state == "Cancelled"


def test_a_script_that_does_not_exist_fails_with_its_name(brain: Brain):
    job = brain.submit("missing.py", name="missing")
    detail = brain.finished(job, seconds=40)
    assert detail.job.state == "Failed"
    assert "missing.py" in detail.job.reason


def test_more_than_the_machine_has_is_refused_with_what_it_has(brain: Brain):
    patience = Patience(60)
    while not brain.send(calls.nodes()).items:  # the scaler has still to tell what there is
        assert not patience.over, brain.logs()
        time.sleep(0.1)
    with pytest.raises(BadInput, match=r"does not fit the pool local.*room for 4"):
        brain.submit("counted.py", name="huge", replicas={"min": 64, "max": 64})


def command_line(brain: Brain, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "brain.cli", *words],
        env=os.environ | {"BRAIN_HOME": str(brain.home)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_command_line_says_what_the_api_says(brain: Brain):
    job = brain.submit("idle.py", name="listed")
    assert "listed" in command_line(brain, "jobs", "-o", "name").stdout.split()
    dry = command_line(brain, "cancel", "--dry-run", "listed")
    assert dry.stdout.startswith("Nothing was changed")
    brain.send(calls.cancel(job))
    assert command_line(brain, "wait", "listed", "--timeout", "30").returncode == 1
    assert "cancelled" in command_line(brain, "explain", "listed").stdout
