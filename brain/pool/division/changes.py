"""One round: the grants of a pool, and the changes that may be made now.

The allocator divides as if everything could change at the same time. This module turns its grants
into changes. Each change gains more than its restart costs, and waits for the changes that free its
resources. A job is stopped only for a waiting job of higher priority, if its owner allows it. One
round changes only a part of the pool.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

import numpy as np

from brain.errors import Undetermined
from brain.models.sizes import Size
from brain.pool.allocator import (
    Curve,
    Grant,
    JobPlacement,
    PoolJob,
    Prices,
    Round,
    RoundEffect,
    Utility,
    UtilityInputs,
    Weights,
    allocate,
)
from brain.pool.allocator.views import Floats
from brain.pool.division.claims import Claims
from brain.pool.division.market import (
    DivisibleNodes,
    Market,
    class_of,
    highest_waiting,
    markets,
    view,
)
from brain.pool.division.members import PoolMember
from brain.settings import Settings
from brain.types.job import PolicyMode
from brain.types.recommendation import Prediction
from brain.types.resources import NodeName, Resources
from brain.types.sharing import PoolShares
from brain.typeset import change, duration, percent

_TAKEN = "the resources that it needs are in use, and no job frees them now"
#: Least seconds between two moves of one job (models.md section 4.4).
MOVED_SECONDS = 1800.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change of one job's world that a round wants to make."""

    member: PoolMember
    grant: Grant
    #: Replicas on each node; empty if the job is stopped for another.
    nodes: tuple[tuple[NodeName, int], ...]
    promised: Prediction | None
    #: Jobs whose own changes free the resources that this change needs.
    after: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Division:
    """The result of one round."""

    markets: Sequence[Market] = ()
    rounds: Sequence[Round] = ()
    grants: Mapping[str, Grant] = field(default_factory=dict)
    #: Changes, each after the changes that it waits for.
    changes: Mapping[str, Change] = field(default_factory=dict)
    #: The reason, by job, why a grant is not carried out now.
    put_off: Mapping[str, str] = field(default_factory=dict)
    #: Prices with which the next round begins.
    prices: Prices = field(default_factory=Prices)
    #: Names of all members.
    names: Mapping[str, str] = field(default_factory=dict)


def divide(
    members: Sequence[PoolMember],
    floor: DivisibleNodes,
    policy: PoolShares,
    *,
    prices: Prices | None,
    settings: Settings,
    now: datetime,
) -> Division:
    """Divide a pool among all members. Equal arguments give equal divisions; held members do not
    change.
    """
    free = [one for one in members if one.hold is None and one.curves]
    found = markets(free, floor, policy)
    rounds = [_round(market, policy, prices, now) for market in found]
    grants = {key: grant for one in rounds for key, grant in one.grants.items()}
    changes: list[Change] = []
    put_off: dict[str, str] = {}
    claims = Claims(floor.idle)
    for market, one in zip(found, rounds, strict=True):
        made = _Carried(market, one, claims, settings, stoppable(market.members, policy))
        changes += made.changes
        put_off |= made.put_off
    return Division(
        markets=found,
        rounds=rounds,
        grants=grants,
        changes={one.member.key: one for one in changes},
        put_off=put_off,
        prices=_prices(rounds),
        names={one.key: one.job.document.name for one in members},
    )


def _prices(rounds: Sequence[Round]) -> Prices:
    accelerators: dict[str, float] = {}
    tenants: dict[str, float] = {}
    for one in rounds:
        accelerators |= one.prices.accelerators
        tenants |= {name: tenants.get(name, 0.0) + p for name, p in one.prices.tenants.items()}
    return Prices(accelerators=accelerators, tenants=tenants)


def _round(market: Market, policy: PoolShares, prices: Prices | None, now: datetime) -> Round:
    """Divide one market; among running jobs, only ``stoppable`` ones may be stopped."""
    views = [view(one, market.each[one.key], policy, now) for one in market.members]
    made = allocate(views, market.cluster, prices=prices)
    if not _stops(made):
        return made
    may_stop = stoppable(market.members, policy)
    if may_stop:
        least = [_least(one) for one in market.members]
        views = [view(one, market.each[one.key], policy, now) for one in least]
        made = allocate(views, market.cluster, prices=prices)
        if not _stops(made):
            return made
    weights = Weights()
    bonus = 2.0 * (abs(made.bound) + 1.0)
    spared = [one.key not in may_stop for one in market.members]
    tenured = replace(weights, utility=_tenure(weights.utility, bonus * np.array(spared)[:, None]))
    again = allocate(views, market.cluster, prices=made.prices, settings=tenured)
    stays = {one.key for one, keeps in zip(market.members, spared, strict=True) if keeps}
    return _without_bonus(again, [one for one in views if one.key in stays], bonus)


