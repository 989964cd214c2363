"""New kinds of accelerator, and what to measure next."""

import math
from dataclasses import replace

import numpy as np
import pytest

from brain.errors import Undetermined
from brain.models.step_time.accelerators import fit
from brain.models.step_time.columns import Configuration, Observation, rows
from brain.models.step_time.ensemble import StepTime
from brain.models.step_time.physics import log_times
from brain.models.step_time.trials import free_trials, next_trial

TRUTH = np.array([-1.0, -1.2, -0.4, -1.2, 0.3, -1.0, -1.0, -1.0])
SIZES = [(1, 1, 32), (1, 2, 32), (1, 4, 16), (2, 8, 32), (2, 16, 64)]


def configuration(nodes: int, replicas: int, local_batch: float) -> Configuration:
    return Configuration(nodes=nodes, replicas=replicas, local_batch=local_batch)


def observed(count: int, *, faster: float = 1.0) -> list[Observation]:
    found = []
    for size in SIZES[:count]:
        seconds = math.exp(log_times(TRUTH, rows([configuration(*size)]), 32.0).step[0]) / faster
        found.append(Observation(configuration=configuration(*size), step_seconds=seconds))
    return found


def test_one_point_scales_another_kinds_curve():
    job = fit({"T4": observed(5), "A100": observed(1, faster=3.0)})
    asked = rows([configuration(2, 8, 32)])

    slow, fast = (job.on(kind).predict(asked)[0] for kind in ("T4", "A100"))
    assert slow - fast == pytest.approx(math.log(3.0), abs=0.1)


def test_and_is_less_sure_of_it():
    job = fit({"T4": observed(5), "A100": observed(1, faster=3.0)})
    asked = rows([configuration(2, 8, 32)])

    assert job.on("A100").predict(asked, True)[1] > job.on("T4").predict(asked, True)[1]


def test_a_kind_with_points_of_its_own_relies_on_them():
    job = fit({"T4": observed(5), "A100": observed(4, faster=3.0)})
    own = StepTime().fit(
        rows([one.configuration for one in observed(4)]),
        np.log([one.step_seconds for one in observed(4, faster=3.0)]),
    )
    asked = rows([configuration(4, 32, 32)])
    scaled = job.on("T4").predict(asked) - math.log(3.0)

    low, high = sorted([own.predict(asked)[0], scaled[0]])
    assert low - 0.1 <= job.on("A100").predict(asked)[0] <= high + 0.1


def test_a_kind_that_was_never_measured_is_undetermined():
    with pytest.raises(Undetermined, match="run the job there at its smallest size"):
        fit({"T4": observed(5)}).on("H100")


def test_nothing_measured_is_undetermined():
    with pytest.raises(Undetermined):
        fit({"T4": []})


def test_compute_times_are_used_where_they_were_measured():
    untold = observed(4)[3]
    told = replace(untold, compute_seconds=untold.step_seconds / 4)
    alone = rows([configuration(1, 1, 32)])

    found = [fit({"T4": [one]}).on("T4").predict(alone)[0] for one in (told, untold)]
    assert found[0] < found[1]


def test_free_trials_keep_size_and_global_batch():
    current = Configuration(nodes=2, replicas=8, local_batch=32, accumulation=2)
    found = free_trials(current, largest_local=64)

    assert {(one.nodes, one.replicas, one.batch) for one in found} == {(2, 8, 512.0)}
    assert current not in found


def test_the_next_trial_is_the_one_that_tells_most_about_the_question():
    model = StepTime().fit(
        rows([one.configuration for one in observed(2)]),
        np.log([one.step_seconds for one in observed(2)]),
    )
    chosen = next_trial(
        model,
        configuration(4, 32, 32),
        [configuration(1, 2, 16), configuration(1, 4, 32), configuration(2, 8, 32)],
    )

    assert chosen is not None
    assert chosen.configuration == configuration(2, 8, 32)
    assert chosen.after < chosen.before
    assert 0 < chosen.learned < 1


def test_without_a_candidate_there_is_no_trial():
    assert next_trial(fit({"a": observed(2)}).models["a"], configuration(1, 4, 32), []) is None
