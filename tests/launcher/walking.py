"""Guides as programs: their scripts, their commands, and their walk-throughs in several terminals.

```python          a file, named by its first line
```console         commands, and what they print
```terminal        one$ a command, in a terminal of its own
                   one> a line that it prints; … stands for a number
                   one$ ^C, one$ kill -9: what is done to it
"""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from launcher.workers.processes.process import free_port

#: A change of the world on a machine that is busy with other tests.
_STEP_SECONDS = 90.0


def scripts(text: str) -> dict[str, str]:
    """Name -> content of the files that a guide shows."""
    return dict(re.findall(r"```python\n# (\S+\.py)\n(.*?)```", text, re.DOTALL))


def written(text: str, place: Path) -> Path:
    """A directory with these files."""
    for name, lines in scripts(text).items():
        (place / name).write_text(lines)
    return place


def environment(place: Path) -> dict[str, str]:
    """A shell's, in which ``brain-run`` is ours.

    Lines are whole in it: where ``PYTHONUNBUFFERED`` is set, ``print`` writes a line and its end
    apart, and two workers that share a terminal come in between.
    """
    ours = place / "bin"
    ours.mkdir()
    (ours / "brain-run").write_text(f'#!/bin/sh\nexec {sys.executable} -m launcher.cli "$@"\n')
    (ours / "brain-run").chmod(0o755)
    path = f"{ours}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return inherited | {"HOME": str(place), "PATH": path}


def walk(text: str, place: Path, given: dict[str, str]) -> None:
    """Do what a guide's terminals do, at a port that nobody else has.

    Raises:
        AssertionError: a line is not printed in time.
    """
    port = str(free_port("127.0.0.1"))
    blocks = "".join(re.findall(r"```terminal\n(.*?)```", text, re.DOTALL))
    terminals: dict[str, Terminal] = {}
    try:
        for name, sign, said in re.findall(r"^(\w+)([$>]) (.*)$", blocks, re.MULTILINE):
            words = said.replace("29400", port)
            if sign == ">":
                pattern = re.escape(words).replace("…", r"\d+")
                assert terminals[name].shows(pattern), words
            elif words.startswith("brain-run"):
                if name in terminals:
                    terminals[name].close()
                terminals[name] = Terminal(place, given, words)
            else:
                terminals[name].press(words)
    finally:
        for each in terminals.values():
            each.close()


class Terminal:
    """One node of a walk-through, and what it has printed that nobody asked about yet."""

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
        """End it, and all that is left of it."""
        self._running.kill()
        self._running.wait()
        self._reading.join(_STEP_SECONDS)
        assert self._running.stdout is not None
        self._running.stdout.close()

    def press(self, what: str) -> None:
        """Ctrl-C or kill -9; returns when it has ended."""
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
