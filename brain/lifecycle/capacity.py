"""The capacity of a pool: the resources that no job reserves.

A started job reserves as many replicas as it has or should have, whichever is more. Each replica
reserves the largest of four amounts: the amount of the present target, the amount of a plan that is
being applied, the observed amount, and the amount that a rollback would restore. So no resource is
assigned twice while a world changes.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import reduce

from brain.lifecycle.desired import FIRST_NODES, reached, standing, wished, wished_nodes
from brain.lifecycle.ledger import Holding, Ledger, Share, usable
from brain.lifecycle.nodes import expected, heard, silent
from brain.ports import Transaction
from brain.types.allocation import Allocation
from brain.types.job import Job, JobId, JobState
from brain.types.plan import PlanState, ScalePlan
from brain.types.resources import Node, NodeName, Resources
from brain.types.roles import WORKER, groups_of, others, ranked
from brain.types.world import Replica, ReplicaState, World
from brain.typeset import count, quantity

#: States, before the start or after a stop, in which a job reserves only its observed replicas.
_IDLE = frozenset({JobState.QUEUED, JobState.SUSPENDED})

_GIB = 2**30
#: Returns the number of replicas of a job that fit its pool now, present ones included.
Room = Callable[[Transaction, Job, datetime], int]


def holding(tx: Transaction, job: Job) -> Holding:
    """Return the replicas that ``job`` has and those that it waits for."""
    return _holding(tx, job, tx.plans.effective(job.id), _alive(tx, job.id))


def _holding(
    tx: Transaction, job: Job, plans: Sequence[ScalePlan], live: Sequence[Replica]
) -> Holding:
    generation, target = wished(plans, job)
    if groups_of(target.roles):
        return _of_groups(job, plans, live, target)
    amounts = [target.each, *(one.current.each for one in plans if one.state is PlanState.APPLIED)]
    if target.roles:  # their amounts differ, and the sum counts
        amounts.append(standing(plans, job)[1].each)
    else:
        amounts += [job.resources, *(one.resources for one in live if one.resources)]
    share = Share(
        each=reduce(Resources.at_least, amounts),
        live=Counter(one.node for one in live),
        wished=0 if job.state in _IDLE else target.replicas,
        accelerator=job.document.accelerator,
    )
    chosen = dict(wished_nodes(tx, job, generation, target))
    return Holding(job=job.id, shares=(share,), target=target, chosen=chosen)


def _of_groups(
    job: Job, plans: Sequence[ScalePlan], live: Sequence[Replica], target: Allocation
) -> Holding:
    """Return the holding of a job whose groups each reserve their own amounts."""
    before = [one.current for one in plans if one.state is PlanState.APPLIED]
    sizes = (target, standing(plans, job)[1], *before)
    groups = {name: size.replicas for name, size in groups_of(target.roles)}
    shares = tuple(
        Share(
            group=name,
            each=reduce(Resources.at_least, (size.of(name) for size in sizes)),
            live=Counter(one.node for one in live if one.role == name),
            wished=0 if job.state in _IDLE else replicas,
            accelerator=job.document.accelerator_of(name),
        )
        for name, replicas in ({WORKER: target.workers} | groups).items()
    )
    return Holding(job=job.id, shares=shares, target=target)


def has_left(tx: Transaction, plan: ScalePlan) -> bool:
    """Return True if other jobs may use the resources that a plan frees.

    They may do so once the plan's world makes steps, because a failed plan needs the resources
    back. If the job has run at the smaller size before, they may do so as soon as its replicas are
    gone.
    """
    if plan.state is not PlanState.APPLYING:
        return reached(plan)
    target, nodes = plan.target, dict(plan.target.nodes)
    stepped = (world for world in tx.worlds.of(plan.job) if world.stepping_at is not None)
    if all(world.replicas > target.replicas for world in stepped):
        return False
    live = _live(tx, plan.job)
    if nodes:
        return live <= Counter(nodes)
    return target.replicas < plan.current.replicas and live.total() <= target.replicas


def lacks_nodes(tx: Transaction, plan: ScalePlan) -> bool:
    """Return True if a node has fewer live replicas than the plan assigns to it."""
    return bool(Counter(dict(plan.target.nodes)) - _live(tx, plan.job))


def provided(tx: Transaction, job: JobId, target: Allocation) -> bool:
    """Return True if the job has live replicas, and the scaler reports each of them with the
    target's amounts.
    """
    roles, live = roles_of(tx.worlds.latest(job)), _alive(tx, job)
    return bool(live) and all(one.resources == target.of(roles.get(one.id, WORKER)) for one in live)


def enforced(tx: Transaction, job: JobId, target: Allocation) -> bool:
    """Return True if the job has live replicas, and the target's amounts are enforced for each of
    them.
    """
    live = _alive(tx, job)
    return not any(one.unenforced for one in live) and provided(tx, job, target)


def roles_of(world: World | None) -> Mapping[int, str]:
    """Return the role of each replica of a world."""
    return {} if world is None else {each.replica: each.role for each in world.members}


def _alive(tx: Transaction, job: JobId) -> list[Replica]:
    return [one for one in tx.worlds.present(job) if one.state is not ReplicaState.EXITED]


def _live(tx: Transaction, job: JobId) -> Counter[NodeName]:
    """Return live replicas by node, as observed."""
    return Counter(one.node for one in _alive(tx, job))


def room(tx: Transaction, job: Job, now: datetime) -> int:
    """Return how many replicas of ``job``, present ones included, fit its pool."""
    return room_beside_others(tx, job, now)(tx, job, now)


def room_beside_others(tx: Transaction, job: Job, now: datetime) -> Room:
    """Return a function like ``room`` that accepts only this job, but with any amounts.

    The other jobs of the pool are read only once, when the function is made.
    """
    jobs = [other for other in tx.jobs.unfinished(job.pool) if other.id != job.id]
    plans, live = tx.plans.since_reached(job.pool), tx.worlds.live(job.pool)
    tx.fits.read_ahead([other.id for other in jobs if other.id not in plans], FIRST_NODES)
    held = [_holding(tx, one, plans.get(one.id, ()), live.get(one.id, ())) for one in jobs]
    groups = bool(job.document.groups)
    known = tx.nodes.of(job.pool)
    nodes = [node for node in heard(known, now) if groups or usable(node, job)]
    ledger = Ledger(nodes, held)
    kept = on_silent(known, _live(tx, job.id), now)
    return lambda _, with_amounts, __: ledger.room(with_amounts) + kept


def on_silent(nodes: Iterable[Node], held: Mapping[NodeName, int], now: datetime) -> int:
    """Return how many of the replicas ``held`` (by node) are on silent nodes, which no scaler
    reports any more.

    These replicas still count in their job's room, so that a job does not shrink because its scaler
    is away.
    """
    return sum(held.get(one.name, 0) for one in nodes if one.schedulable and silent(one, now))


def sized(job: Job, size: Allocation) -> Job:
    """Return the job with the amounts of ``size``, so that ``room`` can compute with them.

    A job with groups gets the amounts of each group; any other job gets the mean over all roles.
    """
    groups = {n: replace(one, resources=size.of(n)) for n, one in groups_of(size.roles)}
    if not groups:
        return replace(job, amounts=size.each)
    return replace(job, amounts=size.resources, document=replace(job.document, groups=groups))


def fitting(
    tx: Transaction, job: Job, size: Allocation, now: datetime, *, room: Room = room
) -> int:
    """Return how many replicas of ``job`` fit its pool and its resource limits with the amounts of
    ``size``, including its present ones. Only the number of workers varies.
    """
    most = job.document.resource_limits.most(size)
    fits = _fitting(tx, job, size, now, room)
    return fits if most is None else min(fits, most)


def _fitting(tx: Transaction, job: Job, size: Allocation, now: datetime, room: Room) -> int:
    if not ranked(size.roles):
        return room(tx, sized(job, size), now)
    first = others(size.roles) + 1

    def lacks(replicas: int) -> bool:
        each = replace(size, replicas=replicas).each
        return room(tx, replace(job, amounts=each), now) < replicas

    sizes = range(first, job.document.replicas.max + 1)
    return first - 1 + bisect_left(sizes, True, key=lacks)


def fits(tx: Transaction, job: Job, size: Allocation, now: datetime, *, room: Room) -> bool:
    """Return True if ``job`` fits the pool and its resource limits with the amounts of ``size``, or
    already has these amounts.
    """
    same = size.amounts == standing(tx.plans.effective(job.id), job)[1].amounts
    allowed = job.document.resource_limits.allow(size)
    return same or (allowed and room(tx, sized(job, size), now) >= size.replicas)


def largest(tx: Transaction, job: Job, now: datetime) -> int | None:
    """Return how many replicas of ``job`` fit the empty pool; None if no node has registered.

    Nodes that accept no replicas at present count, too, because they may accept some later: a
    cordon may be lifted, and a job may tolerate a node's taint. A scaler reports such a toleration
    only once it knows the job.
    """
    nodes = _opened(expected(tx.nodes.of(job.pool), now))
    return Ledger(nodes, ()).room(job) if nodes else None


def _opened(nodes: Iterable[Node]) -> list[Node]:
    return [replace(node, schedulable=True) for node in nodes]


def largest_cpus(tx: Transaction, job: Job, now: datetime) -> float:
    """Return the number of processors of the largest usable node of a job's pool; 0 if there is
    none.
    """
    nodes = expected(tx.nodes.of(job.pool), now)
    return max((node.capacity.cpu_millis for node in nodes if node.schedulable), default=0) / 1000


def compared(tx: Transaction, job: Job, now: datetime) -> str:
    """Return a phrase that compares the needs of each replica with the total of the pool's nodes
    of the right kind.
    """
    known = _opened(expected(tx.nodes.of(job.pool), now))
    nodes = [node for node in known if usable(node, job)]
    if not nodes:
        return f"none of its nodes has accelerator {job.document.accelerator}"
    kinds = {node.accelerator for node in known}
    for name, size in job.document.groups.items():
        if size.accelerator is not None and size.accelerator not in kinds:
            return f"none of its nodes has accelerator {size.accelerator}, which group {name} needs"
    each, all_of = job.resources, sum((n.capacity for n in nodes), Resources())
    pairs = [
        (
            quantity(one.cpu_millis, "mCPU"),
            quantity(one.memory_bytes / _GIB, "GiB"),
            count(one.gpus, "GPU"),
        )
        for one in (each, all_of)
    ]
    needed = (each.cpu_millis, each.memory_bytes, each.gpus)
    wants, has = (
        ", ".join(said for said, need in zip(amounts, needed, strict=True) if need)
        for amounts in pairs
    )
    return f"each replica needs {wants}; the pool has {has}"
