"""The throughput that the model predicts for each size that a job may have."""

from datetime import datetime

from brain import lifecycle
from brain.errors import Undetermined
from brain.lifecycle.observed import ThroughputObserved, look
from brain.lifecycle.surroundings import situate
from brain.optimizer import Situation, recommend
from brain.pool.division import shares
from brain.ports import Transaction
from brain.settings import Settings
from brain.types.job import Job
from brain.types.plan import ScalePlan
from brain.views import Scaling, WhatIf


def expected_scaling(tx: Transaction, job: Job, settings: Settings, now: datetime) -> Scaling:
    """Return the model's predictions, which *What-if* shows, for the sizes that a job may have."""
    sight = look(tx, job, settings=settings, now=now)
    _, current = lifecycle.standing(tx.plans.effective(job.id), job)
    last = tx.plans.decision(job.id) if shares(job) else None
    situation = None if last else situate(tx, job, sight, settings=settings, now=now)
    advised = recommend(situation).target if situation else last.target if last else current
    active = tx.plans.active(job.id)
    return Scaling(
        current=current.replicas,
        recommended=(active.target if active else advised).replicas,
        sizes=tuple(
            _what_if(sight, situation, size, active) for size in job.document.replicas.sizes()
        ),
        basis=sight.model.basis if sight.model else sight.missing,
    )


def _what_if(
    sight: ThroughputObserved, situation: Situation | None, size: int, active: ScalePlan | None
) -> WhatIf:
    if active and active.promised and active.current.replicas != size == active.target.replicas:
        # The plan's promise is shown until the plan is renewed, so that every page shows one
        # number.
        return WhatIf(replicas=size, prediction=active.promised, measured=sight.at(size))
    try:
        unlike = situation is not None and (situation.serves or situation.groups)
        asked = situation if situation is not None and unlike else sight
        prediction, why = asked.predict(size), None
    except Undetermined as unknown:
        prediction, why = None, str(unknown)
    return WhatIf(replicas=size, prediction=prediction, undetermined=why, measured=sight.at(size))
