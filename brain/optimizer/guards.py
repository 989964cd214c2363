"""Guards: reasons to leave a job unchanged, one function each. The first guard that applies gives
the reason.

A guard never shrinks a job: in an unknown or unsafe situation Brain changes nothing.
"""

from dataclasses import dataclass

from brain.errors import Undetermined
from brain.optimizer.situation import Situation
from brain.types.job import Intent, JobState, OptimizeMode, PolicyMode
from brain.types.plan import PlanState
from brain.typeset import count, duration, plan_change, standing

#: Most changes by Brain's own advice within an hour. A job that shares its pool may have more, up
#: to this share of the hour lost in restarts, because every round weighs the cost of a restart.
MOST_CHANGES, MOST_CHANGING = 4, 0.1
HOUR_SECONDS = 3600.0
#: Code of the hold, and of the plan that undid a growth, for replicas that are copies.
NOT_DISTRIBUTED = "not-distributed"
#: Code of the hold that only observes, after a long absence of Brain.
RETURNED = "returned"
#: Time, in restarts, for which a job is left alone after a change: usually; in a shared pool; and
#: on its way up, where a job only waits until its last growth has paid for itself. A doubling pays
#: within this time, a gain of ten per cent does not.
DWELL_RESTARTS, SHARED_RESTARTS, RAMP_RESTARTS = 10.0, 4.0, 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """The reason why a job does not change now."""

    code: str
    reason: str
    #: The reason in a few words, shown beside every size that was not taken.
    short: str
    next_step: str


def left_to_people(situation: Situation) -> Hold | None:
    """Hold a job whose owner does not want advice."""
    off = situation.mode is PolicyMode.OFF
    if not off and situation.job.document.optimize_mode is not OptimizeMode.MANUAL:
        return None
    return Hold(
        code="off" if off else "manual",
        reason="policy.mode is off"
        if off
        else ("optimizeMode is manual, so only people change the size"),
        short="Brain proposes nothing for this job",
        next_step="Ask for a size with `brain resize`, or change optimizeMode.",
    )


def not_running(situation: Situation) -> Hold | None:
    """Hold a job that is suspended, or will be."""
    job = situation.job
    if job.intent is Intent.RUN and job.state is not JobState.SUSPENDED:
        return None
    return Hold(
        code="suspended",
        reason=f"the job is {job.state}, and a request to {job.intent} it is pending",
        short="the job will stop",
        next_step="Brain decides about the job again once you resume it.",
    )


def mixed(situation: Situation) -> Hold | None:
    """Hold a job with groups, because the models cover only replicas that are alike."""
    if not situation.groups:
        return None
    names = ", ".join(situation.groups)
    return Hold(
        code="mixed-groups",
        reason=f"replicas of {names} differ from the others, and no model predicts such a size",
        short="no model predicts replicas that differ",
        next_step="Ask for a size with `brain resize`, or resize a group with `brain edit --role`.",
    )


def under_way(situation: Situation) -> Hold | None:
    """Hold a job that has an active plan."""
    plan = situation.active
    if plan is None:
        return None
    what = f"plan {plan.generation}, {plan_change(plan)},"
    waits = {
        PlanState.PROPOSED: ("waits for approval", "Approve or reject it."),
        PlanState.APPROVED: ("waits to begin", "The plan begins as soon as nothing prevents it."),
        PlanState.APPLYING: (
            "is being applied",
            ("The plan is applied once the new world makes steps."),
        ),
        PlanState.APPLIED: ("is being verified", "Brain evaluates the plan after enough steps."),
    }
    said, next_step = waits[plan.state]
    if situation.obstacle is not None:
        asked = "Approve or reject it. " if plan.state is PlanState.PROPOSED else ""
        next_step = f"{asked}The plan begins once this obstacle is gone: {situation.obstacle}."
    return Hold(
        code="plan-active",
        reason=f"{what} {said}",
        short=f"plan {plan.generation} comes first",
        next_step=next_step,
    )


def undistributed(situation: Situation) -> Hold | None:
    """Return a hold if the replicas are independent copies of a program that use the same files."""
    if situation.not_distributed is None:
        return None
    return Hold(
        code=NOT_DISTRIBUTED,
        reason=situation.not_distributed,
        short="its replicas would be copies of one program",
        next_step=(
            "Let the script join a process group (torch.distributed, accelerate, Lightning …) and "
            "submit it again; or declare `independent: true` if each replica does work of its own "
            "on purpose."
        ),
    )


def stale(situation: Situation) -> Hold | None:
    """Hold a job whose telemetry stopped, because its state is unknown."""
    age, limit = situation.telemetry_age_seconds, situation.stale_after_seconds
    if age is not None and age <= limit:
        return None
    if age is None and situation.world_age_seconds <= limit:
        return None
    since = situation.world_age_seconds if age is None else age
    seen = "no step was seen" if age is None else "no sample came"
    return Hold(
        code="no-steps" if age is None else "stale-telemetry",
        reason=f"{seen} for {duration(since)}, longer than the limit of {duration(limit)}",
        short="without recent telemetry, Brain changes nothing",
        next_step="See the job's log and `brain doctor`; Brain decides again when samples arrive.",
    )


