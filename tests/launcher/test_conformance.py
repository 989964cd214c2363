"""Under brain-run every worker sees what it saw under torchrun 2.13, as recorded.

``conformance/`` says how it was recorded (``python -m tests.launcher.conformance record``), and in
``differences.py`` what differs on purpose; ``make conformance`` runs both live.
"""

import json
import sys
from pathlib import Path

import pytest

from tests.launcher.conformance.cases import CASES, PROCESSES
from tests.launcher.conformance.differences import compare
from tests.launcher.conformance.observing import by_worker, observe

RECORDED = json.loads((Path(__file__).parent / "recorded" / "torchrun-2.13.json").read_text())


@pytest.mark.parametrize("name", CASES)
def test_a_worker_cannot_tell_brain_run_from_torchrun(name: str) -> None:
    seen = observe([sys.executable, "-m", "launcher.cli"], CASES[name])
    assert [each for each in compare(name, RECORDED[name], seen) if each.why is None] == []


@pytest.mark.parametrize("name", [*PROCESSES, "package", "raised", "launcher hung up"])
def test_nor_without_anything_imported_ahead(name: str) -> None:
    seen = observe([sys.executable, "-m", "launcher.cli", "--preload=none"], CASES[name])
    assert [each for each in compare(name, RECORDED[name], seen) if each.why is None] == []


def test_what_is_recorded_is_what_is_run() -> None:
    assert RECORDED.keys() == CASES.keys()


def test_lines_that_a_tee_cut_in_pieces_are_whole_again() -> None:
    whole = "[default0]:line 1\n[default0]:line 2\n"
    assert by_worker("[default0]:line 1\n[default0]:li[default0]:ne 2\n") == by_worker(whole)
    assert by_worker("[default0]:line 2\n[default0]:line 1\n") != by_worker(whole)
    assert by_worker("line 1\n[default0]:line 2\n") != by_worker(whole)
