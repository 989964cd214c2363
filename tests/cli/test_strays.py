"""Standard output of commands holds answers alone, whatever libraries in C print."""

import subprocess
import sys

PRINTS = """
import ctypes
from brain.cli.strays import strays_to_stderr

with strays_to_stderr():
    ctypes.CDLL(None).printf(b"a stray line\\n")
print("the answer")
"""


def test_what_c_prints_while_a_command_computes_is_not_among_its_answers():
    ran = subprocess.run(
        [sys.executable, "-c", PRINTS], capture_output=True, text=True, check=True, timeout=60
    )

    assert (ran.stdout, ran.stderr) == ("the answer\n", "a stray line\n")
