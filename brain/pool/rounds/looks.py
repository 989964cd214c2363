"""The result of Brain's last look at a job, and the time of the next look if nothing happens to the
job.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from brain.lifecycle.observed import ThroughputObserved
from brain.models.fitting import Point
from brain.pool.division import PoolMember
from brain.ports import Mark
from brain.settings import Settings
from brain.types.plan import PlanKind, PlanState, ScalePlan
from brain.types.recommendation import Recommendation

#: Codes of holds that only news of the job can end, and the seconds until such a job is looked at
#: all the same.
_LASTING = frozenset({"off", "manual", "at-best", "mixed-groups", "no-steps", "stale-telemetry"})
_LASTING_SECONDS = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedLook:
    """The result of the last decision about a job."""

    mark: Mark
    #: Time at which the job is looked at again even if nothing happened to it.
    again_at: datetime
    #: The job as a member of its pool; None if Brain decides about it alone.
    member: PoolMember | None = None
    #: The telemetry that the job waits for, without which Brain can neither decide about it nor
    #: judge it.
    awaited: bool = False


def looked(
    mark: Mark,
    sight: ThroughputObserved,
    *,
    active: ScalePlan | None,
    decides: bool,
    decision: Recommendation | None,
    member: PoolMember | None,
    moved: bool,
    settings: Settings,
    now: datetime,
) -> CachedLook:
    """Return the look at a job that was just taken.

    Args:
        mark: The job's mark before the look.
        sight: The job's measurements.
        active: The job's active plan after the look.
        decides: True if Brain decides about jobs in this state.
        decision: The decision about the job; None if Brain decides in the pool's round.
        member: The job as a member of its pool; None if it does not share it.
        moved: True if a plan of the job changed.
        settings: The service's settings.
        now: The time of the look.
    """
    held = member.hold.code if member and member.hold else ""
    code = decision.explanation.code if decision else held
    again = moved or code == "returned" or (active is not None and _goes_on(active))
    lasts = decision is not None and active is None and code in _LASTING
    rest = _LASTING_SECONDS if lasts else _rest(sight, settings, now)
    judged = active is not None and active.state is PlanState.APPLIED
    return CachedLook(
        mark=mark,
        again_at=now + timedelta(seconds=0.0 if again else rest),
        member=member,
        awaited=judged or (decides and not isinstance(sight.present, Point)),
    )


def _rest(sight: ThroughputObserved, settings: Settings, now: datetime) -> float:
    """Return the seconds until an unchanged job is looked at again.

    The job is looked at again before its telemetry becomes stale, because a round acts on the last
    look.
    """
    usual, newest = settings.stale_seconds / 2, sight.samples[-1:]
    left = [settings.stale_seconds - (now - one.measured_at).total_seconds() for one in newest]
    return min([usual, *(seconds for seconds in left if seconds >= 0)])


def _goes_on(active: ScalePlan) -> bool:
    """Return True if a plan may go on although nothing happens to its own job: once other jobs make
    room, a plan that it needs is approved, or a time limit passes.

    A new size that is being applied has no time limit: only the job's own world can meet it.
    """
    match active.state:
        case PlanState.APPROVED:
            return True
        case PlanState.APPLYING:
            limited = active.kind is PlanKind.RESTART or active.only_moves or active.in_place
            return limited or active.changes_resources
        case PlanState.PROPOSED:
            return bool(active.after)
    return False
