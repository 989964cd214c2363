"""One agent as a program: what it starts, what it leaves behind, how it ends."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from brain.types.job import Intent
from brain.types.world import Cause, ReplicaExit, WorldEvent
from launcher.agent.program import BUSY
from launcher.values.replica import ReplicaStatus, read, started_ticks
from launcher.workers.processes.process import free_port
from tests.launcher.elastic import JOB, desired, eventually, job

SLEEPS = "import time; time.sleep(600)"
ENDS = "import time; time.sleep(1)"


def test_an_agent_says_who_it_is_and_ends_with_its_workers(tmp_path: Path) -> None:
    with job(tmp_path, first=desired(1), script=ENDS) as it:
        replica = it.start()
        it.brain.told(WorldEvent.FORMED, epoch=1)
        status = read(it.directory / "0" / "state.json", ReplicaStatus)

        assert status is not None
        assert status.started_ticks == started_ticks(it.agents[replica].pid)
        assert it.ended(replica).exit is ReplicaExit.SUCCEEDED


def test_a_replica_has_one_agent(tmp_path: Path) -> None:
    with job(tmp_path, first=desired(1), script=SLEEPS) as it:
        it.start()
        it.brain.told(WorldEvent.FORMED, epoch=1)
        command = [sys.executable, "-m", "launcher.agent", "--replica-dir"]
        second = subprocess.run([*command, str(it.directory / "0")], timeout=60, check=False)

        assert second.returncode == BUSY


def test_a_script_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with job(tmp_path, first=desired(1)) as it:
        it.command = (sys.executable, "missing.py")
        end = it.ended(it.start())

        assert end.exit is ReplicaExit.FAILED
        assert "missing.py" in end.detail


def test_a_job_that_fails_too_often_is_given_up_with_the_workers_code(tmp_path: Path) -> None:
    with job(tmp_path, first=desired(1), script="raise SystemExit(7)") as it:
        end = it.ended(it.start())
        last = it.brain.told(WorldEvent.LOST, final=True)

        assert (end.exit, end.exit_code) == (ReplicaExit.FAILED, 7)
        assert (last.epoch, last.exit_code) == (3, 7)


def test_a_killed_agent_takes_its_workers_with_it_and_the_others_heal(tmp_path: Path) -> None:
    with job(tmp_path, first=desired(2), script=SLEEPS) as it:
        it.start(), it.start()
        it.brain.told(WorldEvent.FORMED, epoch=1)
        it.kill(1 - it.coordinator())
        healed = it.brain.told(WorldEvent.FORMED, epoch=2)

        assert (len(healed.members), healed.cause) == (1, Cause.MEMBERSHIP)
        eventually(lambda: len(it.workers()) == 1, "an end of the killed agent's worker")


def test_an_agent_that_hangs_is_lost_with_its_lease_and_the_others_go_on(tmp_path: Path) -> None:
    short = "--rdzv-conf=keep_alive_interval=1,keep_alive_max_attempt=4"
    with job(tmp_path, first=desired(2), script=SLEEPS) as it:
        it.command = (sys.executable, "-m", "torch.distributed.run", short, it.command[1])
        it.start(), it.start()
        it.brain.told(WorldEvent.FORMED, epoch=1)
        hung = 1 - it.coordinator()
        it.agents[hung].send_signal(signal.SIGSTOP)
        after = it.brain.told(WorldEvent.FORMED, epoch=2)

        assert it.brain.told(WorldEvent.LOST, epoch=1).cause is Cause.MEMBERSHIP
        assert [member.replica for member in after.members] == [1 - hung]


def test_a_coordinator_that_hangs_is_succeeded_and_follows_when_it_goes_on(
    tmp_path: Path,
) -> None:
    short = "--rdzv-conf=keep_alive_interval=1,keep_alive_max_attempt=2"
    with job(tmp_path, first=desired(2, patience_seconds=1), script=SLEEPS) as it:
        it.command = (sys.executable, "-m", "torch.distributed.run", short, it.command[1])
        it.start(), it.start()
        it.brain.told(WorldEvent.FORMED, epoch=1)
        hung = it.coordinator()
        frozen = it.workers_of(hung)
        for pid in (it.agents[hung].pid, *frozen):
            os.kill(pid, signal.SIGSTOP)
        after = it.brain.told(WorldEvent.FORMED, epoch=2)
        it.agents[hung].send_signal(signal.SIGCONT)  # its worker was ended by the guard meanwhile

        assert [member.replica for member in after.members] == [1 - hung]
        assert it.coordinator() == 1 - hung
        # Not their number: the agent that goes on may be in a third world already.
        eventually(lambda: not {*frozen} & {*it.workers()}, "an end of the worker that was frozen")
        eventually(lambda: "this agent joins it" in it.logs(), "an agent that stands down")
        assert len([r for r in it.brain.reports() if r.event is WorldEvent.LOST]) == 1


def test_a_single_replica_that_was_killed_is_replaced_by_the_next(tmp_path: Path) -> None:
    with job(tmp_path, first=desired(1), script=SLEEPS) as it:
        it.kill(it.start_and_wait())
        it.start()
        healed = it.brain.told(WorldEvent.FORMED, epoch=2)

        assert [member.replica for member in healed.members] == [1]
        assert it.brain.told(WorldEvent.LOST, epoch=1).cause is Cause.MEMBERSHIP


def test_an_agent_that_is_asked_to_end_leaves_and_the_others_go_on(tmp_path: Path) -> None:
    with job(tmp_path, first=desired(2), script=SLEEPS) as it:
        it.start(), it.start()
        it.brain.told(WorldEvent.FORMED, epoch=1)
        leaver = it.coordinator()
        it.agents[leaver].send_signal(signal.SIGTERM)
        after = it.brain.told(WorldEvent.FORMED, epoch=2)

        assert it.ended(leaver).exit is ReplicaExit.LEFT
        assert [member.replica for member in after.members] == [1 - leaver]
        eventually(lambda: len(it.workers()) == 1, "one worker")
        eventually(lambda: it.coordinator() == 1 - leaver, "a successor")
        assert "Traceback" not in (it.directory / str(leaver) / "agent.log").read_text()


def test_a_cancelled_job_ends_at_once(tmp_path: Path) -> None:
    with job(tmp_path, first=desired(1), script=SLEEPS) as it:
        replica = it.start_and_wait()
        it.brain.wishes(0, intent=Intent.CANCEL)

        assert it.ended(replica).exit is ReplicaExit.CANCELLED
        assert it.brain.told(WorldEvent.STOPPED).final


def test_a_job_heals_while_brain_is_away_and_tells_it_later(tmp_path: Path) -> None:
    with job(tmp_path, first=desired(1), script=SLEEPS) as it:
        before = it.workers_of(it.start_and_wait())
        it.brain.away = True
        os.kill(before[0], signal.SIGKILL)
        eventually(lambda: set(it.workers()) - set(before), "another worker")
        it.brain.away = False

        assert it.brain.told(WorldEvent.FORMED, epoch=2).cause is Cause.FAILURE
        told = [report.event for report in it.brain.reports()]
        assert told == [WorldEvent.FORMED, WorldEvent.LOST, WorldEvent.FORMED]


def test_a_brain_that_comes_back_on_another_port_is_found(tmp_path: Path) -> None:
    with job(tmp_path, first=desired(1), script=SLEEPS) as it:
        it.url = f"http://127.0.0.1:{free_port('127.0.0.1')}"
        it.start()
        eventually(lambda: "cannot be reached" in it.logs(), "an agent that finds no Brain")
        (tmp_path / "service.json").write_text(json.dumps({"pid": 1, "url": it.brain.url}))

        assert it.brain.told(WorldEvent.FORMED).epoch == 1


def test_reports_outlive_the_agent_that_could_not_deliver_them(tmp_path: Path) -> None:
    with job(tmp_path, first=desired(1), script=SLEEPS) as it:
        replica = it.start_and_wait()
        it.brain.away = True
        os.kill(it.workers_of(replica)[0], signal.SIGKILL)
        reports = tmp_path / "replicas" / JOB / "reports"
        eventually(lambda: len(list(reports.glob("*.json"))) == 2, "two reports on disk")
        it.kill(replica)
        it.brain.away = False
        it.start()

        assert it.brain.told(WorldEvent.LOST, epoch=1).cause is Cause.FAILURE


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_an_agent_whose_job_is_over_while_brain_is_away(
    tmp_path: Path, signum: signal.Signals
) -> None:
    waits = "import pathlib, time\nwhile not pathlib.Path('go').exists(): time.sleep(0.05)"
    with job(tmp_path, first=desired(1), script=waits) as it:
        replica = it.start_and_wait()
        it.brain.away = True
        (it.work / "go").touch()
        reports = it.directory / "reports"
        finished = f'"{WorldEvent.FINISHED}"'
        eventually(
            lambda: any(finished in each.read_text() for each in reports.glob("*.json")),
            "a report of the end on disk",
        )
        it.agents[replica].send_signal(signum)

        assert it.ended(replica).exit is ReplicaExit.SUCCEEDED
        assert it.agents[replica].returncode == 0
        assert "of this job's reports; start Brain again" in it.logs()
        it.brain.away = False
        it.start()
        assert it.brain.told(WorldEvent.FINISHED).final


MARKS = """
import os, pathlib, time
place = pathlib.Path(os.environ["MARKS"])
(place / f"{os.environ['RANK']}-of-{os.environ['WORLD_SIZE']}-{os.getpid()}").touch()
while not (place / "enough").exists():
    time.sleep(0.05)
