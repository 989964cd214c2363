"""Anything may be killed at any moment: the job's arithmetic must not notice.

``make test`` kills each part once, ``make chaos`` twenty times, both at moments from a seed.
"""

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from brain import calls
from brain.views import ResizeRequest
from tests.end_to_end.test_loop import checkpoint, undisturbed
from tests.harness import Brain, running
from tests.patience import Patience

SEED = int(os.environ.get("BRAIN_CHAOS_SEED", "1"))
STEPS = 240


def agent(brain: Brain) -> int | None:
    """An agent that does not coordinate, where there is one."""
    coordinating = _coordinator(brain)
    others = [pid for pid in _agents(brain) if pid != coordinating]
    return others[-1] if others else coordinating


def worker(brain: Brain) -> int | None:
    found = [pid for pid, words in brain.processes() if any("counted.py" in w for w in words)]
    return found[-1] if found else None


VICTIMS: dict[str, Callable[[Brain], int | None]] = {
    "service": lambda brain: brain.pid_of("brain.service"),
    "scaler": lambda brain: brain.pid_of("scaler.cli"),
    "agent": agent,
    "coordinator": lambda brain: _coordinator(brain),
    "collector": lambda brain: brain.pid_of("collectors.loop"),
    "worker": worker,
}


@pytest.mark.parametrize("victim", VICTIMS)
def test_the_job_ends_as_if_nothing_had_happened(victim: str, tmp_path: Path):
    kill_and_check(tmp_path, victim, times=1, rng=random.Random(f"{SEED}/{victim}"))


@pytest.mark.chaos
@pytest.mark.parametrize("victim", VICTIMS)
def test_twenty_times(victim: str, tmp_path: Path):
    print(f"seed {SEED}, victim {victim}")
    for turn in range(2):
        rng = random.Random(f"{SEED}/{victim}/{turn}")
        kill_and_check(tmp_path / str(turn), victim, times=10, rng=rng)


def kill_and_check(home: Path, victim: str, *, times: int, rng: random.Random) -> None:
    """Run a job through a resize, kill ``victim`` at random moments, hold it to every promise."""
    steps = STEPS + 60 * (times - 1)
    with running(home, "--slots=4") as brain:
        job = brain.submit(
            "counted.py",
            f"--steps={steps}",
            replicas={"min": 1, "max": 2},
            restarts={"limit": 50},
        )
        brain.saved(job)
        brain.send(calls.resize(job, ResizeRequest(replicas=2)))
        for _ in range(times):
            time.sleep(rng.uniform(0.2, 6.0))
            pid = VICTIMS[victim](brain)
            if pid is not None and brain.detail(job).job.finished_at is None:
                os.kill(pid, signal.SIGKILL)
        detail = brain.finished(job, seconds=120 + 10 * times)
        assert detail.job.state == "Succeeded", f"{detail.job.reason}\n{brain.logs()}"
        final = checkpoint(brain)
        assert final["step"] == steps
        assert torch.equal(final["used"], undisturbed(steps))  # type: ignore[arg-type]
        check_events(brain, job)
        if victim not in ("collector", "worker"):
            assert detail.job.losses.gaps == 0
        wait_for_no_orphans(brain)


def check_events(brain: Brain, job: str) -> None:
    """Each generation enters Applying once, each replica id is started once."""
    seen = Counter((event.kind, event.subject) for event in brain.events(job))
    for (kind, subject), count in seen.items():
        if kind in ("plan.Applying", "replica.running", "world.formed"):
            assert count == 1, f"{kind} {subject} happened {count} times"


def wait_for_no_orphans(brain: Brain) -> None:
    """Agents and workers of a finished job are gone."""
    patience = Patience(20)
    while True:
        left = [
            words
            for _, words in brain.processes()
            if "launcher.agent" in words or any("counted.py" in word for word in words)
        ]
        if not left:
            return
        assert not patience.over, f"still running: {left}"
        time.sleep(0.2)


def _agents(brain: Brain) -> list[int]:
    return sorted(pid for pid, words in brain.processes() if "launcher.agent" in words)


def _coordinator(brain: Brain) -> int | None:
    import json

    for record in brain.home.glob("replicas/*/coordinator.json"):
        pid = int(json.loads(record.read_text())["pid"])
        if pid in _agents(brain):
            return pid
    return None
