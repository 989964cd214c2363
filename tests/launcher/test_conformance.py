"""Under brain-run every worker sees what it saw under torchrun 2.13, as recorded.

``conformance.py`` says how it was recorded. What differs on purpose is named here and nowhere else.
"""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.launcher.conformance import CASES, observe

RECORDED = json.loads((Path(__file__).parent / "recorded" / "torchrun-2.13.json").read_text())
#: Our agent hosts no store, so that rank 0 does and the store ends with its world.
ON_PURPOSE = {"TORCHELASTIC_USE_AGENT_STORE": "False"}
#: torchrun says 1 for every failure; brain-run ends with the code of the worker.
CODES = {"failure": 7, "killed": 137}


def expected(name: str) -> dict[str, Any]:
    recorded: dict[str, Any] = json.loads(json.dumps(RECORDED[name]))
    for worker in recorded["workers"].values():
        worker["environment"] |= ON_PURPOSE
    recorded["exit_code"] = CODES.get(name, recorded["exit_code"])
    return recorded


@pytest.mark.parametrize("name", CASES)
def test_a_worker_cannot_tell_brain_run_from_torchrun(name: str) -> None:
    seen = observe([sys.executable, "-m", "launcher.cli"], CASES[name])
    assert seen == expected(name)
