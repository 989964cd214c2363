"""Finds measurements that others published: in this repository, or in the user's folder."""

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
    """Return the folder ``sia`` under ``$BRAIN_BENCH_DATA``; None if there is no such folder."""
    named = os.environ.get("BRAIN_BENCH_DATA")
    folder = Path(named) / "sia" if named else None
    return folder if folder and folder.is_dir() else None


def skipped(metric: str) -> Row:
    """Return the row that stands for skipped rows if Sia's tables are missing; it has no bar."""
    return Row(metric=metric, value=None, unit="", note=NO_SIA)
