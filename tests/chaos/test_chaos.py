"""Anything may be killed at any moment: the job's arithmetic must not notice.

``make test`` kills each part of one job once, ``make chaos`` one of each job twenty times, both at
moments from a seed.
"""

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from brain import calls
from brain.views import ResizeRequest
from tests.end_to_end.test_loop import ENDLESS, finished, of_size
from tests.harness import Brain, running
from tests.patience import Patience

SEED = int(os.environ.get("BRAIN_CHAOS_SEED", "1"))


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


@pytest.mark.slow
def test_the_job_ends_as_if_nothing_had_happened(tmp_path: Path):
    kill_and_check(tmp_path, *([victim] for victim in VICTIMS), rng=random.Random(str(SEED)))


@pytest.mark.chaos
@pytest.mark.parametrize("victim", VICTIMS)
def test_twenty_times(victim: str, tmp_path: Path):
    print(f"seed {SEED}, victim {victim}")
    for turn in range(2):
        rng = random.Random(f"{SEED}/{victim}/{turn}")
        kill_and_check(tmp_path / str(turn), [victim] * 10, rng=rng)


def kill_and_check(home: Path, *rounds: Sequence[str], rng: random.Random) -> None:
    """Let a job grow, kill the victims of a round at random moments of that, and hold the job to
    every promise; for the next round it shrinks again."""
    with running(home, "--slots=4") as brain:
        job = brain.submit(*ENDLESS, replicas={"min": 1, "max": 2}, restarts={"limit": 50})
        brain.saved(job)
        killed = set[str]()
        for number, victims in enumerate(rounds):
            if number:
                brain.send(calls.resize(job, ResizeRequest(replicas=1)))
                brain.until("one replica", 60, job, of_size(1))
            brain.send(calls.resize(job, ResizeRequest(replicas=2)))
            for victim in victims:
                time.sleep(rng.uniform(0.2, 6.0))
                pid = VICTIMS[victim](brain)
                if pid is not None:
                    os.kill(pid, signal.SIGKILL)
            brain.until(f"two replicas after {victims[0]}", 120, job, of_size(2))
            brain.saved(job)
            killed.update(victims)
            if not killed & {"collector", "worker"}:
                assert brain.detail(job).job.losses.gaps == 0, victims
        finished(brain, job)
        check_events(brain, job)
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
