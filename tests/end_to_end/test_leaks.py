"""A real job leaks; Brain restarts it at its save, and its memory is free again.

A leak is judged after a quarter of an hour, so the test writes that quarter into Brain's store. The
job, its memory, its control group, the restart and the verdict are real.
"""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest

from brain import calls, estimates, wire
from brain.db import SqlStores
from brain.estimates.usage import Used
from brain.types.job import JobId
from brain.types.plan import PlanState, Verdict
from brain.types.world import Cause
from tests.end_to_end.needs import MIB, command, permitted, restart
from tests.end_to_end.test_amounts import judged
from tests.harness import FAST, Brain, running

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def brain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brain]:
    home = tmp_path_factory.mktemp("leaks")
    if why := permitted(home / "probe"):
        pytest.skip(why)
    with running(home / "home", "--slots=4", settings={**FAST, "verify_seconds": 90}) as brain:
        yield brain


def leaked(brain: Brain, job: str) -> bool:
    """Make Brain remember twenty minutes of the leak, once it has read enough of it."""
    with (
        closing(SqlStores(f"sqlite:///{brain.home / 'brain.db'}")) as stores,
        stores.transaction() as tx,
    ):
        stored = tx.fits.get(JobId(job), estimates.USAGE)
        used = wire.decode(stored.parameters, Used) if stored else Used()
        if not used.uses or used.uses[-1].memory_bytes < 450 * MIB:
            return False
        assert stored is not None
        (use,) = used.uses
        rising = tuple(use.memory_bytes - 20 * MIB * (20 - minute) for minute in range(21))
        used = replace(used, uses=(replace(use, minutely_bytes=rising),))
        tx.fits.put(replace(stored, parameters=wire.encode(used).decode()))
    return True


def test_a_leaking_job_is_restarted_at_its_save_and_has_its_memory_back(brain: Brain):
    job = brain.submit(
        "needy.py",
        "--keeps=0.5",
        "--saves=2",
        "--step=0.1",
        name="leaks",
        replicas={"min": 1, "max": 1},
        resources={"cpuMillis": 1000, "memoryBytes": 1536 * MIB},
        policy={"mode": "approve"},
    )
    brain.until("half a GiB of it", 120, job, lambda _: leaked(brain, job))
    made = brain.until("a restart", 60, job, lambda _: restart(brain, job))
    assert made.state is PlanState.PROPOSED
    assert "the job leaks memory and runs out of it in" in made.explanation.reason
    assert f"The restart of 1 replica: {made.explanation.reason}" in command(brain, "explain", job)
    assert "1, anew" in command(brain, "approve", job)
    plan = judged(brain, job, made.generation)

    assert plan.outcome.verdict is Verdict.KEPT, plan.outcome
    detail = brain.detail(job)
    assert detail.world is not None
    assert (detail.world.epoch, detail.world.cause) == (2, Cause.PLAN)
    assert detail.job.failures == 0
    assert not any(one.kind == "MemoryLeak" for one in detail.job.conditions)
    brain.send(calls.cancel(job))
    brain.finished(job)
