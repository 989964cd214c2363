"""Runs a real TensorFlow 2 job with parameter servers on this machine; Brain gives it another
server.

``tensorflow-cpu`` is used from the environment of ``BRAIN_TEST_TENSORFLOW_PYTHON``; if that is
unset, from an environment that the first run creates in the user's cache.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.report import Row
from tests.end_to_end.test_parameter_servers import has_tensorflow, measure
from tests.harness import FAST, running

_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "elastic-brain"
_METRIC = "(f) TensorFlow 2 job with parameter servers, 2 → 3 servers of 2 GiB by a plan"


def rows() -> list[Row]:
    """Return rows that compare the throughput after the plan with that before it, and the cost of
    the change.
    """
    python = _python()
    if python is None:
        why = "no tensorflow-cpu can be installed"
        return [Row(metric=_METRIC, value=None, unit="× the steps/s before", note=why)]
    home = Path(tempfile.mkdtemp(prefix="brain-servers-")) / "home"
    with running(home, "--slots=8", settings={**FAST, "verify_seconds": 200}) as brain:
        found = measure(brain, python=python)
    before, after, came = found.plan.measured, found.plan.outcome.measured, found.plan.outcome
    held = f"memory that nothing holds ({found.unenforced})" if found.unenforced else "limits"
    real = f"real processes, keys by Zipf's law, checkpoint, {held}; asked for by a person"
    said = f"before: {found.servers}; then {found.begun[-1].rpartition(']:')[2]}"
    return [
        Row(
            metric=_METRIC,
            value=after.examples_per_second / before.examples_per_second
            if before and after
            else None,
            unit="× the steps/s before",
            note=f"verdict on amounts alone: {came.verdict}; {said}; {real}",
        ),
        Row(
            metric="(f) the same: without a step, from the last one before to the first after",
            value=came.downtime_seconds,
            unit="s",
            note=f"{came.steps_redone} steps made again",
        ),
    ]


def _python() -> str | None:
    given = os.environ.get("BRAIN_TEST_TENSORFLOW_PYTHON")
    python = given or str(_CACHE / "tensorflow" / "bin" / "python")
    if not given and not Path(python).exists():
        subprocess.run([sys.executable, "-m", "venv", str(_CACHE / "tensorflow")], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", "tensorflow-cpu"], check=False)
    return python if has_tensorflow(python) else None
