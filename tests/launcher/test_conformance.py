"""Under brain-run every worker sees what it saw under torchrun 2.13, as recorded.

``conformance/`` says how it was recorded (``python -m tests.launcher.conformance record``), and in
``differences.py`` what differs on purpose; ``make conformance`` runs both live.
"""

import json
import sys
from pathlib import Path

import pytest

from tests.launcher.conformance.cases import CASES, ENDS, LOGS, MISBEHAVES
from tests.launcher.conformance.differences import compare
from tests.launcher.conformance.observing import by_worker, observe

RECORDED = json.loads((Path(__file__).parent / "recorded" / "torchrun-2.13.json").read_text())
NOTHING_AHEAD = ["--preload=none"]
#: Cases of a script that needs no torch, which would be most of a start. Those in which it is
#: imported ahead nevertheless are one of each kind (of exit codes, signals and restarts) and one in
#: which a worker does all that it otherwise does in a case of its own.
NEED_NO_TORCH = {
    *(*ENDS, *LOGS, *MISBEHAVES, "environment numbers", "chance", "launcher in a launcher"),
    *("interpreter", "interpreter of a module", "interpreter with options", "standard input"),
    *("the end", "forks", "spawns", "fork server", "ends where children are ignored"),
    *("a script on standard input", "a script in a pipe", "interpreter in the background"),
    *("a site module of ranks", "no standard input", "no standard output", "no standard streams"),
} - {
    *("raised", "ended by SIGTERM", "recorded", "one of two recorded", "failed twice"),
    *("launcher hung up", "launcher terminated, workers save", "a thread exits"),
}
#: Several seconds of a processor each: several starts with torch, or several agents.
SLOW = {
    *("libraries with a past", "libraries with a past, known", "settings before the import"),
    *("static, two nodes train", "c10d, two nodes of three workers", "chance that is seeded"),
    *("launcher terminated, workers save", "failed twice", "interpreter, then other acts"),
    *("threads after a step", "warnings", "a thread exits", "one of two recorded"),
}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in CASES],
)
def test_a_worker_cannot_tell_brain_run_from_torchrun(name: str) -> None:
    flags = NOTHING_AHEAD if name in NEED_NO_TORCH else []
    seen = observe([sys.executable, "-m", "launcher.cli", *flags], CASES[name])
    assert [each for each in compare(name, RECORDED[name], seen) if each.why is None] == []


@pytest.mark.parametrize(
    "name",
    [
        *("modules of its own", "group of processes", "warnings", "threads after a step"),
        *("package", "raised", "launcher hung up"),
    ],
)
def test_nor_without_anything_imported_ahead(name: str) -> None:
    seen = observe([sys.executable, "-m", "launcher.cli", *NOTHING_AHEAD], CASES[name])
    assert [each for each in compare(name, RECORDED[name], seen) if each.why is None] == []


def test_what_is_recorded_is_what_is_run() -> None:
    assert RECORDED.keys() == CASES.keys()


def test_lines_that_a_tee_cut_in_pieces_are_whole_again() -> None:
    whole = "[default0]:line 1\n[default0]:line 2\n"
    assert by_worker("[default0]:line 1\n[default0]:li[default0]:ne 2\n") == by_worker(whole)
    assert by_worker("[default0]:line 2\n[default0]:line 1\n") != by_worker(whole)
    assert by_worker("line 1\n[default0]:line 2\n") != by_worker(whole)
