"""Benchmarks run from a clone alone; only rows that need Sia's tables are skipped, and say so."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.allocator.problems import TYPES, cluster, jobs, on_all_types
from benchmarks.jct.bench import Bench
from benchmarks.jct.sia import rows as sia
from benchmarks.models.data import tasks
from benchmarks.published import NO_SIA, SHIPPED, sia_tables, skipped
from benchmarks.report import markdown
from benchmarks.resources.requests import series
from benchmarks.simulate import TUNING, Lists


def test_lists_tables_and_series_are_in_the_repository():
    assert [number for number in TUNING if not Lists(SHIPPED).file(number).exists()] == []
    assert Bench(sia=None, full=True).given(1.0) == [1, 3, 6]
    assert len(list(series(SHIPPED))) == 11
    assert len(tasks(None)) == 6


def test_rows_beside_sia_are_skipped_with_one_sentence():
    (row,) = sia.rows(Bench(sia=None))

    assert (row.value, row.note, row.met) == (None, NO_SIA, True)


def test_what_was_skipped_is_not_shown_as_met():
    assert markdown([skipped("beside Sia")]).endswith("| — | — |")


def test_sias_tables_are_looked_for_in_the_named_folder_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("BRAIN_BENCH_DATA", raising=False)
    assert sia_tables() is None
    monkeypatch.setenv("BRAIN_BENCH_DATA", str(tmp_path))
    assert sia_tables() is None
    (tmp_path / "sia").mkdir()
    assert sia_tables() == tmp_path / "sia"


def test_jobs_of_a_clone_run_on_all_types_of_accelerators():
    made = jobs(on_all_types(tasks(None)), 50, np.random.default_rng(0))

    assert {kind for job in made for kind in job.curves} == set(TYPES)
    assert {node.accelerator for node in cluster(64).nodes} == set(TYPES)


def test_tables_of_another_kind_of_node_join_those_of_pollux(tmp_path: Path):
    folder = tmp_path / "traces/bert"
    folder.mkdir(parents=True)
    ours = SHIPPED / "pollux/traces/bert"
    for name in ("placements", "scalability"):
        for kind in ("aws", "rtx"):
            (folder / f"{name}-{kind}.csv").write_text((ours / f"{name}.csv").read_text())
    for file in ours.glob("validation-*.csv"):
        (folder / file.name).write_text(file.read_text())

    found = [task.name for task in tasks(tmp_path) if task.application == "bert"]

    assert found == ["bert on aws", "bert on rtx"]
