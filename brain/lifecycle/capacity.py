"""The capacity of a pool: the resources that no job reserves.

A started job reserves as many replicas as it has or should have, whichever is more. Each replica
reserves the largest of four amounts: the amount of the present target, the amount of a plan that is
being applied, the observed amount, and the amount that a rollback would restore. So no resource is
assigned twice while a world changes.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce

from brain.lifecycle.desired import FIRST_NODES, reached, standing, wished, wished_nodes
from brain.ports import Transaction
from brain.types.allocation import Allocation
from brain.types.job import Job, JobId, JobState
from brain.types.plan import PlanState, ScalePlan
from brain.types.resources import Node, NodeName, Resources
from brain.types.roles import WORKER, groups_of, others, ranked
from brain.types.world import Replica, ReplicaState, World
from brain.typeset import quantity

#: States, before the start or after a stop, in which a job reserves only its observed replicas.
_IDLE = frozenset({JobState.QUEUED, JobState.SUSPENDED})

_GIB = 2**30
#: Capacity for a job whose replicas reserve nothing: more replicas than any job asks for.
UNLIMITED = 1_000_000

#: Returns the number of replicas of a job that fit its pool, present ones included.
Room = Callable[[Transaction, Job], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """Replicas of one job with equal needs: those that exist in a pool, and those that the job
    waits for.
    """

    each: Resources
    #: Their group; ``worker`` for those outside the groups.
    group: str = WORKER
    #: Live replicas by node, as observed.
    live: Mapping[NodeName, int] = field(default_factory=dict)
    #: Replicas that the job should have.
    wished: int
    #: Kind of node that they need; None: any.
    accelerator: str | None = None

    @property
    def missing(self) -> int:
        """Return the number of desired replicas that do not exist yet."""
        return max(0, self.wished - sum(self.live.values()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """The replicas that one job has in a pool, and those that it waits for."""

    job: JobId
    #: One share; for a job with groups, a share for each.
    shares: tuple[Share, ...]
    #: Replicas that the job would have if it ran.
    target: int = 0
    #: Chosen replicas by node; empty: any node where they fit.
    chosen: Mapping[NodeName, int] = field(default_factory=dict)


def holding(tx: Transaction, job: Job) -> Holding:
    """Return the replicas that ``job`` has and those that it waits for."""
    return _holding(tx, job, tx.plans.of(job.id), _alive(tx, job.id))


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
    return Holding(job=job.id, shares=(share,), target=target.replicas, chosen=chosen)


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
    return Holding(job=job.id, shares=shares, target=target.replicas)


class Ledger:
    """The resources of a pool's nodes that jobs hold. Callers call ``note`` when a holding
    changes.
    """

    def __init__(self, nodes: Iterable[Node], holdings: Iterable[Holding]) -> None:
        self._nodes = {node.name: node for node in nodes}
        self._free = {name: _amount(node.capacity) for name, node in self._nodes.items()}
        self._held: dict[JobId, Mapping[NodeName, int]] = {}
        #: Amounts of each replica, and replicas by node, of each group.
        self._shares: dict[JobId, Mapping[str, tuple[Resources, Mapping[NodeName, int]]]] = {}
        for one in holdings:
            self.note(one)

    @property
    def free(self) -> Mapping[NodeName, Resources]:
        """Return the free resources by node; below 0 if jobs hold more than the node has."""
        return {
            name: Resources(cpu_millis=cpu, memory_bytes=memory, gpus=gpus)
            for name, (cpu, memory, gpus) in self._free.items()
        }

    def held(self, job: JobId) -> Mapping[NodeName, int]:
        """Return a job's replicas by node: those that exist, and those that the job waits for."""
        return self._held.get(job, {})

    def note(self, holding: Holding) -> None:
        """Replace a job's earlier holding with ``holding``."""
        self.drop(holding.job)
        held = {one.group: (one.each, self._hold(one, holding.chosen)) for one in holding.shares}
        self._shares[holding.job] = held
        self._held[holding.job] = sum((each for _, each in held.values()), Counter[NodeName]())

    def _hold(self, share: Share, chosen: Mapping[NodeName, int]) -> Counter[NodeName]:
        """Take the resources of a share; return its replicas by node."""
        held = Counter(share.live)
        for node, replicas in held.items():
            self._take(node, share.each, replicas)
        for _ in range(share.missing):
            fit = self._fit(share, chosen, held)
            if fit is None:
                break
            self._take(fit, share.each, 1)
            held[fit] += 1
        return held

    def drop(self, job: JobId) -> None:
        """Release everything that a job held."""
        self._held.pop(job, None)
        for each, held in self._shares.pop(job, {}).values():
            for node, replicas in held.items():
                self._take(node, each, -replicas)

    def room(self, job: Job) -> int:
        """Return how many replicas of ``job``, present ones included, fit the pool."""
        return sum(self.rooms(job).values())

    def rooms(self, job: Job) -> Mapping[NodeName, int]:
        """Return how many replicas of ``job``, present ones included, fit each node."""
        if job.document.groups:
            return self._rooms_of_groups(job)
        wants, each = job.document.accelerator, _amount(job.resources)
        mine = self.held(job.id)
        held, _ = self._shares.get(job.id, {}).get(WORKER, (job.resources, mine))
        if mine and held != job.resources:
            # The job's replicas have other amounts now, so the resources that they hold are free
            # for new ones.
            bare = Ledger(self._nodes.values(), ())
            bare._free = {n: _given(free, held, mine.get(n, 0)) for n, free in self._free.items()}
            return bare.rooms(job)
        # Few of a pool's many nodes differ in their free resources.
        fits = {free: _copies(free, each) for free in set(self._free.values())}
        return {
            name: max(0, mine.get(name, 0) + fits[self._free[name]])
            for name, node in self._nodes.items()
            if node.schedulable and wants in (None, node.accelerator)
        }

    def _rooms_of_groups(self, job: Job) -> Mapping[NodeName, int]:
        """Return the replicas that fit each node once all groups have their replicas; fewer than
        the groups' own if these do not fit.
        """
        bare, present = Ledger(self._nodes.values(), ()), self._shares.get(job.id, {})
        bare._free, bare._shares[job.id] = dict(self._free), present
        bare.drop(job.id)
        found = Counter[NodeName]()
        for name, size in job.document.groups.items():
            share = Share(
                each=job.resources if size.resources is None else size.resources,
                wished=size.replicas,
                accelerator=job.document.accelerator_of(name),
            )
            _, here = present.get(name, (share.each, {}))
            held = bare._hold(share, here)
            found += held
            if held.total() < size.replicas:
                return found
        alike = replace(job, document=replace(job.document, groups={}))
        return found + Counter(bare.rooms(alike))

    def _fit(
        self, share: Share, chosen: Mapping[NodeName, int], held: Mapping[NodeName, int]
    ) -> NodeName | None:
        """Return the node of the next replica: the one chosen for it, else the first that fits."""
        each = _amount(share.each)
        first = [name for name, n in chosen.items() if held.get(name, 0) < n]
        for name in (*first, *self._free):
            node = self._nodes.get(name)
            if node is None or not node.schedulable:
                continue
            if share.accelerator not in (None, node.accelerator):
                continue
            if _copies(self._free[name], each) > 0:
                return name
        return None

    def _take(self, node: NodeName, each: Resources, replicas: int) -> None:
        if node in self._free:
            self._free[node] = _given(self._free[node], each, -replicas)


