"""The quick part of ``make corpus``: an ordinary program trains as it does under torchrun."""

import sys
from pathlib import Path

import pytest

from benchmarks.corpus.comparing import between_launchers, with_undisturbed
from benchmarks.corpus.programs import PROGRAMS
from benchmarks.corpus.runs import run

HERE = Path(sys.executable).parent
QUICK = [each for each in PROGRAMS if each.quick]


@pytest.mark.timeout(400)
@pytest.mark.parametrize("program", QUICK, ids=lambda program: program.name)
def test_a_program_trains_as_under_torchrun_and_after_a_kill_too(program) -> None:  # type: ignore[no-untyped-def]
    theirs, ours = run(program, "torchrun", "plain", HERE), run(program, "brain-run", "plain", HERE)
    killed = run(program, "brain-run", "killed", HERE)

    assert ours.exit_codes == (0,), ours.last_words
    assert between_launchers(program, "plain", theirs, ours) == []
    assert killed.exit_codes == (0,), killed.last_words
    assert with_undisturbed(program, "killed", ours, killed) == []
