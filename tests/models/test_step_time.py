"""The step-time models: they recover a truth, bear noise, and refuse what is none."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct
from sklearn.utils.estimator_checks import parametrize_with_checks

from brain.errors import Undetermined
from brain.models.step_time.columns import Configuration, rows
from brain.models.step_time.ensemble import StepTime
from brain.models.step_time.linear import SmoothLinear
from brain.models.step_time.physical import Physical
from brain.models.step_time.physics import LOWER, PRIOR_MEAN, UPPER, log_times

#: A job whose exchanges cost something: what the parameters of ``Physical`` mean in its docstring.
TRUTH = np.array([-1.0, -1.2, -0.4, -1.2, 0.3, -1.0, -1.0, -1.0])


def grid() -> NDArray[np.float64]:
    """One to 64 replicas, packed and spread, three local batches."""
    return rows(
        [
            Configuration(nodes=nodes, replicas=replicas, local_batch=batch)
            for nodes in (1, 2, 4, 8)
            for replicas in (1, 2, 4, 8, 16, 32, 64)
            for batch in (16, 32, 64)
            if nodes <= replicas <= 8 * nodes
        ]
    )


def true_log_seconds(X: NDArray[np.float64]) -> NDArray[np.float64]:
    return log_times(TRUTH, X, reference=32.0).step


def few(count: int = 6) -> NDArray[np.float64]:
    """The first configurations that a growing job sees."""
    seen = [
        (1, 1, 32, 1),
        (1, 2, 32, 1),
        (1, 4, 16, 1),
        (2, 8, 32, 1),
        (2, 16, 64, 1),
        (4, 32, 32, 1),
    ]
    return np.array(seen[:count], dtype=np.float64)


@parametrize_with_checks([SmoothLinear()])
def test_the_linear_member_keeps_to_the_contract_of_estimators(estimator: Any, check: Any):
    check(estimator)


@pytest.mark.parametrize("estimator", [Physical(), StepTime(), StepTime(widen=2.0)])
def test_the_others_keep_to_what_of_it_applies_to_fixed_columns(estimator: Any):
    copy = clone(estimator)

    assert copy.get_params() == estimator.get_params()
    assert copy.fit(few(), true_log_seconds(few())) is copy
    assert copy.predict(grid()).shape == (len(grid()),)


def test_physics_recovers_a_noise_free_truth():
    fitted = Physical().fit(grid(), true_log_seconds(grid()))

    assert fitted.predict(grid()) == pytest.approx(true_log_seconds(grid()), abs=0.01)


def test_its_derivatives_are_those_of_its_formula():
    X = np.vstack([grid(), [[2, 8, 32, 4], [1, 1, 16, 3]]])
    times = log_times(TRUTH, X, reference=32.0)
    for index in range(len(TRUTH)):
        step = np.zeros(len(TRUTH))
        step[index] = 1e-6
        up, down = log_times(TRUTH + step, X, 32.0), log_times(TRUTH - step, X, 32.0)
        assert times.by_step[:, index] == pytest.approx((up.step - down.step) / 2e-6, abs=1e-6)
        assert times.by_compute[:, index] == pytest.approx(
            (up.compute - down.compute) / 2e-6, abs=1e-6
        )


def test_accumulated_micro_batches_only_compute():
    once, thrice = np.array([[2, 8, 32, 1.0]]), np.array([[2, 8, 32, 3.0]])
    times, more = log_times(TRUTH, once, 32.0), log_times(TRUTH, thrice, 32.0)

    assert np.exp(more.step) == pytest.approx(np.exp(times.step) + 2 * np.exp(times.compute))


def test_a_straggler_moves_the_fit_little():
    y = true_log_seconds(grid())
    y[5] += np.log(3)

    assert Physical().fit(grid(), y).predict(grid()) == pytest.approx(
        true_log_seconds(grid()), abs=0.03
    )


def test_a_measured_compute_time_tells_compute_from_exchange():
    X = np.array([[2, 8, 32, 1.0]])
    y, compute = true_log_seconds(X), log_times(TRUTH, X, 32.0).compute
    told = Physical().fit(X, y, log_compute=compute)
    untold = Physical().fit(X, y)

    assert abs(told.predict_compute(X) - compute) < abs(untold.predict_compute(X) - compute)


def test_bounds_hit_are_named():
    X = np.array([[1, 1, b, 1.0] for b in (8, 16, 32, 64)] * 10)
    fitted = Physical().fit(X, np.log([1, 4, 16, 64] * 10))

    assert "fixed share of compute" in fitted.bounds_hit_


def test_parameters_stay_within_their_bounds():
    fitted = Physical().fit(few(), np.array([9.0, -9.0, 9.0, -9.0, 9.0, -9.0]))

    inside = (fitted.z_[1:] >= LOWER[1:]) & (fitted.z_[1:] <= UPPER[1:])
    assert inside.all()


def test_the_linear_member_is_a_gaussian_process_of_a_linear_kernel():
    random = np.random.default_rng(1)
    X, asked = random.normal(size=(6, 3)), random.normal(size=(4, 3))
    y = X @ [1.0, -2.0, 0.5] + 0.1 * random.normal(size=6)
    kernel = DotProduct(0, "fixed") + ConstantKernel(0.2, "fixed") * RBF(0.8, "fixed")
    theirs = GaussianProcessRegressor(kernel, alpha=0.3**2, optimizer=None).fit(X, y)
    ours = SmoothLinear(amplitude=np.sqrt(0.2), length=0.8, noise=0.3).fit(X, y)

    mean, spread = theirs.predict(asked, return_std=True)
    found, deviation = ours.predict(asked, return_std=True)
    assert found == pytest.approx(mean)
    assert deviation == pytest.approx(np.hypot(spread, 0.3))


def test_its_left_out_errors_are_those_of_fits_without_the_row():
    random = np.random.default_rng(2)
    X, y = random.normal(size=(7, 2)), random.normal(size=7)
    found = SmoothLinear().fit(X, y).leave_one_out_
    for row in range(7):
        rest = np.arange(7) != row
        without = SmoothLinear().fit(X[rest], y[rest])
        assert found[row] == pytest.approx(y[row] - without.predict(X[row : row + 1])[0])


def test_the_ensemble_recovers_a_truth_from_six_points():
    fitted = StepTime().fit(few(), true_log_seconds(few()))
    error = np.abs(np.expm1(fitted.predict(grid()) - true_log_seconds(grid())))

    assert error.mean() < 0.15


def test_noise_moves_it_by_no_more_than_the_noise():
    random = np.random.default_rng(3)
    clean = StepTime().fit(few(), true_log_seconds(few())).predict(few())
    for _ in range(20):
        noisy = true_log_seconds(few()) + random.normal(0, 0.03, 6)
        assert StepTime().fit(few(), noisy).predict(few()) == pytest.approx(clean, abs=0.12)


def test_its_bands_hold_the_truth_of_jobs_like_its_prior():
    random, inside = np.random.default_rng(4), []
    for _ in range(60):
        z = np.clip(PRIOR_MEAN + random.normal(size=8) * 0.7, LOWER, UPPER)
        z[1] = -1.5
        y = log_times(z, few(4), 32.0).step + random.normal(0, 0.03, 4)
        mean, spread = StepTime().fit(few(4), y).predict(grid(), return_std=True)
        inside.append(np.abs(mean - log_times(z, grid(), 32.0).step) <= 1.6449 * spread)

    assert 0.85 <= np.mean(inside) <= 1.0


def test_uncertainty_grows_away_from_what_was_measured():
    fitted = StepTime().fit(few(3), true_log_seconds(few(3)))
    _, spread = fitted.predict([[1, 2, 32, 1], [8, 64, 32, 1]], return_std=True)

    assert spread[1] > 2 * spread[0]


def test_a_report_says_what_a_fit_rests_on():
    X = np.vstack([few(4), few(1)])
    report = StepTime().fit(X, true_log_seconds(X)).report_

    assert (report.observations, report.configurations) == (5, 4)
    assert report.members == ("physical", "log-linear")
    assert report.rank >= 3
    assert report.held_out_error is not None
    assert report.held_out_error < 0.5


def test_one_point_has_no_held_out_error():
    assert StepTime().fit(few(1), true_log_seconds(few(1))).report_.held_out_error is None


def test_the_same_data_are_not_fitted_again():
    model = StepTime(warm_start=True).fit(few(), true_log_seconds(few()))
    before = model.linear_

    assert model.fit(few(), true_log_seconds(few())).linear_ is before


def test_a_warm_start_ends_where_a_cold_one_does():
    warm = StepTime(warm_start=True).fit(few(5), true_log_seconds(few(5)))
    warm.fit(few(6), true_log_seconds(few(6)))
    cold = StepTime().fit(few(6), true_log_seconds(few(6)))

    assert warm.predict(grid()) == pytest.approx(cold.predict(grid()), abs=0.01)
    assert warm.report_.iterations <= cold.report_.iterations


def test_a_wider_job_has_wider_bands():
    y, asked = true_log_seconds(few()), [[4, 16, 32, 1], [8, 64, 16, 1]]
    _, narrow = StepTime().fit(few(), y).predict(asked, return_std=True)
    _, wide = StepTime(widen=2.0).fit(few(), y).predict(asked, return_std=True)

    assert wide == pytest.approx(2 * narrow)


def test_a_measured_configuration_is_answered_by_its_measurement():
    y = true_log_seconds(few())
    y[3] += 0.3
    mean, spread = StepTime().fit(few(), y).predict(few(), return_std=True)

    assert mean[3] == pytest.approx(y[3], abs=0.05)
    assert spread[3] < 0.05


def test_unless_that_was_a_poor_one():
    y = true_log_seconds(few())
    y[3] += 0.3
    poor = np.array([0.0, 0.0, 0.0, 0.5, 0.0, 0.0])

    assert StepTime().fit(few(), y, poor).predict(few())[3] < y[3] - 0.2


@st.composite
def measurements(draw: st.DrawFn) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Up to eight rows and log seconds that a strange but possible job could have sent."""
    count = draw(st.integers(1, 8))
    found = [
        (
            nodes := draw(st.integers(1, 64)),
            nodes * draw(st.integers(1, 8)),
            draw(st.floats(0.01, 1e6)),
            draw(st.integers(1, 64)),
        )
        for _ in range(count)
    ]
    times = draw(st.lists(st.floats(-9, 9), min_size=count, max_size=count))
    return np.array(found, dtype=np.float64), np.array(times)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(measurements())
def test_whatever_was_measured_the_prediction_is_a_distribution(
    measured: tuple[NDArray[np.float64], NDArray[np.float64]],
):
    mean, spread = StepTime().fit(*measured).predict(grid(), return_std=True)

    assert np.isfinite(mean).all()
    assert (spread > 0).all()
    assert (StepTime().fit(*measured).predict(grid()) == mean).all()


def test_nothing_measured_is_undetermined():
    with pytest.raises(Undetermined, match="measure one"):
        StepTime().fit(np.empty((0, 4)), np.empty(0))


@pytest.mark.parametrize(
    ("X", "y", "said"),
    [
        ([[1, 1, 32]], [0.0], "columns"),
        ([[1, 1, np.nan, 1]], [0.0], "NaN"),
        ([[4, 2, 32, 1]], [0.0], "fewer replicas than nodes"),
        ([[0, 1, 32, 1]], [0.0], "must be at least 1"),
        ([[1, 1, 32, 1]], [np.inf], "y has"),
        ([[1, 1, 32, 1]], [0.0, 1.0], "y has shape"),
    ],
)
def test_what_is_no_measurement_is_refused(X: Any, y: Any, said: str):
    with pytest.raises(ValueError, match=said):
        StepTime().fit(X, y)
