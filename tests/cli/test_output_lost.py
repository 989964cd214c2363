"""Commands whose standard output is full or closed: one sentence, and no success."""

import os
import subprocess
import sys

import pytest

COMMANDS = [("config",), ("jobs",), ("jobs", "-o", "json"), ("--help",)]


def typed(environment: dict[str, str], *line: str) -> subprocess.CompletedProcess[str]:
    """Return what comes of ``brain`` with words and a redirection of a shell."""
    shell = [*("sh", "-c"), f"exec {sys.executable} -m brain.cli {' '.join(line)}"]
    return subprocess.run(
        shell, capture_output=True, text=True, env=os.environ | environment, check=False
    )


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_full_standard_output_is_told_in_one_sentence(
    service: dict[str, str], command: tuple[str, ...]
) -> None:
    done = typed(service, *command, ">/dev/full")
    assert (done.returncode, done.stderr) == (
        1,
        "brain: standard output cannot be written: No space left on device; the output is not "
        "complete\n",
    )


@pytest.mark.parametrize("command", COMMANDS[:2], ids=" ".join)
def test_a_closed_standard_output_is_told_in_one_sentence(
    service: dict[str, str], command: tuple[str, ...]
) -> None:
    done = typed(service, *command, ">&-")
    assert (done.returncode, done.stderr) == (
        1,
        "brain: standard output is closed; give another, for example /dev/null\n",
    )
