"""The capacity of a pool: the resources that no job reserves.

A started job reserves the larger of its wish and its observed replicas. Each replica reserves the
largest of four amounts: the standing ones, those being applied, those observed, and those to which
a plan without verdict may go back. So no resource is promised twice while a world changes.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce

from brain.lifecycle.desired import reached, standing, wished
from brain.ports import Transaction
from brain.types.allocation import Allocation
from brain.types.job import Job, JobId, JobState
from brain.types.plan import PlanState, ScalePlan
from brain.types.resources import Node, NodeName, Resources
from brain.types.roles import WORKER, others
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
class Holding:
    """The replicas that one job has in a pool, and those that it waits for."""

    job: JobId
    each: Resources
    #: Live replicas by node, as observed.
    live: Mapping[NodeName, int]
    #: Replicas that the job should have.
    wished: int
    #: Replicas that the job would have if it ran.
    target: int = 0
    #: Kind of node that the job needs; None: any.
    accelerator: str | None = None
    #: Chosen replicas by node; empty: any node where they fit.
    chosen: Mapping[NodeName, int] = field(default_factory=dict)

    @property
    def missing(self) -> int:
        """Return the number of wished replicas that do not exist yet."""
        return max(0, self.wished - sum(self.live.values()))


def holding(tx: Transaction, job: Job) -> Holding:
    """Return the replicas that ``job`` has and those that it waits for."""
    plans, live = tx.plans.of(job.id), _alive(tx, job.id)
    _, target = wished(plans, job)
    amounts = [target.each, *(one.current.each for one in plans if one.state is PlanState.APPLIED)]
    if target.roles:  # their amounts differ, and the sum counts
        amounts.append(standing(plans, job)[1].each)
    else:
        amounts += [job.resources, *(one.resources for one in live if one.resources)]
    return Holding(
        job=job.id,
        each=reduce(Resources.at_least, amounts),
        live=Counter(one.node for one in live),
        wished=0 if job.state in _IDLE else target.replicas,
        target=target.replicas,
        accelerator=job.document.accelerator,
        chosen=dict(target.nodes),
    )


class Ledger:
    """The resources of a pool's nodes that jobs hold. Call ``note`` when a holding changes."""

    def __init__(self, nodes: Iterable[Node], holdings: Iterable[Holding]) -> None:
        self._nodes = {node.name: node for node in nodes}
        self._free = {name: _amount(node.capacity) for name, node in self._nodes.items()}
        self._held: dict[JobId, Mapping[NodeName, int]] = {}
        self._each: dict[JobId, Resources] = {}
        for one in holdings:
            self.note(one)

    @property
    def free(self) -> Mapping[NodeName, Resources]:
        """Return the free resources by node; below 0 where jobs hold more than the node has."""
        return {
            name: Resources(cpu_millis=cpu, memory_bytes=memory, gpus=gpus)
            for name, (cpu, memory, gpus) in self._free.items()
        }

    def held(self, job: JobId) -> Mapping[NodeName, int]:
        """Return a job's replicas by node: those that exist, and those that the job waits for."""
        return self._held.get(job, {})

    def note(self, holding: Holding) -> None:
        """Replace a job's earlier holding by ``holding``."""
        self.drop(holding.job)
        each, held = holding.each, Counter(holding.live)
        for node, replicas in held.items():
            self._take(node, each, replicas)
        for _ in range(holding.missing):
            fit = self._fit(holding, held)
            if fit is None:
                break
            self._take(fit, each, 1)
            held[fit] += 1
        self._held[holding.job], self._each[holding.job] = held, each

    def drop(self, job: JobId) -> None:
        """Give back everything that a job held."""
        for node, replicas in self._held.pop(job, {}).items():
            self._take(node, self._each[job], -replicas)

    def room(self, job: Job) -> int:
        """Return the number of replicas of ``job`` that fit, its present ones included."""
        return sum(self.rooms(job).values())

    def rooms(self, job: Job) -> Mapping[NodeName, int]:
        """Return the replicas of ``job`` that fit each node, its present ones included."""
        wants, each = job.document.accelerator, _amount(job.resources)
        mine, held = self.held(job.id), self._each.get(job.id, job.resources)
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

    def _fit(self, holding: Holding, held: Mapping[NodeName, int]) -> NodeName | None:
        """Return the node of the next replica: the one chosen for it, else the first that fits."""
        each = _amount(holding.each)
        chosen = [name for name, n in holding.chosen.items() if held.get(name, 0) < n]
        for name in (*chosen, *self._free):
            node = self._nodes.get(name)
            if node is None or not node.schedulable:
                continue
            if holding.accelerator not in (None, node.accelerator):
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
    """Return True if other jobs may have the resources that a plan frees.

    They may once the plan's world steps, because a plan that fails needs them back. A job that is
    known to run at the smaller size frees them as soon as its replicas are gone.
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
    """Return True if a node that the plan names has fewer live replicas than it names."""
    return bool(Counter(dict(plan.target.nodes)) - _live(tx, plan.job))


def provided(tx: Transaction, job: JobId, target: Allocation) -> bool:
    """Return True if there are live replicas, and each reserves the target's amounts, as its scaler
    measured.
    """
    roles, live = roles_of(tx.worlds.latest(job)), _alive(tx, job)
    return bool(live) and all(one.resources == target.of(roles.get(one.id, WORKER)) for one in live)


def enforced(tx: Transaction, job: JobId, target: Allocation) -> bool:
    """Return True if there are live replicas, and each is held to the target's amounts."""
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
    """Return the number of replicas of ``job`` that fit its pool, present ones included."""
    jobs = [holding(tx, other) for other in tx.jobs.unfinished(job.pool) if other.id != job.id]
    nodes = [node for node in tx.nodes.of(job.pool) if _usable(node, job)]
    return Ledger(nodes, jobs).room(job)


