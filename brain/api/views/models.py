"""Views of models: the data behind a job's model, and the outcomes of promises."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

from brain.errors import Undetermined
from brain.lifecycle.desired import asked_batch, wished_batch
from brain.lifecycle.observed import ThroughputObserved, look
from brain.lifecycle.surroundings import situate
from brain.models.calibration import calibration
from brain.models.efficiency import NoiseScale, efficiency
from brain.models.fitting import Point
from brain.models.job import JobModel
from brain.models.sizes import Size
from brain.optimizer.batches import taken
from brain.ports import Transaction
from brain.settings import Settings
from brain.types.job import Job
from brain.types.plan import ScalePlan
from brain.views import (
    BestBatch,
    Calibrated,
    Fit,
    FreeTrial,
    Kept,
    ModelsView,
    ModelView,
    Noise,
    ToldBatch,
)

#: Promises in the list, and plans that are searched for them.
_LISTED, _LOOKED_THROUGH = 50, 1000
#: Least share of the variance that a listed trial removes.
_WORTH_A_LINE = 0.1


def model(tx: Transaction, job: Job, settings: Settings, now: datetime) -> ModelView:
    """Return the fitted model of how a job scales, with the measurements on which it is based."""
    sight = look(tx, job, settings=settings, now=now)
    situation = situate(tx, job, sight, settings=settings, now=now)
    plans = tx.plans.of(job.id)
    kept = tuple(_kept(plan, job.document.name) for plan in plans if _judged(plan))
    known = ModelView(
        unit=sight.unit,
        basis=sight.missing,
        fitted=False,
        restart_seconds=situation.restart_seconds,
        restarts_measured=situation.restarts_measured,
        remaining_seconds=situation.remaining_seconds,
        remaining_basis=situation.remaining_basis,
        calibration=_calibrated(kept),
        kept=kept[:_LISTED],
        noise=_noise(sight),
        told_batch=_told(tx, job, sight),
    )
    return (
        known
        if sight.model is None
        else _with_model(known, sight.model, situation.sizes, job.document.batch.global_max)
    )


def _with_model(
    view: ModelView, model: JobModel, sizes: Iterable[int], most_examples: int | None
) -> ModelView:
    report = model.report
    return replace(
        view,
        basis=model.basis,
        fitted=True,
        batching=report.batching,
        points=report.points,
        left_out=report.left_out,
        fits=tuple(_fits(model)),
        widening=report.widening,
        surprised=report.surprised,
        trials=tuple(_trials(model, sizes)),
        best_batch=best_batch(model, most_examples),
    )


def _told(tx: Transaction, job: Job, sight: ThroughputObserved) -> ToldBatch | None:
    """Return the batch that the script is asked to take, split over the workers that it has."""
    wish, chosen, world = wished_batch(tx, job), asked_batch(tx, job), sight.world
    if wish is None or job.finished:
        return None
    workers = world.processes if world else job.document.allocation.processes
    local, accumulation = wish.split(workers)
    return ToldBatch(
        examples=wish.global_size,
        local_batch=local,
        accumulation=accumulation,
        learning_rate_scale=wish.learning_rate_scale,
        reason=chosen.reason if chosen else None,
        trial=chosen.trial if chosen else None,
        taken=taken(wish, sight.present) if isinstance(sight.present, Point) else None,
    )


def _noise(sight: ThroughputObserved) -> Noise:
    """Return the noise scale of a job's gradients, and the efficiency of its present batch."""
    found = sight.noise
    if isinstance(found, NoiseScale):
        view = Noise(examples=found.examples, low=found.low, high=found.high)
    else:
        view = Noise(unavailable=str(found))
    point, model = sight.present, sight.model
    if not isinstance(point, Point) or model is None:
        return view
    batch, first = point.examples_per_step, model.first_batch
    view = replace(view, exchange_wait_share=point.exchange_wait_share)
    if batch is None or first is None:
        return view
    batch /= model.terms.shared
    worth = efficiency(batch, first_batch=first, noise=view.examples)
    return replace(view, batch=batch, first_batch=first, efficiency=float(worth))


def models(tx: Transaction) -> ModelsView:
    """Return the promised and the measured throughput of the newest plans of all jobs."""
    plans = [plan for plan in tx.plans.page(after=None, size=_LOOKED_THROUGH) if _judged(plan)]
    tx.jobs.read_ahead({plan.job for plan in plans})
    kept = tuple(_kept(plan, tx.jobs.get(plan.job).document.name) for plan in plans)
    return ModelsView(calibration=_calibrated(kept), kept=kept[:_LISTED])


def _judged(plan: ScalePlan) -> bool:
    """Return True if a plan has a promise with a band, and a measurement to compare."""
    promised, measured = plan.promised, plan.outcome.measured
    if promised is None or measured is None:
        return False
    return 0 < promised.low < promised.high and measured.examples_per_second > 0


def _kept(plan: ScalePlan, name: str) -> Kept:
    promised, measured = plan.promised, plan.outcome.measured
    assert promised is not None
    assert measured is not None
    return Kept(
        job=plan.job,
        job_name=name,
        generation=plan.generation,
        replicas=plan.target.replicas,
        promised=promised,
        measured=measured,
        inside=promised.low <= measured.examples_per_second <= promised.high,
        at=plan.updated_at,
    )


def _calibrated(kept: Iterable[Kept]) -> Calibrated | None:
    try:
        found = calibration([(one.promised, one.measured.examples_per_second) for one in kept])
    except Undetermined:
        return None
    return Calibrated(
        count=found.count,
        coverage=found.coverage,
        coverage_low=found.coverage_low,
        coverage_high=found.coverage_high,
        bias=found.bias,
        error=found.error,
    )


def _fits(model: JobModel) -> Iterable[Fit]:
    for accelerator, report in model.report.fits.items():
        yield Fit(
            accelerator=accelerator,
            observations=report.observations,
            configurations=report.configurations,
            rank=report.rank,
            held_out_error=report.held_out_error,
            bounds_hit=report.bounds_hit,
            members=report.members,
        )


def _trials(model: JobModel, sizes: Iterable[int]) -> Iterable[FreeTrial]:
    """Yield a trial for each size that was never measured, where the trial would teach enough."""
    for size in sizes:
        trial = model.trial(Size(replicas=size))
        if trial is None or trial.learned < _WORTH_A_LINE or not model.predict(size).exploring:
            continue
        yield FreeTrial(
            replicas=size,
            local_batch=trial.configuration.local_batch,
            accumulation=trial.configuration.accumulation,
            learned=trial.learned,
        )


def best_batch(model: JobModel, most_examples: int | None) -> BestBatch | None:
    """Return the best batch size at the present job size; None if the batch size is fixed, or if
    too little is known to predict it.
    """
    present = model.present
    if most_examples is None or present.noise_scale is None or present.examples_per_step is None:
        return None
    here = Size(replicas=present.replicas, nodes=present.nodes)
    try:
        best = model.goodput(here, most_examples=most_examples)
    except Undetermined:
        return None
    now = model.predict(here.replicas, nodes=here.nodes).examples_per_second
    return BestBatch(
        examples=best.configuration.batch,
        local_batch=best.configuration.local_batch,
        accumulation=best.configuration.accumulation,
        efficiency=best.efficiency,
        gain=best.prediction.examples_per_second / (now * model.worth(here.replicas)) - 1,
    )
