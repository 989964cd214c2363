"""Limits of tenants, filled exactly, and jobs that swap what they have."""

import itertools

import numpy as np
import pytest

from brain.pool.allocator import Quota, Weights
from brain.pool.allocator.limits import by_tenant, exchange, refine
from brain.pool.allocator.packing import pack, settle, worth
from brain.pool.allocator.prices import DivisionProblem, clear, taken
from brain.pool.allocator.solver import question
from tests.pool.allocator.building import cluster, job, nodes


def rigid(*sizes: int, room: int) -> DivisionProblem:
    """Jobs of one tenant that take one size each, the later the shorter."""
    jobs = [
        job(f"job-{index}", [size], tenant="red", remaining_seconds=9000.0 - 1000 * index)
        for index, size in enumerate(sizes)
    ]
    return question(jobs, cluster(nodes("v100", 4), red=Quota(limit=room)), Weights()).problem


def best(problem: DivisionProblem) -> float:
    """The most that whole jobs of the one tenant are worth, by trying all."""
    utility, size = problem.columns.utility[:, 0], problem.columns.size[:, 0]
    choices = itertools.product([0, 1], repeat=len(utility))
    fitting = (np.array(some) for some in choices if np.dot(some, size) <= problem.limit[0])
    return max(float(some @ utility) for some in fitting)


@pytest.mark.parametrize("room", [7, 9, 11])
def test_a_limit_is_filled_as_well_as_can_be(room: int):
    problem = rigid(5, 4, 3, 6, 2, 4, room=room)
    market = clear(problem)

    choice, bound = by_tenant(problem, market, settle(problem, market))

    assert worth(problem, choice) == pytest.approx(best(problem))
    assert bound == pytest.approx(best(problem), rel=1e-5)


def test_what_is_refined_keeps_every_limit_and_is_worth_no_less():
    problem = rigid(5, 4, 3, 6, 2, 4, room=9)
    market = clear(problem)
    before = settle(problem, market)

    choice, bound = refine(problem, market, before)

    assert taken(problem, choice)[1] <= problem.limit
    assert worth(problem, before) <= worth(problem, choice) <= bound * (1 + 1e-9)
    assert bound <= market.bound


def test_two_jobs_exchange_what_they_have_where_both_together_gain():
    problem = rigid(4, 4, room=4)
    less = int(problem.columns.utility[:, 0].argmin())
    given = np.where(np.arange(2) == less, 0, -1)

    choice = exchange(problem, clear(problem), given)

    assert choice.tolist() == np.where(np.arange(2) == less, -1, 0).tolist()


def test_at_most_one_configuration_of_a_job_is_packed_and_no_room_exceeded():
    job, axis = np.array([0, 0, 1, 2]), np.array([0, 1, 0, 1])
    size, gain = np.array([2, 3, 2, 3]), np.array([5.0, 6.0, 4.0, 3.0])

    picked = pack(np.array([3, 3]), job, axis, size, gain)

    assert sorted(picked.tolist()) == [1, 2]
