"""A job whose replicas differ: submitted as a document, run by agents, resized by its owner."""

import json
import os
import signal
import subprocess
import sys

import pytest

from brain import calls
from brain.types.job import JobState
from brain.types.plan import PlanState
from brain.views import JobDetail
from tests.harness import SCRIPTS, Brain, running

pytestmark = pytest.mark.slow

#: Two replicas of two processes, and one of three. They import torch within their CPU quotas; below
#: 0.25 CPUs the script starves, and Brain plans more CPU instead of the hold that the test expects.
DOCUMENT = f"""\
name: mixed
command: [{sys.executable}, {SCRIPTS / "ranked.py"}]
replicas: {{min: 3, max: 5}}
processesPerReplica: 2
resources: {{cpuMillis: 250}}
policy: {{mode: auto}}
groups:
  large:
    replicas: 1
    processesPerReplica: 3
    resources: {{cpuMillis: 500}}
"""


@pytest.fixture(scope="module")
def brain(tmp_path_factory: pytest.TempPathFactory):
    with running(tmp_path_factory.mktemp("groups"), "--slots=4") as brain:
        yield brain


def says(brain: Brain, *words: str) -> str:
    """What a command prints, in the job's directory."""
    work = brain.work("mixed")
    work.mkdir(parents=True, exist_ok=True)
    named = {**os.environ, "BRAIN_HOME": str(brain.home)}
    command = [sys.executable, "-m", "brain.cli", *words]
    done = subprocess.run(command, cwd=work, env=named, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def places(brain: Brain, job: str, processes: int) -> set[tuple[int, int, int]]:
    """The (GROUP_RANK, RANK, LOCAL_WORLD_SIZE) that the script printed in a world of this size."""
    found = set()
    for log in brain.home.glob(f"replicas/{job}/*/output.log"):
        for line in log.read_text().splitlines():
            words = line.partition("place ")[2].split()
            if words and int(words[3]) == processes:
                assert words[4:] == ["default", "None"], "a group is no role of TensorFlow's"
                found.add((int(words[0]), int(words[1]), int(words[2])))
    return found


def steps(processes: int):
    """A world of so many processes steps."""

    def look(detail: JobDetail) -> bool:
        world = detail.world
        going = world is not None and world.stepping_at is not None and world.ended_at is None
        return bool(going and world is not None and world.processes == processes)

    return look


def sizes(brain: Brain, job: str) -> list[tuple[str, int]]:
    return [(one.name, one.replicas) for one in brain.detail(job).job.groups]


def test_groups_of_a_document_form_one_world_and_are_resized_one_by_one(brain: Brain):
    (brain.home / "mixed.yaml").write_text(DOCUMENT)
    says(brain, "submit", "-f", str(brain.home / "mixed.yaml"))
    job = next(one.id for one in brain.send(calls.jobs()).items if one.name == "mixed")

    brain.until("a world of 2 + 2 + 3", 120, job, steps(7))
    assert places(brain, job, 7) == {(0, 0, 2), (1, 2, 2), (2, 4, 3)}
    assert sizes(brain, job) == [("worker", 2), ("large", 1)]
    reserved = {one.role: one.resources.cpu_millis for one in brain.detail(job).replicas}
    assert reserved == {"worker": 250, "large": 500}
    shown = "Groups (replicas × processes): worker 2 × 2, large 1 × 3; 7 in all"
    assert shown in says(brain, "job", "mixed").splitlines()

    def held(detail: JobDetail) -> str | None:
        decision = detail.job.decision
        if decision is None or decision.explanation.code != "mixed-groups":
            return None
        return decision.explanation.reason

    reason = brain.until("a hold that says so", 60, job, held)
    assert "replicas of large differ from the others" in reason
    assert shown in says(brain, "explain", "mixed")

    says(brain, "edit", "mixed", "--role=large", "--replicas=2")
    grown = brain.send(calls.plans_of(job)).items[0].plan
    assert grown.explanation.reason.endswith("asked for 3 → 4 replicas, large 1 → 2")
    brain.until("a world of 2 + 2 + 3 + 3", 120, job, steps(10))
    assert {place[2] for place in places(brain, job, 10)} == {2, 3}
    assert sizes(brain, job) == [("worker", 2), ("large", 2)]

    says(brain, "resize", "mixed", "3")
    brain.until("a world of 2 + 3 + 3", 120, job, steps(8))
    assert sizes(brain, job) == [("worker", 1), ("large", 2)]
    plans = [view.plan for view in brain.send(calls.plans_of(job)).items]
    assert plans[0].state in (PlanState.APPLIED, PlanState.VERIFIED), plans[0].outcome.detail

    lost = next(one.replica for one in brain.detail(job).world.members if one.role == "large")
    state = json.loads((brain.home / f"replicas/{job}/{lost}/state.json").read_text())
    os.kill(state["pid"], signal.SIGKILL)

    def healed(detail: JobDetail) -> bool:
        named = {one.replica for one in detail.world.members} if detail.world else {lost}
        return lost not in named and steps(8)(detail)

    brain.until("a world of 2 + 3 + 3 without the replica that was lost", 120, job, healed)
    assert sizes(brain, job) == [("worker", 1), ("large", 2)]

    (brain.work("mixed") / "end").touch()
    assert brain.finished(job).job.state is JobState.SUCCEEDED
