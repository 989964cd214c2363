"""Reasons to leave a job alone, one function each; the first that applies is the reason given.

A guard never shrinks: an unknown or unsafe situation means hold.
"""

from dataclasses import dataclass

from brain.errors import Undetermined
from brain.optimizer.situation import Situation
from brain.types.job import Intent, JobState, OptimizeMode, PolicyMode
from brain.types.plan import PlanState
from brain.typeset import count, duration, reallocation

#: Changes by Brain's own advice that a job bears within an hour; one that shares its pool bears as
#: many as cost it this share of the hour, but no fewer: what a restart costs is weighed whenever
#: its pool is divided.
MOST_CHANGES, MOST_CHANGING = 4, 0.1
HOUR_SECONDS = 3600.0
#: Code of the hold, and of the plan that undid a growth, where replicas are copies.
NOT_DISTRIBUTED = "not-distributed"
#: Code of the hold that only looks, because nobody looked for long.
RETURNED = "returned"
#: Restarts' worth of time for which a job is left alone after a change; less where it shares its
#: pool; on its way up it only waits until the last step has paid for itself, which one of ten per
#: cent does not, a doubling does.
DWELL_RESTARTS, SHARED_RESTARTS, RAMP_RESTARTS = 10.0, 4.0, 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """The reason to change nothing now."""

    code: str
    reason: str
    #: The same in a few words, beside every size that was not taken.
    short: str
    next_step: str


def left_to_people(situation: Situation) -> Hold | None:
    """The owner wants no advice."""
    off = situation.mode is PolicyMode.OFF
    if not off and situation.job.document.optimize_mode is not OptimizeMode.MANUAL:
        return None
    return Hold(
        code="off" if off else "manual",
        reason="policy.mode is off" if off else "optimizeMode is manual: only people propose",
        short="Brain proposes nothing for this job",
        next_step="Ask for a size with `brain resize`, or change the mode.",
    )


def not_running(situation: Situation) -> Hold | None:
    """Suspended, or about to stop."""
    job = situation.job
    if job.intent is Intent.RUN and job.state is not JobState.SUSPENDED:
        return None
    return Hold(
        code="suspended",
        reason=f"the job is {job.state}, its owner said {job.intent}",
        short="the job is not meant to run",
        next_step="It is looked at again when it has been resumed.",
    )


def under_way(situation: Situation) -> Hold | None:
    """At most one plan of a job is active."""
    plan = situation.active
    if plan is None:
        return None
    what = f"plan {plan.generation}, {reallocation(plan.current, plan.target)},"
    waits = {
        PlanState.PROPOSED: ("waits for approval", "Approve or reject it."),
        PlanState.APPROVED: ("waits to begin", "It begins as soon as nothing is in the way."),
        PlanState.APPLYING: ("is being applied", "It is applied once the new world steps."),
        PlanState.APPLIED: ("is being verified", "It is judged after enough steps."),
    }
    said, next_step = waits[plan.state]
    if situation.obstacle is not None:
        asked = "Approve or reject it. " if plan.state is PlanState.PROPOSED else ""
        next_step = f"{asked}It begins once this no longer holds: {situation.obstacle}."
    return Hold(
        code="plan-active",
        reason=f"{what} {said}",
        short=f"plan {plan.generation} comes first",
        next_step=next_step,
    )


def undistributed(situation: Situation) -> Hold | None:
    """Hold a job whose replicas know nothing of each other: all would do the same work.

    They would write the same files, too.
    """
    if situation.not_distributed is None:
        return None
    return Hold(
        code=NOT_DISTRIBUTED,
        reason=situation.not_distributed,
        short="its replicas would be copies of one program",
        next_step=(
            "Let the script join a process group (torch.distributed, accelerate, Lightning …) and "
            "submit it again; or say `independent: true` where replicas are meant to do work of "
            "their own."
        ),
    )


def stale(situation: Situation) -> Hold | None:
    """Hold a job whose telemetry stopped: its state is unknown, so nothing is taken from it."""
    age, limit = situation.telemetry_age_seconds, situation.settings.stale_seconds
    if age is not None and age <= limit:
        return None
    if age is None and situation.world_age_seconds <= limit:
        return None
    since = situation.world_age_seconds if age is None else age
    seen = "no step was seen" if age is None else "no sample came"
    return Hold(
        code="no-steps" if age is None else "stale-telemetry",
        reason=f"{seen} for {duration(since)}, more than {duration(limit)}",
        short="nothing is changed on stale telemetry",
        next_step="See the job's log and `brain doctor`; it is decided again when samples come.",
    )


def degraded(situation: Situation) -> Hold | None:
    """A world that is not whole says nothing about its size."""
    if situation.job.state is JobState.RUNNING:
        return None
    return Hold(
        code="degraded",
        reason=f"the job is {situation.job.state}: {situation.job.reason}",
        short="its world is not whole",
        next_step="It is decided again when the world is whole.",
    )