"""


@contextmanager
def by_hand(tmp_path: Path, agents: int) -> Iterator[tuple[list["subprocess.Popen[bytes]"], Path]]:
    """``brain-run`` as often as asked for, one after the other, meeting at a free endpoint."""
    marks = tmp_path / "marks"
    marks.mkdir()
    script = tmp_path / "marks.py"
    script.write_text(MARKS)
    endpoint = f"127.0.0.1:{free_port('127.0.0.1')}"
    command = [sys.executable, "-m", "launcher.cli", "--nnodes=1:3", "--rdzv-backend=c10d"]
    command += [f"--rdzv-endpoint={endpoint}", "--max-restarts=3", str(script)]
    environment = {**os.environ, "MARKS": str(marks), "BRAIN_HOME": str(tmp_path / "home")}
    started: list[subprocess.Popen[bytes]] = []
    try:
        for size in range(1, agents + 1):
            started.append(subprocess.Popen(command, env=environment, start_new_session=True))
            eventually(lambda s=size: list(marks.glob(f"*-of-{s}-*")), f"a world of {size}")
        yield started, marks
    finally:
        for agent in started:
            agent.kill()
            agent.wait(timeout=30)


def test_agents_started_by_hand_meet_and_grow_without_a_brain(tmp_path: Path) -> None:
    with by_hand(tmp_path, 3) as (agents, marks):
        (marks / "enough").touch()

        assert [agent.wait(60) for agent in agents] == [0, 0, 0]
    assert not (tmp_path / "home").exists()  # no collector was started: nobody would read it


def test_the_endpoint_may_die_without_the_job(tmp_path: Path) -> None:
    with by_hand(tmp_path, 2) as (agents, marks):
        alone = set(marks.glob("0-of-1-*"))
        agents[0].kill()
        eventually(lambda: set(marks.glob("0-of-1-*")) - alone, "a world of the survivor")
        (marks / "enough").touch()

        assert agents[1].wait(60) == 0


def test_a_signal_by_hand_ends_the_workers_and_then_the_agent(tmp_path: Path) -> None:
    with by_hand(tmp_path, 1) as (agents, marks):
        worker = int(next(marks.glob("0-of-1-*")).name.rpartition("-")[2])
        agents[0].send_signal(signal.SIGTERM)

        assert agents[0].wait(60) == 128 + signal.SIGTERM
        assert not Path(f"/proc/{worker}").exists()
