"""Measures how much CPU time the probe adds to a training step.

``brain-run`` starts a script with short steps, as a user would. The script removes the probe's
hooks from torch and restores them in turn (``scripts/step_cost.py``), so that both halves of a pair
run in the same process under the same conditions. The CPU time of all threads counts for the half
in which they run. Each row is the median over the pairs, as a share of the step without the probe.
``make bench-loop`` runs it.
"""

import json
import statistics
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.elastic import launchers
from benchmarks.report import Row

PAIRS = 20
#: The bar of the project: percent of a step of some 0.4 ms.
SHARE_PERCENT = 12.0
_SECONDS = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A script that is measured."""

    name: str
    kind: str
    processes: int
    #: Layers of the network, each of two parameters, and their width.
    layers: int
    width: int


#: The second one's gradients are sampled, too.
CASES = (
    Case(name="one process", kind="plain", processes=1, layers=3, width=64),
    Case(name="two ranks, 32 parameters, DDP", kind="ddp", processes=2, layers=16, width=16),
)


def rows(pairs: int = PAIRS) -> list[Row]:
    """Return a row for each case."""
    return [row(case.name, measure(case, pairs)) for case in CASES]


def row(name: str, pairs: Sequence[tuple[float, float]]) -> Row:
    """Return the row of pairs of microseconds per step (with the probe, without it).

    >>> row("a step", [(440, 400), (420, 400), (500, 400)]).value
    10.0
    """
    shares = [100 * (observed / plain - 1) for observed, plain in pairs]
    step = statistics.median(plain for _, plain in pairs)
    return Row(
        metric=f"probe, CPU time that it adds to a step, {name}",
        value=round(statistics.median(shares), 2),
        unit="%",
        bar=SHARE_PERCENT,
        note=f"of {step / 1e3:.2f} ms; [{min(shares):.3g}..{max(shares):.3g}] {len(pairs)} pairs",
    )


def measure(case: Case, pairs: int) -> list[tuple[float, float]]:
    """Return pairs of microseconds of rank 0's steps: with the probe, and without it."""
    with tempfile.TemporaryDirectory(prefix="brain-bench-") as place:
        launcher = launchers.known(Path(place))["brain-run"]
        sizes = map(str, (pairs, case.layers, case.width))
        script = str(launchers.SCRIPTS / "step_cost.py")
        command = ["--standalone", f"--nproc-per-node={case.processes}", script, case.kind, *sizes]
        subprocess.run(
            [launcher.program, *command],
            env=launchers.environment(launcher) | {"BENCH_TRACE": place},
            check=True,
            timeout=_SECONDS,
        )
        return [(observed, plain) for observed, plain in _told(Path(place, "cost-0"))]


def _told(file: Path) -> list[list[float]]:
    told: list[list[float]] = json.loads(file.read_text())
    return told
