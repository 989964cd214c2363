"""docs/guides/launcher.md does what it says: its commands run, its walk-through happens."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from launcher import flags
from launcher.torchrun import described
from tests.launcher.conformance.cases import CASES
from tests.launcher.guide import GUIDE, tables

TEXT = GUIDE.read_text()
SCRIPTS = dict(re.findall(r"```python\n# (\S+)\n(.*?)```", TEXT, re.DOTALL))
COMMANDS = re.findall(
    r"^\$ (.*)\n((?:(?!\$ |```).*\n)*)",
    "".join(re.findall(r"```console\n(.*?)```", TEXT, re.DOTALL)),
    re.MULTILINE,
)
STEPS = re.findall(
    r"^(\w+)([$>]) (.*)$",
    "".join(re.findall(r"```terminal\n(.*?)```", TEXT, re.DOTALL)),
    re.MULTILINE,
)
#: A change of the world on a machine that is busy with other tests.
_STEP_SECONDS = 90.0


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for name, lines in SCRIPTS.items():
        (tmp_path / name).write_text(lines)
    return tmp_path


def environment(place: Path) -> dict[str, str]:
    """A shell's, in which ``brain-run`` is ours."""
    ours = place / "bin"
    ours.mkdir()
    (ours / "brain-run").write_text(f'#!/bin/sh\nexec {sys.executable} -m launcher.cli "$@"\n')
    (ours / "brain-run").chmod(0o755)
    path = f"{ours}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    return dict(os.environ) | {"HOME": str(place), "PATH": path}


def test_its_tables_of_flags_are_the_parsers() -> None:
    assert tables() in TEXT, "run python -m tests.launcher.guide"


def test_it_counts_the_cases_that_there_are() -> None:
    assert f"through {len(CASES)} invocations" in TEXT


def test_flags_of_torchrun_that_differ_are_flags_of_torchrun() -> None:
    named = set(re.findall(r"^\| `(--[a-z-]+)` \|", TEXT.partition("<!-- flags")[0], re.MULTILINE))
    known = {
        name for flag in described.torchrun_of(sys.executable, {}).flags for name in flag.names
    }
    assert named <= known
    assert {f"--{dest.replace('_', '-')}" for dest in flags.IDLE_TORCHRUN} <= named


@pytest.mark.parametrize(("command", "says"), COMMANDS, ids=[command for command, _ in COMMANDS])
def test_commands_print_what_the_guide_shows(place: Path, command: str, says: str) -> None:
    ran = subprocess.run(
        ["bash", "-c", command],
        cwd=place,
        env=environment(place),
        stdout=subprocess.PIPE,
        text=True,
        timeout=100,
        check=False,
    )
    assert sorted(ran.stdout.splitlines()) == sorted(says.splitlines())


class Terminal:
    """One node of the walk-through, and what it has printed that nobody asked about yet."""

    def __init__(self, place: Path, environment: dict[str, str], command: str) -> None:
        # Without a shell between, so that signals reach the agent.
        self._running = subprocess.Popen(
            command.split(),
            cwd=place,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._lines: list[str] = []
        self._more = threading.Condition()
        self._reading = threading.Thread(target=self._read)
        self._reading.start()

    def close(self) -> None:
        self._running.kill()
        self._running.wait()
        self._reading.join(_STEP_SECONDS)
        assert self._running.stdout is not None
        self._running.stdout.close()

    def press(self, what: str) -> None:
        self._running.send_signal(signal.SIGKILL if "kill" in what else signal.SIGINT)
        self._running.wait(_STEP_SECONDS)

    def shows(self, pattern: str) -> bool:
        """Whether it prints the line in time; lines before it are forgotten."""
        deadline = time.monotonic() + _STEP_SECONDS
        with self._more:
            while time.monotonic() < deadline:
                while self._lines:
                    if re.fullmatch(pattern, self._lines.pop(0)):
                        return True
                self._more.wait(deadline - time.monotonic())
        return False

    def _read(self) -> None:
        assert self._running.stdout is not None
        for line in self._running.stdout:
            with self._more:
                self._lines.append(line.rstrip("\n"))
                self._more.notify()


def steps() -> Iterator[tuple[str, str, str]]:
    """The walk-through's, at a port that nobody else has."""
    port = str(20_000 + os.getpid() % 10_000)
    for terminal, sign, words in STEPS:
        yield terminal, sign, words.replace("29400", port)


@pytest.mark.timeout(400)
def test_the_walk_through_happens(place: Path) -> None:
    pytest.importorskip("torch")
    given = environment(place)
    terminals: dict[str, Terminal] = {}
    try:
        for terminal, sign, words in steps():
            if sign == ">":
                assert terminals[terminal].shows(re.escape(words).replace("…", r"\d+")), words
            elif words.startswith("brain-run"):
                if terminal in terminals:
                    terminals[terminal].close()
                terminals[terminal] = Terminal(place, given, words)
            else:
                terminals[terminal].press(words)
    finally:
        for each in terminals.values():
            each.close()
