"""Detection of replicas that run independent copies of a program instead of training together.

Copies write the same checkpoint and train on the same examples, so a growth only wastes replicas. A
single replica proves nothing, because scripts usually form a process group only if there are
several workers. So Brain judges after the first growth.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from enum import Enum, auto

from brain.lifecycle.desired import beyond_bounds
from brain.lifecycle.observed import WINDOWS_SECONDS, ThroughputObserved
from brain.lifecycle.plans import ROLLBACK, instead, undoing
from brain.lifecycle.records import happened, move_plan
from brain.models.fitting import copies
from brain.optimizer.guards import NOT_DISTRIBUTED
from brain.ports import Transaction
from brain.settings import Settings
from brain.types.job import Job
from brain.types.plan import Outcome, PlanKind, PlanState, ScalePlan, Verdict
from brain.types.telemetry import SaveSample, ThroughputSample
from brain.typeset import count, plan_change

#: Steps after which a worker that has met no other worker is expected never to meet one.
LEAST_STEPS = 10

_HOW = "no process group, no session, no data shard, no MPI or Horovod peer"


class DistributionEvidence(Enum):
    """Evidence that the workers of a world train together, or that each trains a copy."""

    #: No conclusion: the world has one replica, a worker met another, or a worker does not tell.
    NONE = auto()
    #: No worker has met another so far.
    COPIES_SO_FAR = auto()
    #: No worker had met another by the first save after every rank had made ten steps.
    COPIES = auto()


def evidence(
    samples: Sequence[ThroughputSample], saves: Sequence[SaveSample]
) -> DistributionEvidence:
    """Return the evidence from a world's samples and saves, which are given oldest first."""
    if not copies(samples) or samples[-1].replicas < 2:
        return DistributionEvidence.NONE
    trained: dict[int, datetime] = {}
    ranks: dict[int, list[ThroughputSample]] = defaultdict(list)
    for sample in samples:
        ranks[sample.place.rank].append(sample)
        if sample.step >= LEAST_STEPS:
            trained.setdefault(sample.place.rank, sample.measured_at)
    if len(trained) < len(ranks):
        return DistributionEvidence.COPIES_SO_FAR
    since = max(trained.values())
    saved = any(save.measured_at >= since for save in saves)
    return DistributionEvidence.COPIES if saved else DistributionEvidence.COPIES_SO_FAR


def distribution(
    tx: Transaction, job: Job, sight: ThroughputObserved, now: datetime
) -> DistributionEvidence:
    """Return the evidence from a job's present world."""
    world = sight.world
    if job.document.independent or world is None or not copies(sight.samples):
        return DistributionEvidence.NONE
    since = max(world.formed_at, now - timedelta(seconds=WINDOWS_SECONDS[-1]))
    samples = tx.telemetry.throughput(job.id, since=since, epoch=world.epoch)
    saves = [s for s in tx.telemetry.saves(job.id, since=since) if s.place.epoch == world.epoch]
    return evidence(samples, saves)


def not_distributed(
    tx: Transaction, job: Job, sight: ThroughputObserved, plans: Sequence[ScalePlan], now: datetime
) -> str | None:
    """Return one sentence that says why a job must not grow, because of its present world or an
    earlier growth; None if it may grow.

    The plan that undid an earlier growth proves that the job must not grow. This holds until the
    job ends, because a person who has fixed the script submits a new job.
    """
    if job.document.independent:
        return None
    if distribution(tx, job, sight, now) is DistributionEvidence.COPIES:
        return _sentence(sight.world.replicas if sight.world else 0)
    if any(sample.met for sample in sight.samples):
        return None
    return next((p.explanation.reason for p in plans if undid_copies(p)), None)


def undid_copies(plan: ScalePlan) -> bool:
    """Return True if a plan undid a growth after which the replicas were copies."""
    return plan.kind is PlanKind.ROLLBACK and plan.explanation.code == NOT_DISTRIBUTED


def revert(
    tx: Transaction,
    job: Job,
    plan: ScalePlan,
    sight: ThroughputObserved,
    *,
    settings: Settings,
    now: datetime,
) -> ScalePlan:
    """Undo Brain's own growth, because the replicas turned out to be copies; return the plan that
    is undone.

    A size that a person requested is not undone, because no verdict undoes such a size; nor is a
    growth from a size that the job's bounds no longer allow.
    """
    why = _sentence(plan.target.replicas)
    outcome: Outcome = replace(
        plan.outcome, measured=sight.now, verdict=Verdict.FELL_SHORT, detail=why
    )
    reason = f"{plan_change(plan)} is undone: {why}"
    back = undoing(tx, job, plan, reason, settings=settings, now=now, code=NOT_DISTRIBUTED)
    if plan.kind is not PlanKind.RESIZE or beyond_bounds(job, back):
        return move_plan(tx, plan, PlanState.VERIFIED, why, now, outcome=outcome)
    plan = move_plan(tx, plan, PlanState.ROLLED_BACK, why, now, outcome=outcome)
    happened(tx, "job.not-distributed", reason, job=job.id, now=now, subject=plan.generation)
    instead(tx, job, None, back, by=ROLLBACK, settings=settings, now=now)
    return plan


def _sentence(replicas: int) -> str:
    return (
        f"{count(replicas, 'replica')} are copies of one program, because their workers had "
        f"connected to no other worker by their first save ({_HOW})"
    )
