"""Keeps text that C libraries print out of the standard output of commands, which programs parse.

The text goes to standard error while the libraries compute. HiGHS prints a line for about one
problem in eighty, although its output is off: its ``HighsMipSolverData`` calls ``printf``, and no
option of HiGHS or scipy prevents that. A redirection affects the whole process. So only commands
redirect, because they have one thread; the service logs to standard error anyway.
"""

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def strays_to_stderr() -> Iterator[None]:
    """Within the block, redirect file descriptor 1 and C's buffered output to standard error."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        ctypes.CDLL(None).fflush(None)
        os.dup2(kept, 1)
        os.close(kept)
