"""HiGHS on the whole problem, as the oracle of both solvers."""

import numpy as np
import pytest
from hypothesis import given, settings

from brain.pool.allocator import ClusterView, PoolJob, Quota, Weights
from brain.pool.allocator.packing import solve, worth
from brain.pool.allocator.solver import divide, question
from tests.pool.allocator.building import cluster, job, nodes, scaling, scenes

TOLERANCE = 2e-5


def best(jobs: list[PoolJob], where: ClusterView, weights: Weights) -> tuple[float, float, float]:
    """Value and bound of a division, and the value that HiGHS finds."""
    problem = question(jobs, where, weights).problem
    market, choice = divide(problem, None, weights)
    job, column = np.nonzero(np.isfinite(problem.columns.utility))
    oracle = -float(solve(problem, job, column).fun) if len(job) else 0.0
    return worth(problem, choice), market.bound, oracle


@settings(max_examples=40, deadline=None)
@given(scenes())
def test_of_few_jobs_the_best_division_is_found(scene: tuple[list[PoolJob], ClusterView]):
    jobs, where = scene
    value, bound, oracle = best(jobs, where, Weights())

    slack = TOLERANCE * max(1.0, abs(oracle))
    assert value >= oracle - slack
    assert bound >= oracle - slack


@pytest.mark.parametrize("tenants", [0, 3])
def test_of_many_jobs_prices_find_nearly_the_best(tenants: int):
    random = np.random.default_rng(tenants)
    sizes = [1, 2, 4, 8, 16, 24]
    jobs = [
        job(
            f"job-{index}",
            curves={
                kind: scaling(sizes[: random.integers(1, 7)], random.uniform(0.4, 1), rate)
                for kind, rate in (("v100", 50.0), ("a100", 50 * random.uniform(1, 3)))
            },
            remaining_seconds=float(random.lognormal(9, 1.5)),
            tenant=f"tenant-{index % max(tenants, 1)}",
        )
        for index in range(250)
    ]
    quotas = {f"tenant-{index}": Quota(limit=120) for index in range(tenants)}
    where = cluster(nodes("v100", 32), nodes("a100", 16), **quotas)

    value, bound, oracle = best(jobs, where, Weights(exact_jobs=0))

    assert value >= 0.997 * oracle
    assert oracle * (1 - TOLERANCE) <= bound <= 1.003 * oracle
