"""Explanations of a round: a sentence for each job, and the values for the API."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from brain.optimizer.explain import recommend
from brain.optimizer.situation import Choice, Situation
from brain.pool.allocator import Grant, Option, RoundEffect
from brain.pool.division.changes import Change, Division, granted
from brain.pool.division.market import Market
from brain.pool.division.members import PoolMember
from brain.pool.division.trials import trial
from brain.types.explanation import Evidence, Explanation
from brain.types.recommendation import Recommendation
from brain.types.resources import NodeName, PoolName
from brain.types.sharing import JobShare, PoolRound, Rival
from brain.typeset import count, number, percent, quantity, ratio

_LOOKS_AGAIN = "Brain divides the pool again when jobs come or go, and every half minute."


@dataclass(frozen=True, slots=True)
class _Decided:
    """The policy that signs decisions about a job made together with others."""

    choice: Choice

    def choose(self, situation: Situation) -> Choice:
        return self.choice


def advise(member: PoolMember, division: Division) -> Recommendation | None:
    """Return the decision about one member; None if the member waits to start."""
    situation = member.situation
    if situation is None:
        return None
    made = division.changes.get(member.key)
    grant = division.grants.get(member.key)
    if made is not None:
        choice = _changes(division, made, situation)
    elif grant is None or member.hold is not None:
        choice = _held(member, situation)
    else:
        choice = _keeps(division, member, grant, situation)
    size = granted(member, made.grant) if made else None
    advice = recommend(situation, _Decided(choice), at=size)
    explanation = _explained(advice.explanation, division, member, made)
    where = _where(member)
    current = replace(advice.current, nodes=where)
    target = replace(advice.target, nodes=made.nodes if made else where)
    promised = made.promised if made else advice.predicted
    return replace(
        advice, current=current, target=target, predicted=promised, explanation=explanation
    )


def facts(
    pool: PoolName,
    members: Sequence[PoolMember],
    division: Division,
    *,
    advice: Mapping[str, Recommendation],
    plans: Mapping[str, int],
    last: PoolRound | None,
    observed_only: bool,
    now: datetime,
) -> PoolRound:
    """Return the round in the form that is stored; ``plans`` has, by job, the generation of the
    plan that carries out the round.

    If no job may change, the prices of the ``last`` round remain.
    """
    prices: dict[str, float] = dict(last.prices) if last else {}
    capacity: dict[str, float] = {}
    used: dict[str, float] = {}
    units: dict[str, str] = {}
    short: dict[str, float] = {}
    for market, one in zip(division.markets, division.rounds, strict=True):
        for kind, price in one.prices.accelerators.items():
            units[kind], prices[kind] = market.unit, price / market.grain
            capacity[kind] = one.capacity[kind] * market.grain
            used[kind] = one.used[kind] * market.grain
        short |= {project: lack * market.grain for project, lack in one.short.items()}
    return PoolRound(
        pool=pool,
        decided_at=now,
        observed_only=observed_only,
        units=units,
        value=sum(one.value for one in division.rounds),
        bound=sum(one.bound for one in division.rounds),
        prices=prices,
        project_prices=division.prices.tenants,
        capacity=capacity,
        used=used,
        short=short,
        shares=tuple(_share(one, division, advice.get(one.key), plans) for one in members),
    )


def _held(member: PoolMember, situation: Situation) -> Choice:
    hold = member.hold
    if hold is None:
        return Choice(
            replicas=situation.replicas,
            code="unknown-curve",
            reason="no size of the job can be predicted from the measurements",
            next_step=_LOOKS_AGAIN,
        )
    return Choice(
        replicas=situation.replicas,
        code=hold.code,
        reason=hold.reason,
        next_step=hold.next_step,
        why_not=tuple((size, hold.short) for size in situation.sizes),
    )


def _changes(division: Division, made: Change, situation: Situation) -> Choice:
    grant, before = made.grant, situation.replicas
    if grant.placement is None:
        starts = [
            division.names[key]
            for key, one in division.grants.items()
            if one.outcome is RoundEffect.STARTS
        ]
        verb = "has a higher priority and starts"
        if len(starts) > 1:
            verb = "have a higher priority and start"
        reason = f"{', '.join(starts)} {verb} on the nodes of this job's {count(before, 'replica')}"
        return Choice(
            replicas=before,
            code="preempted",
            reason=reason,
            next_step="The job stops at its next safe point, queues again, and later resumes.",
        )
    size = count(grant.replicas, "replica")
    share = made.promised.examples_per_second / situation.rate if made.promised else None
    rate = quantity(made.promised.examples_per_second, situation.unit) if made.promised else "more"
    if made.member.untenable:
        reason = made.member.untenable.by(size, rate)
        return Choice(replicas=grant.replicas, code="keeps-limits", reason=reason, next_step="")
    if grant.outcome is RoundEffect.SHRINKS and made.member.flees is None:
        takers = [
            one.member.job.document.name
            for one in division.changes.values()
            if made.member.key in one.after
        ]
        verb = "gains" if len(takers) == 1 else "gain"
        whom = (
            f"{', '.join(takers)} {verb} more from the rest" if takers else "others wait to start"
        )
        reason = (
            f"{grant.replicas} of {before} replicas keep {percent(share)} of the throughput: "
            f"{rate}; {whom}"
        )
        code, tried = "makes-room", trial(situation, grant.replicas)
        if tried is not None:
            code, reason = "tried-smaller", f"{tried.why}; {reason}"
        return Choice(replicas=grant.replicas, code=code, reason=reason, next_step="")
    slow = made.member.flees
    if slow is not None:
        reason = (
            f"{slow.node} has needed {ratio(slow.factor)} of other nodes' step time for minutes"
        )
        to = ", ".join(name for name, _ in made.nodes)
        return Choice(
            replicas=grant.replicas,
            code="leaves-slow-node",
            reason=f"{reason}; {size} on {to} avoid this node",
            next_step="",
        )
    factor = f", {ratio(share)} of now" if share is not None else ""
    price = _price(division, made.member, grant)
    if grant.outcome is RoundEffect.MOVES:
        to = ", ".join(name for name, _ in made.nodes)
        reason = f"{rate} expected with {size} on {to}{factor}; the price is {price}"
        return Choice(replicas=grant.replicas, code="moves", reason=reason, next_step="")
    bids = f"gains more from them at a price of {price}"
    if _asked(division, made.member, grant) == 0:
        bids = "wants them"
    reason = f"{rate} expected with {size}{factor}; no other job {bids}"
    return Choice(replicas=grant.replicas, code="gets-more", reason=reason, next_step="")


def _keeps(division: Division, member: PoolMember, grant: Grant, situation: Situation) -> Choice:
    now = f"{quantity(situation.rate, situation.unit)} with {count(situation.replicas, 'replica')}"
    code, why = "at-share", _second(division, member, grant, situation)
    put_off = division.put_off.get(member.key)
    if grant.outcome is RoundEffect.REFUSED:
        code, why = "refused", grant.because
    elif member.untenable:
        why = f"{member.untenable.why}; {put_off or 'no size within that limit fits the nodes'}"
        code = "put-off"
    elif put_off and grant.outcome is not RoundEffect.SHRINKS:
        code, why = (
            "put-off",
            (f"{count(grant.replicas, 'replica')} would be the job's share; {put_off}"),
        )
    others = tuple((size, "other jobs gain more from it") for size in situation.sizes)
    return Choice(
        replicas=situation.replicas,
        code=code,
        reason=f"{now}; {why}",
        next_step=_LOOKS_AGAIN,
        why_not=(*situation.ruled_out, *others),
    )


def _second(division: Division, member: PoolMember, grant: Grant, situation: Situation) -> str:
    """Return a clause about the next best size of a job, and the job that holds its
    accelerators.
    """
    other = grant.next_best
    if other is None:
        return "the job has no other size"
    gain = situation.gain(other.replicas)
    size = count(other.replicas, "replica")
    does = f"{size} would make {ratio(1 + gain)} of that" if gain is not None else size
    if grant.lost_to is not None:
        return f"{does}, but {division.names[grant.lost_to]} gains more from them"
    if _asked(division, member, grant) == 0:
        fewer = other.replicas < situation.replicas
        return f"{does}, and no other job wants " + (
            "the rest" if fewer else "them, but the gain is not worth a change"
        )
    return f"{does}, which is not worth the price of {_price(division, member, grant)}"


def _price(division: Division, member: PoolMember, grant: Grant) -> str:
    price = number(_asked(division, member, grant), digits=2)
    return f"{price} per {_market(division, member).unit}"


def _asked(division: Division, member: PoolMember, grant: Grant) -> float:
    """Return the price of one accelerator of a job's kind; 0 if some are idle."""
    kind = (grant.placement or grant.before or member.current).accelerator  # type: ignore[union-attr]
    return division.prices.accelerators.get(kind, 0.0) / _market(division, member).grain


