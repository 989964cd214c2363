"""Writes to standard error, which may be a file on a full disk or a terminal that was closed."""

import contextlib
import os
import sys


def write(text: str) -> None:
    """Write to standard error; if this fails, the text is lost and the program continues."""
    with contextlib.suppress(OSError):
        sys.stderr.write(text)
        sys.stderr.flush()


def drop_unwritten() -> None:
    """Discard text that standard error did not take. Otherwise Python would try once more when it
    ends, and replace the exit code by 120.
    """
    try:
        sys.stderr.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
