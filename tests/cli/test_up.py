"""``brain up``: what it starts, what it starts again, when it gives up, and how it ends."""

import asyncio
import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest

from brain.cli.supervise import Program, Restart, RestartsExhausted, after_exit, keep
from tests.patience import Patience

T = TypeVar("T")
ROOT = Path(__file__).parents[2]
LIVES = {"service": "service", "scaler": "scaler"}


@pytest.mark.parametrize(
    ("code", "lived", "quick", "follows"),
    [
        pytest.param(1, 0.1, 0, Restart(0.5, 1), id="first-quick-end"),
        pytest.param(1, 0.1, 1, Restart(1.0, 2), id="pauses-grow"),
        pytest.param(1, 0.1, 2, RestartsExhausted(3), id="no-remedy"),
        pytest.param(-signal.SIGSEGV, 0.1, 2, RestartsExhausted(3), id="a-crash-is-its-own"),
        pytest.param(1, 60, 2, Restart(0.5, 0), id="it-worked-for-a-while"),
        pytest.param(-signal.SIGKILL, 0.1, 2, Restart(0.5, 2), id="killed-from-outside"),
    ],
)
def test_what_follows_an_exit(
    code: int, lived: float, quick: int, follows: Restart | RestartsExhausted
):
    assert after_exit(code, lived_seconds=lived, quick=quick) == follows


def test_a_slow_start_that_fails_counts_as_a_quick_end():
    assert after_exit(1, lived_seconds=60, quick=2, worked=False) == RestartsExhausted(3)


_TALKS = """
import time
for _ in range(17):
    print(("x" * 1023 + chr(10)) * 1024, end="", flush=True)
while True:
    print("later", flush=True)
    time.sleep(0.05)
"""


def test_the_log_of_a_program_that_never_ends_is_set_aside(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "service.log"
    program = Program("service", [sys.executable, "-c", _TALKS], {}, log)

    async def look() -> None:
        kept = asyncio.create_task(keep(program, lambda _: None))
        try:
            async with asyncio.timeout(60):
                while program.last_words(1) != "later" or log.stat().st_size > 2**20:
                    await asyncio.sleep(0.1)
        finally:
            kept.cancel()
            await asyncio.wait([kept])

    asyncio.run(look())
    older = log.with_suffix(".log.1")
    assert older.stat().st_size > 16 * 2**20
    assert stat.S_IMODE(older.stat().st_mode) == 0o600
    assert log.read_text().endswith("later\n")


class Up:
    """A ``brain up`` as a process."""

    def __init__(self, home: Path, service: str, scaler: str) -> None:
        self.home = home
        self.printed = home.parent / "printed"
        with self.printed.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.cli.up_program", str(home), service, scaler],
                cwd=ROOT,
                stdout=output,
                stderr=output,
            )

    def says(self, text: str) -> str:
        def look() -> str | None:
            said = self.printed.read_text()
            return said if text in said else None

        return eventually(f"{text!r} printed", look)

    def child(self, name: str, *, other_than: int = 0) -> int:
        """The pid of a child that runs, once it is another one than that."""

        def look() -> int | None:
            try:
                pid = int((self.home / f"{name}.pid").read_text())
            except (FileNotFoundError, ValueError):
                return None
            return pid if pid != other_than and alive(pid) else None

        return eventually(f"{name} runs", look)

    def url(self) -> str:
        return str(json.loads((self.home / "service.json").read_text())["url"])


@contextmanager
def started(tmp_path: Path, service: str = "service", scaler: str = "scaler") -> Iterator[Up]:
    up = Up(tmp_path / "home", service, scaler)
    try:
        yield up
    finally:
        up.process.kill()
        up.process.wait(60)


def eventually(stage: str, look: Callable[[], T | None], *, seconds: float = 60) -> T:
    patience = Patience(seconds)
    while (found := look()) is None:
        assert not patience.over, f"{stage}: not within {seconds:g} s"
        time.sleep(0.02)
    return found


def alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False


def gone(*pids: int) -> None:
    eventually(f"{pids} gone", lambda: not any(alive(pid) for pid in pids) or None)


def test_it_starts_both_and_says_where_to_sign_in(tmp_path: Path):
    with started(tmp_path) as up:
        up.child("scaler")
        said = up.says("sign in")

        assert f"Brain is up at {up.url()}" in said
        assert (
            "Open this link within 10 minutes to sign in as ada; it works once: "
            f"{up.url()}/#signin=brn_code"
        ) in said
        told = (up.home / "logs" / "scaler.log").read_text()
        assert f"'--url', '{up.url()}', '--slots', '2'" in told


def test_only_the_owner_sees_the_state_directory(tmp_path: Path):
    (tmp_path / "home").mkdir(mode=0o755)
    with started(tmp_path) as up:
        up.child("scaler")
        modes = [path.stat().st_mode for path in (up.home, *(up.home / "logs").iterdir())]

    assert [stat.S_IMODE(mode) & 0o077 for mode in modes] == [0, 0, 0]


