"""Brain in Pollux's simulator: what it may know, and what it makes of it."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.jct.bench import Bench
from benchmarks.jct.brain import Brain, Knowledge, Settings
from benchmarks.jct.experience import Bounds, Experience, grid
from benchmarks.jct.pollux import Job, Sight, simulate

DATA = Path(os.environ.get("BRAIN_BENCH_DATA", "../shared/data"))
measured = pytest.mark.skipif(not DATA.exists(), reason="needs the traces of $BRAIN_BENCH_DATA")
BOUNDS = Bounds(first=32, largest=512, smallest_local=4, largest_local=32, most=64)


def sight(**changes: float) -> Sight:
    """A second a step, three quarters of it compute."""
    fields: dict[str, float] = {
        "nodes": 1,
        "replicas": 1,
        "local_batch": 32,
        "accumulation": 1,
        "epoch": 0,
        "step_seconds": 1.0,
        "sync_seconds": 0.25,
        "square": 1.0,
        "variance": 4.0,
    }
    return Sight(**(fields | changes))  # type: ignore[arg-type]


def experience(*seen: Sight) -> Experience:
    """What remains of ``seen``."""
    found = Experience(grid=grid(BOUNDS, 16, 4), first=BOUNDS.first)
    for one in seen:
        found.add(one)
    return found


def few(count: int) -> list[Job]:
    """The first jobs of a workload that are not the shortest."""
    jobs = [job for job in Bench(data=DATA).jobs(1.0, 3) if not job.application.fixed]
    return jobs[:count]


@measured
@pytest.mark.parametrize("load", [1.0, 1.5, 2.0])
def test_every_load_has_its_workload(load: float) -> None:
    assert Bench(data=DATA).file(load, 6).exists()


def test_one_replica_with_a_larger_batch_takes_two_micro_batches() -> None:
    found = grid(BOUNDS, 16, 4)
    alone = found.batch[0] > BOUNDS.first
    assert (found.micro[0][alone] >= 2).all()


def test_a_shape_has_at_most_the_gpus_of_its_nodes() -> None:
    found = grid(BOUNDS, 16, 4)
    assert (found.replicas <= 4 * found.nodes).all()
    assert (found.nodes <= 16).all()


def test_a_measured_shape_is_predicted_as_it_was_measured() -> None:
    known = experience(sight(), sight(nodes=2, replicas=8, step_seconds=3.0, sync_seconds=2.25))
    row, column = known.grid.index[8, 2], 0
    whole = int(np.argmin(np.abs(known.grid.local[row] - 32)))
    found = np.exp(known.log_seconds()[0][row, whole])
    assert known.grid.micro[row, column] == 1
    assert found == pytest.approx(3.0, rel=0.05)


def test_gradient_noise_is_that_of_the_nearest_epoch_and_batch() -> None:
    known = experience(sight(variance=4.0), sight(epoch=50, variance=40.0))
    early, late = (known.noise_at(epoch) for epoch in (0, 50))
    assert early == pytest.approx(np.full(known.grid.batch.shape, 128.0))
    assert late == pytest.approx(np.full(known.grid.batch.shape, 1280.0))


def test_what_an_epoch_far_away_measures_leaves_this_one_as_it_was() -> None:
    known = experience(sight(variance=4.0), sight(epoch=50, variance=40.0))
    before = known.speed(0)
    known.add(sight(epoch=51, variance=80.0))
    assert known.speed(0) is before
    known.add(sight(epoch=1, variance=80.0))
    assert known.speed(0) is not before


@measured
def test_a_job_begins_small_and_with_a_history_the_next_one_does_not() -> None:
    one, other = (job for job in few(30) if job.application.name == "cifar10"), None
    first = next(one)
    first.submitted = 0
    other = next(one)
    other.submitted = 20_000
    simulate([first, other], Brain(Settings(knowledge=Knowledge.HISTORY)))
    assert other.restarts < first.restarts
    assert other.completion_seconds < first.completion_seconds


@measured
def test_the_name_of_an_application_is_a_key_and_nothing_else() -> None:
    ends = []
    for rename in (str, str.swapcase):
        jobs = few(4)
        for job in jobs:
            job.application = replace(job.application, name=rename(job.application.name))
        found = simulate(jobs, Brain(Settings(knowledge=Knowledge.HISTORY)))
        ends.append(dict(found.completion_seconds))
    assert ends[0] == ends[1]
