"""Where measurements by others lie: in this repository, or in a folder that somebody names."""

import os
from pathlib import Path

from benchmarks.report import Row

#: Tables and workloads of Pollux, and the series of the Numenta Anomaly Benchmark.
SHIPPED = Path(__file__).parent / "data"
NO_SIA = (
    "skipped: Sia's tables state no licence and may not be redistributed; "
    "set BRAIN_BENCH_DATA to a folder that has them as sia/"
)


def sia_tables() -> Path | None:
    """The folder ``sia`` under ``$BRAIN_BENCH_DATA``; None where nobody has it."""
    named = os.environ.get("BRAIN_BENCH_DATA")
    folder = Path(named) / "sia" if named else None
    return folder if folder and folder.is_dir() else None


def skipped(metric: str) -> Row:
    """The row of what needs Sia's tables where they are missing; it has no bar."""
    return Row(metric=metric, value=None, unit="", note=NO_SIA)