def straggling(situation: Situation) -> Hold | None:
    """A slow worker would be read as bad scaling."""
    if situation.straggler is None:
        return None
    return Hold(
        code="straggler",
        reason=situation.straggler,
        short="a straggler hides how the job scales",
        next_step="Look at that worker's machine; it is decided again when the ranks are even.",
    )


def unmeasured(situation: Situation) -> Hold | None:
    """Hold a job with too few or too scattered steps, or a world far smaller than its target."""
    try:
        situation.predict(situation.replicas)
    except Undetermined as unknown:
        return Hold(
            code=unknown.code,
            reason=str(unknown),
            short="the present size is not measured yet",
            next_step="It is decided as soon as enough steps were measured.",
        )
    return None


def unsaved(situation: Situation) -> Hold | None:
    """A resize stops the workers, where it does; without a checkpoint all of their work is lost."""
    if situation.checkpointed or situation.in_process:
        return None
    lost = duration(situation.unsaved_seconds)
    return Hold(
        code="no-checkpoint",
        reason=f"I will not resize this job: it would lose {lost}, no checkpoint was seen",
        short="it would lose its work",
        next_step="Let the script save, or declare `checkpoint` in the job document.",
    )


def returned(situation: Situation) -> Hold | None:
    """After an outage everything looks new; the first look decides nothing."""
    since, limit = situation.since_decision_seconds, situation.settings.stale_seconds
    if since is None or since <= limit:
        return None
    return Hold(
        code=RETURNED,
        reason=f"nobody looked at it for {duration(since)}, more than {duration(limit)}",
        short="the first look after an absence decides nothing",
        next_step="It is decided at the next turn.",
    )


def flapping(situation: Situation) -> Hold | None:
    """A job that is changed over and over trains less than one that is left at any size."""
    made, most = situation.changes_lately, MOST_CHANGES
    if situation.shared:
        most = max(most, int(MOST_CHANGING * HOUR_SECONDS / max(1.0, situation.restart_seconds)))
    if made < most:
        return None
    return Hold(
        code="flapping",
        reason=f"{count(made, 'change')} within the hour, {most} are the most",
        short="it was changed too often lately",
        next_step="It is decided again when the oldest of them is an hour ago.",
    )


def dwell_seconds(situation: Situation) -> float:
    """Return how long a job is left alone after a change.

    In a shared pool that time does not grow with the job's recent changes, because other jobs wait
    for the replicas that this job does not need.
    """
    settings, restart = situation.settings, situation.restart_seconds
    if situation.shared:
        return max(settings.shared_dwell_seconds, SHARED_RESTARTS * restart)
    dwell = max(settings.dwell_seconds, DWELL_RESTARTS * restart)
    return dwell * 2.0 ** max(0, situation.changes_lately - 1)


def climbs(situation: Situation) -> bool:
    """True if a job that would be left alone may grow all the same, and only that.

    A job that begins small and doubles would else spend its first hour on the way to its size.
    """
    since = situation.since_change_seconds
    if since is None or not situation.ramping:
        return False
    return RAMP_RESTARTS * situation.restart_seconds <= since < dwell_seconds(situation)


def dwelling(situation: Situation) -> Hold | None:
    """Two changes must not overlap in the measurements, and each is to pay before the next.

    Alone, twice as long after each further change within the hour. One that grew and kept its
    promise may go on growing sooner: ``climbs`` says until when it may only grow.
    """
    since = situation.since_change_seconds
    dwell = dwell_seconds(situation)
    if since is None or since >= dwell or climbs(situation):
        return None
    if situation.ramping:
        dwell = RAMP_RESTARTS * situation.restart_seconds
    return Hold(
        code="dwell",
        reason=f"its world changed {duration(since)} ago, it is left alone for {duration(dwell)}",
        short="the last change is too recent",
        next_step=f"It is decided again in {duration(dwell - since)}.",
    )


def rigid(situation: Situation) -> Hold | None:
    """There is only one size to choose from."""
    if any(size != situation.replicas for size in situation.sizes):
        return None
    return Hold(
        code="at-best",
        reason=f"its bounds allow {count(situation.replicas, 'replica')} and no other size",
        short="",
        next_step="Widen `replicas` in the job document to let it scale.",
    )


#: Nothing of a job is changed for these, not even what needs no restart.
UNSOUND = (stale, degraded, unmeasured, straggling)
#: In the order of what a person would want to know first.
ALL = (
    left_to_people,
    not_running,
    under_way,
    undistributed,
    rigid,
    *UNSOUND,
    unsaved,
    returned,
    flapping,
    dwelling,
)
