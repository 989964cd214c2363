"""One agent as a program: what it starts, what it leaves behind, how it ends."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from brain.types.job import Intent
from brain.types.world import Cause, ReplicaExit, WorldEvent
from launcher.agent import BUSY
from launcher.replica import ReplicaStatus, read, started_ticks
from tests.launcher.elastic import JOB, eventually, job, wish

SLEEPS = "import time; time.sleep(600)"
ENDS = "import time; time.sleep(1)"


def test_an_agent_says_who_it_is_and_ends_with_its_workers(tmp_path: Path) -> None:
    with job(tmp_path, first=wish(1), script=ENDS) as it:
        replica = it.start()
        it.brain.told(WorldEvent.FORMED, epoch=1)
        status = read(it.directory / "0" / "state.json", ReplicaStatus)

        assert status is not None
        assert status.started_ticks == started_ticks(it.agents[replica].pid)
        assert it.ended(replica).exit is ReplicaExit.SUCCEEDED


def test_a_replica_has_one_agent(tmp_path: Path) -> None:
    with job(tmp_path, first=wish(1), script=SLEEPS) as it:
        it.start()
        it.brain.told(WorldEvent.FORMED, epoch=1)
        command = [sys.executable, "-m", "launcher.agent", "--replica-dir"]
        second = subprocess.run([*command, str(it.directory / "0")], timeout=20, check=False)

        assert second.returncode == BUSY


def test_a_script_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with job(tmp_path, first=wish(1)) as it:
        it.command = (sys.executable, "missing.py")
        end = it.ended(it.start())

        assert end.exit is ReplicaExit.FAILED
        assert "missing.py" in end.detail


def test_a_job_that_fails_too_often_is_given_up_with_the_workers_code(tmp_path: Path) -> None:
    with job(tmp_path, first=wish(1), script="raise SystemExit(7)") as it:
        end = it.ended(it.start())
        last = it.brain.told(WorldEvent.LOST, final=True)

        assert (end.exit, end.exit_code) == (ReplicaExit.FAILED, 7)
        assert (last.epoch, last.exit_code) == (4, 7)


def test_a_killed_agent_takes_its_workers_with_it_and_the_others_heal(tmp_path: Path) -> None:
    with job(tmp_path, first=wish(2), script=SLEEPS) as it:
        it.start(), it.start()
        it.brain.told(WorldEvent.FORMED, epoch=1)
        it.kill(1 - it.coordinator())
        healed = it.brain.told(WorldEvent.FORMED, epoch=2)

        assert (len(healed.members), healed.cause) == (1, Cause.MEMBERSHIP)
        eventually(lambda: len(it.workers()) == 1, "an end of the killed agent's worker")


def test_a_single_replica_that_was_killed_is_replaced_by_the_next(tmp_path: Path) -> None:
    with job(tmp_path, first=wish(1), script=SLEEPS) as it:
        it.kill(it.start_and_wait())
        it.start()
        healed = it.brain.told(WorldEvent.FORMED, epoch=2)

        assert [member.replica for member in healed.members] == [1]
        assert it.brain.told(WorldEvent.LOST, epoch=1).cause is Cause.MEMBERSHIP


def test_an_agent_that_is_asked_to_end_leaves_and_the_others_go_on(tmp_path: Path) -> None:
    with job(tmp_path, first=wish(2), script=SLEEPS) as it:
        it.start(), it.start()
        it.brain.told(WorldEvent.FORMED, epoch=1)
        leaver = it.coordinator()
        it.agents[leaver].send_signal(signal.SIGTERM)
        after = it.brain.told(WorldEvent.FORMED, epoch=2)

        assert it.ended(leaver).exit is ReplicaExit.LEFT
        assert [member.replica for member in after.members] == [1 - leaver]
        eventually(lambda: len(it.workers()) == 1, "one worker")
        eventually(lambda: it.coordinator() == 1 - leaver, "a successor")


def test_a_cancelled_job_ends_at_once(tmp_path: Path) -> None:
    with job(tmp_path, first=wish(1), script=SLEEPS) as it:
        replica = it.start_and_wait()
        it.brain.wishes(0, intent=Intent.CANCEL)

        assert it.ended(replica).exit is ReplicaExit.CANCELLED
        assert it.brain.told(WorldEvent.STOPPED).final


def test_a_job_heals_while_brain_is_away_and_tells_it_later(tmp_path: Path) -> None:
    with job(tmp_path, first=wish(1), script=SLEEPS) as it:
        it.start_and_wait()
        it.brain.away = True
        before = it.workers()
        os.kill(before[0], signal.SIGKILL)
        eventually(lambda: set(it.workers()) - set(before), "another worker")
        it.brain.away = False

        assert it.brain.told(WorldEvent.FORMED, epoch=2).cause is Cause.FAILURE
        told = [report.event for report in it.brain.reports()]
        assert told == [WorldEvent.FORMED, WorldEvent.LOST, WorldEvent.FORMED]


def test_reports_outlive_the_agent_that_could_not_deliver_them(tmp_path: Path) -> None:
    with job(tmp_path, first=wish(1), script=SLEEPS) as it:
        replica = it.start_and_wait()
        it.brain.away = True
        os.kill(it.workers()[0], signal.SIGKILL)
        reports = tmp_path / "replicas" / JOB / "reports"
        eventually(lambda: len(list(reports.glob("*.json"))) == 2, "two reports on disk")
        it.kill(replica)
        it.brain.away = False
        it.start()

        assert it.brain.told(WorldEvent.LOST, epoch=1).cause is Cause.FAILURE