def _explained(
    explanation: Explanation, division: Division, member: PoolMember, made: Change | None
) -> Explanation:
    """Add facts of the round to an explanation: the price, and the accelerators left."""
    grant = division.grants.get(member.key)
    if grant is None:
        return explanation
    found = list(explanation.evidence)
    kind = (grant.placement or grant.before or member.current).accelerator  # type: ignore[union-attr]
    found.append(Evidence(label=f"price of {kind}", value=_price(division, member, grant)))
    gaps = [one.gap for one in division.rounds]
    found.append(Evidence(label="a better division adds at most", value=_thousandths(max(gaps))))
    others = explanation.alternatives
    if made is not None and made.grant.outcome is RoundEffect.SHRINKS:
        others = tuple(
            replace(one, why_not="other jobs gain more from it")
            if one.replicas > made.grant.replicas
            else one
            for one in others
        )
    return replace(explanation, evidence=tuple(found), alternatives=others)


def _thousandths(gap: float) -> str:
    return f"{gap * 100:.2g} %"


def _share(
    member: PoolMember,
    division: Division,
    advice: Recommendation | None,
    plans: Mapping[str, int],
) -> JobShare:
    document, grant = member.job.document, division.grants.get(member.key)
    made = division.changes.get(member.key)
    before = member.current.replicas if member.current else 0
    if member.situation is None:
        outcome = grant.outcome if grant else RoundEffect.WAITS
        reason = grant.reason if grant else member.job.reason
    else:
        outcome = grant.outcome if grant and made else RoundEffect.KEEPS
        reason = advice.explanation.reason if advice else ""
    other = grant.next_best if grant else None
    at = grant.placement if grant and made else member.current
    return JobShare(
        job=member.job.id,
        name=document.name,
        project=document.project,
        outcome="held" if member.hold else str(outcome),
        accelerator=at.accelerator if at else None,
        before=before,
        replicas=made.grant.replicas if made else before,
        nodes=made.nodes if made else _where(member),
        next_best=None if other is None else _rival(other),
        lost_to=division.names.get(grant.lost_to) if grant and grant.lost_to else None,
        reason=reason,
        plan=plans.get(member.key),
    )


def _rival(other: Option) -> Rival:
    return Rival(
        accelerator=other.accelerator, replicas=other.replicas, gain=other.gain, cost=other.cost
    )


def _where(member: PoolMember) -> tuple[tuple[NodeName, int], ...]:
    found: dict[NodeName, int] = {}
    for name in member.current.nodes if member.current else ():
        found[NodeName(name)] = found.get(NodeName(name), 0) + 1
    return tuple(sorted(found.items()))


def _market(division: Division, member: PoolMember) -> Market:
    return next(one for one in division.markets if member.key in one.each)