def _stops(made: Round) -> bool:
    return any(grant.outcome is RoundEffect.STOPS for grant in made.grants.values())


def _least(member: PoolMember) -> PoolMember:
    """Reduce a waiting job to its smallest size: no job stops so that another begins larger."""
    if member.situation is not None:
        return member
    smallest = {
        kind: Curve(curve.rows[curve.rows[:, 0] == curve.rows[:, 0].min()])
        for kind, curve in member.curves.items()
    }
    return replace(member, curves=smallest)


def stoppable(members: Sequence[PoolMember], policy: PoolShares) -> frozenset[str]:
    """Return the running jobs that a waiting job of higher priority may stop, if their owners allow
    it.
    """
    highest = highest_waiting(members, policy)
    if highest is None:
        return frozenset()
    return frozenset(
        one.key
        for one in members
        if one.situation is not None
        and one.job.document.preemptible
        and one.situation.mode is PolicyMode.AUTO
        and class_of(one.job, policy) < highest
    )


def _tenure(base: Utility, bonus: Floats) -> Utility:
    """Return a utility by which a running job keeps at least its smallest size.

    ``bonus`` is added for each running job.
    """

    def worth(terms: UtilityInputs, weights: Weights) -> Floats:
        found: Floats = base(terms, weights) + bonus * terms.runs
        return found

    return worth


def _without_bonus(made: Round, views: Sequence[PoolJob], bonus: float) -> Round:
    """Subtract ``bonus`` from the round's values for each job of ``views`` that keeps running."""
    running = {one.key for one in views if one.current is not None}
    kept = {key for key, grant in made.grants.items() if key in running and grant.placement}
    grants = {
        key: replace(grant, utility=grant.utility - bonus) if key in kept else grant
        for key, grant in made.grants.items()
    }
    extra = bonus * len(kept)
    return replace(made, grants=grants, value=made.value - extra, bound=made.bound - extra)


