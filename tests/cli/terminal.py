"""Runs a command as a person at a terminal of some width does, or as a program does in a pipe."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import tempfile
import termios
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from tests.forks import Fork

_STYLES = re.compile(r"\x1b\[[0-9;]*m")


#: What most commands import; rich and the HTTP client come with it.
_MODULES = "brain.cli.jobs, brain.cli.plans, brain.cli.operate, brain.cli.report, rich.table"


def typed(*words: str, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """What comes of ``brain WORDS`` without a terminal."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        code = _begun(words, environment, (0, out.fileno(), err.fileno())).wait(60)
        for file in (out, err):
            file.seek(0)
        return subprocess.CompletedProcess(words, code, out.read(), err.read())


def shown(*words: str, environment: Mapping[str, str], columns: int | None) -> str:
    """What ``brain WORDS`` prints at a terminal so many columns wide; None: into a pipe."""
    if columns is None:
        return typed(*words, environment=environment).stdout
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    run = _begun(words, environment, (theirs, theirs, theirs))
    os.close(theirs)
    printed = bytearray()
    with suppress(OSError):  # the other end was closed
        while piece := os.read(ours, 65_536):
            printed += piece
    os.close(ours)
    assert run.wait(60) == 0, printed.decode()
    return _STYLES.sub("", printed.decode().replace("\r\n", "\n"))


def _begun(words: Sequence[str], environment: Mapping[str, str], streams: Sequence[int]) -> Fork:
    lines = f"import sys; sys.argv = ['brain', *{words}]\nfrom brain.cli import main; main()"
    return Fork(lines, Path.cwd(), os.environ | environment, streams, _MODULES)
