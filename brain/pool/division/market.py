"""The nodes and members of a pool in the units that ``pool.allocator`` divides.

Jobs that reserve accelerators compete for accelerators; all other jobs compete for cores. The other
resources of a replica are checked once its node is chosen.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import reduce
from math import gcd

from brain.pool.allocator import ClusterView, PoolJob, PoolNode, Quota
from brain.pool.division.members import PoolMember
from brain.types.document import PRIORITIES
from brain.types.job import Job
from brain.types.resources import Node, NodeName, Resources
from brain.types.sharing import PoolShares

#: Type under which cores are divided among jobs without accelerators.
CORES = "cpu"
_MILLI = 1000
#: Seconds of waiting after which jobs of equal priority make room for a job, however recently they
#: changed.
PATIENCE_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DivisibleNodes:
    """The nodes of a pool, and the resources of each that the members may divide."""

    nodes: Sequence[Node]
    #: Idle resources, plus those of members that may change.
    free: Mapping[NodeName, Resources]
    #: Resources that are idle now, as observed.
    idle: Mapping[NodeName, Resources]
    #: Resources, by project, of all jobs whose resources are not divided.
    kept: Mapping[str, Resources] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Market:
    """The accelerators or cores that one round divides among the jobs that compete for them."""

    members: Sequence[PoolMember]
    #: ``GPU`` or ``core``.
    unit: str
    #: Size of a granule, the smallest amount that is counted, in thousandths of a unit.
    grain_millis: int
    cluster: ClusterView
    #: Granules that one replica of each member takes.
    each: Mapping[str, int]

    @property
    def grain(self) -> float:
        """Return the number of units in the smallest amount that is divided."""
        return self.grain_millis / _MILLI

    def amount(self, resources: Resources) -> int:
        return resources.gpus if self.unit == "GPU" else resources.cpu_millis // self.grain_millis

    def granules(self, units: int, without: Resources) -> int:
        """Return how many granules of ``grain`` units remain if ``without`` of ``units`` is taken;
        below 0 if more is taken than there is.
        """
        taken = without.gpus * _MILLI if self.unit == "GPU" else without.cpu_millis
        return (units * _MILLI - taken) // self.grain_millis


def kind_of(node: Node, *, gpus: bool) -> str:
    """Return the kind of accelerator on ``node``; for a member without GPUs, ``CORES``."""
    return node.accelerator if gpus else CORES


def markets(
    members: Iterable[PoolMember],
    floor: DivisibleNodes,
    policy: PoolShares,
) -> list[Market]:
    """Return the markets of a pool: accelerators for jobs that reserve them, cores for the rest."""
    found = list(members)
    gpus = [one for one in found if one.job.resources.gpus > 0]
    cores = [one for one in found if one.job.resources.gpus == 0]
    made = []
    if gpus:
        made.append(_market(gpus, floor, policy, unit="GPU", grain_millis=_MILLI))
    if cores:
        millis = reduce(gcd, (one.job.resources.cpu_millis for one in cores))
        # Quotas count accelerators if the pool has any.
        mine = PoolShares() if any(node.capacity.gpus for node in floor.nodes) else policy
        made.append(_market(cores, floor, mine, unit="core", grain_millis=millis))
    return made


def kinds_of(job: Job, nodes: Iterable[Node], current: str | None, *, migrate: bool) -> list[str]:
    """Return the kinds of accelerator that a job may use, its present kind first.

    A running job stays on its kind unless ``migrate`` is true.
    """
    gpus, wants = job.resources.gpus > 0, job.document.accelerator
    usable = [node for node in nodes if wants in (None, node.accelerator)]
    kinds = sorted({kind_of(node, gpus=gpus) for node in usable})
    if current is None:
        return kinds
    return [current, *(kind for kind in kinds if migrate and kind != current)]


def class_of(job: Job, policy: PoolShares) -> int:
    """Return the priority of a job in its pool: the job's own priority plus its
    project's priority.
    """
    share = policy.projects.get(job.document.project)
    found = job.document.priority + (share.priority if share else 0)
    return max(PRIORITIES[0], min(PRIORITIES[-1], found))


def highest_waiting(members: Iterable[PoolMember], policy: PoolShares) -> int | None:
    """Return the highest priority of the members that wait to start; None if no member waits."""
    return max((class_of(m.job, policy) for m in members if m.situation is None), default=None)


def giving_way(
    members: Sequence[PoolMember], policy: PoolShares, now: datetime
) -> list[PoolMember]:
    """Return the members; if a member waits to start, recently changed members may shrink.

    Normally a job is not changed again soon after a change. A waiting job takes precedence over
    jobs of lower priority and, once it has waited for long, over jobs of its own priority.
    """
    waits = [one for one in members if one.situation is None]
    highest = highest_waiting(waits, policy)
    long = [one for one in waits if (now - one.job.created_at).total_seconds() >= PATIENCE_SECONDS]
    patient = highest_waiting(long, policy)

    def yields(one: PoolMember) -> bool:
        rank = class_of(one.job, policy)
        before = highest is not None and rank < highest
        return bool(one.yields) and (before or (patient is not None and rank <= patient))

    return [
        replace(one, hold=None, curves=one.yields, untenable=None) if yields(one) else one
        for one in members
    ]


def view(member: PoolMember, each: int, policy: PoolShares, now: datetime) -> PoolJob:
    """Return a member in the form that the allocator needs."""
    document, situation = member.job.document, member.situation
    age = max(0.0, (now - member.job.created_at).total_seconds())
    return PoolJob(
        key=member.key,
        curves=member.curves,
        tenant=document.project,
        priority=class_of(member.job, policy),
        attained_seconds=member.attained_seconds,
        remaining_seconds=member.remaining_seconds,
        current=member.current,
        restart_seconds=situation.restart_seconds if situation else 0.0,
        waited_seconds=0.0 if situation else age,
        age_seconds=age,
        gpus_per_replica=each,
    )


def _market(
    members: Sequence[PoolMember],
    floor: DivisibleNodes,
    policy: PoolShares,
    *,
    unit: str,
    grain_millis: int,
) -> Market:
    nothing = ClusterView(nodes=())
    bare = Market(members=members, unit=unit, grain_millis=grain_millis, cluster=nothing, each={})
    slow = {one.flees.node for one in members if one.flees}
    nodes = [
        PoolNode(
            name=node.name,
            accelerator=kind_of(node, gpus=unit == "GPU"),
            capacity=max(0, bare.amount(floor.free.get(node.name, Resources()))),
            healthy=node.schedulable and node.name not in slow,
        )
        for node in floor.nodes
    ]

    def left(units: int, project: str) -> int:
        return max(0, bare.granules(units, floor.kept.get(project, Resources())))

    quotas = {
        project: Quota(
            guaranteed=left(share.guaranteed, project),
            limit=None if share.limit is None else left(share.limit, project),
        )
        for project, share in policy.projects.items()
    }
    return Market(
        members=members,
        unit=unit,
        grain_millis=grain_millis,
        cluster=ClusterView(nodes=nodes, quotas=quotas),
        each={one.key: bare.amount(one.job.resources) for one in members},
    )
