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
from tests.launcher.conformance.observing import observe

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
