"""Keep the output of C libraries off standard output, which is for answers that programs parse.

The output goes to standard error while the libraries compute. HiGHS prints a line about one problem
in eighty although it is told to print nothing (``printf`` in its ``HighsMipSolverData``; no option
of its own or scipy's turns it off). Only the file descriptor can be redirected, and with it that of
the whole process. So only commands redirect it, because they have one thread; the service logs to
standard error anyway.
"""

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def strays_to_stderr() -> Iterator[None]:
    """Redirect file descriptor 1 to standard error for a while, with the buffered output of C."""
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
