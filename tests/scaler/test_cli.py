"""The scaler as a process: what happens to it, and what does not happen to its agents."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from brain.types.resources import Resources
from brain.types.world import ReplicaState
from scaler.files import locked, read_json
from scaler.local import LocalBackend, LocalMachine
from scaler.local.directory import AgentState
from tests.scaler.brain_twin import BrainTwin, served
from tests.scaler.wished import AGENT, JOB, end_all, eventually, wish

ROOT = Path(__file__).parents[2]
RUNNING = ReplicaState.RUNNING


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    machine = LocalMachine(capacity=Resources())
    end_all(LocalBackend(tmp_path, measure=lambda: machine, name="here", agent=AGENT))


@contextmanager
def scaling(home: Path, url: str) -> Iterator[subprocess.Popen[bytes]]:
    """A scaler as a process of its own; ended by force where the test has not ended it."""
    with (home / "scaler.log").open("ab") as printed:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.scaler.scaler_program", str(home), url],
            cwd=ROOT,
            stdout=printed,
            stderr=printed,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait(60)


def cli(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "scaler.cli", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )


def agent(home: Path, replica: int = 0) -> int | None:
    """The process that runs a replica."""
    folder = home / "replicas" / JOB / str(replica)
    state = read_json(folder / "state.json", AgentState)
    return state.pid if state and locked(folder / "lock") else None


def running(home: Path, replica: int = 0) -> int:
    return eventually(f"replica {replica} runs", lambda: agent(home, replica))


def told(twin: BrainTwin, *states: str) -> None:
    def look() -> bool | None:
        return [replica.state for replica in twin.told(JOB)] == list(states) or None

    eventually(f"Brain told {states}", look)


def test_ended_it_waits_for_no_poll_and_leaves_agents_running(home: Path):
    twin = BrainTwin(wish(1))
    with served(twin) as url, scaling(home, url) as scaler:
        pid = running(home)
        told(twin, RUNNING)
        asked = time.monotonic()
        scaler.terminate()
        code = scaler.wait(60)
        seconds = time.monotonic() - asked

        assert (code, agent(home)) == (0, pid)
        assert seconds < 15  # of the poll's 20


def test_an_agent_that_dies_is_replaced_at_once(home: Path):
    twin = BrainTwin(wish(1))
    with served(twin) as url, scaling(home, url):
        os.kill(running(home), signal.SIGKILL)
        running(home, 1)
        told(twin, ReplicaState.EXITED, RUNNING)

    assert twin.told(JOB)[0].detail == "its agent was ended by SIGKILL"


def test_killed_and_started_again_it_adopts_its_agents(home: Path):
    twin = BrainTwin(wish(2))
    with served(twin) as url:
        with scaling(home, url) as first:
            pids = running(home, 0), running(home, 1)
            first.kill()
        twin.reports.clear()
        with scaling(home, url):
            told(twin, RUNNING, RUNNING)

    assert (agent(home, 0), agent(home, 1)) == pids


def test_an_adopted_agent_that_dies_is_replaced(home: Path):
    twin = BrainTwin(wish(1))
    with served(twin) as url:
        with scaling(home, url):
            pid = running(home)
        with scaling(home, url):
            os.kill(pid, signal.SIGKILL)
            running(home, 1)


def test_killed_at_random_moments_it_starts_every_replica_once(home: Path):
    chance = random.Random(7)
    with served(BrainTwin(wish(3))) as url:
        for _ in range(6):
            with scaling(home, url) as scaler:
                time.sleep(chance.uniform(0.05, 0.9))
                scaler.kill()
        with scaling(home, url):
            eventually(
                "three agents",
                lambda: len([1 for id in range(20) if agent(home, id)]) == 3 or None,
            )

    starts = [path.read_text().splitlines() for path in home.rglob("starts")]
    assert [len(lines) for lines in starts] == [1] * len(starts)


def test_without_brain_it_heals(home: Path):
    twin = BrainTwin(wish(1))
    with served(twin) as url, scaling(home, url):
        pid = running(home)
        told(twin, RUNNING)
    with scaling(home, "http://127.0.0.1:9"):
        os.kill(pid, signal.SIGKILL)
        running(home, 1)


def test_a_second_scaler_of_a_state_directory_is_refused(home: Path):
    (home / "scaler.token").write_text("t")
    twin = BrainTwin()
    with served(twin) as url:
        first = subprocess.Popen(
            [sys.executable, "-m", "scaler.cli", "--home", str(home), "--url", url, "--slots=1"],
            cwd=ROOT,
            stderr=subprocess.DEVNULL,
        )
        eventually("its lock", lambda: locked(home / "scaler.lock") or None)
        second = cli("--home", str(home), "--url", url)
        # Before it is at work it hears of no signal.
        eventually("it is at work", lambda: twin.polls or None)
        first.terminate()

        assert first.wait(60) == 0
    assert second.returncode == 75
    assert f"another scaler manages {home}" in second.stderr


def test_slots_are_what_the_node_offers(home: Path):
    (home / "scaler.token").write_text("t")
    twin = BrainTwin()
    with served(twin) as url:
        process = subprocess.Popen(
            [sys.executable, "-m", "scaler.cli", "--home", str(home), "--url", url, "--slots=3"],
            cwd=ROOT,
            stderr=subprocess.DEVNULL,
        )
        node = eventually("a heartbeat", lambda: twin.nodes[-1] if twin.nodes else None)
        process.terminate()
        process.wait(60)

    assert (node.capacity.cpu_millis, node.slots, node.pool) == (3000, 3, "local")


@pytest.mark.parametrize("slots", ["0", "-1", "two", "1.5"])
def test_slots_that_are_none_are_refused(slots: str):
    answer = cli("--url", "http://127.0.0.1:9", f"--slots={slots}")

    assert answer.returncode == 2
    assert f"'{slots}' is not a whole number of at least 1" in answer.stderr


def test_without_a_token_it_says_where_one_comes_from(home: Path):
    answer = cli("--home", str(home), "--url", "http://127.0.0.1:9")

    assert answer.returncode == 1
    assert "scaler.token" in answer.stderr
    assert "start Brain's service once, which writes this file" in answer.stderr


@pytest.mark.parametrize(
    ("url", "token", "said"),
    [("http://brain:port", "x", "is not the URL"), ("http://127.0.0.1:9", "a b", "copy the token")],
)
def test_a_url_or_a_token_that_no_request_can_have_is_refused_in_a_sentence(
    tmp_path: Path, url: str, token: str, said: str
) -> None:
    (tmp_path / "scaler.token").write_text(token)
    answer = cli("--home", str(tmp_path), "--brain", url)
    assert answer.returncode == 1
    assert said in answer.stderr
    assert "Traceback" not in answer.stderr
