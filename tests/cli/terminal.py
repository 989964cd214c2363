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


def shown(*words: str, environment: Mapping[str, str], columns: int | None) -> str:
    """What ``brain WORDS`` prints at a terminal so many columns wide; None: into a pipe."""
    command = [sys.executable, "-m", "brain.cli", *words]
    given = os.environ | environment
    if columns is None:
        return subprocess.run(
            command, env=given, capture_output=True, text=True, check=True, timeout=60
        ).stdout
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    with subprocess.Popen(command, env=given, stdin=theirs, stdout=theirs, stderr=theirs) as run:
        os.close(theirs)
        printed = bytearray()
        with suppress(OSError):  # the other end was closed
            while piece := os.read(ours, 65_536):
                printed += piece
    os.close(ours)
    assert run.returncode == 0, printed.decode()
    return _STYLES.sub("", printed.decode().replace("\r\n", "\n"))
