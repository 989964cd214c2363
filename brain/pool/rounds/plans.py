"""The plans of one round: reads members from the stores, divides, and proposes plans."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from brain import lifecycle
from brain.errors import Conflict
from brain.lifecycle.observed import ThroughputObserved
from brain.lifecycle.surroundings import situate
from brain.models.estimate.past import WorldUse
from brain.optimizer.guards import Hold
from brain.pool.allocator import JobPlacement, Prices
from brain.pool.division import Division, PoolMember, advise, divide, facts, member, shares
from brain.pool.division.market import DivisibleNodes, giving_way, kind_of, kinds_of
from brain.pool.division.members import UNKNOWN_KINDS, beside_slow
from brain.pool.rounds.cache import Memo
from brain.pool.rounds.findings import undecided
from brain.pool.rounds.starts import read_ahead, spread, waiting_member
from brain.ports import Stores, Tracer, Transaction, untraced
from brain.settings import Settings
from brain.types.job import Intent, Job, JobId
from brain.types.plan import PlanState, ScalePlan
from brain.types.recommendation import Recommendation
from brain.types.record import Event
from brain.types.resources import Resources
from brain.types.sharing import PoolRound, PoolShares
from brain.typeset import duration

#: Least seconds between two rounds: jobs come and go in bunches.
DEBOUNCE_SECONDS = 5.0
#: Share of ``stale_seconds`` after which an unchanged decision is stored again, as a sign of life;
#: the next round comes after half of it at the latest.
_STORED_AGAIN = 0.3


def joined(
    tx: Transaction,
    job: Job,
    sight: ThroughputObserved,
    memo: Memo,
    settings: Settings,
    now: datetime,
    *,
    uses: Sequence[WorldUse] = (),
) -> PoolMember:
    """Return a running job as a member of its pool; ``uses`` is the resource use of its
    replicas.
    """
    situation = situate(tx, job, sight, settings=settings, now=now, room=memo.room, uses=uses)
    if _gives_way(situation.active):
        situation = replace(situation, active=None)
    current, hold = _placed(memo, job)
    hold = _refused(tx, job, settings, now) or hold
    kind = current.accelerator if current else None
    kinds = kinds_of(job, memo.nodes, kind, migrate=settings.migrate)
    compares = len(kinds) > 1 and not job.document.groups
    return member(
        situation,
        current=current,
        kinds=kinds,
        earlier=sight.earlier,
        hold=hold,
        spread=spread(memo, job, kind),
        speeds=memo.speeds(tx, job.id, sight.model) if compares else UNKNOWN_KINDS,
    )


def _gives_way(plan: ScalePlan | None) -> bool:
    """Return True if a plan only proposes amounts, for which no other job waits."""
    return lifecycle.waits_for_approval(plan) and plan is not None and plan.changes_resources


class RoundResult:
    def __init__(self) -> None:
        self.plans: list[ScalePlan] = []
        self.decisions: dict[JobId, Recommendation] = {}
        #: Bugs by job; the round decided about the other jobs without it.
        self.undecided: dict[JobId, Exception] = {}
        #: The stored round; None if there was none.
        self.round: PoolRound | None = None


def share(
    stores: Stores,
    memo: Memo,
    settings: Settings,
    now: datetime,
    *,
    observe: bool = False,
    trace: Tracer = untraced,
) -> RoundResult:
    """If a round is due, divide the pool among all its jobs; the round has its own span.

    With ``observe``, the round is stored but proposes no plans.

    Raises:
        Conflict: one of the jobs was changed meanwhile; nothing was stored.
    """
    with stores.transaction(read_only=True) as tx:
        policy, last = tx.pools.policy(memo.pool), tx.pools.round(memo.pool)
        written = policy.policy if policy else PoolShares()
        members = beside_slow(giving_way(_members(tx, memo, settings), written, now))
    rests_on = _rests_on(members, memo, policy.version if policy else 0)
    done = RoundResult()
    if not members or not _time(memo, rests_on, settings, now):
        return done
    attributes: dict[str, str | int] = {"brain.pool": memo.pool, "brain.jobs": len(members)}
    with trace("round", attributes):
        _divide(stores, memo, members, written, last, settings, now, done, observe=observe)
        attributes["brain.plans"] = len(done.plans)
    memo.round_at, memo.rested_on = now, rests_on
    return done


def _divide(
    stores: Stores,
    memo: Memo,
    members: Sequence[PoolMember],
    written: PoolShares,
    last: PoolRound | None,
    settings: Settings,
    now: datetime,
    done: RoundResult,
    *,
    observe: bool,
) -> None:
    """Divide the pool among its members, and store the round and its plans in ``done``."""
    prices = _prices(last)

    def divided(these: Sequence[PoolMember]) -> Division:
        floor = _floor(these, memo)
        return divide(these, floor, written, prices=prices, settings=settings, now=now)

    try:
        division = divided(members)
    except Exception:  # One member's bug must not end deciding for the others.
        done.undecided |= _blamed(members, divided)
        if not done.undecided:
            raise
        members = _set_aside(stores, memo, members, done.undecided, now)
        division = divided(members)
    with stores.transaction() as tx:
        _expect_unchanged(tx, memo, division, now)
        _store(tx, memo, members, division, last, settings, now, done, observe=observe)
        memo.wrote(tx, [plan.job for plan in done.plans])
    memo.granted = {} if observe else _begins(members, division)


def _blamed(
    members: Sequence[PoolMember], divided: Callable[[Sequence[PoolMember]], Division]
) -> dict[JobId, Exception]:
    """Return the members whose division fails even alone in a pool, each with the exception."""
    found: dict[JobId, Exception] = {}
    for one in members:
        try:
            advise(one, divided([one]))
        except Exception as bug:  # noqa: BLE001 - returned by job, for the log
            found[one.job.id] = bug
    return found


def _set_aside(
    stores: Stores,
    memo: Memo,
    members: Sequence[PoolMember],
    bugs: Mapping[JobId, Exception],
    now: datetime,
) -> list[PoolMember]:
    """Return the members without bugs; set the others aside until they are looked at again."""
    for id, bug in bugs.items():
        undecided(stores, id, bug, now)
        known = memo.looked.get(id)
        if known is not None:
            memo.looked[id] = replace(known, member=None)
    return [one for one in members if one.job.id not in bugs]


def _members(tx: Transaction, memo: Memo, settings: Settings) -> list[PoolMember]:
    """Return the running jobs that were looked at, and the waiting ones, oldest first."""
    found, waits = [], memo.queued()
    read_ahead(tx, memo, waits, settings)
    queue = {job.id for job in waits}
    for id in memo.marks:
        known = memo.looked.get(id)
        if id in queue:
            job = memo.job(id)
            if shares(job) and job.intent is Intent.RUN:
                found.append(waiting_member(tx, memo, job, settings))
        elif known is not None and known.member is not None:
            found.append(known.member)
    return found


def _placed(memo: Memo, job: Job) -> tuple[JobPlacement | None, Hold | None]:
    """Return the placement of a job's replicas, and the reason to leave the job there, if any."""
    held = memo.ledger.held(job.id)
    names = tuple(name for name in sorted(held) for _ in range(held[name]))
    if not names:
        return None, None
    known = {node.name: node for node in memo.nodes}
    gpus = job.resources.gpus > 0
    kinds = {kind_of(known[name], gpus=gpus) for name in names if name in known}
    lost = [name for name in names if name not in known or not known[name].schedulable]
    hold = None
    if lost or len(kinds) != 1:
        hold = Hold(
            code="node-drained" if lost else "mixed-nodes",
            reason=f"{lost[0]} accepts no more replicas"
            if lost
            else f"the job's replicas are on several kinds of node: {', '.join(sorted(kinds))}",
            short="other jobs could not use the job's nodes",
            next_step=(
                "Brain decides again when the job's nodes are of one kind and accept replicas."
            ),
        )
    return JobPlacement(min(kinds, default=""), tuple(str(name) for name in names)), hold


