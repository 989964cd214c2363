"""What is known of how a job scales, and whether promises were kept, over HTTP."""

from brain import calls
from brain.types.job import JobId
from tests.api.app import Api, digits
from tests.virtual import Laptop, scaling_by


def test_a_job_that_nobody_measured_has_no_model_and_says_what_is_missing(api: Api) -> None:
    api.add_node()
    with api.client() as admin:
        admin.send(calls.submit(digits()))
        model = admin.send(calls.model("digits"))
    assert (model.fitted, model.basis) == (False, "no world has formed yet")
    assert (model.calibration, model.kept) == (None, ())


def lived(api: Api) -> JobId:
    """A job that grew, and kept its promise."""
    laptop = Laptop(scaling_by(0.9), cpus=4, stores=api.stores).start()
    laptop.live(60)
    api.now = laptop.now
    return laptop.id


def test_its_report_tells_what_it_rests_on(api: Api) -> None:
    job = lived(api)
    with api.client() as admin:
        model = admin.send(calls.model(job))
    (fit,) = model.fits
    assert (model.fitted, model.points, model.batching) == (True, 2, "fixed global batch")
    assert (fit.accelerator, fit.configurations, fit.rank) == ("cpu", 2, 2)
    assert fit.members == ("physical", "log-linear")
    assert model.restarts_measured == 1
    assert model.remaining_seconds > 0


def test_promises_stand_beside_what_was_measured(api: Api) -> None:
    job = lived(api)
    with api.client() as admin:
        model = admin.send(calls.model(job))
        everywhere = admin.send(calls.models())
    (kept,) = model.kept
    assert (kept.generation, kept.replicas, kept.inside) == (1, 2, True)
    assert kept.promised.low < kept.measured.examples_per_second < kept.promised.high
    assert model.calibration is not None
    assert (model.calibration.count, model.calibration.coverage) == (1, 1.0)
    assert everywhere.kept == model.kept
    assert everywhere.calibration == model.calibration


def test_a_look_that_costs_no_restart_is_named_for_doubtful_sizes(api: Api) -> None:
    job = lived(api)
    with api.client() as admin:
        looks = admin.send(calls.model(job)).looks
    assert {look.replicas for look in looks} == {3, 4}
    assert all(0.1 < look.learned < 1 and look.accumulation > 1 for look in looks)


def test_nothing_was_promised_yet(api: Api) -> None:
    with api.client() as admin:
        everywhere = admin.send(calls.models())
    assert (everywhere.calibration, everywhere.kept) == (None, ())
