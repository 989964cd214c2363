"""Worlds change under real agents and a real DDP script, and no example is lost or used twice."""

import os
import signal
from pathlib import Path

import pytest

from brain.types.job import Checkpoint, Intent
from brain.types.world import Cause, ReplicaExit, WorldEvent
from tests.launcher.elastic import ElasticJob, desired, job, steps_of

SAVE = 5
PACE = (f"--save-every={SAVE}", "--shared=0.06", "--alone=0.01")
#: As long as a busy machine may need to do something about it; it is waited for.
RUN = ("--steps=150", *PACE)
LONG = ("--steps=100000", *PACE)


def undisturbed(steps: int = 150) -> dict[str, object]:
    """The checkpoint of a run that nobody disturbs."""
    return {"step": steps, "used": steps_of(64, 16, steps)}


def consistent(it: ElasticJob) -> bool:
    """Whether every example was used as often as in a run that nobody disturbed."""
    found = it.checkpoint()
    return found == undisturbed(found["step"])


def cancelled(it: ElasticJob, *replicas: int) -> bool:
    """Cancel the job once its present world has saved; whether all ended by that."""
    it.saved()
    it.brain.wishes(0, intent=Intent.CANCEL)
    return exits(it, *replicas) == [(ReplicaExit.CANCELLED, 0)] * len(replicas)


def exits(it: ElasticJob, *replicas: int) -> list[tuple[ReplicaExit, int]]:
    """How replicas end."""
    ends = [it.ended(replica) for replica in replicas]
    return [(end.exit, end.exit_code) for end in ends]


def test_a_job_grows_and_shrinks_at_safe_points_and_redoes_no_step(tmp_path: Path) -> None:
    with job(tmp_path, *LONG, first=desired(1, patience_seconds=90.0)) as it:
        it.begin(1)
        before = it.workers()
        it.brain.wishes(1, generation=1)
        met = it.brain.told(WorldEvent.STEPPING, generation=1)

        # A plan of the same size restarts nothing.
        assert met.epoch == 1
        assert it.workers() == before

        it.brain.wishes(2, generation=2)
        it.start(generation=2)
        grown = it.brain.told(WorldEvent.STEPPING, 90, epoch=2)
        it.saved()
        it.brain.wishes(1, generation=3)
        shrunk = it.brain.told(WorldEvent.STEPPING, epoch=3)

        # The highest replica is let go of.
        assert exits(it, 1) == [(ReplicaExit.LEFT, 0)]
        assert cancelled(it, 0)

    assert (len(grown.members), grown.cause, grown.steps_redone) == (2, Cause.PLAN, 0)
    assert ([member.replica for member in shrunk.members], shrunk.steps_redone) == ([0], 0)
    began = it.brain.told(WorldEvent.STEPPING, epoch=1)
    assert grown.downtime_seconds is not None
    assert 0 < grown.downtime_seconds < (grown.at - began.at).total_seconds()
    assert it.brain.told(WorldEvent.STOPPED, 5).final
    assert consistent(it)
    assert not list(it.work.glob(".brain-pin-*"))


@pytest.mark.slow
def test_a_killed_coordinator_is_succeeded_and_one_that_leaves_with_notice_costs_no_step(
    tmp_path: Path,
) -> None:
    with job(tmp_path, *LONG, first=desired(2)) as it:
        it.begin(2)
        first = it.coordinator()
        it.kill(first)
        healed = it.brain.told(WorldEvent.STEPPING, epoch=2)
        it.start()
        whole = it.brain.told(WorldEvent.STEPPING, epoch=3)
        it.saved()
        it.agents[2].send_signal(signal.SIGTERM)
        after = it.brain.told(WorldEvent.STEPPING, epoch=4)

        assert exits(it, 2) == [(ReplicaExit.LEFT, 0)]
        assert cancelled(it, 1 - first)

    lost = it.brain.told(WorldEvent.LOST, epoch=1)
    assert (lost.cause, lost.final) == (Cause.MEMBERSHIP, False)
    assert healed.steps_redone is not None
    assert 0 <= healed.steps_redone <= 2 * SAVE
    assert (len(whole.members), whole.steps_redone) == (2, 0)
    assert [member.replica for member in after.members] == [1 - first]
    assert (after.cause, after.steps_redone) == (Cause.MEMBERSHIP, 0)
    assert consistent(it)


