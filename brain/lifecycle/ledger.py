"""The resources of a pool's nodes that jobs hold, and the room that is left. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from brain.types.allocation import Allocation
from brain.types.job import Job, JobId
from brain.types.resources import Node, NodeName, Resources
from brain.types.roles import WORKER

#: Capacity for a job whose replicas reserve nothing: more replicas than any job asks for.
UNLIMITED = 1_000_000


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
    #: Size that the job would have if it ran.
    target: Allocation
    #: Chosen replicas by node; empty: any node where they fit.
    chosen: Mapping[NodeName, int] = field(default_factory=dict)


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

    def reserved(self, job: JobId) -> Resources:
        """Return the amounts that the replicas of ``held`` reserve together."""
        shares = self._shares.get(job, {}).values()
        return sum((each.times(sum(held.values())) for each, held in shares), Resources())

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


def usable(node: Node, job: Job) -> bool:
    """Return True if replicas of a job without groups may start on a node."""
    wants = job.document.accelerator
    return node.schedulable and (wants is None or wants == node.accelerator)