def degraded(situation: Situation) -> Hold | None:
    """Hold a job whose world is incomplete, because its throughput does not show what a complete
    world would achieve.
    """
    if situation.job.state is JobState.RUNNING:
        return None
    return Hold(
        code="degraded",
        reason=f"the job {standing(situation.job.state, situation.job.reason)}",
        short="its world is incomplete",
        next_step="Brain decides again when the world is complete.",
    )


def straggling(situation: Situation) -> Hold | None:
    """Hold a job with a slow worker, because a slow worker and bad scaling look the same in the
    throughput.
    """
    if situation.straggler is None:
        return None
    return Hold(
        code="straggler",
        reason=situation.straggler,
        short="a straggler hides how the job scales",
        next_step="Check that worker's machine; Brain decides again once all ranks keep up.",
    )


def unmeasured(situation: Situation) -> Hold | None:
    """Hold a job with too few or too scattered steps, or a world far smaller than its target."""
    try:
        situation.predict(situation.replicas)
    except Undetermined as unknown:
        return Hold(
            code=unknown.code,
            reason=str(unknown),
            short="the present size has not been measured yet",
            next_step="Brain decides as soon as enough steps are measured.",
        )
    return None


def unsaved(situation: Situation) -> Hold | None:
    """Hold a job without a checkpoint if a resize would stop its workers, because all their work
    would be lost.
    """
    if situation.checkpointed or situation.in_process:
        return None
    lost = duration(situation.unsaved_seconds)
    return Hold(
        code="no-checkpoint",
        reason=f"a resize would lose {lost} of work: no checkpoint was seen",
        short="a resize would lose the job's work",
        next_step="Let the script save checkpoints, or declare `checkpoint` in the job document.",
    )


def returned(situation: Situation) -> Hold | None:
    """Hold a job at the first decision after an outage of Brain, because its measurements may be
    outdated.
    """
    since, limit = situation.since_decision_seconds, situation.settings.stale_seconds
    if since is None or since <= limit:
        return None
    return Hold(
        code=RETURNED,
        reason=(
            f"Brain did not evaluate the job for {duration(since)}, longer than the limit of "
            f"{duration(limit)}"
        ),
        short="Brain decides nothing in its first turn after a pause",
        next_step="Brain decides at its next turn.",
    )


def flapping(situation: Situation) -> Hold | None:
    """Hold a job that changed too often, because each change costs training time."""
    made, most = situation.changes_lately, MOST_CHANGES
    if situation.shared:
        most = max(most, int(MOST_CHANGING * HOUR_SECONDS / max(1.0, situation.restart_seconds)))
    if made < most:
        return None
    return Hold(
        code="flapping",
        reason=(
            f"{count(made, 'change')} within the last hour, and Brain makes at most {most} an hour"
        ),
        short="the job was changed too often in the last hour",
        next_step="Brain decides again when the oldest change is an hour old.",
    )


def dwell_seconds(situation: Situation) -> float:
    """Return the seconds for which a job is left unchanged after a change.

    In a shared pool this time does not grow with the number of recent changes, because other jobs
    wait for the replicas that this job does not need.
    """
    settings, restart = situation.settings, situation.restart_seconds
    if situation.shared:
        return max(settings.shared_dwell_seconds, SHARED_RESTARTS * restart)
    dwell = max(settings.dwell_seconds, DWELL_RESTARTS * restart)
    return dwell * 2.0 ** max(0, situation.changes_lately - 1)


def climbs(situation: Situation) -> bool:
    """Return True if a recently changed job may still grow (but not shrink).

    Otherwise a job that starts small and doubles would need an hour to reach its size.
    """
    since = situation.since_change_seconds
    if since is None or not situation.ramping:
        return False
    return RAMP_RESTARTS * situation.restart_seconds <= since < dwell_seconds(situation)


def dwelling(situation: Situation) -> Hold | None:
    """Hold a job that changed recently, because each change must be measured separately and pay for
    its restart.

    For a job that is optimised alone, the time on hold doubles with each further change within the
    hour. If a growth kept its promise, the job may grow again sooner (``climbs``).
    """
    since = situation.since_change_seconds
    dwell = dwell_seconds(situation)
    if since is None or since >= dwell or climbs(situation):
        return None
    if situation.ramping:
        dwell = RAMP_RESTARTS * situation.restart_seconds
    return Hold(
        code="dwell",
        reason=(
            f"the world changed {duration(since)} ago; Brain waits {duration(dwell)} after a change"
        ),
        short="the last change is too recent",
        next_step=f"Brain decides again in {duration(dwell - since)}.",
    )


def rigid(situation: Situation) -> Hold | None:
    """Hold a job that may have only one size."""
    if any(size != situation.replicas for size in situation.sizes):
        return None
    return Hold(
        code="at-best",
        reason=f"the bounds allow {count(situation.replicas, 'replica')} and no other size",
        short="",
        next_step="Widen `replicas` in the job document to let the job scale.",
    )


#: Guards that forbid even changes without a restart.
UNSOUND = (stale, degraded, unmeasured, straggling)
#: Guards, in the order of their interest to a person.
ALL = (
    left_to_people,
    not_running,
    under_way,
    undistributed,
    mixed,
    rigid,
    *UNSOUND,
    unsaved,
    returned,
    flapping,
    dwelling,
)
