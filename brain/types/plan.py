"""ScalePlans: recommendations stored with a generation, and the life of one.

Proposed -> Approved -> Applying -> Applied -> Verified | RolledBack
and aside: Rejected, Superseded, Expired, Failed
"""

from collections.abc import Mapping
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
    """Where a plan stands; the table of legal moves is ``PLAN_MOVES``.

    ``Verified`` says that a plan was measured, not what came of its promise: ``PlanVerdict`` does.
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

#: At most one plan of a job is in these states.
ACTIVE = frozenset({PlanState.PROPOSED, PlanState.APPROVED, PlanState.APPLYING, PlanState.APPLIED})


class PlanKind(StrEnum):
    """What a plan is for."""

    #: Brain's own advice.
    RESIZE = "resize"
    #: Asked for by a person or program.
    REQUEST = "request"
    #: Back to what stood before a plan that fell short; needs no approval, is never rolled back.
    ROLLBACK = "rollback"
    #: The standing target again, after a plan that had begun to move and failed.
    RESTORE = "restore"


class Verdict(StrEnum):
    """What measurement said of a promise."""

    KEPT = "kept"
    FELL_SHORT = "fell short"
    INCONCLUSIVE = "inconclusive"


class PlanVerdict(StrEnum):
    """What came of a plan's promise: every plan has exactly one of these."""

    #: It may still be applied and measured.
    NOT_YET = "not yet"
    KEPT = "kept"
    #: Missed, and its size still stands.
    FELL_SHORT = "fell short"
    #: Missed, and the size before it stands again.
    ROLLED_BACK = "rolled back"
    #: Applied, and never measured well enough.
    INCONCLUSIVE = "inconclusive"
    #: It ended before any world met it: nothing of it can be measured.
    NOT_APPLIED = "not applied"


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """Who said yes: a person's name, or ``policy:auto``."""

    by: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of an applied plan."""

    #: World that met the target.
    epoch: int | None = None
    #: Seconds from the old world's last step to the new world's first one.
    downtime_seconds: float | None = None
    #: Optimizer steps that had to be made again.
    steps_redone: int | None = None
    #: Throughput measured in that world, in examples of the batch that was promised (a script that
    #: is told its batch may have another by then); None until enough steps were seen.
    measured: Prediction | None = None
    #: What measurement said; of advice that was not taken, what it would have come to. What came
    #: of the plan itself is its ``PlanVerdict``.
    verdict: Verdict | None = None
    #: One sentence that says what happened, also for Failed and Expired.
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalePlan:
    """The size one job should have from now on."""

    job: JobId
    #: Grows by one with every plan of the job; the highest generation wins.
    generation: int
    kind: PlanKind
    state: PlanState = PlanState.PROPOSED
    current: Allocation
    target: Allocation
    #: Throughput at the present size when the plan was made.
    measured: Prediction | None = None
    #: Throughput promised at the target; None where a person asked and no model could say.
    promised: Prediction | None = None
    restart_seconds: float | None = None
    payback_seconds: float | None = None
    explanation: Explanation
    #: Who asked: ``brain`` or a principal's name.
    proposed_by: str = "brain"
    approval: Approval | None = None
    outcome: Outcome = Outcome()
    #: Generations (job, generation) that must be Applied first, because they free the capacity.
    after: tuple[tuple[JobId, int], ...] = ()
    created_at: datetime
    #: When the state last changed, or a proposal was based on a newer measurement.
    updated_at: datetime
    #: A proposal that nobody approved by then expires.
    expires_at: datetime
    #: Grows with every stored change; an approval carries the version that was seen.
    version: int = 1

    @property
    def active(self) -> bool:
        """True if the plan may still change the job."""
        return self.state in ACTIVE

    @property
    def changes_resources(self) -> bool:
        """True if it changes what each replica reserves."""
        return self.current.amounts != self.target.amounts

    @property
    def in_place(self) -> bool:
        """True if it changes only what replicas reserve: no world has to change for it."""
        same = self.current.replicas == self.target.replicas
        same = same and alike(self.current.roles, self.target.roles)
        return self.changes_resources and same and not self.target.elsewhere(self.current)

    @property
    def only_raises(self) -> bool:
        """True if it changes only what replicas reserve, and lowers none of it."""
        return self.in_place and self.target.loosest(self.current).amounts == self.target.amounts

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