#: CPU, memory and accelerators.
_Amount = tuple[int, ...]


def _amount(resources: Resources) -> _Amount:
    return resources.cpu_millis, resources.memory_bytes, resources.gpus


def _given(free: _Amount, each: Resources, replicas: int) -> _Amount:
    """Return the free resources once ``replicas`` have been given back."""
    return tuple(have + one * replicas for have, one in zip(free, _amount(each), strict=True))


def _copies(free: _Amount, each: _Amount) -> int:
    """Return how often ``each`` fits into ``free``; below 0 if more is taken than exists."""
    fits = [have // need for have, need in zip(free, each, strict=True) if need > 0]
    return min(fits) if fits else UNLIMITED


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
    """Return True if there are live replicas, each reported with the target's amounts."""
    roles, live = roles_of(tx.worlds.latest(job)), _alive(tx, job)
    return bool(live) and all(one.resources == target.of(roles.get(one.id, WORKER)) for one in live)


def enforced(tx: Transaction, job: JobId, target: Allocation) -> bool:
    """Return True if there are live replicas and the target's amounts are enforced for each."""
    live = _alive(tx, job)
    return not any(one.unenforced for one in live) and provided(tx, job, target)


def roles_of(world: World | None) -> Mapping[int, str]:
    """Return the role of each replica of a world."""
    return {} if world is None else {each.replica: each.role for each in world.members}


def _alive(tx: Transaction, job: JobId) -> list[Replica]:
    return [one for one in tx.worlds.replicas(job) if one.state is not ReplicaState.EXITED]


def _live(tx: Transaction, job: JobId) -> Counter[NodeName]:
    """Return live replicas by node, as observed."""
    return Counter(one.node for one in _alive(tx, job))


def room(tx: Transaction, job: Job) -> int:
    """Return how many replicas of ``job``, present ones included, fit its pool."""
    return room_beside_others(tx, job)(tx, job)


def room_beside_others(tx: Transaction, job: Job) -> Room:
    """Return a function like ``room`` for this job alone, which accepts the job with any amounts.

    The other jobs of the pool are read only once, when the function is made.
    """
    jobs = [other for other in tx.jobs.unfinished(job.pool) if other.id != job.id]
    plans, live = tx.plans.since_reached(job.pool), tx.worlds.live(job.pool)
    tx.fits.read_ahead([other.id for other in jobs if other.id not in plans], FIRST_NODES)
    held = [_holding(tx, one, plans.get(one.id, ()), live.get(one.id, ())) for one in jobs]
    groups = bool(job.document.groups)
    nodes = [node for node in tx.nodes.of(job.pool) if groups or _usable(node, job)]
    ledger = Ledger(nodes, held)
    return lambda _, with_amounts: ledger.room(with_amounts)


def sized(job: Job, size: Allocation) -> Job:
    """Return the job with the amounts of ``size``, so that ``room`` can compute with them.

    A job with groups gets the amounts of each group; any other job gets the mean over all roles.
    """
    groups = {n: replace(one, resources=size.of(n)) for n, one in groups_of(size.roles)}
    if not groups:
        return replace(job, amounts=size.each)
    return replace(job, amounts=size.resources, document=replace(job.document, groups=groups))


def fitting(tx: Transaction, job: Job, size: Allocation, *, room: Room = room) -> int:
    """Return how many replicas of ``job`` fit its pool and its resource limits with the amounts of
    ``size``, including its present ones. Only the number of workers varies.
    """
    most = job.document.resource_limits.most(size)
    fits = _fitting(tx, job, size, room)
    return fits if most is None else min(fits, most)


def _fitting(tx: Transaction, job: Job, size: Allocation, room: Room) -> int:
    if not ranked(size.roles):
        return room(tx, sized(job, size))
    first = others(size.roles) + 1

    def lacks(replicas: int) -> bool:
        each = replace(size, replicas=replicas).each
        return room(tx, replace(job, amounts=each)) < replicas

    sizes = range(first, job.document.replicas.max + 1)
    return first - 1 + bisect_left(sizes, True, key=lacks)


def fits(tx: Transaction, job: Job, size: Allocation, *, room: Room = room) -> bool:
    """Return True if ``job`` fits the pool and its resource limits with the amounts of ``size``, or
    already has these amounts.
    """
    same = size.amounts == standing(tx.plans.of(job.id), job)[1].amounts
    allowed = job.document.resource_limits.allow(size)
    return same or (allowed and room(tx, sized(job, size)) >= size.replicas)


def largest(tx: Transaction, job: Job) -> int | None:
    """Return how many replicas of ``job`` fit the empty pool; None if no node has registered."""
    nodes = tx.nodes.of(job.pool)
    return Ledger(nodes, ()).room(job) if nodes else None


def largest_cpus(tx: Transaction, job: Job) -> float:
    """Return the number of processors of the largest usable node of a job's pool; 0 if there is
    none.
    """
    nodes = tx.nodes.of(job.pool)
    return max((node.capacity.cpu_millis for node in nodes if node.schedulable), default=0) / 1000


def compared(tx: Transaction, job: Job) -> str:
    """Return a phrase that compares the needs of each replica with the total of the pool's usable
    nodes.
    """
    nodes = [node for node in tx.nodes.of(job.pool) if _usable(node, job)]
    if not nodes:
        kind = job.document.accelerator
        return "none of its nodes is usable" + (f" with accelerator {kind}" if kind else "")
    kinds = {node.accelerator for node in tx.nodes.of(job.pool) if node.schedulable}
    for name, size in job.document.groups.items():
        if size.accelerator is not None and size.accelerator not in kinds:
            return (
                f"none of its usable nodes has accelerator {size.accelerator}, which group {name} "
                "needs"
            )
    each, all_of = job.resources, sum((n.capacity for n in nodes), Resources())
    pairs = [
        (each.cpu_millis, all_of.cpu_millis, "mCPU"),
        (each.memory_bytes / _GIB, all_of.memory_bytes / _GIB, "GiB"),
        (each.gpus, all_of.gpus, "GPU"),
    ]
    wanted = [(want, have, unit) for want, have, unit in pairs if want]
    wants = ", ".join(quantity(want, unit) for want, _, unit in wanted)
    has = ", ".join(quantity(have, unit) for _, have, unit in wanted)
    return f"each replica needs {wants}; the pool has {has}"


def _usable(node: Node, job: Job) -> bool:
    wants = job.document.accelerator
    return node.schedulable and (wants is None or wants == node.accelerator)