def test_a_killed_worker_costs_the_steps_since_the_checkpoint(tmp_path: Path) -> None:
    with job(tmp_path, *RUN, first=desired(1)) as it:
        it.begin(1)
        os.kill(it.workers()[0], signal.SIGKILL)
        healed = it.brain.told(WorldEvent.STEPPING, epoch=2)

        assert exits(it, 0) == [(ReplicaExit.SUCCEEDED, 0)]

    lost = it.brain.told(WorldEvent.LOST, epoch=1)
    assert (lost.cause, healed.cause) == (Cause.FAILURE, Cause.FAILURE)
    assert healed.steps_redone is not None
    assert 0 <= healed.steps_redone <= 2 * SAVE
    assert it.checkpoint() == undisturbed()


@pytest.mark.slow
def test_a_world_that_does_not_load_its_checkpoint_is_undone(tmp_path: Path) -> None:
    with job(tmp_path, "--no-load", *LONG, first=desired(1)) as it:
        it.begin(1)
        it.brain.wishes(2, generation=1)
        it.start(generation=1)
        failed = it.brain.told(WorldEvent.CHANGE_FAILED, generation=1)
        back = it.brain.told(WorldEvent.FORMED, epoch=3)

    assert "without loading" in failed.detail
    assert (len(back.members), back.cause, back.generation) == (1, Cause.REVERT, 0)


@pytest.mark.slow
def test_a_job_without_checkpoints_is_not_resized(tmp_path: Path) -> None:
    with job(tmp_path, "--no-save", *LONG, first=desired(1)) as it:
        it.start()
        it.brain.told(WorldEvent.STEPPING, epoch=1)
        before = it.workers()
        it.brain.wishes(2, generation=1)
        it.start(generation=1)
        held = it.brain.told(WorldEvent.HELD, generation=1)

        assert "a resize would lose" in held.detail
        assert it.workers() == before


def test_a_suspended_job_stops_at_a_safe_point_and_goes_on_from_it(tmp_path: Path) -> None:
    with job(tmp_path, *LONG, first=desired(1)) as it:
        it.begin(1)
        it.brain.wishes(0, intent=Intent.SUSPEND)

        assert exits(it, 0) == [(ReplicaExit.LEFT, 0)]
        assert not it.brain.told(WorldEvent.STOPPED).final

        it.brain.wishes(1, intent=Intent.RUN)
        again = it.start()
        resumed = it.brain.told(WorldEvent.STEPPING, epoch=2)

        assert resumed.steps_redone == 0
        assert cancelled(it, again)

    assert consistent(it)


SAVES_WHEN_ASKED = """
import os, signal, sys, time, torch
asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append(True))
first = os.environ["RANK"] == "0"
weight = torch.nn.Parameter(torch.zeros(1))
optimizer = torch.optim.SGD([weight], lr=1.0)
step = torch.load("counted.pt") if os.path.exists("counted.pt") else 0
last = False
while not last:
    weight.sum().backward()
    optimizer.step()
    step += 1
    time.sleep(0.05)
    last = bool(asked)  # asked later than this, it saves after one more step
    if first and (last or step % 5 == 0):
        torch.save(step, "counted.tmp")
        os.replace("counted.tmp", "counted.pt")
"""


SAVES_ON_SIGNAL = SAVES_WHEN_ASKED.replace("SIGTERM", "SIGUSR1").replace(
    "last or step % 5 == 0", "last"
)


@pytest.mark.slow
def test_a_job_makes_its_own_safe_point_by_the_signal_that_it_declared(tmp_path: Path) -> None:
    with job(tmp_path, first=desired(1), script=SAVES_ON_SIGNAL) as it:
        it.declares = Checkpoint(signal="SIGUSR1")
        it.start()
        it.brain.told(WorldEvent.STEPPING, epoch=1)
        it.brain.wishes(2, generation=1)
        it.start(generation=1)
        grown = it.brain.told(WorldEvent.STEPPING, epoch=2)

    assert (len(grown.members), grown.steps_redone) == (2, 0)
    assert grown.loaded == str(it.work / "counted.pt")
    assert {report.event for report in it.brain.reports()} == {
        WorldEvent.FORMED,
        WorldEvent.STEPPING,
    }


@pytest.mark.slow
def test_what_a_script_saves_when_it_is_asked_to_end_is_what_the_next_world_loads(
    tmp_path: Path,
) -> None:
    with job(tmp_path, first=desired(1), script=SAVES_WHEN_ASKED) as it:
        it.begin(1)
        it.brain.wishes(2, generation=1)
        it.start(generation=1)
        grown = it.brain.told(WorldEvent.STEPPING, epoch=2)

    assert grown.loaded == str(it.work / "counted.pt")
    assert WorldEvent.CHANGE_FAILED not in {report.event for report in it.brain.reports()}
