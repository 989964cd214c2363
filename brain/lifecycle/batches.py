"""The batch sizes that Brain chooses for scripts that read them from ``launcher.batch``.

Brain chooses batch sizes only for jobs that request this (``batch.tune``), and only if it may act
without a person. A change of the batch size alone is no plan, because the job keeps its size and
nothing restarts. A plan for another size includes a batch size. If a script ignored a requested
batch size, Brain requests no other batch size.
"""

from datetime import datetime

from brain import wire
from brain.errors import BadInput
from brain.lifecycle.desired import BATCH, AskedBatch, asked_batch, frozen, wished_batch
from brain.lifecycle.observed import ThroughputObserved
from brain.lifecycle.records import BRAIN, acted, happened
from brain.lifecycle.verdicts import SAME, Worths, kept
from brain.models.efficiency import efficiency, gain
from brain.models.job import JobModel
from brain.models.terms import Batching
from brain.optimizer.batches import BatchChoice, better_batch, brought, choose_batch
from brain.optimizer.situation import Situation
from brain.ports import StoredFit, Transaction
from brain.settings import Settings
from brain.types.batch import BatchWish
from brain.types.job import Job, OptimizeMode
from brain.types.plan import PlanKind, ScalePlan
from brain.typeset import count

#: Most examples of a step where the document names no bound: more is a mistake.
_MOST_BATCH = 1_000_000_000


def rebatch(
    tx: Transaction,
    job: Job,
    plan: ScalePlan,
    sight: ThroughputObserved,
    settings: Settings,
    now: datetime,
) -> bool:
    """If the throughput at a plan's size is below the promise, request a better batch size for this
    size; return True if a batch size was requested.

    A size must be judged at its best batch size, but the plan's batch size was chosen before the
    plan's size was measured.
    """
    if sight.model is None or not job.document.tunes or plan.kind is not PlanKind.RESIZE:
        return False
    if frozen(tx, job):
        return False
    measured, worth = sight.model.present.measured, worths(plan, sight)
    if plan.promised is None or kept(plan, plan.promised, measured, settings, worth):
        return False
    choice = better_batch(sight.model, wished_batch(tx, job))
    if choice is None:
        return False
    _ask(tx, job, choice, now)
    # The wish changed, so its version has to change, too.
    tx.jobs.put(job)
    return True


def ask_with(tx: Transaction, job: Job, plan: ScalePlan, now: datetime) -> None:
    """Request from the script the batch size that a plan's target names; called when the plan
    begins.
    """
    wish = plan.target.batch
    if job.document.tunes and wish is not None and wish != wished_batch(tx, job):
        _ask(tx, job, BatchChoice(wish=wish, reason=brought(wish, plan.target.replicas)), now)


def worths(plan: ScalePlan, sight: ThroughputObserved) -> Worths:
    """Return the value of an example at the measured batch size, and its value at the batch size
    before the plan.

    The unit of both values is one example at the batch size that the plan promised.
    """
    model, promised, before = sight.model, plan.target.batch, plan.current.batch
    if model is None or promised is None or before is None or model.batching is not Batching.TOLD:
        return SAME
    first, noise, now = model.first_batch, model.noise, model.present
    if first is None or now.examples_per_step is None:
        return SAME

    def worth(batch: float) -> float:
        return float(efficiency(batch, first_batch=first, noise=noise))

    there = worth(promised.global_size)
    return Worths(worth(now.examples_per_step) / there, worth(before.global_size) / there)


def tune(tx: Transaction, job: Job, situation: Situation, now: datetime) -> bool:
    """Request another batch size from the script if this increases goodput or reduces the
    uncertainty about other job sizes; return True if a batch size was requested.
    """
    if not job.document.tunes or frozen(tx, job):
        return False
    chosen = asked_batch(tx, job)
    trying = None
    if chosen is not None and chosen.trial is not None:
        trying = (now - chosen.at).total_seconds()
    shared = job.document.optimize_mode is OptimizeMode.CLUSTER
    choice = choose_batch(situation, wished_batch(tx, job), trying_seconds=trying, shared=shared)
    if choice is None:
        return False
    _ask(tx, job, choice, now)
    tx.jobs.put(job)
    return True


def asked_for(job: Job, batch: int, workers: int, model: JobModel | None) -> BatchWish:
    """Return a person's request for ``batch`` examples per step, as the wish that a script with
    ``workers`` workers receives.

    The learning rate stays the same if the noise of gradients is unknown.

    Raises:
        BadInput: the script does not ask for its batch, or the batch is beyond the job's bounds.
    """
    bounds, name = job.document.batch, job.document.name
    if not job.document.tunes:
        raise BadInput(
            f"batch {batch} would not reach the script of {name}, because the job's document does "
            "not declare that the script asks for its batch; read the batch with launcher.batch, "
            "declare batch.tune, and submit the job again",
            field="batch",
        )
    least, most = workers * (bounds.local_min or 1), bounds.global_max or _MOST_BATCH
    if not least <= batch <= most:
        raise BadInput(
            f"batch {batch} is outside the range of {least:,} to {most:,} examples a step that "
            f"{count(workers, 'worker')} of {name} may take; request a batch in this range",
            field="batch",
        )
    first, noise = (model.first_batch, model.noise) if model else (None, None)
    scale = 1.0 if first is None or noise is None else gain(batch, first_batch=first, noise=noise)
    return BatchWish(
        global_size=batch,
        local_most=bounds.local_most or batch,
        learning_rate_scale=round(max(1.0, scale), 3),
    )


def _ask(tx: Transaction, job: Job, choice: BatchChoice, now: datetime) -> None:
    asked = AskedBatch(wish=choice.wish, at=now, reason=choice.reason, trial=choice.trial)
    parameters = wire.encode(asked).decode()
    tx.fits.put(StoredFit(job=job.id, kind=BATCH, parameters=parameters, fitted_at=now))
    happened(tx, "batch.asked", choice.reason, job=job.id, now=now)
    acted(tx, BRAIN, "batch.asked", f"job/{job.id}", now=now, why=choice.reason)
