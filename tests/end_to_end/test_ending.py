"""A script that saves at its end, by every way in which Brain stops a job: real processes."""

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from brain import calls
from brain.views import JobDetail, ResizeRequest
from tests.end_to_end.test_loop import of_size
from tests.harness import Brain, running
from tests.serving import eventually

pytestmark = pytest.mark.slow

#: Longer than a lease, than the 10 s that replicas had once, and than scalers waited.
SECONDS = 16


@pytest.fixture
def brain(tmp_path: Path) -> Iterator[Brain]:
    with running(tmp_path, "--slots=4") as brain:
        yield brain


def submitted(brain: Brain, *, start: int = 1, **document: object) -> str:
    """A job whose first ``start`` replicas train; forgets handlers of a smaller world."""
    script = ("counted.py", "--steps=1000000", f"--ends-slowly={SECONDS}")
    replicas = {"min": 1, "max": start, "start": start}
    job = brain.submit(*script, name="slow", replicas=replicas, **document)
    # On a busy machine the first world begins without a late replica, and is stopped to grow.
    brain.until("all replicas", 60, job, of_size(start))
    brain.saved(job)
    eventually(lambda: handlers(brain, "ended") == handlers(brain, "ending"))
    for mark in brain.work("slow").glob("end*-of-*"):
        mark.unlink()
    return job


def handlers(brain: Brain, what: str) -> set[str]:
    """The workers whose handlers began, or ended: rank, size of the world and process id."""
    return {path.name.partition("-")[2] for path in brain.work("slow").glob(f"{what}-*")}


def all_ended(brain: Brain, count: int) -> None:
    """``count`` handlers began, and each ends; one may outlast the begin of the next world."""
    eventually(lambda: handlers(brain, "ended") == handlers(brain, "ending"))
    assert len(handlers(brain, "ending")) == count


def in_state(state: str):
    def look(detail: JobDetail) -> str | None:
        return detail.job.reason if detail.job.state == state else None

    return look


def test_a_handler_has_its_grace_when_the_job_shrinks_is_suspended_and_is_cancelled(brain: Brain):
    job = submitted(brain, start=2)
    brain.send(calls.resize(job, ResizeRequest(replicas=1)))
    brain.until("one replica", 60, job, of_size(1))
    all_ended(brain, 2)

    brain.saved(job)
    suspended = brain.send(calls.suspend(job))
    assert suspended.reason.endswith("its script has 30 s to save and end")
    brain.until("a suspended job", 60, job, in_state("Suspended"))
    all_ended(brain, 3)

    brain.send(calls.resume(job))
    brain.until("the job again", 60, job, of_size(1))
    brain.saved(job)
    brain.send(calls.cancel(job))
    brain.until("a cancelled job", 60, job, in_state("Cancelled"))
    all_ended(brain, 4)
    said = (brain.home / "replicas" / job / "0" / "agent.log").read_text()
    assert "have 30 s to save and end (checkpoint.graceSeconds)\n" in said


def test_a_job_whose_directory_was_deleted_fails_with_the_reason_and_leaves_nothing(brain: Brain):
    job = submitted(brain, start=2)
    # At once: the agents write files into the directory while it is deleted file by file.
    shutil.rmtree((brain.home / "replicas" / job).rename(brain.home / "deleted"))

    failed = brain.finished(job, seconds=20).job
    assert failed.state == "Failed"
    assert failed.reason.startswith("its directory is gone: somebody deleted")
    eventually(lambda: not any("launcher.agent" in words for _, words in brain.processes()))


def test_a_replica_that_is_asked_to_leave_has_its_scripts_grace(brain: Brain):
    job = submitted(brain, checkpoint={"graceSeconds": SECONDS + 30})
    agent = next(pid for pid, words in brain.processes() if "launcher.agent" in words)
    os.kill(agent, signal.SIGTERM)
    brain.until(
        "the end of the handler", 60, job, lambda _: len(handlers(brain, "ended")) == 1 or None
    )
    again = brain.until("another replica", 60, job, lambda d: d.world and d.world.epoch > 1 and d)
    assert again.job.state in ("Running", "Changing", "Degraded")
    brain.saved(job)  # else its script may have no handler yet
    brain.send(calls.cancel(job))
    brain.finished(job)
    all_ended(brain, 2)
