"""The division of a cluster among jobs, in four steps: prices, a feasible division, nodes,
reasons.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from brain.pool.allocator import refusals
from brain.pool.allocator.arrange import seat, swap
from brain.pool.allocator.columns import Columns, Flags, Flat, Ints, flatten, tabulate
from brain.pool.allocator.grants import grants, ordered
from brain.pool.allocator.limits import refine
from brain.pool.allocator.packing import TOLERANCE, exact, settle, worth
from brain.pool.allocator.placement import FreeAccelerators
from brain.pool.allocator.prices import DivisionProblem, PriceSystem, clear, taken
from brain.pool.allocator.seating import Seating
from brain.pool.allocator.utility import Weights
from brain.pool.allocator.views import (
    NODES,
    REPLICAS,
    ClusterView,
    Floats,
    PoolJob,
    PoolNode,
    Prices,
    Round,
)

#: Prices to begin with: those of types, of limits, and of guarantees.
Start = tuple[Floats, Floats, Floats]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scene:
    """The input of a division: healthy nodes, types with accelerators, quotas, and the jobs."""

    jobs: Sequence[PoolJob]
    cluster: ClusterView
    nodes: Sequence[PoolNode]
    #: Accelerators of all healthy nodes by type, names in order; never empty.
    capacity: Mapping[str, int]

    @property
    def types(self) -> list[str]:
        """Return the names of the types, in the order of their index."""
        return list(self.capacity)


def allocate(
    jobs: Sequence[PoolJob],
    cluster: ClusterView,
    *,
    prices: Prices | None = None,
    settings: Weights | None = None,
) -> Round:
    """Divide ``cluster`` among ``jobs``.

    Equal arguments give equal rounds. With the last round's ``prices``, a round is faster and
    changes less. Jobs with invalid numbers keep their accelerators and get the reason
    (``RoundEffect.REFUSED``). Pinned jobs keep their accelerators, too.

    Raises:
        BadInput: two jobs or two nodes share a name, or a capacity or quota is below 0.
    """
    weights = settings or Weights()
    asked = question(jobs, cluster, weights)
    market, choice = divide(asked.problem, asked.start(prices), weights)
    seating = seat(
        jobs, asked.scene.types, asked.problem, market, choice, asked.floor, weights.movable
    )
    swap(seating)
    return _round(asked.scene, seating, asked.refused)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SolverInput:
    """The input of the solver: the jobs, their configurations, and the nodes left for them."""

    scene: Scene
    problem: DivisionProblem
    #: Nodes, less the accelerators of jobs that stay as they are.
    floor: FreeAccelerators
    #: Jobs that cannot be judged, with the reason.
    refused: Mapping[int, str]

    def start(self, prices: Prices | None) -> Start | None:
        """Return an earlier round's prices as arrays; None if a type has no price."""
        types, quotas = self.scene.types, self.scene.cluster.quotas
        if prices is None or not set(types) <= set(prices.accelerators):
            return None
        tenants = np.array([prices.tenants.get(name, 0.0) for name in quotas])
        accelerators = np.array([prices.accelerators[name] for name in types])
        return accelerators, np.maximum(tenants, 0), np.maximum(-tenants, 0)


def question(jobs: Sequence[PoolJob], cluster: ClusterView, weights: Weights) -> SolverInput:
    """Compute the utility of every configuration, and the nodes that are available.

    Raises:
        BadInput: two jobs or two nodes share a name, or a capacity or quota is below 0.
    """
    refusals.check(jobs, cluster)
    scene = _scene(jobs, cluster)
    flat, sound = refusals.clean(flatten(jobs, scene.types))
    possible, refused = _possible(scene, flat, sound)
    fixed = [index for index, job in enumerate(jobs) if job.pinned or index in refused]
    floor = FreeAccelerators(scene.nodes)
    for index in fixed:
        if (stays := jobs[index].current) is not None:
            floor.occupy(stays, jobs[index].gpus_per_replica)
    possible &= ~np.isin(flat.job, fixed)
    columns = tabulate(
        jobs,
        flat,
        weights,
        possible=possible,
        current=_current(scene, flat),
        share=sum(scene.capacity.values()) / max(len(jobs), 1),
    )
    problem = _problem(scene, columns, floor, fixed)
    return SolverInput(scene=scene, problem=problem, floor=floor, refused=refused)


def _scene(jobs: Sequence[PoolJob], cluster: ClusterView) -> Scene:
    nodes = [node for node in cluster.nodes if node.healthy and node.capacity > 0]
    kinds = {node.accelerator for node in cluster.nodes} | {k for job in jobs for k in job.curves}
    capacity = dict.fromkeys(sorted(kinds or {""}), 0)
    for node in nodes:
        capacity[node.accelerator] += node.capacity
    return Scene(jobs=jobs, cluster=cluster, nodes=nodes, capacity=capacity)


