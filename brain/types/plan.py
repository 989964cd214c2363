"""ScalePlans: recommendations stored with a generation, and the states that a plan goes through.

Proposed -> Approved -> Applying -> Applied -> Verified | RolledBack
Other final states: Rejected, Superseded, Expired, Failed
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from brain.errors import IllegalTransition
from brain.types.allocation import Allocation
from brain.types.explanation import Explanation
from brain.types.job import JobId
from brain.types.recommendation import Prediction
from brain.types.roles import alike


class PlanState(StrEnum):
    """The state of a plan; ``PLAN_MOVES`` is the table of legal moves.

    ``Verified`` means that a plan was measured; ``PlanVerdict`` has the outcome of its promise.
    """

    PROPOSED = "Proposed"
    APPROVED = "Approved"
    APPLYING = "Applying"
    APPLIED = "Applied"
    VERIFIED = "Verified"
    ROLLED_BACK = "RolledBack"
    REJECTED = "Rejected"
    SUPERSEDED = "Superseded"
    EXPIRED = "Expired"
    FAILED = "Failed"


PLAN_MOVES: Mapping[PlanState, frozenset[PlanState]] = {
    PlanState.PROPOSED: frozenset(
        {
            PlanState.APPROVED,
            PlanState.REJECTED,
            PlanState.SUPERSEDED,
            PlanState.EXPIRED,
            PlanState.FAILED,
        }
    ),
    PlanState.APPROVED: frozenset(
        {
            PlanState.APPLYING,
            PlanState.REJECTED,
            PlanState.SUPERSEDED,
            PlanState.EXPIRED,
            PlanState.FAILED,
        }
    ),
    PlanState.APPLYING: frozenset({PlanState.APPLIED, PlanState.SUPERSEDED, PlanState.FAILED}),
    PlanState.APPLIED: frozenset({PlanState.VERIFIED, PlanState.ROLLED_BACK, PlanState.SUPERSEDED}),
    PlanState.VERIFIED: frozenset(),
    PlanState.ROLLED_BACK: frozenset(),
    PlanState.REJECTED: frozenset(),
    PlanState.SUPERSEDED: frozenset(),
    PlanState.EXPIRED: frozenset(),
    PlanState.FAILED: frozenset(),
}

#: States of an active plan, of which a job has at most one.
ACTIVE = frozenset({PlanState.PROPOSED, PlanState.APPROVED, PlanState.APPLYING, PlanState.APPLIED})
#: States of a plan whose target a world has met; a superseded plan may have met it, too.
REACHED = frozenset({PlanState.APPLIED, PlanState.VERIFIED, PlanState.ROLLED_BACK})


class PlanKind(StrEnum):
    #: Brain's own advice.
    RESIZE = "resize"
    #: A request of a person or program.
    REQUEST = "request"
    #: The target before another plan; promises nothing, and is never rolled back.
    ROLLBACK = "rollback"
    #: The standing target again, after a plan that had begun and failed.
    RESTORE = "restore"
    #: The same size in a new world, before leaking memory runs out.
    RESTART = "restart"


class Verdict(StrEnum):
    """The result of the comparison of a promise with the measurement."""

    KEPT = "kept"
    FELL_SHORT = "fell short"
    INCONCLUSIVE = "inconclusive"


class PlanVerdict(StrEnum):
    """The outcome of a plan; each plan has exactly one outcome."""

    #: The plan may still be applied and measured.
    NOT_YET = "not yet"
    KEPT = "kept"
    #: The promise was missed, and the plan's size still stands.
    FELL_SHORT = "fell short"
    #: The promise was missed, and the size before the plan stands again.
    ROLLED_BACK = "rolled back"
    #: The plan was applied, and never measured well enough.
    INCONCLUSIVE = "inconclusive"
    #: The plan promised nothing, and brought back the size before another plan.
    RESTORED = "restored"
    #: The plan ended before any world met it, so nothing about it can be measured.
    NOT_APPLIED = "not applied"


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """An approval, with its author: a person's name, or ``policy:auto``."""

    by: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    #: World that met the target.
    epoch: int | None = None
    #: Seconds from the old world's last step to the new world's first one.
    downtime_seconds: float | None = None
    #: Optimizer steps that had to be repeated.
    steps_redone: int | None = None
    #: Throughput measured in that world, in examples of the promised batch (a script whose batch
    #: Brain chooses may have another by then); None until enough steps were seen.
    measured: Prediction | None = None
    #: Verdict of the measurement; for advice that was not taken, the verdict that it would have
    #: got. The outcome of the plan itself is its ``PlanVerdict``.
    verdict: Verdict | None = None
    #: The outcome in one sentence, also for Failed and Expired.
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalePlan:
    """A plan for one job: its new size, batch or amounts, with the promise, the reasons and the
    state.
    """

    job: JobId
    #: Grows by one with every plan of the job; the highest generation wins.
    generation: int
    kind: PlanKind
    state: PlanState = PlanState.PROPOSED
    current: Allocation
    target: Allocation
    #: Throughput at the present size when the plan was made.
    measured: Prediction | None = None
    #: Throughput promised at the target; None if a person asked and no model could predict it.
    promised: Prediction | None = None
    restart_seconds: float | None = None
    payback_seconds: float | None = None
    explanation: Explanation
    #: Author of the plan: ``brain`` or a principal's name.
    proposed_by: str = "brain"
    approval: Approval | None = None
    outcome: Outcome = Outcome()
    #: Plans, as (job, generation), that must be Applied first, because they free the capacity.
    after: tuple[tuple[JobId, int], ...] = ()
    created_at: datetime
    #: Time of the last change of state, or of a newer measurement under a proposal.
    updated_at: datetime
    #: Time at which a proposal without approval expires.
    expires_at: datetime
    #: Grows with every stored change; an approval carries the version that its author saw.
    version: int = 1

    @property
    def active(self) -> bool:
        """Return True if the plan may still change the job."""
        return self.state in ACTIVE

    @property
    def reached(self) -> bool:
        """Return True if a world has met the plan's target."""
        met = self.state is PlanState.SUPERSEDED and self.outcome.epoch is not None
        return met or self.state in REACHED

    @property
    def restores(self) -> bool:
        """Return True if the plan only restores an earlier target, and so promises nothing."""
        return self.kind in (PlanKind.ROLLBACK, PlanKind.RESTORE)

    @property
    def judged(self) -> PlanVerdict | None:
        """Return the verdict of the plan's measurement, even if the plan was rolled back later;
        None if the plan has not been measured.
        """
        if self.outcome.verdict is None:
            return None
        return PlanVerdict.RESTORED if self.restores else PlanVerdict(self.outcome.verdict)

    @property
    def changes_resources(self) -> bool:
        """Return True if the plan changes the amounts that each replica reserves."""
        return self.current.amounts != self.target.amounts

    @property
    def changes_batch(self) -> bool:
        """Return True if the plan also changes the script's batch size."""
        return self.target.batch not in (None, self.current.batch)

    @property
    def in_place(self) -> bool:
        """Return True if the plan changes only the amounts or batch size of replicas, so that no
        new world is formed.
        """
        same = self.current.replicas == self.target.replicas
        same = same and alike(self.current.roles, self.target.roles)
        changes = self.changes_resources or self.changes_batch
        return changes and same and not self.target.elsewhere(self.current)

    @property
    def only_moves(self) -> bool:
        """Return True if the plan changes only the nodes of replicas."""
        return self.target == self.current and self.target.elsewhere(self.current)

    @property
    def only_raises(self) -> bool:
        """Return True if the plan changes only the amounts of replicas, and lowers none of them."""
        return self.in_place and self.target.loosest(self.current).amounts == self.target.amounts

    @property
    def lowers_cpu(self) -> bool:
        """Return True if replicas of any role get less CPU."""
        return any(
            amounts.loosest(self.current.of(role)).cpu_millis != amounts.cpu_millis
            for role, amounts in self.target.amounts.items()
        )

    def moved(self, to: PlanState, now: datetime) -> "ScalePlan":
        """Return the plan in state ``to``.

        Raises:
            IllegalTransition: ``PLAN_MOVES`` has no such move.
        """
        if to not in PLAN_MOVES[self.state]:
            raise IllegalTransition(
                f"plan {self.generation} of job {self.job} is {self.state}; it cannot become {to}"
            )
        return replace(self, state=to, updated_at=now)


def effective(plans: Sequence[ScalePlan]) -> list[ScalePlan]:
    """Return the plans that determine a job's present size: its newest plan, its active plan, and
    all plans whose targets worlds have met. The plans are given and returned newest first.
    """
    return [plan for plan in plans if plan is plans[0] or plan.active or plan.reached]