def test_a_second_one_is_refused_with_process_and_remedy(tmp_path: Path):
    with started(tmp_path) as up:
        up.child("service")
        second = subprocess.run(
            [sys.executable, "-m", "brain.cli", "up", "--home", str(up.home), "--port=0"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=60,
        )
        pid = up.process.pid

    assert second.returncode == 5
    assert f"(process {pid}) runs on {up.home}; stop it with `kill {pid}`" in second.stderr


def test_a_child_that_dies_is_started_again(tmp_path: Path):
    with started(tmp_path) as up:
        first = up.child("scaler")
        os.kill(first, signal.SIGKILL)
        up.child("scaler", other_than=first)

        assert "scaler ended (SIGKILL) and restarts in 0.5 s" in up.says("scaler ended")


def test_the_service_keeps_its_port_when_it_is_started_again(tmp_path: Path):
    with started(tmp_path) as up:
        first, scaler = up.child("service"), up.child("scaler")
        url = up.url()
        os.kill(first, signal.SIGKILL)
        second = up.child("service", other_than=first)
        eventually("its record", lambda: record_of(up.home) == second or None)

        assert (up.url(), up.child("scaler")) == (url, scaler)


def test_a_free_port_is_kept_for_the_agents_that_know_it(tmp_path: Path):
    with started(tmp_path) as first:
        first.child("scaler")
        url = first.url()
        first.process.terminate()
        first.process.wait(60)
    with started(tmp_path) as second:
        eventually("both up", lambda: second.printed.read_text().count("is up at") == 2 or None)

        assert second.url() == url


def record_of(home: Path) -> int:
    return int(json.loads((home / "service.json").read_text())["pid"])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_asked_to_end_it_ends_its_children(tmp_path: Path, number: signal.Signals):
    with started(tmp_path) as up:
        children = up.child("service"), up.child("scaler")
        up.process.send_signal(number)

        assert up.process.wait(60) == 0
        gone(*children)
    assert "Brain has stopped; jobs keep running." in up.printed.read_text()


def test_children_that_do_not_listen_are_ended_by_force(tmp_path: Path):
    with started(tmp_path, service="stubborn") as up:
        children = up.child("service"), up.child("scaler")
        up.process.terminate()

        assert up.process.wait(60) == 0
        gone(*children)


def test_killed_it_takes_its_children_along(tmp_path: Path):
    with started(tmp_path) as up:
        children = up.child("service"), up.child("scaler")
        up.process.kill()

        gone(*children)


@pytest.mark.parametrize("failing", ["service", "scaler"])
def test_a_child_that_cannot_work_ends_it_with_the_childs_words(tmp_path: Path, failing: str):
    kinds = LIVES | {failing: "failing"}
    with started(tmp_path, **kinds) as up:
        assert up.process.wait(60) == 1
    said = up.printed.read_text()
    assert f"brain: {failing} ended 3 times as soon as it was started (exit code 1)" in said
    assert "failing: port 127.0.0.1:8080 is taken" in said
    assert str(up.home / "logs" / f"{failing}.log") in said


def brain_up(home: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "brain.cli", "up", f"--home={home}", *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
    )


def test_a_taken_port_is_named_with_the_remedy(tmp_path: Path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ran = brain_up(tmp_path / "home", f"--port={port}")

    assert ran.returncode == 1
    assert f"port 127.0.0.1:{port} is in use" in ran.stderr
    assert "choose another with --port" in ran.stderr


def test_a_database_that_cannot_be_written_is_named(tmp_path: Path):
    ran = brain_up(tmp_path / "home", "--port=0", "--database-url=sqlite:////proc/no/brain.db")

    assert ran.returncode == 1
    assert "/proc/no/brain.db" in ran.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--set=tick_second=1"], "there is no setting tick_second; did you mean tick_seconds?"),
        (["--set=tick_seconds"], "--set 'tick_seconds' has no value"),
        (["--set=port=many"], "port 'many' is not a whole number; write 4, for example"),
        (["--slots=0"], "0 is not in the range x>=1"),
    ],
)
def test_options_that_make_no_sense_are_usage_errors(
    tmp_path: Path, options: list[str], words: str
):
    ran = brain_up(tmp_path / "home", *options)

    assert ran.returncode == 2
    assert words in ran.stderr


def test_a_state_directory_that_cannot_be_made_is_named():
    ran = brain_up(Path("/proc/no/home"))

    assert ran.returncode == 1
    assert "state directory /proc/no/home" in ran.stderr
    assert "choose another with --home" in ran.stderr


def test_a_service_that_does_not_become_ready_is_not_said_to_be_up(tmp_path: Path):
    with started(tmp_path, service="unready") as up:
        said = up.says("Brain listens at ")
    assert re.search(r"listens at http://127\.0\.0\.1:\d+ and is not ready yet \(.+\), state", said)
    assert "Brain is up" not in said