class _Carried:
    """The grants of a market that are carried out in this round."""

    def __init__(
        self,
        market: Market,
        one: Round,
        claims: Claims,
        settings: Settings,
        stoppable: frozenset[str],
    ) -> None:
        self._market, self._settings, self._claims = market, settings, claims
        self._stoppable = stoppable
        self._given: dict[str, Change] = {}
        self.changes: list[Change] = []
        self.put_off: dict[str, str] = {}
        self._left = settings.moved_share * sum(node.capacity for node in market.cluster.nodes)
        takers = [member for member in market.members if self._sort(member, one.grants[member.key])]
        by_key = {member.key: member for member in takers}
        order = sorted(takers, key=lambda member: self._rank(member, one.grants[member.key]))
        for key in (member.key for member in order):
            self._take(by_key[key], one.grants[key])
        for key in self._given:
            claims.withdraw(key)
            self.put_off.setdefault(key, "no job can use the resources that it would free now")

    def _sort(self, member: PoolMember, grant: Grant) -> bool:
        """Return True if a grant takes resources; a grant that frees some waits for a taker."""
        must = bool(member.flees or member.untenable)
        gives = grant.outcome is RoundEffect.SHRINKS and not must
        if gives or (grant.outcome is RoundEffect.STOPS and member.key in self._stoppable):
            made = self._change(member, grant)
            self._given[member.key] = made
            self._claims.offer(member.key, self._freed(made))
            return False
        takes = grant.outcome in (RoundEffect.STARTS, RoundEffect.GROWS, RoundEffect.MOVES)
        return takes or (grant.outcome is RoundEffect.SHRINKS and must)

    def _rank(self, member: PoolMember, grant: Grant) -> tuple[bool, bool, float, str]:
        """Sort key of a grant: starts first, plans that nobody applies last, then by worth."""
        more = grant.replicas - (grant.before.replicas if grant.before else 0)
        worth = grant.utility / max(1, more * self._market.each[member.key])
        shadow = member.situation is not None and member.situation.mode is PolicyMode.SHADOW
        return shadow, grant.outcome is not RoundEffect.STARTS, -worth, member.key

    def _take(self, member: PoolMember, grant: Grant) -> None:
        made = self._change(member, grant)
        self._try(made)
        taken = self.put_off.get(member.key) == _TAKEN
        beside = self._beside(member, grant) if taken else None
        if beside is not None:
            self._try(self._change(member, beside))

    def _try(self, made: Change) -> None:
        """Carry out a change if nothing prevents it, else record the reason."""
        member, grant = made.member, made.grant
        gained = {n: more for n, more in self._difference(made).items() if more > 0}
        each = member.job.resources
        moves = grant.outcome is RoundEffect.MOVES
        replicas = sum(gained.values()) if moves else self._claims.lacking(gained, each)
        size = replicas * self._market.each[member.key]
        why = self._refusal(made, size)
        providers = None if why else self._claims.take(gained, each)
        if providers is None:
            self.put_off[member.key] = why or _TAKEN
            return
        self.put_off.pop(member.key, None)
        for key in providers:
            if key in self._given:
                self.changes.append(self._given.pop(key))
        if grant.outcome is RoundEffect.STARTS:
            return
        self._left -= size
        self.changes.append(replace(made, after=providers))
        self._claims.offer(member.key, self._freed(made))

    def _beside(self, member: PoolMember, grant: Grant) -> Grant | None:
        """Return a grant whose nodes are not free, placed on the job's own nodes and idle resources
        instead; None if those do not suffice.
        """
        before, placement = member.current, grant.placement
        if before is None or placement is None or before.accelerator != placement.accelerator:
            return None
        rooms = self._claims.rooms(member.job.resources)
        usable = [
            node.name
            for node in self._market.cluster.nodes
            if node.healthy and node.accelerator == before.accelerator
        ]
        nodes = list(before.nodes)
        for name in sorted(usable, key=lambda n: (n not in before.nodes, -rooms.get(n, 0), n)):
            nodes += [name] * max(0, min(rooms.get(name, 0), grant.replicas - len(nodes)))
        if len(nodes) != grant.replicas:
            return None
        return replace(grant, placement=JobPlacement(before.accelerator, tuple(sorted(nodes))))

    def _refusal(self, made: Change, size: int) -> str | None:
        if made.grant.outcome is RoundEffect.STARTS:
            return None
        since = made.member.situation.since_move_seconds if made.member.situation else None
        moves = made.grant.outcome is RoundEffect.MOVES
        if moves and since is not None and since < MOVED_SECONDS and _leaves(made):
            return (
                f"the job was moved {duration(since)} ago; Brain waits {duration(MOVED_SECONDS)} "
                "between two moves of a job"
            )
        gain = None if made.member.untenable else _gain(made)
        if gain is not None and gain < self._settings.minimum_gain:
            least = change(self._settings.minimum_gain)
            return f"{change(gain)} expected, but a restart must bring at least {least}"
        acts = any(one.grant.outcome is not RoundEffect.SHRINKS for one in self.changes)
        if acts and size > self._left:
            share = percent(self._settings.moved_share)
            return f"at most {share} of the pool's accelerators change owners at once"
        return None

    def _change(self, member: PoolMember, grant: Grant) -> Change:
        nodes = Counter(sorted(grant.placement.nodes) if grant.placement else ())
        return Change(
            member=member,
            grant=grant,
            nodes=tuple((NodeName(name), count) for name, count in nodes.items()),
            promised=promised(member, grant),
        )

    def _difference(self, made: Change) -> dict[NodeName, int]:
        """Return the replicas that each node gains, or loses (below 0)."""
        found = dict(made.nodes)
        before = made.member.current
        for name in before.nodes if before else ():
            found[NodeName(name)] = found.get(NodeName(name), 0) - 1
        return found

    def _freed(self, made: Change) -> dict[NodeName, Resources]:
        each = made.member.job.resources
        fewer = {name: -more for name, more in self._difference(made).items() if more < 0}
        return {name: each.times(count) for name, count in fewer.items()}


def granted(member: PoolMember, grant: Grant) -> Size | None:
    """Return the granted size of a job, in the form that its model needs; None if nothing was
    granted.
    """
    if grant.placement is None:
        return None
    own = member.current is not None and member.current.accelerator == grant.placement.accelerator
    kind = None if own else grant.placement.accelerator
    nodes = len(set(grant.placement.nodes))
    return Size(replicas=grant.replicas, nodes=nodes, accelerator=kind)


def promised(member: PoolMember, grant: Grant) -> Prediction | None:
    """Return the throughput expected of a job at its granted size."""
    situation, size = member.situation, granted(member, grant)
    if situation is None or situation.model is None or size is None:
        return None
    found = situation.model.curve([size])[0]
    return None if isinstance(found, Undetermined) else found


def _gain(made: Change) -> float | None:
    situation = made.member.situation
    if situation is None or made.promised is None:
        return None
    slowed = situation.slow.factor if made.member.flees and situation.slow else 1.0
    size = granted(made.member, made.grant)
    assert situation.model is not None, "it promised"
    assert size is not None, "it promised"
    useful = made.promised.examples_per_second * situation.model.worth(size)
    return useful / situation.useful(situation.replicas) * slowed - 1


def _leaves(made: Change) -> bool:
    """Return True if a change moves replicas to other nodes although they could stay."""
    before, after = Counter(made.member.nodes), dict(made.nodes)
    left = any(after.get(NodeName(name), 0) < count for name, count in before.items())
    return left and made.grant.replicas >= before.total()
