"""What a run takes from earlier runs of its script."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from brain.models import earlier
from brain.models.earlier import (
    EarlierRun,
    NoiseSeen,
    earlier_run,
    inherited,
    noise_at,
    noise_exponent,
    outdated,
    work_done,
)
from brain.models.efficiency import efficiency
from brain.models.fitting import Point
from brain.models.forecast import foresee
from brain.models.job_fit import fit
from brain.models.terms import SpeedTerms, observation
from tests.models.test_job import point

TERMS = SpeedTerms(global_batch=64.0)
KNOWN = (1, 2, 4, 8)
PACES = (0.97, 1.0, 1.03)


def rate(size: int) -> float:
    return 100.0 * size**0.8


def run(name: str = "before", truth: Callable[[int], float] = rate) -> EarlierRun:
    return EarlierRun(job=name, name=name, points=tuple(at(n, truth(n)) for n in KNOWN))


def at(size: int, examples_per_second: float, **other: object) -> Point:
    return replace(point(size, examples_per_second), **other)  # type: ignore[arg-type]


def test_a_run_that_measured_one_size_predicts_those_that_earlier_runs_measured():
    alone, taught = fit(at(1, 100.0), terms=TERMS), fit(at(1, 100.0), terms=TERMS, runs=[run()])

    assert alone.reach == 2
    assert taught.reach == 16
    found = taught.predict(8)
    assert found.examples_per_second == pytest.approx(rate(8), rel=0.1)
    assert found.high / found.low < alone.predict(2).high / alone.predict(2).low


def test_earlier_runs_count_at_the_level_of_this_one():
    found = fit(at(1, 80.0), terms=TERMS, runs=[run()]).predict(8)

    assert found.examples_per_second == pytest.approx(0.8 * rate(8), rel=0.15)


def test_what_it_measured_itself_outweighs_them():
    own = at(4, 210.0)
    found = fit(own, [at(1, 100.0)], terms=TERMS, runs=[run()]).predict(4)

    assert found.examples_per_second == pytest.approx(210.0, rel=0.1)


def test_it_says_on_whose_runs_it_rests():
    basis = fit(at(1, 100.0), terms=TERMS, runs=[run("mon"), run("tue")]).basis

    assert "4 configurations measured by 2 earlier runs (mon, tue)" in basis


@pytest.mark.parametrize("pace", [0.2, 5.0])
def test_a_script_that_became_another_takes_nothing_and_says_so(pace: float):
    other = fit(at(1, 100.0 * pace), terms=TERMS, runs=[run()])

    assert other.predict(2) == fit(at(1, 100.0 * pace), terms=TERMS).predict(2)
    assert other.reach == 2
    assert "earlier run (before): a step takes" in other.report.left_out[-1]


@pytest.mark.parametrize("at_place", [0, 1, 2])
def test_a_run_that_became_another_script_does_not_spoil_the_others(at_place: int):
    """Runs of one script are told apart by what each measured, not by their mean."""
    alike = [run("mon"), run("tue")]
    mixed = [*alike[:at_place], run("odd", lambda size: 20 * rate(size)), *alike[at_place:]]
    own = at(1, 90.0)
    spoilt, taught = (fit(own, terms=TERMS, runs=runs) for runs in (mixed, alike))

    assert [spoilt.predict(n) for n in KNOWN] == [taught.predict(n) for n in KNOWN]
    assert "by 2 earlier runs (mon, tue), but not 1 earlier run (odd), because" in spoilt.basis


def test_a_run_that_has_not_begun_is_expected_to_be_like_most():
    runs = [run("odd", lambda size: 20 * rate(size)), run("tue"), run("mon")]
    foreseen = foresee(runs, TERMS)

    assert foreseen is not None
    assert foreseen.predict(8).examples_per_second == pytest.approx(rate(8), rel=0.1)


def test_one_that_scales_otherwise_takes_nothing_after_its_second_size():
    flat = fit(at(8, 110.0), [at(1, 100.0)], terms=TERMS, runs=[run()])

    assert "earlier run" in flat.report.left_out[-1]
    assert flat.predict(8) == fit(at(8, 110.0), [at(1, 100.0)], terms=TERMS).predict(8)


def test_runs_that_differed_say_less():
    alike = fit(at(1, 100.0), terms=TERMS, runs=[run("a"), run("b")]).predict(8)
    apart = [run("a"), run("b", lambda n: 2.0 * rate(n)), run("c", lambda n: 0.6 * rate(n))]
    unsure = fit(at(1, 100.0), terms=TERMS, runs=apart).predict(8)

    assert unsure.high / unsure.low > alike.high / alike.low


def noisy(noises: dict[int, float]) -> list[Point]:
    """Points of one world each, by the steps that it made, with the noise that was known then."""
    return [
        at(2, 100.0, epoch=n, last_step=steps, noise_scale=noise, noise_batch=64.0)
        for n, (steps, noise) in enumerate(noises.items())
    ]


def test_noise_is_that_of_runs_that_had_done_as_much():
    points = noisy({100: 10.0, 900: 1000.0})
    past = earlier_run("1", "before", points, None)
    whole = work_done(points, None)

    assert noise_at([past], 0.0, 64.0) == pytest.approx(10.0)
    assert noise_at([past], whole, 64.0) == pytest.approx(1000.0)
    assert noise_at([past], 0.55 * whole, 64.0) == pytest.approx(100.0, rel=0.01)
    assert noise_at([past], 1.1 * whole, 64.0) is None


def test_a_worker_that_was_alone_told_no_noise():
    lone = [at(1, 100.0, last_step=100, noise_scale=10.0, noise_batch=64.0)]

    assert noise_at([earlier_run("1", "before", lone, None)], 0.0, 64.0) is None


def test_noise_that_a_run_was_told_or_had_at_another_batch_is_not_handed_on():
    told = at(2, 100.0, noise_scale=10.0)
    before = at(2, 100.0, noise_scale=10.0, noise_batch=32.0)

    assert earlier_run("1", "before", [told, before], None).noises == ()


def seen(power: float, *, late: float = 0.0) -> list[NoiseSeen]:
    """Noise that grows with work and with the batch, of which some runs have more, and scatters."""
    drawn = np.random.default_rng(3)
    return [
        NoiseSeen(
            work,
            1.2 * math.log(work) + power * math.log(batch) + 0.2 * drawn.normal(),
            math.log(batch),
        )
        for work in np.geomspace(1e3, 1e6, 8)
        for batch in (32.0 * (work / 1e3) ** late, 256.0 * (work / 1e3) ** late)
    ]


@pytest.mark.parametrize("power", [0.0, 0.4, 0.8])
@pytest.mark.parametrize("late", [0.0, 0.3])
def test_the_power_of_the_batch_is_told_from_that_of_the_work(power: float, late: float):
    assert noise_exponent(seen(power, late=late)) == pytest.approx(power, abs=0.15)


def test_a_run_that_has_not_begun_takes_the_noise_of_the_batch_that_it_is_believed_to_make():
    early = at(2, rate(2), epoch=1, last_step=100, noise_scale=50.0, noise_batch=32.0)
    early = replace(early, examples_per_step=32.0)
    late = at(2, rate(2), epoch=2, last_step=900, noise_scale=900.0, noise_batch=32.0)
    model = foresee([earlier_run("1", "before", [early, late], 64.0)], TERMS)

    assert model is not None
    assert model.noise is not None
    assert (model.noise.batch, model.present.noise_batch) == (64.0, None)


def test_one_batch_tells_nothing_of_others():
    alone = [one for one in seen(0.8) if one.log_batch == math.log(32.0)]

    assert noise_exponent(alone) == noise_exponent([]) == 0.0


def test_a_larger_batch_is_worth_more_where_earlier_runs_had_more_noise_there():
    past = [NoiseSeen(1e4, math.log(50.0), math.log(64.0))] * 3
    past += [NoiseSeen(1e4, math.log(400.0), math.log(512.0))] * 3
    here = at(2, rate(2), noise_scale=50.0, noise_batch=64.0)
    terms = replace(TERMS, largest_batch=4096.0, told=True)
    model = fit(here, terms=terms, runs=[replace(run(), noises=tuple(past))])
    alone = fit(here, terms=terms)

    assert model.noise_exponent > 0.7
    assert alone.noise_exponent == 0.0
    worths = [efficiency(512.0, first_batch=64.0, noise=one.noise) for one in (model, alone)]
    assert worths[0] > 2 * worths[1]


def test_noise_that_was_measured_before_half_of_the_work_is_old():
    told = at(2, 100.0, epoch=1, last_step=100, noise_scale=10.0)
    lone = at(1, 100.0, epoch=2, noise_scale=10.0)

    assert not outdated([told, replace(lone, last_step=90)], None)
    assert outdated([told, replace(lone, last_step=110)], None)


def test_work_is_counted_in_examples_of_the_first_batch():
    large = at(2, 100.0, last_step=10, examples_per_step=128.0, noise_scale=64.0)

    assert work_done([large], None) == pytest.approx(1280.0)
    assert work_done([large], 64.0) == pytest.approx(1280.0 * 2 / 3)
    assert math.isfinite(work_done([], 64.0))


def test_copies_of_a_run_that_several_jobs_read_are_fitted_once(monkeypatch):
    fits = []
    real = earlier.accelerators.fit

    def fitted(seen, **fields):
        fits.append(seen)
        return real(seen, **fields)

    monkeypatch.setattr(earlier.accelerators, "fit", fitted)
    own = at(2, 1.01 * rate(2))
    seen = {own.accelerator: [observation(own, own, SpeedTerms())]}
    for _ in range(3):
        copies = [run(f"at {pace}", lambda size, by=pace: by * rate(size)) for pace in PACES]
        assert inherited(copies, seen, SpeedTerms()).runs == tuple(copies)

    assert len(fits) == len(PACES) + 1, "each run, and all together"


def test_looks_at_each_job_of_a_large_pool_in_turn_keep_the_fits_of_its_runs():
    """Each job has six earlier runs; a cache that is too small drops every fit before its use."""
    assert earlier._alone.cache_parameters()["maxsize"] >= 6 * 2000
    assert earlier._together.cache_parameters()["maxsize"] >= 2000
