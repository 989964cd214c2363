"""What a configuration is worth: who is served first, and who is not starved."""

import numpy as np
import pytest

from brain.optimizer.cluster.utility import Terms, Weights, diminishing, marginal


def terms(speedup: list[float], left: float = 1000.0) -> Terms:
    """One running job in its first configuration."""
    row = np.array([speedup])
    one = np.ones((1, 1))
    return Terms(
        speedup=row,
        deviation=np.zeros_like(row),
        replicas=row,
        current=np.ones_like(row, dtype=bool),
        runs=np.ones((1, 1), dtype=bool),
        attained_seconds=one,
        remaining_seconds=left * one,
        waited_seconds=0 * one,
        age_seconds=one,
        restart_seconds=0 * one,
        priority=one,
    )


def test_far_below_its_knee_the_worth_grows_with_the_speed() -> None:
    found = diminishing(terms([1.0, 2.0]), Weights(knee=1000.0))
    assert found[0, 1] / found[0, 0] == pytest.approx(2, rel=1e-2)


def test_far_above_its_knee_every_doubling_is_worth_the_same() -> None:
    found = diminishing(terms([1e4, 2e4, 4e4]), Weights(knee=1.0))
    assert np.diff(found[0], 2) == pytest.approx(0, abs=1e-4)


@pytest.mark.parametrize("utility", [marginal, diminishing])
def test_beyond_the_limit_more_work_makes_a_job_count_no_less(utility: object) -> None:
    weights = Weights(most_seconds=1e5)
    long, longer = (utility(terms([1.0], left), weights) for left in (1e5, 1e6))  # type: ignore[operator]
    assert longer == pytest.approx(long)
