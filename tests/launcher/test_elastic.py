"""Worlds change under real agents and a real DDP script, and no example is lost or used twice."""

import os
import signal
from pathlib import Path

from brain.types.job import Intent
from brain.types.world import Cause, ReplicaExit, WorldEvent
from tests.launcher.elastic import eventually, job, steps_of, wish

STEPS, SAVE = 60, 5
RUN = (f"--steps={STEPS}", f"--save-every={SAVE}", "--shared=0.06", "--alone=0.02")
LONG = ("--steps=100000", *RUN[1:])


def undisturbed(steps: int = STEPS) -> dict[str, object]:
    """The checkpoint of a run that nobody disturbs."""
    return {"step": steps, "used": steps_of(64, 16, steps)}


def test_a_job_grows_at_a_safe_point_and_redoes_no_step(tmp_path: Path) -> None:
    with job(tmp_path, *RUN, first=wish(1)) as it:
        it.start()
        eventually(it.saved, "a first checkpoint")
        it.brain.wishes(2, generation=1)
        it.start(generation=1)
        grown = it.brain.told(WorldEvent.STEPPING, epoch=2)
        ends = [it.ended(replica) for replica in (0, 1)]

    assert (len(grown.members), grown.cause, grown.steps_redone) == (2, Cause.PLAN, 0)
    assert grown.downtime_seconds is not None
    assert 0 < grown.downtime_seconds < 20
    assert [(end.exit, end.exit_code) for end in ends] == [(ReplicaExit.SUCCEEDED, 0)] * 2
    assert it.brain.told(WorldEvent.FINISHED, 5).final
    assert it.checkpoint() == undisturbed()
    assert not list(it.work.glob(".brain-pin-*"))
