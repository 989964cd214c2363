"""Finish-time fairness: 1 is a job that took as long as alone on its share of the cluster."""

import numpy as np
import pytest

from benchmarks.jct.applications import Application, Validation
from benchmarks.jct.fairness import rhos
from benchmarks.jct.pollux import Job, Outcome, Rules

RULES = Rules(nodes=1, gpus_per_node=4, restart_seconds=30.0)


def job(name: str, submitted: int = 0, slowdown: float = 1.0) -> Job:
    """100 steps of eight examples; an example takes a second on one GPU, however many there are."""
    run = Validation(
        progress=np.array([100.0]),
        iterations=np.array([100.0]),
        squares=np.ones(1),
        variances=np.zeros(1),
    )
    batches, times = np.array([1.0, 8.0]), np.array([[1.0, 0.0], [8.0, 0.0]])
    table = Application(
        name="even",
        epochs=1,
        runs={8: run},
        placements={(size,): (batches, times) for size in (1, 2, 3, 4)},
        scale=(np.empty((0, 3)), np.empty((0, 2))),
        smallest_local=1,
        largest_local=8,
    )
    return Job(
        name=name,
        application=table,
        submitted=submitted,
        wished_replicas=1,
        wished_batch=8,
        slowdown=slowdown,
    )


def outcome(**seconds: float) -> Outcome:
    return Outcome(
        completion_seconds=seconds,
        makespan_seconds=1.0,
        gpu_hours=0.0,
        restarts_per_job=0.0,
        decision_ms_mean=0.0,
        decision_ms_max=0.0,
    )


def test_a_job_alone_is_compared_with_the_whole_cluster():
    # Two examples each on four GPUs: 100 steps of two seconds, and a restart.
    assert rhos([job("one")], outcome(one=460.0), RULES) == pytest.approx([460 / 230])


def test_the_share_is_that_of_those_who_were_there_at_the_same_time():
    # Both are there for the whole time of either: two GPUs each.
    found = rhos([job("one"), job("two")], outcome(one=430.0, two=430.0), RULES)
    assert found == pytest.approx([1.0, 1.0])
    # The first has half of its time for itself: 1.5 jobs on average, 2.67 GPUs, so two.
    found = rhos([job("one"), job("two", 400)], outcome(one=800.0, two=400.0), RULES)
    assert found == pytest.approx([800 / 430, 400 / 430])


def test_a_slow_run_is_compared_with_itself():
    assert rhos([job("one", slowdown=2.0)], outcome(one=430.0), RULES) == pytest.approx([1.0])


def test_more_jobs_than_accelerators_have_one_each_to_be_compared_with():
    jobs = [job(str(index)) for index in range(8)]
    found = rhos(jobs, outcome(**{one.name: 830.0 for one in jobs}), RULES)
    assert found == pytest.approx([1.0] * 8)
