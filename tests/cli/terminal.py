"""Runs a command as a person at a terminal of some width does, or as a program does in a pipe."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Mapping
from contextlib import suppress

_STYLES = re.compile(r"\x1b\[[0-9;]*m")


def typed(*words: str, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """What comes of ``brain WORDS`` without a terminal."""
    return subprocess.run(
        [sys.executable, "-m", "brain.cli", *words],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def shown(*words: str, environment: Mapping[str, str], columns: int | None) -> str:
    """What ``brain WORDS`` prints at a terminal so many columns wide; None: into a pipe."""
    command = [sys.executable, "-m", "brain.cli", *words]
    if columns is None:
        return typed(*words, environment=environment).stdout
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    with subprocess.Popen(
        command, env=os.environ | environment, stdin=theirs, stdout=theirs, stderr=theirs
    ) as run:
        os.close(theirs)
        printed = bytearray()
        with suppress(OSError):  # the other end was closed
            while piece := os.read(ours, 65_536):
                printed += piece
    os.close(ours)
    assert run.returncode == 0, printed.decode()
    return _STYLES.sub("", printed.decode().replace("\r\n", "\n"))
