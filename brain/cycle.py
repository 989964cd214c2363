"""One turn of the loop: measurements become models, choices and plans. Read this file first.

``turn`` looks after every job of a pool:

    admit what waits -> follow its plan -> measure its world -> fit, choose -> store plan or hold

Jobs that share their pool (``optimizeMode: cluster``) are measured one by one, and Brain decides
about all of them in one round at the end (``brain.pool.rounds``). Brain decides about every other
job separately.

``turn`` reads stores and a clock from its arguments, and changes only the stores: worlds change
because a coordinator reads the desired world that follows from the plans (``lifecycle.wish``).

Admission is one transaction, each job has another, and a round has one more. Short transactions do
not delay ingest. If one job fails, nothing that was stored for the other jobs is undone. A job
fails if another Brain stored a plan first (``Conflict``), or if the job's telemetry triggers a bug.
Calling ``turn`` again, at any time and from any number of Brains, is safe.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from brain import estimates, lifecycle
from brain.errors import Conflict, Unavailable, Undetermined
from brain.lifecycle.distribution import DistributionEvidence, distribution, revert
from brain.lifecycle.observed import ThroughputObserved, look, measuring_seconds, remember
from brain.lifecycle.scores import score
from brain.lifecycle.surroundings import situate
from brain.models.fitting import Point
from brain.optimizer import guards, recommend
from brain.pool import rounds
from brain.pool.division import PoolMember, shares
from brain.pool.rounds import Memo
from brain.ports import Stores, Tracer, Transaction, untraced
from brain.settings import Settings
from brain.types.job import Job, JobId, JobState
from brain.types.plan import PlanKind, PlanState, ScalePlan
from brain.types.recommendation import Recommendation
from brain.types.record import Event
from brain.types.resources import PoolName
from brain.types.sharing import PoolRound
from brain.typeset import duration

#: States in which Brain decides, if only to explain why it does nothing.
_DECIDED = frozenset({JobState.RUNNING, JobState.CHANGING, JobState.DEGRADED, JobState.SUSPENDED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    pool: PoolName
    at: datetime
    #: Jobs that were started.
    admitted: tuple[JobId, ...] = ()
    #: Plans that were stored or changed, in their present state.
    plans: tuple[ScalePlan, ...] = ()
    #: The decision about each job that was looked at, including holds.
    decisions: dict[JobId, Recommendation] = field(default_factory=dict)
    #: The round of the jobs that share the pool; None if there was none.
    round: PoolRound | None = None
    #: Jobs that another Brain, or a person, changed meanwhile; the next turn looks at them.
    conflicts: tuple[JobId, ...] = ()
    #: Bugs by job, for the log; such a job stays as it is, and shows a finding.
    undecided: Mapping[JobId, Exception] = field(default_factory=dict)
    #: Bugs in the round, in admission, or in the comparison of accelerators, which no job shows.
    bugs: tuple[Exception, ...] = ()

    def checked(self) -> "Turn":
        """Return this turn, or raise its first bug, because simulations, replays and tests stop at
        bugs.
        """
        for bug in (*self.undecided.values(), *self.bugs):
            raise bug
        return self


@dataclass(slots=True)
class _Made:
    """The results of a turn so far."""

    plans: list[ScalePlan] = field(default_factory=list)
    decisions: dict[JobId, Recommendation] = field(default_factory=dict)
    conflicts: list[JobId] = field(default_factory=list)
    undecided: dict[JobId, Exception] = field(default_factory=dict)
    bugs: list[Exception] = field(default_factory=list)


def turn(
    stores: Stores,
    pool: PoolName,
    settings: Settings,
    now: datetime,
    *,
    memo: Memo | None = None,
    trace: Tracer = untraced,
) -> Turn:
    """Run one turn over the jobs of ``pool``.

    ``memo`` keeps values from one turn to the next. With a memo, only jobs that changed are
    evaluated, and the first round only observes the pool. Without a memo, every job is evaluated.
    Each job that is evaluated has a span, and so has a round.

    Raises:
        Unavailable: the stores cannot be reached; nothing about the current job was stored.
    """
    observe = memo is not None and memo.round_at is None
    memo, made = memo or Memo(pool), _Made()
    with stores.transaction(read_only=True) as tx:
        memo.read(tx, now)
    admitted = admit(stores, memo, made, settings, now)
    for job in [id for id in memo.marks if memo.due(id, now)]:
        attributes: dict[str, str | int] = {"brain.pool": pool, "brain.job": job}
        try:
            with trace("decide", attributes), stores.transaction() as tx:
                memo.catch_up(tx, now)
                moved, decision = attend(tx, tx.jobs.get(job), memo, settings, now)
                memo.wrote(tx, [job] if moved else [])
                if decision is not None:
                    attributes["brain.decision"] = decision.explanation.code
        except Conflict:
            memo.undone(job)
            made.conflicts.append(job)
            continue
        except Unavailable:
            raise
        except Exception as bug:  # noqa: BLE001 - a bug with one job must not end deciding for others
            memo.undone(job)
            made.undecided[job] = bug
            rounds.undecided(stores, job, bug, now)
            continue
        made.plans += moved
        if decision is not None:
            made.decisions[job] = decision
    divided = divide(stores, memo, made, settings, now, observe=observe, trace=trace)
    if divided is not None and memo.granted:
        admitted += admit(stores, memo, made, settings, now)
    made.bugs += memo.take_bugs()
    return Turn(
        pool=pool,
        at=now,
        admitted=admitted,
        plans=tuple(made.plans),
        decisions=made.decisions,
        round=divided,
        conflicts=tuple(made.conflicts),
        undecided=made.undecided,
        bugs=tuple(made.bugs),
    )


def admit(
    stores: Stores, memo: Memo, made: _Made, settings: Settings, now: datetime
) -> tuple[JobId, ...]:
    """Start the queued jobs that fit into the pool, or none if another writer changed one of
    them.
    """
    if not memo.queued():
        return ()
    try:
        return _admitted(stores, memo, settings, now)
    except Conflict:
        memo.undone()
    except Unavailable:
        raise
    except Exception as bug:  # noqa: BLE001 - those that run are looked after all the same
        memo.undone()
        made.bugs.append(bug)
    return ()


def _admitted(stores: Stores, memo: Memo, settings: Settings, now: datetime) -> tuple[JobId, ...]:
    with stores.transaction() as tx:
        memo.catch_up(tx, now)
        queue = rounds.queued(tx, memo, settings)
        limits = rounds.AcceleratorLimits(tx, memo)
        starts = rounds.Starts(queue, settings, tx, memo, now)
        started = lifecycle.admit(
            tx,
            queue,
            now=now,
            room=memo.room,
            barred=lambda job, size: starts.waits(job, size) or limits.take(job, size),
            first=starts.first,
            nodes=starts.nodes,
            begun=memo.wrote,
        )
        return tuple(job.id for job in started)


def divide(
    stores: Stores,
    memo: Memo,
    made: _Made,
    settings: Settings,
    now: datetime,
    *,
    observe: bool,
    trace: Tracer,
) -> PoolRound | None:
    """Divide the pool among the jobs that share it, if there are any and a round is due."""
    try:
        shared = rounds.share(stores, memo, settings, now, observe=observe, trace=trace)
    except Conflict:
        memo.undone()
        return None
    except Unavailable:
        raise
    except Exception as bug:  # noqa: BLE001 - plans that are under way are followed all the same
        memo.undone()
        made.bugs.append(bug)
        return None
    made.plans += shared.plans
    made.decisions |= shared.decisions
    made.undecided |= shared.undecided
    return shared.round


def attend(
    tx: Transaction, job: Job, memo: Memo, settings: Settings, now: datetime
) -> tuple[list[ScalePlan], Recommendation | None]:
    """Follow one job's plan, measure its world, and decide; return the plans that changed, and the
    decision.

    A job that shares its pool is only prepared for the round.
    """
    before = {plan.generation: plan for plan in tx.plans.of(job.id)}
    if lifecycle.requeue(tx, job, now):
        memo.wrote(tx, [job.id])
        job = tx.jobs.get(job.id)
    lifecycle.hear(tx, job, now)
    sight = look(tx, job, settings=settings, now=now)
    follow(tx, job, sight, memo, settings, now)
    remember(tx, job, sight, now)
    if isinstance(sight.present, Point):
        ended = list(before.values())
        score(tx, ended, sight.present, unit=sight.unit, settings=settings, now=now)
    estimates.remember(tx, job, sight, now)
    job, decision, member = tx.jobs.get(job.id), None, None
    if job.state in _DECIDED and shares(job):
        proposal = tx.plans.active(job.id)
        if proposal and lifecycle.outdated(proposal, sight.now, settings):
            memo.wrote(tx, lifecycle.withdraw(tx, proposal, sight.now, now))
        uses = estimates.uses_of(tx, job)
        member = rounds.joined(tx, job, sight, memo, settings, now, uses=uses)
        if member.situation and lifecycle.tune(tx, job, member.situation, now):
            memo.wrote(tx, [job.id])
        elif member.situation and (
            changed := estimates.restart(tx, job, member.situation, settings=settings, now=now)
        ):
            memo.wrote(tx, changed)
            member = rounds.joined(tx, job, sight, memo, settings, now, uses=uses)
        elif _settled(tx, member) and estimates.propose(
            tx, job, sight, settings=settings, now=now, room=memo.room
        ):
            memo.wrote(tx, [job.id])
            member = rounds.joined(tx, job, sight, memo, settings, now, uses=uses)
    elif job.state in _DECIDED:
        decision = decide(tx, job, sight, memo, settings, now)
    moved = [plan for plan in tx.plans.of(job.id) if before.get(plan.generation) != plan]
    if job.id in memo.marks:
        memo.looked[job.id] = rounds.looked(
            memo.marks[job.id],
            sight,
            active=tx.plans.active(job.id),
            decides=job.state in _DECIDED,
            decision=decision,
            member=member,
            moved=bool(moved),
            settings=settings,
            now=now,
        )
    return moved, decision


def _settled(tx: Transaction, member: PoolMember) -> bool:
    """Return True if the last round left the size of a job, and nothing keeps its amounts."""
    situation, hold = member.situation, member.hold
    if situation is None or tx.plans.active(member.job.id) is not None:
        return False
    last = tx.plans.decision(member.job.id)
    left = last is not None and last.hold and last.explanation.code in estimates.AMENABLE
    amenable = hold is None or hold.code in estimates.AMENABLE
    return left and amenable and not any(guard(situation) for guard in guards.UNSOUND)


def follow(
    tx: Transaction,
    job: Job,
    sight: ThroughputObserved,
    memo: Memo,
    settings: Settings,
    now: datetime,
) -> None:
    """Advance the job's active plan as far as observations allow."""
    plan = tx.plans.active(job.id)
    if plan is not None and plan.state in (PlanState.PROPOSED, PlanState.APPROVED):
        gone = lifecycle.forsaken(tx, plan)
        late = lifecycle.overtaken(tx, plan) or lifecycle.beyond_bounds(job, plan)
        if late:
            lifecycle.expire(tx, plan, now, why=late)
            return
        if gone is not None:
            name = tx.jobs.get(gone.job).document.name
            why = (
                f"plan {gone.generation} of {name}, which should have freed room for this "
                f"plan, is {gone.state}"
            )
            lifecycle.expire(tx, plan, now, why=why)
            return
    match plan.state if plan else None:
        case PlanState.PROPOSED if plan and now >= plan.expires_at:
            lifecycle.expire(tx, plan, now)
        case PlanState.PROPOSED if plan and plan.after and plan.kind is PlanKind.RESIZE:
            lifecycle.proceed(tx, job, plan, settings=settings, now=now, room=memo.room)
        case PlanState.APPROVED if plan:
            plan = lifecycle.begin(tx, plan, settings=settings, now=now, room=memo.room)
            lifecycle.lapse(tx, plan, now=now, room=memo.room)
        case PlanState.APPLYING if plan:
            lifecycle.apply(tx, plan, settings=settings, now=now)
        case PlanState.APPLIED if plan:
            verify(tx, job, plan, sight, memo, settings, now)