def _refused(tx: Transaction, job: Job, settings: Settings, now: datetime) -> Hold | None:
    """Return a hold if a person rejected advice on the size lately, because new advice in every
    round would disturb that person. Rejected amounts say nothing about the size.
    """
    last = next((plan for plan in tx.plans.of(job.id) if not plan.changes_resources), None)
    if last is None or last.state is not PlanState.REJECTED:
        return None
    since = (now - last.updated_at).total_seconds()
    left = settings.proposal_seconds - since
    if left <= 0:
        return None
    return Hold(
        code="rejected-lately",
        reason=f"plan {last.generation} was rejected {duration(since)} ago",
        short="a person rejected the plan",
        next_step=f"Brain decides again in {duration(left)}, or when a person asks for a size.",
    )


def _floor(members: Iterable[PoolMember], memo: Memo) -> DivisibleNodes:
    """Return the resources to divide: free ones, and those of members that may change."""
    free = dict(memo.ledger.free)
    divided = {one.job.id: one for one in members if one.hold is None and one.curves}
    for one in divided.values():
        if one.situation is not None:
            each = one.job.resources
            for name, replicas in memo.ledger.held(one.job.id).items():
                free[name] = free.get(name, Resources()) + each.times(replicas)
    kept = memo.by_project(without=divided)
    return DivisibleNodes(nodes=memo.nodes, free=free, idle=memo.ledger.free, kept=kept)


