"""What libraries in C print goes to standard error while they compute: standard output is for
answers, and programs parse it.

HiGHS prints a line about one problem in eighty although it is told to print nothing (``printf`` in
its ``HighsMipSolverData``; no option of its own or scipy's turns it off). Only the descriptor can
be turned, and that of the whole process: so only commands do it, which have one thread; the service
logs to standard error anyway.
"""

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def strays_to_stderr() -> Iterator[None]:
    """Turn descriptor 1 to standard error, and back; what C kept in its buffer goes there, too."""
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