def _possible(scene: Scene, flat: Flat, sound: Flags) -> tuple[Flags, dict[int, str]]:
    """Return the rows that fit the empty cluster, and the jobs without such a row, each with the
    reason.
    """
    jobs = scene.jobs
    refused = {index: why for index, job in enumerate(jobs) if (why := refusals.unusable(job))}
    for index in np.unique(flat.job[~sound]).tolist():
        refused.setdefault(index, "its curve has a number that is not finite or not above 0")
    each = np.array([max(job.gpus_per_replica, 1) for job in jobs], dtype=np.int64)
    sizes, which = np.unique(each, return_inverse=True)
    room = refusals.rooms(scene.nodes, scene.types, sizes.tolist())
    replicas = flat.rows[:, REPLICAS]
    fits = sound & (replicas <= room[flat.kind, which[flat.job]])
    limits = [_limit(scene.cluster, job) for job in jobs]
    fits &= replicas * each[flat.job] <= np.array(limits, dtype=np.float64)[flat.job]
    can = np.zeros(len(jobs), dtype=bool)
    can[flat.job[fits]] = True
    for index in np.flatnonzero(~can).tolist():
        quota = scene.cluster.quotas.get(jobs[index].tenant)
        refused.setdefault(index, refusals.impossible(jobs[index], scene.capacity, quota))
    return fits, refused


def _limit(cluster: ClusterView, job: PoolJob) -> float:
    quota = cluster.quotas.get(job.tenant)
    return np.inf if quota is None or quota.limit is None else quota.limit


def _current(scene: Scene, flat: Flat) -> Flags:
    """Return flags of the rows that jobs have now; a job on a node that is no longer usable has
    none.
    """
    number = {name: index for index, name in enumerate(scene.types)}
    usable = {node.name for node in scene.nodes}
    kind, replicas, spread = (np.full(len(scene.jobs), -1) for _ in range(3))
    for index, job in enumerate(scene.jobs):
        at = job.current
        if at is not None and usable.issuperset(at.nodes):
            kind[index] = number.get(at.accelerator, -1)
            replicas[index], spread[index] = at.replicas, len(set(at.nodes))
    nodes = flat.rows[:, NODES]
    same = (flat.kind == kind[flat.job]) & (flat.rows[:, REPLICAS] == replicas[flat.job])
    same &= (nodes == 0) | (nodes == spread[flat.job])
    return np.asarray(same, dtype=bool)


def _problem(
    scene: Scene, columns: Columns, floor: FreeAccelerators, fixed: Sequence[int]
) -> DivisionProblem:
    """Return the problem that remains after the jobs that stay as they are."""
    quotas = scene.cluster.quotas
    number = {tenant: index for index, tenant in enumerate(quotas)}
    limit = np.array([np.inf if q.limit is None else q.limit for q in quotas.values()])
    owed = np.array([quota.guaranteed for quota in quotas.values()], dtype=np.float64)
    for index in fixed:
        job = scene.jobs[index]
        if job.current is not None and job.tenant in number:
            held = job.current.replicas * job.gpus_per_replica
            limit[number[job.tenant]] -= held
            owed[number[job.tenant]] -= held
    free = dict.fromkeys(scene.types, 0)
    for node in scene.nodes:
        free[node.accelerator] += max(0, floor.free[node.name])
    names = [number.get(job.tenant, len(quotas)) for job in scene.jobs]
    tenant = np.array(names, dtype=np.int64)
    liked = np.arange(len(tenant)), columns.utility.argmax(axis=1)
    wanted = np.where(np.isfinite(columns.utility[liked]), columns.size[liked], 0)
    useful = np.bincount(tenant, wanted, minlength=len(quotas) + 1)[:-1]
    most = columns.utility / columns.size
    return DivisionProblem(
        columns=columns,
        capacity=np.array([free[name] for name in scene.types], dtype=np.float64),
        tenant=tenant,
        limit=np.maximum(limit, 0),
        guaranteed=np.clip(owed, 0, useful),
        shortfall=10 * max(float(most.max(initial=0)), 1e-9),
    )


def divide(
    problem: DivisionProblem, start: Start | None, weights: Weights
) -> tuple[PriceSystem, Ints]:
    """Return prices, and the better of two divisions: from prices alone, and a more exact one.

    The more exact division is computed only if there are few jobs, or if tenants have limits. The
    lower of the two bounds is kept.
    """
    market = clear(problem, start)
    choice, bound = settle(problem, market), market.bound
    if np.isfinite(problem.limit).any():
        choice, bound = refine(problem, market, choice)
    value, few = worth(problem, choice), len(problem.tenant) < weights.exact_jobs
    if few and bound - value > TOLERANCE * abs(bound):
        # ``exact`` compares with the value that prices alone promise.
        found = exact(problem, market, value)
        if found is not None:
            other, bound = found[0], min(bound, found[1])
            choice = other if worth(problem, other) > value else choice
    return replace(market, bound=bound), choice


def _round(scene: Scene, seating: Seating, refused: Mapping[int, str]) -> Round:
    problem, market = seating.problem, seating.market
    made = grants(seating, refused)
    _, tenants = taken(problem, seating.stock.choice)
    lack = np.maximum(problem.guaranteed - tenants, 0)
    used = dict.fromkeys(scene.types, 0)
    for job in scene.jobs:
        if (at := made[job.key].placement) and at.accelerator in used:
            used[at.accelerator] += at.replicas * job.gpus_per_replica
    quotas = list(scene.cluster.quotas)
    return Round(
        grants=made,
        moves=ordered(scene.jobs, made, scene.nodes),
        value=sum(grant.utility for grant in made.values()) - problem.shortfall * float(lack.sum()),
        bound=market.bound,
        prices=Prices(
            accelerators=dict(zip(scene.types, market.accelerators.tolist(), strict=True)),
            tenants=dict(zip(quotas, market.tenants.tolist()[:-1], strict=True)),
        ),
        capacity=scene.capacity,
        used=used,
        short={
            name: round(short)
            for name, short in zip(quotas, lack.tolist(), strict=True)
            if short > 0
        },
    )
