"""Chooses a size that the pool has room for and that stays within the job's resource limits."""

from datetime import datetime

from brain.lifecycle.capacity import Room, fits
from brain.optimizer import recommend
from brain.optimizer.situation import Situation
from brain.ports import Transaction
from brain.types.recommendation import Recommendation


def choose(
    tx: Transaction, situation: Situation, now: datetime, room: Room
) -> tuple[Situation, Recommendation]:
    """Return the situation without the sizes that do not fit, and the optimizer's choice among the
    remaining sizes.
    """
    job, decision = situation.job, recommend(situation)
    while not fits(tx, job, decision.target, now, room=room):
        situation = situation.with_lower_raises()
        decision = recommend(situation)
    limits = job.document.resource_limits
    while not decision.hold and (excess := limits.excess(decision.target)):
        situation = situation.without_target(decision.target.replicas, excess[1])
        decision = recommend(situation)
    return situation, decision