def verify(
    tx: Transaction,
    job: Job,
    plan: ScalePlan,
    sight: ThroughputObserved,
    memo: Memo,
    settings: Settings,
    now: datetime,
) -> None:
    """Compare an applied plan's promise with its world's throughput, once the
    throughput is known.
    """
    waited = (now - plan.updated_at).total_seconds()
    limit = max(settings.verify_seconds, measuring_seconds(sight.samples, settings))
    if plan.target.replicas > plan.current.replicas:
        found = distribution(tx, job, sight, now)
        if found is DistributionEvidence.COPIES:
            revert(tx, job, plan, sight, settings=settings, now=now)
            return
        if found is DistributionEvidence.COPIES_SO_FAR and waited < limit:
            return
    present, short = sight.present, ""
    if plan.changes_resources:
        short, present = lifecycle.fell_short(tx, job, plan, sight, settings)
    elif plan.kind is PlanKind.RESTART:
        short, present = lifecycle.unfreed(tx, plan, sight)
    if short or (isinstance(present, Point) and present.replicas == plan.target.replicas):
        if waited < limit and not short and lifecycle.rebatch(tx, job, plan, sight, settings, now):
            memo.wrote(tx, [job.id])
            return
        measured = present.measured if isinstance(present, Point) else None
        worths, unit = lifecycle.worths(plan, sight), sight.unit
        lifecycle.judge(
            tx, plan, measured, unit=unit, settings=settings, now=now, worths=worths, short=short
        )
    elif waited >= limit:
        missing = sight.missing or (str(present) if isinstance(present, Undetermined) else "")
        why = f"not measured within {duration(waited)}: {missing}"
        lifecycle.inconclusive(tx, plan, why, now)