def _rests_on(members: Sequence[PoolMember], memo: Memo, policy: int) -> object:
    """Return the inputs of a round; a change of these inputs starts the next round early.

    The inputs are the members with holds and placements, the policy, and the nodes.
    """
    known = tuple((one.key, one.hold.code if one.hold else "", one.current) for one in members)
    return known, policy, tuple((node.name, node.capacity) for node in memo.nodes)


def _time(memo: Memo, rests_on: object, settings: Settings, now: datetime) -> bool:
    if memo.round_at is None:
        return True
    since = (now - memo.round_at).total_seconds()
    if rests_on != memo.rested_on:
        return since >= min(DEBOUNCE_SECONDS, settings.round_seconds)
    return since >= min(settings.round_seconds, settings.stale_seconds / 2)


def _prices(last: PoolRound | None) -> Prices | None:
    """Return the prices of the last round, so that a restart of Brain does not begin anew."""
    if last is None or not last.prices:
        return None
    return Prices(accelerators=last.prices, tenants=last.project_prices)


def _begins(members: Sequence[PoolMember], division: Division) -> dict[JobId, JobPlacement]:
    """Return the first placement of each waiting job that was granted one."""
    found = {one.job.id: division.grants.get(one.key) for one in members if one.situation is None}
    return {id: grant.placement for id, grant in found.items() if grant and grant.placement}


def _expect_unchanged(tx: Transaction, memo: Memo, division: Division, now: datetime) -> None:
    """Refuse to act on jobs that were changed since the division began."""
    before = {key: memo.life(JobId(key)) for key in division.changes}
    memo.catch_up(tx, now)
    for key, life in before.items():
        if memo.life(JobId(key)) != life:
            raise Conflict(f"job {division.names[key]} changed while the pool was divided")


def _store(
    tx: Transaction,
    memo: Memo,
    members: Sequence[PoolMember],
    division: Division,
    last: PoolRound | None,
    settings: Settings,
    now: datetime,
    done: RoundResult,
    *,
    observe: bool,
) -> None:
    advice = {one.key: found for one in members if (found := advise(one, division)) is not None}
    by_key = {one.key: one for one in members}
    plans: dict[str, int] = {}
    for key, made in division.changes.items() if not observe else ():
        job = tx.jobs.get(made.member.job.id)
        amounts = tx.plans.active(job.id)
        if amounts is not None and _gives_way(amounts):
            lifecycle.give_way(tx, amounts, "the pool's round changes its size", now)
        if made.grant.placement is None:
            lifecycle.preempt(tx, job, advice[key].explanation.reason, now)
            memo.wrote(tx, [job.id])
            continue
        after = tuple((JobId(other), plans[other]) for other in made.after if other in plans)
        plan = lifecycle.propose(
            tx, job, advice[key], settings=settings, now=now, after=after, room=memo.room
        )
        memo.wrote(tx, [job.id])
        plans[key] = plan.generation
        done.plans.append(plan)
    tx.plans.read_ahead([id for key in advice if (id := JobId(key)) not in memo.decided])
    for key, found in advice.items():
        looked = replace(found, decided_at=now)
        decided = _observing(looked) if observe and not found.hold else looked
        _decide(tx, memo, by_key[key].job, decided, settings)
        done.decisions[by_key[key].job.id] = decided
    done.round = facts(
        memo.pool,
        members,
        division,
        advice=advice,
        plans=plans,
        last=last,
        observed_only=observe,
        now=now,
    )
    tx.pools.put_round(done.round)


def _observing(advice: Recommendation) -> Recommendation:
    """Return the advice as a hold: the first round after a start only observes."""
    explanation = replace(
        advice.explanation,
        code="observing",
        reason=(
            "Brain decides nothing in its first turn after a start; it would have decided: "
            f"{advice.explanation.reason}"
        ),
        next_step="The next round may propose this change.",
    )
    return replace(advice, target=advice.current, explanation=explanation)


def _decide(
    tx: Transaction, memo: Memo, job: Job, found: Recommendation, settings: Settings
) -> None:
    """Store a decision if it is new, or if the equal stored one is old."""
    now = found.decided_at
    last = memo.decided.get(job.id) or tx.plans.decision(job.id)
    code, reason = found.explanation.code, found.explanation.reason
    again = timedelta(seconds=_STORED_AGAIN * settings.stale_seconds)
    if last is not None and _same(last, found) and now - last.decided_at < again:
        return
    tx.plans.decide(job.id, found)
    memo.decided[job.id] = found
    if found.hold and (last is None or last.explanation.code != code):
        tx.events.add(Event(at=now, kind="hold", job=job.id, message=reason, data={"code": code}))


def _same(one: Recommendation, other: Recommendation) -> bool:
    return (one.target, one.explanation.code) == (other.target, other.explanation.code)
