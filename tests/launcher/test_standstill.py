"""A worker that somebody stopped is told from one that waits or is debugged."""

import os
import signal
import subprocess

from launcher.agent.worker_group.standstill import Standstill, states


def test_one_that_is_stopped_at_every_look_for_long_enough_is_overdue() -> None:
    seen = Standstill()

    looks = [seen.overdue({7: "T", 8: "S"}, now, 2.0) for now in (0.0, 0.5, 1.0, 1.5, 2.0)]

    assert looks == [(), (), (), (), (7,)]


def test_one_that_went_on_meanwhile_is_given_its_time_anew() -> None:
    seen = Standstill()
    for now, state in ((0.0, "T"), (0.5, "T"), (1.0, "S"), (1.5, "T")):
        seen.overdue({7: state}, now, 2.0)

    assert seen.overdue({7: "T"}, 2.0, 2.0) == ()


def test_a_pause_of_the_agent_itself_hardly_counts() -> None:
    seen = Standstill()
    looks = [seen.overdue({7: "T"}, now, 2.0) for now in (0.0, 0.5, 60.0, 60.5)]

    assert looks == [(), (), (), (7,)]


def test_a_debugger_stops_nobody_for_us() -> None:
    seen = Standstill()
    seen.overdue({7: "t"}, 0.0, 2.0)

    assert seen.overdue({7: "t"}, 9.0, 2.0) == ()


def test_a_stopped_process_is_seen_and_an_ended_one_is_not() -> None:
    with subprocess.Popen(["sleep", "60"]) as sleeper:
        try:
            os.kill(sleeper.pid, signal.SIGSTOP)
            os.waitid(os.P_PID, sleeper.pid, os.WSTOPPED)
            assert states([sleeper.pid]) == {sleeper.pid: "T"}
        finally:
            sleeper.kill()

    assert states([sleeper.pid]) == {}