def decide(
    tx: Transaction,
    job: Job,
    sight: ThroughputObserved,
    memo: Memo,
    settings: Settings,
    now: datetime,
) -> Recommendation:
    """Choose a size for a job and store the choice: a plan, or a hold with its reason."""
    uses = estimates.uses_of(tx, job)
    situation = situate(tx, job, sight, settings=settings, now=now, room=memo.room, uses=uses)
    if changed := estimates.restart(tx, job, situation, settings=settings, now=now):
        memo.wrote(tx, changed)
        situation = situate(tx, job, sight, settings=settings, now=now, room=memo.room, uses=uses)
    situation, decision = lifecycle.choose(tx, situation, now, memo.room)
    proposal = situation.active
    if proposal and lifecycle.outdated(proposal, situation.measured, settings):
        anew = recommend(replace(situation, active=None))
        if anew.target.replicas == proposal.target.replicas:
            lifecycle.renew(tx, proposal, anew, now)
        else:
            lifecycle.withdraw(tx, proposal, situation.measured, now)
            decision = anew
    last = tx.plans.decision(job.id)
    tx.plans.decide(job.id, decision)
    code, reason = decision.explanation.code, decision.explanation.reason
    if not decision.hold:
        lifecycle.propose(tx, job, decision, settings=settings, now=now, room=memo.room)
        return decision
    if lifecycle.tune(tx, job, situation, now):
        memo.wrote(tx, [job.id])
    elif code in estimates.AMENABLE and not any(guard(situation) for guard in guards.UNSOUND):
        estimates.propose(tx, job, sight, settings=settings, now=now, room=memo.room)
    if last is None or last.explanation.code != code:
        tx.events.add(Event(at=now, kind="hold", job=job.id, message=reason, data={"code": code}))
    return decision
