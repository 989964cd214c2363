"""A real job of TensorFlow 2 with parameter servers, run and changed by Brain on this machine.

It needs a Python that has TensorFlow (``tensorflow-cpu`` in an environment of its own):
``BRAIN_TEST_TENSORFLOW_PYTHON``. Each part prints what it measured; ``make bench-resources`` runs
``measure`` for its row (f).
"""

import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from brain import calls
from brain.types.plan import PlanState, ScalePlan
from brain.types.resources import Resources
from brain.views import JobDetail, JobEdit
from tests.harness import FAST, Brain, running

PYTHON = os.environ.get("BRAIN_TEST_TENSORFLOW_PYTHON", "")
EXAMPLE = Path(__file__).parents[2] / "examples" / "ads.py"
GIB = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """What came of a plan that gave a job another server, with other memory."""

    plan: ScalePlan
    #: Busy share of each server before, as Brain says it.
    servers: str
    #: First lines that the script's chief wrote, one for each world.
    begun: tuple[str, ...]
    reserved: tuple[Resources | None, ...]
    #: What of it nothing holds a server to, and why; empty: they are held to all of it.
    unenforced: str


def has_tensorflow(python: str) -> bool:
    look = "import importlib.util, sys; sys.exit(importlib.util.find_spec('tensorflow') is None)"
    return bool(python) and not subprocess.run([python, "-c", look], check=False).returncode


def submit(brain: Brain, *options: str, python: str = PYTHON, **document: object) -> str:
    """Two servers, two workers, and the chief that coordinates them."""
    name = str(document.get("name", "ads"))
    work = brain.work(name)
    work.mkdir(parents=True, exist_ok=True)
    body = {
        "name": name,
        "command": [python, str(EXAMPLE), *options],
        "directory": str(work),
        "replicas": {"min": 5, "max": 6},
        "roles": {"chief": {"replicas": 1}, "ps": {"replicas": 2}},
        "resources": {"cpuMillis": 100},
        "environment": {"TF_CPP_MIN_LOG_LEVEL": "2"},
    }
    return str(brain.send(calls.submit(body | document)).id)


def judged(brain: Brain, job: str, generation: int) -> ScalePlan:
    """The plan of a generation, once it was measured."""

    def look(_: JobDetail) -> ScalePlan | None:
        plans = [view.plan for view in brain.send(calls.plans_of(job)).items]
        one = next((plan for plan in plans if plan.generation == generation), None)
        assert one is None or one.state is not PlanState.FAILED, one
        over = one is not None and one.state in (PlanState.VERIFIED, PlanState.ROLLED_BACK)
        return one if over else None

    return brain.until(f"plan {generation} judged", 300, job, look)


def begun(brain: Brain, job: str) -> tuple[str, ...]:
    logs = brain.home.glob(f"replicas/{job}/*/output.log")
    lines = (line for log in logs for line in log.read_text(errors="replace").splitlines())
    return tuple(sorted(line for line in lines if "begins at step" in line))


def told(detail: JobDetail) -> str | None:
    """How busy Brain finds the servers."""
    decision = detail.job.decision
    facts = {} if decision is None else {e.label: e.value for e in decision.explanation.evidence}
    return facts.get("parameter servers")


def measure(brain: Brain, *, python: str = PYTHON) -> Changed:
    """Run the job, let a person ask for a third server of 2 GiB each, and wait for the verdict."""
    job = submit(brain, "--steps=1000000", python=python, policy={"mode": "approve"})
    servers = brain.until("its servers measured", 300, job, told)
    wanted = JobEdit(role="ps", replicas=3, memory_bytes=2 * GIB, why="row (f)")
    made = brain.send(calls.edit(job, wanted)).plan
    plan = judged(brain, job, made.generation)
    detail = brain.detail(job)
    assert detail.world is not None
    roles = {member.replica: member.role for member in detail.world.members}
    own = [one for one in detail.replicas if roles.get(one.id) == "ps"]
    found = Changed(
        plan=plan,
        servers=servers,
        begun=begun(brain, job),
        reserved=tuple(one.resources for one in own),
        unenforced=next((one.unenforced for one in own if one.unenforced), ""),
    )
    brain.send(calls.cancel(job))
    brain.finished(job)
    return found


@pytest.fixture(scope="module")
def brain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brain]:
    if not has_tensorflow(PYTHON):
        pytest.skip("no tensorflow: set BRAIN_TEST_TENSORFLOW_PYTHON to a Python that has it")
    home = tmp_path_factory.mktemp("servers")
    with running(home / "home", "--slots=8", settings={**FAST, "verify_seconds": 200}) as brain:
        yield brain


@pytest.mark.timeout(900)
def test_another_server_is_given_to_a_real_job_and_it_goes_on_from_its_checkpoint(brain: Brain):
    found = measure(brain)
    assert found.plan.outcome.verdict is not None, found.plan
    assert found.servers.startswith("2, which use ")
    first, then = found.begun
    assert first.endswith("2 servers, begins at step 0")
    assert "3 servers" in then
    assert found.plan.outcome.steps_redone == 0, "it stopped right after a checkpoint"
    assert int(then.rpartition(" ")[2]) > 0, "training went on from its checkpoint"
    assert {one and one.memory_bytes for one in found.reserved} == {2 * GIB}


@pytest.mark.timeout(600)
def test_a_job_ends_with_its_chief_and_takes_its_servers_with_it(brain: Brain):
    job = submit(brain, "--steps=200", name="short")
    ended = brain.finished(job, seconds=300)
    assert (ended.job.state, ended.job.exit_code) == ("Succeeded", 0)
    brain.until(
        "no process of it is left",
        60,
        job,
        lambda _: not any(EXAMPLE.name in w for _, words in brain.processes() for w in words),
    )
