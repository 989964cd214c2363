"""What the benchmark of completion times runs: which workloads, once each, and variants of them."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.jct import rows
from benchmarks.jct.applications import Application, Validation
from benchmarks.jct.bench import SEEDS, Bench
from benchmarks.jct.pollux import Job, Outcome
from benchmarks.jct.sia.cluster import Arrival
from benchmarks.jct.variants import Variant, lasting

PUBLISHED = (
    "policy,load,workload,jobs,avg_jct_seconds,p99_jct_seconds,makespan_seconds\n"
    "pollux,1.0,1,160,1,1,1\npollux,1.0,2,160,1,1,1\ntiresias,1.0,3,160,1,1,1\n"
)
OUTCOME = Outcome(
    completion_seconds={"a": 1.0},
    makespan_seconds=1.0,
    gpu_hours=1.0,
    restarts_per_job=0.0,
    decision_ms_mean=0.0,
    decision_ms_max=0.0,
)


def bench(folder: Path, *workloads: int) -> Bench:
    """A bench whose data are these workloads of load 1.0."""
    (folder / "pollux/workloads").mkdir(parents=True)
    (folder / "pollux/published.csv").write_text(PUBLISHED)
    for number in workloads:
        (folder / f"pollux/workloads/workload-{number}.csv").touch()
    return Bench(data=folder, full=True, kept=folder / "kept")


def application(name: str, epochs: int = 4) -> Application:
    """Two steps an epoch, gradients that grow noisier."""
    run = Validation(
        progress=2.0 * np.arange(1, epochs + 1),
        iterations=2.0 * np.arange(1, epochs + 1),
        squares=np.ones(epochs),
        variances=np.arange(epochs, dtype=np.float64),
    )
    corner = np.array([[n, r, b] for n in (1.0, 2.0) for r in (1.0, 4.0) for b in (1.0, 8.0)])
    return Application(
        name=name,
        epochs=epochs,
        runs={8: run},
        placements={(1,): (np.array([1.0, 8.0]), np.ones((2, 2)))},
        scale=(corner, np.ones((8, 2))),
        smallest_local=1,
        largest_local=8,
    )


def jobs(count: int) -> list[Job]:
    """Jobs of three applications by turns."""
    kinds = [application(name, 100) for name in ("one", "two", "three")]
    return [
        Job(
            name=str(index),
            application=kinds[index % 3],
            submitted=0,
            wished_replicas=1,
            wished_batch=8,
        )
        for index in range(count)
    ]


def test_workloads_run_that_are_at_hand_and_whose_pollux_is_known(tmp_path: Path) -> None:
    assert bench(tmp_path, 2, 3).given(1.0) == [2]


def test_a_run_that_is_not_full_takes_the_usual_workloads_and_one_that_is_asked_for(
    tmp_path: Path,
) -> None:
    some = replace(bench(tmp_path, 1, 2), full=False)
    assert (some.given(1.0), some.drawn()) == ([], [31, 32])
    assert replace(some, workloads=[2, 33]).given(1.0) == [2]


def test_processes_share_workloads_one_by_one(tmp_path: Path) -> None:
    all_of_them = bench(tmp_path, 1, 2)
    assert all_of_them.given(1.0) == [1, 2]
    assert replace(all_of_them, alone=2).given(1.0) == [2]
    assert replace(all_of_them, workloads=[1], alone=2).given(1.0) == []


def test_what_ran_is_not_run_again(tmp_path: Path) -> None:
    one, played = bench(tmp_path, 1), list[int]()

    def play() -> Outcome:
        played.append(1)
        return OUTCOME

    assert one.once("it", play) == one.once("it", play) == OUTCOME
    assert len(played) == 1


def test_what_ran_on_other_data_is_run_again(tmp_path: Path) -> None:
    one = bench(tmp_path, 1)
    one.once("it", lambda: OUTCOME)
    one.file(1.0, 1).write_text("another job")
    again = Bench(data=tmp_path, kept=tmp_path / "kept")
    with pytest.raises(ZeroDivisionError):
        again.once("it", lambda: 1 // 0)  # type: ignore[arg-type, return-value]


def test_epochs_beyond_the_tables_are_like_the_last() -> None:
    longer = lasting(application("one"), 6)
    assert longer.progress == [0, 2, 4, 6, 8, 10, 12]
    assert longer.gradients(8, 5) == (1, 3)


def test_a_variant_renames_scripts_and_jobs_and_nothing_else() -> None:
    usual, changed = jobs(60), Variant(2, differing=False).jobs(jobs(60))
    names = {old.script: new.script for old, new in zip(usual, changed, strict=True)}
    assert names != {name: name for name in names}
    assert set(names) == set(names.values())
    assert all(job.name.startswith(f"{job.script}-") for job in changed)
    assert [job.application.name for job in changed] == [job.application.name for job in usual]
    assert {job.application.epochs for job in changed} == {100}


def test_runs_that_differ_have_other_lengths_and_speeds_and_now_and_then_another_model() -> None:
    changed = Variant(2, renamed=False).jobs(jobs(300))
    lengths = [job.application.epochs for job in changed]
    assert (min(lengths), max(lengths)) == (70, 129)
    speeds = [job.slowdown for job in changed]
    assert (min(speeds) < 0.87, max(speeds) > 1.13) == (True, True)
    others = [job for job in changed if job.application.name != job.script]
    assert 0 < len(others) < 30


def test_a_variant_is_the_same_for_the_same_seed() -> None:
    arrivals = [Arrival(name=str(n), application="one", seconds=n, batch=8) for n in range(9)]
    assert Variant(3).arrivals(arrivals) == Variant(3).arrivals(arrivals)
    assert Variant(3).arrivals(arrivals) != Variant(4).arrivals(arrivals)


def test_the_service_is_beside_tiresias_on_lists_that_nothing_was_chosen_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = list[tuple[str, int, Path]]()

    def run(self: Bench, name: str, load: float, number: int, *others: object) -> Outcome:
        ran.append((name, number, self.file(load, number)))
        return OUTCOME

    monkeypatch.setattr(Bench, "run", run)
    monkeypatch.setattr(Bench, "jobs", lambda *_: [])
    monkeypatch.setattr(rows, "rhos", lambda *_: [1.0, 2.0])
    table = rows.service(bench(tmp_path, 1))

    drawn = [row for row in table if "generated lists" in row.metric]
    assert all(f"workload {seed}:" in row.note for row in drawn for seed in SEEDS)
    assert {row.ratio_bar for row in drawn if row.metric.endswith("average completion")} == {
        1 / 0.62,
        1 / 0.72,
    }
    assert {row.peer for row in drawn} == {"Tiresias"}
    assert {
        "runs of a script differ" in row.metric for row in drawn if "history" in row.metric
    } == {True}
    fair = [row for row in table if "fairness" in row.metric]
    assert {(row.value, row.bar) for row in fair} == {(1.5, 1.2), (2.0, 2.5)}
    assert all(path.is_file() for name, number, path in ran if number in SEEDS)
    tuned = [row for row in table if row.peer == "Pollux (published)"]
    assert all("tuning set" in row.metric for row in tuned)
    assert any("restarts of 2 s" in row.metric for row in tuned)
