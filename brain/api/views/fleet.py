"""Views of plans, nodes and series."""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from functools import cache

from brain import lifecycle
from brain.errors import UnknownPool
from brain.ports import Transaction
from brain.settings import Settings
from brain.types.job import Job, JobId, OptimizeMode
from brain.types.plan import PlanVerdict, ScalePlan
from brain.types.resources import Node, PoolName, Resources
from brain.types.world import UNFIT, Replica, ReplicaState, unfit_nodes
from brain.views import NodeLeft, NodeView, PlanView, PoolView, Series, SeriesPoint

#: Units of the metrics that ``TelemetryStore.series`` knows; the others are shares.
_UNITS: Mapping[str, str] = {
    "examples_per_second": "examples/s",
    "steps_per_second": "steps/s",
    "step_seconds": "s",
    "replicas": "replicas",
    # In units of the script's loss; the ratio of the two is the noise scale in examples.
    "gradient_square": "loss²",
    "gradient_variance": "loss² × examples",
}

#: Shares of a step, which are at most 1.
_OF_STEP = frozenset({"data_wait_share", "exchange_wait_share"})


def plans(
    tx: Transaction, plans: Iterable[ScalePlan], settings: Settings, now: datetime
) -> tuple[PlanView, ...]:
    """Return plans with their jobs' names and their verdicts; for plans that cannot be approved,
    also the reason.
    """
    plans = tuple(plans)
    named = {plan.job for plan in plans} | {job for plan in plans for job, _ in plan.after}
    tx.jobs.read_ahead(named)
    tx.plans.read_ahead(named)

    @cache
    def verdicts(job: JobId) -> Mapping[int, PlanVerdict]:
        # The verdict of a plan depends on later plans only if worlds have met them.
        mine = [plan for plan in plans if plan.job == job]
        known = {plan.generation: plan for plan in (*tx.plans.effective(job), *mine)}
        return lifecycle.verdicts(known.values())

    return tuple(
        _plan(tx, plan, verdicts(plan.job)[plan.generation], settings, now) for plan in plans
    )


def _plan(
    tx: Transaction, plan: ScalePlan, verdict: PlanVerdict, settings: Settings, now: datetime
) -> PlanView:
    owner = tx.jobs.get(plan.job)
    return PlanView(
        job_name=owner.document.name,
        plan=plan,
        verdict=verdict,
        blocked=lifecycle.refusal(owner, plan, settings, now) or lifecycle.alone(tx, plan),
        shadow=lifecycle.effective_mode(owner, settings) == "shadow",
    )


def nodes(tx: Transaction, some: Sequence[Node], now: datetime) -> tuple[NodeView, ...]:
    """Return nodes with the resources that live replicas reserve on them."""
    reserved: defaultdict[str, Resources] = defaultdict(Resources)
    names: defaultdict[str, set[str]] = defaultdict(set)
    left: defaultdict[str, list[NodeLeft]] = defaultdict(list)
    placed = tx.worlds.on([node.name for node in some])
    tx.jobs.read_ahead(placed)
    for id, replicas in sorted(placed.items()):
        job = tx.jobs.get(id)
        for replica in replicas:
            if replica.state is not ReplicaState.EXITED:
                reserved[replica.node] += replica.resources or job.resources
                names[replica.node].add(job.document.name)
        for last in unfit_nodes(replicas, now).values():
            left[last.node].append(_left(job, last))
    nothing = Resources()
    return tuple(
        _node(
            one,
            reserved.get(one.name, nothing),
            names.get(one.name, ()),
            left.get(one.name, ()),
            now,
        )
        for one in some
    )


def pool(tx: Transaction, name: PoolName, now: datetime) -> PoolView:
    """Return a pool with its policy and its latest round.

    Raises:
        UnknownPool: the pool has neither nodes nor unfinished jobs.
    """
    mine = nodes(tx, tx.nodes.of(name), now)
    jobs = tx.jobs.unfinished(name)
    if not mine and not jobs:
        raise UnknownPool(
            f"pool {name} has no nodes and no unfinished jobs; check its name, or start a "
            "scaler, which registers nodes"
        )
    last = tx.pools.round(name)
    sharing = sum(job.document.optimize_mode is OptimizeMode.CLUSTER for job in jobs)
    return PoolView(
        name=name,
        nodes=sum(one.ready for one in mine),
        capacity=sum((one.capacity for one in mine if one.ready), Resources()),
        reserved=sum((one.reserved for one in mine), Resources()),
        jobs=len(jobs),
        sharing=sharing,
        policy=tx.pools.policy(name),
        round=last,
        gap=last.gap if last else None,
    )


def series(
    tx: Transaction, job: Job, metric: str, *, since: datetime, until: datetime, width: int
) -> Series:
    """Return a metric over time as points, at most one for every two pixels of ``width``.

    Each point has a low and a high value.
    """
    points = tx.telemetry.series(
        job.id, metric, since=since, until=until, points=max(1, width // 2)
    )
    # A wait that ends in one window may have begun in the one before.
    most = 1.0 if metric in _OF_STEP else math.inf
    return Series(
        metric=metric,
        unit=_UNITS.get(metric, "share"),
        since=since,
        until=until,
        points=tuple(
            SeriesPoint(
                at=p.at, mean=min(p.mean, most), low=min(p.low, most), high=min(p.high, most)
            )
            for p in points
        ),
    )


def _left(job: Job, last: Replica) -> NodeLeft:
    assert last.ended_at is not None, "a replica that left a node has ended"
    return NodeLeft(
        job=job.id, job_name=job.document.name, until=last.ended_at + UNFIT, why=last.unfit
    )


def _node(
    node: Node, reserved: Resources, jobs: Collection[str], left: Sequence[NodeLeft], now: datetime
) -> NodeView:
    return NodeView(
        name=node.name,
        pool=node.pool,
        accelerator=node.accelerator,
        capacity=node.capacity,
        reserved=reserved,
        slots=node.slots,
        seen_at=node.seen_at,
        ready=not lifecycle.silent(node, now),
        schedulable=node.schedulable,
        jobs=tuple(sorted(jobs)),
        left=tuple(left),
    )
