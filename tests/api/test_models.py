"""What is known of how a job scales, and whether promises were kept, over HTTP."""

from dataclasses import replace

import pytest

from brain import calls
from brain.api.views.models import best_batch
from brain.models.job_fit import fit
from brain.models.terms import terms_of
from brain.types.job import BatchBounds, JobId
from tests.api.app import Api, digits
from tests.virtual import Laptop, scaling_by


def test_a_job_that_nobody_measured_has_no_model_and_says_what_is_missing(api: Api) -> None:
    api.add_node()
    with api.client() as admin:
        admin.send(calls.submit(digits()))
        model = admin.send(calls.model("digits"))
    assert (model.fitted, model.basis) == (False, "no world has formed yet")
    assert (model.calibration, model.kept) == (None, ())


def lived(api: Api, seconds: float = 60) -> JobId:
    """A job that grew twice, and kept its promises; after 25 s it has grown once."""
    laptop = Laptop(scaling_by(0.9), cpus=4, stores=api.stores).start()
    laptop.live(seconds)
    api.now = laptop.now
    return laptop.id


def test_its_report_tells_what_it_rests_on(api: Api) -> None:
    job = lived(api)
    with api.client() as admin:
        model = admin.send(calls.model(job))
    (fit,) = model.fits
    assert (model.fitted, model.points, model.batching) == (True, 3, "fixed global batch")
    assert (fit.accelerator, fit.configurations, fit.rank) == ("cpu", 3, 3)
    assert fit.members == ("physical", "log-linear")
    assert model.restarts_measured == 2
    assert model.remaining_seconds > 0


def test_promises_stand_beside_what_was_measured(api: Api) -> None:
    job = lived(api)
    with api.client() as admin:
        model = admin.send(calls.model(job))
        everywhere = admin.send(calls.models())
    seen = [(kept.generation, kept.replicas, kept.inside) for kept in model.kept]
    assert sorted(seen) == [(1, 2, True), (2, 4, True)]
    for kept in model.kept:
        assert kept.promised.low < kept.measured.examples_per_second < kept.promised.high
    assert model.calibration is not None
    assert (model.calibration.count, model.calibration.coverage) == (2, 1.0)
    assert everywhere.kept == model.kept
    assert everywhere.calibration == model.calibration


def test_a_trial_that_costs_no_restart_is_named_for_doubtful_sizes(api: Api) -> None:
    job = lived(api, 25)
    with api.client() as admin:
        trials = admin.send(calls.model(job)).trials
    assert {trial.replicas for trial in trials} == {3, 4}
    assert all(0.1 < trial.learned < 1 and trial.accumulation > 1 for trial in trials)


def test_measured_noise_says_what_the_present_batch_is_worth(api: Api) -> None:
    laptop = Laptop(scaling_by(0.9), cpus=2, stores=api.stores).start()
    laptop.live(60)
    norms = {"gns_small_batch": 32, "gns_small_square": 6.0, "gns_big_square": 4.0}
    laptop.also = norms | {"gns_steps": 3, "gns_big_batch": 64, "exchange_wait_seconds": 0.0268}
    laptop.live(60)
    api.now = laptop.now
    with api.client() as admin:
        noise = admin.send(calls.model(laptop.id)).noise
    assert (noise.examples, noise.unavailable) == (pytest.approx(64.0), None)
    assert (noise.first_batch, noise.batch, noise.efficiency) == (64, 64, 1.0)
    assert noise.exchange_wait_share == pytest.approx(0.25, abs=0.01)


def test_noise_that_nobody_can_measure_is_said_to_be_unavailable(api: Api) -> None:
    laptop = Laptop(scaling_by(0.9), cpus=2, stores=api.stores).start()
    laptop.also = {"gns_unavailable": "one worker without accumulation"}
    laptop.live(30)
    api.now = laptop.now
    with api.client() as admin:
        noise = admin.send(calls.model(laptop.id)).noise
    assert (noise.examples, noise.efficiency) == (None, 1.0)
    assert noise.unavailable == "one worker without accumulation"


def test_nothing_was_promised_yet(api: Api) -> None:
    with api.client() as admin:
        everywhere = admin.send(calls.models())
    assert (everywhere.calibration, everywhere.kept) == (None, ())


def test_the_best_batch_is_told_where_it_may_be_chosen_and_noise_is_measured(api: Api) -> None:
    batch = BatchBounds(global_size=64, global_max=1024, local_max=1024)
    laptop = Laptop(scaling_by(0.9), stores=api.stores, batch=batch).start().train(20)
    noisy = replace(laptop.sight.present, noise_scale=1e5)
    fitted = fit(noisy, terms=terms_of(laptop.document))

    best = best_batch(fitted, 1024)

    assert best is not None
    assert best.examples > 64
    assert best.gain > 0
    assert 0.9 < best.efficiency < 1
    assert best_batch(fitted, None) is None
    assert best_batch(laptop.sight.model, 1024) is None


def test_what_a_script_is_told_stands_beside_what_it_makes(api: Api) -> None:
    batch = BatchBounds(global_size=64, local_max=32, tune=True)
    laptop = Laptop(scaling_by(0.9), stores=api.stores, batch=batch).start().train(20)
    api.now = laptop.now
    with api.client() as admin:
        told = admin.send(calls.model(laptop.id)).told_batch
    assert told is not None
    assert (told.examples, told.local_batch, told.accumulation) == (64, 32, 2)
    assert told.taken is False
