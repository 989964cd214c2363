"""A cluster divided among jobs: prices, repair, nodes, reasons."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from brain.optimizer.cluster import refusals
from brain.optimizer.cluster.columns import Columns, Flags, Flat, Ints, flatten, tabulate
from brain.optimizer.cluster.placement import Floor, Need
from brain.optimizer.cluster.prices import Market, Problem, clear, taken
from brain.optimizer.cluster.repair import settle
from brain.optimizer.cluster.utility import Weights
from brain.optimizer.cluster.views import (
    NODES,
    REPLICAS,
    ClusterView,
    Floats,
    Grant,
    JobView,
    Move,
    NodeView,
    Outcome,
    Placement,
    Prices,
    Round,
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scene:
    """What is divided: healthy nodes, types with accelerators, quotas; and who is asked."""

    jobs: Sequence[JobView]
    cluster: ClusterView
    nodes: Sequence[NodeView]
    #: Accelerators of all healthy nodes by type, names in order.
    capacity: Mapping[str, int]
    weights: Weights

    @property
    def types(self) -> list[str]:
        """Names of the types, as they are numbered."""
        return list(self.capacity)


def allocate(
    jobs: Sequence[JobView],
    cluster: ClusterView,
    *,
    prices: Prices | None = None,
    settings: Weights | None = None,
) -> Round:
    """Divide ``cluster`` among ``jobs``.

    Deterministic: equal arguments give equal rounds. ``prices`` of the last round make it faster
    and steadier. Jobs that cannot be judged keep what they have and are told why
    (``Outcome.REFUSED``); so do pinned ones.

    Raises:
        BadInput: two jobs or two nodes share a name, or a capacity or quota is below 0.
    """
    refusals.check(jobs, cluster)
    scene = _scene(jobs, cluster, settings or Weights())
    flat = flatten(jobs, scene.types)
    possible, refused = _possible(scene, flat)
    fixed = [index for index, job in enumerate(jobs) if job.pinned or index in refused]
    floor = Floor(scene.nodes)
    for index in fixed:
        if (stays := jobs[index].current) is not None:
            floor.occupy(stays, jobs[index].gpus_per_replica)
    possible &= ~np.isin(flat.job, fixed)
    columns = tabulate(jobs, flat, scene.weights, possible=possible, current=_current(scene, flat))
    problem = _problem(scene, columns, floor, fixed)
    market = clear(problem, _start(scene, prices))
    choice = settle(problem, market)
    placed = _place(scene, problem, choice, floor)
    return _round(scene, problem, market, choice, placed, refused)


def _scene(jobs: Sequence[JobView], cluster: ClusterView, weights: Weights) -> Scene:
    nodes = [node for node in cluster.nodes if node.healthy and node.capacity > 0]
    capacity = dict.fromkeys(sorted({node.accelerator for node in nodes}), 0)
    for node in nodes:
        capacity[node.accelerator] += node.capacity
    return Scene(jobs=jobs, cluster=cluster, nodes=nodes, capacity=capacity, weights=weights)


def _possible(scene: Scene, flat: Flat) -> tuple[Flags, dict[int, str]]:
    """Rows that fit the empty cluster, and jobs without any, with the reason."""
    jobs = scene.jobs
    refused = {index: why for index, job in enumerate(jobs) if (why := refusals.unusable(job))}
    good = refusals.sound(flat)
    for index in np.unique(flat.job[~good]).tolist():
        refused.setdefault(index, "its curve has a number that is not finite or not above 0")
    each = np.array([max(job.gpus_per_replica, 1) for job in jobs], dtype=np.int64)
    sizes, which = np.unique(each, return_inverse=True)
    room = refusals.rooms(scene.nodes, scene.types, sizes.tolist())
    replicas = flat.rows[:, REPLICAS]
    fits = good & (replicas <= room[flat.kind, which[flat.job]])
    limits = [_limit(scene.cluster, job) for job in jobs]
    fits &= replicas * each[flat.job] <= np.array(limits, dtype=np.float64)[flat.job]
    can = np.zeros(len(jobs), dtype=bool)
    can[flat.job[fits]] = True
    for index in np.flatnonzero(~can).tolist():
        quota = scene.cluster.quotas.get(jobs[index].tenant)
        refused.setdefault(index, refusals.impossible(jobs[index], scene.capacity, quota))
    return fits, refused


def _limit(cluster: ClusterView, job: JobView) -> float:
    quota = cluster.quotas.get(job.tenant)
    return np.inf if quota is None or quota.limit is None else quota.limit


def _current(scene: Scene, flat: Flat) -> Flags:
    """Rows that say what a job has; none of a job on a node that may not be used any more."""
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
    return same & ((nodes == 0) | (nodes == spread[flat.job]))


def _problem(scene: Scene, columns: Columns, floor: Floor, fixed: Sequence[int]) -> Problem:
    """What is left to divide after what stays as it is."""
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
    tenant = [number.get(job.tenant, len(quotas)) for job in scene.jobs]
    most = columns.utility / columns.size
    return Problem(
        columns=columns,
        capacity=np.array([free[name] for name in scene.types], dtype=np.float64),
        tenant=np.array(tenant, dtype=np.int64),
        limit=np.maximum(limit, 0),
        guaranteed=np.maximum(owed, 0),
        shortfall=10 * max(float(most.max(initial=0)), 1e-9),
    )


def _start(scene: Scene, prices: Prices | None) -> tuple[Floats, Floats, Floats] | None:
    """Prices of an earlier round, where it named every type."""
    if prices is None or not set(scene.types) <= set(prices.accelerators):
        return None
    tenants = np.array([prices.tenants.get(name, 0.0) for name in scene.cluster.quotas])
    accelerators = np.array([prices.accelerators[name] for name in scene.types])
    return accelerators, np.maximum(tenants, 0), np.maximum(-tenants, 0)


def _place(scene: Scene, problem: Problem, choice: Ints, floor: Floor) -> dict[int, Placement]:
    """Nodes for every choice: who stays first, then the largest; takes back what fits nowhere."""
    columns, jobs = problem.columns, scene.jobs
    placed: dict[int, Placement] = {}
    for job in np.flatnonzero(choice >= 0).tolist():
        at = jobs[job].current
        if at is not None and columns.current[job, choice[job]]:
            floor.occupy(at, jobs[job].gpus_per_replica)
            placed[job] = at
    rest = [job for job in np.flatnonzero(choice >= 0).tolist() if job not in placed]
    rest.sort(key=lambda job: (-columns.size[job, choice[job]], job))
    for job in rest:
        found = place_one(scene, problem, floor, job, int(choice[job]))
        if found is None:
            choice[job] = -1
        else:
            placed[job] = found
    return placed


def place_one(
    scene: Scene, problem: Problem, floor: Floor, job: int, column: int
) -> Placement | None:
    """Find and take nodes for one configuration of one job."""
    columns, view = problem.columns, scene.jobs[job]
    need = Need(
        scene.types[columns.accelerator[job, column]],
        int(columns.replicas[job, column]),
        view.gpus_per_replica,
        int(columns.nodes[job, column]),
    )
    return floor.place(need, view.current.nodes if view.current else ())


def _round(
    scene: Scene,
    problem: Problem,
    market: Market,
    choice: Ints,
    placed: Mapping[int, Placement],
    refused: Mapping[int, str],
) -> Round:
    grants = {}
    for index, job in enumerate(scene.jobs):
        stays = job.pinned or index in refused
        placement = job.current if stays else placed.get(index)
        worth = 0.0 if choice[index] < 0 else float(problem.columns.utility[index, choice[index]])
        grants[job.key] = Grant(
            key=job.key,
            outcome=Outcome.REFUSED if index in refused else outcome(job.current, placement),
            placement=placement,
            before=job.current,
            utility=worth,
            because=refused.get(index, "pinned: it may not change now" if job.pinned else ""),
        )
    _, tenants = taken(problem, choice)
    lack = np.maximum(problem.guaranteed - tenants, 0)
    value = sum(grant.utility for grant in grants.values())
    used = dict.fromkeys(scene.types, 0)
    for job in scene.jobs:
        if (at := grants[job.key].placement) and at.accelerator in used:
            used[at.accelerator] += at.replicas * job.gpus_per_replica
    moves = [
        Move(key=key, placement=grant.placement) for key, grant in grants.items() if grant.changes
    ]
    return Round(
        grants=grants,
        moves=tuple(moves),
        value=value - problem.shortfall * float(lack.sum()),
        bound=market.bound,
        prices=Prices(
            accelerators=dict(zip(scene.types, market.accelerators.tolist(), strict=True)),
            tenants=dict(zip(scene.cluster.quotas, market.tenants.tolist(), strict=False)),
        ),
        capacity=scene.capacity,
        used=used,
        short={
            name: int(short)
            for name, short in zip(scene.cluster.quotas, lack.tolist(), strict=True)
            if short > 0
        },
    )


def outcome(before: Placement | None, after: Placement | None) -> Outcome:
    """What becomes of a job."""
    if after is None:
        return Outcome.WAITS if before is None else Outcome.STOPS
    if before is None:
        return Outcome.STARTS
    if before == after:
        return Outcome.KEEPS
    if before.replicas != after.replicas:
        return Outcome.GROWS if after.replicas > before.replicas else Outcome.SHRINKS
    return Outcome.MOVES
