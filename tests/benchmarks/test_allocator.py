"""What the allocator is held against is worth holding it against."""

import numpy as np
import pytest

from benchmarks.allocator import peers
from brain.pool.allocator import Weights
from brain.pool.allocator.packing import worth
from brain.pool.allocator.prices import DivisionProblem
from brain.pool.allocator.solver import divide, question
from tests.pool.allocator.building import cluster, job, nodes


@pytest.fixture
def problem() -> DivisionProblem:
    random = np.random.default_rng(0)
    jobs = [
        job(f"job-{index}", [1, 2, 4, 8], exponent=float(random.uniform(0.5, 1)))
        for index in range(30)
    ]
    return question(jobs, cluster(nodes("v100", 4)), Weights()).problem


def test_the_relaxation_is_above_every_division(problem: DivisionProblem):
    relaxed = peers.relaxation(peers.rules(problem))

    assert peers.greedy(problem) <= relaxed
    assert worth(problem, divide(problem, None, Weights())[1]) <= relaxed * (1 + 1e-9)


def test_the_heap_is_a_peer_and_not_a_straw_man(problem: DivisionProblem):
    best = peers.branch_and_bound(peers.rules(problem), seconds=100)

    assert best is not None
    assert peers.greedy(problem) >= 0.9 * best


def test_branch_and_bound_finds_what_we_find(problem: DivisionProblem):
    best = peers.branch_and_bound(peers.rules(problem), seconds=100)

    assert worth(problem, divide(problem, None, Weights())[1]) == pytest.approx(best, rel=2e-3)