def fitting(tx: Transaction, job: Job, size: Allocation, *, room: Room = room) -> int:
    """Return how many replicas of ``job`` fit its pool with the amounts of ``size``, its present
    ones included; a different number of replicas means a different number of workers."""
    if not size.roles:
        return room(tx, replace(job, amounts=size.resources))
    first = others(size.roles) + 1

    def lacks(replicas: int) -> bool:
        each = replace(size, replicas=replicas).each
        return room(tx, replace(job, amounts=each)) < replicas

    sizes = range(first, job.document.replicas.max + 1)
    return first - 1 + bisect_left(sizes, True, key=lacks)


def fits(tx: Transaction, job: Job, size: Allocation, *, room: Room = room) -> bool:
    """Return True if the pool holds ``job`` with the amounts of ``size``, or if they are the
    present ones.
    """
    same = size.amounts == standing(tx.plans.of(job.id), job)[1].amounts
    return same or room(tx, replace(job, amounts=size.each)) >= size.replicas


def largest(tx: Transaction, job: Job) -> int | None:
    """Return the number of replicas that fit the empty pool; None if no node has registered yet."""
    nodes = tx.nodes.of(job.pool)
    return Ledger(nodes, ()).room(job) if nodes else None


def largest_cpus(tx: Transaction, job: Job) -> float:
    """Return the processors of the largest usable node of a job's pool; 0 if it has none."""
    nodes = tx.nodes.of(job.pool)
    return max((node.capacity.cpu_millis for node in nodes if node.schedulable), default=0) / 1000


def compared(tx: Transaction, job: Job) -> str:
    """Compare in words the needs of each replica with the sum of the pool's usable nodes."""
    nodes = [node for node in tx.nodes.of(job.pool) if _usable(node, job)]
    if not nodes:
        kind = job.document.accelerator
        return "none of its nodes is usable" + (f" with accelerator {kind}" if kind else "")
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
