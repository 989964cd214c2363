"""Jobs that wait to start in a shared pool: as members of a round, and their first sizes."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from brain.lifecycle import may_act
from brain.lifecycle.observed import RUNS, same_script
from brain.lifecycle.work import KIND as FINISHED_RUNS
from brain.lifecycle.work import earlier_runs, whole
from brain.models.forecast import foresee
from brain.models.job import JobModel
from brain.models.sizes import Size
from brain.models.terms import terms_of
from brain.pool.division import PoolMember, shares, waiting
from brain.pool.division.market import PATIENCE_SECONDS, kind_of, kinds_of
from brain.pool.division.members import UNKNOWN_KINDS
from brain.pool.division.shapes import Spread
from brain.pool.rounds.cache import Memo
from brain.ports import Transaction
from brain.settings import Settings
from brain.types.job import Job
from brain.types.recommendation import Prediction
from brain.types.resources import NodeName
from brain.typeset import count

#: Share of idle accelerators that beginning jobs take together if no owner named a size: idle
#: accelerators cost nothing, but the next job should find some. 0.25, 0.5 and 1 (8 replicas at
#: most): completion times of 0.95, 0.89 and 0.91 of those with the fewest replicas, in simulation.
_SHARE = 0.5
#: Replicas that suffice to measure gradient noise. More rarely pay at the first batch, the only one
#: that a script whose batch Brain chooses is known to bear until then.
_TUNED = 2


def queued(tx: Transaction, memo: Memo, settings: Settings) -> list[Job]:
    """Return the stored jobs that wait to start, read with few statements."""
    ids = [job.id for job in memo.queued()]
    tx.jobs.read_ahead(ids)
    queue = [tx.jobs.get(id) for id in ids]
    read_ahead(tx, memo, queue, settings)
    return queue


def known_before(
    tx: Transaction, memo: Memo, job: Job, settings: Settings
) -> tuple[JobModel, float | None] | None:
    """Return a model of a waiting job from earlier runs of its script, and the job's work in the
    unit of goodput if known.

    None if no earlier run was measured, if Brain may not choose the job's size, or if the job
    cannot get the kind of accelerator that those runs had last.
    """
    if not yields(job, settings):
        return None
    if job.id not in memo.foreseen:
        memo.foreseen[job.id] = _foreseen(tx, memo, job)
    return memo.foreseen[job.id]


def read_ahead(tx: Transaction, memo: Memo, jobs: Iterable[Job], settings: Settings) -> None:
    """Read, with few statements, what ``known_before`` needs to know about these waiting jobs."""
    new = [job.id for job in jobs if job.id not in memo.foreseen and yields(job, settings)]
    if new:
        tx.plans.read_ahead(new)
        tx.fits.read_ahead(new, RUNS, FINISHED_RUNS)


def spread(memo: Memo, job: Job, kind: str | None) -> Spread:
    """Return the replicas of a job that fit each node of a kind, and the most on an empty node."""
    each, found = job.resources, memo.ledger.rooms(job)
    alike = {node.name: node for node in memo.nodes if kind_of(node, gpus=each.gpus > 0) == kind}
    usable = alike.keys() & found.keys()
    widest = max((each.copies_within(alike[name].capacity) or 0 for name in usable), default=0)
    return Spread(sorted((found[name] for name in usable), reverse=True), widest)


def waiting_member(tx: Transaction, memo: Memo, job: Job, settings: Settings) -> PoolMember:
    """Return a waiting job as a member, with a choice of sizes if runs of its script are known."""
    kinds = kinds_of(job, memo.nodes, None, migrate=True)
    speeds = memo.speeds(tx, job.id, None) if len(kinds) > 1 else UNKNOWN_KINDS
    known = known_before(tx, memo, job, settings)
    if known is None:
        return waiting(job, kinds, memo.size(job.id), speeds=speeds)
    model, work = known
    return waiting(
        job,
        kinds,
        memo.size(job.id),
        model=model,
        work=work,
        rooms={kind: spread(memo, job, kind) for kind in kinds},
        speeds=speeds,
    )


def yields(job: Job, settings: Settings) -> bool:
    """Return True if Brain may later give replicas of the job to other jobs."""
    return shares(job) and may_act(job, settings)


def _foreseen(tx: Transaction, memo: Memo, job: Job) -> tuple[JobModel, float | None] | None:
    if tx.plans.effective(job.id):
        return None
    sizes = [Size(replicas=size) for size in job.document.replicas.sizes()]
    kinds = kinds_of(job, memo.nodes, None, migrate=True)
    try:
        model = foresee(same_script(tx, job), terms_of(job.document))
        if model is None or model.present.accelerator not in kinds:
            return None
        if not any(isinstance(at, Prediction) for at in model.curve(sizes)):
            return None
        model.worth(sizes[0])
        work = whole(job, model.present, earlier_runs(tx, job))
    except Exception:  # noqa: BLE001 - a bug in reading one job's history must not stop its pool:
        return None  # the bug shows once the job is measured
    return model, work


@dataclass(frozen=True, slots=True)
class Starts:
    """Chooses the first sizes of the queued jobs."""

    queue: Sequence[Job]
    settings: Settings
    tx: Transaction
    memo: Memo
    now: datetime

    def first(self, job: Job, named: int | None, fits: int) -> int | None:
        """Return the first size of ``job``; the pool has room for ``fits`` replicas. None means the
        owner's size.

        If earlier runs of the job's script are known, the size is the one that the pool's round
        granted. Otherwise the size is the owner's, if the pool has room for that many replicas of
        every queued job. If there is no grant or not enough room, the size is a share of the idle
        accelerators, so that the job need not wait. Brain chooses a size only if it may also change
        it.
        """
        if not yields(job, self.settings):
            return None
        most = int(fits * _SHARE / len(self.queue))
        if self._knows(job):
            granted = self.memo.granted.get(job.id)
            most = min(granted.replicas, fits) if granted else min(most, fits)
        elif named is not None and named <= fits // len(self.queue):
            return named
        elif named is None and job.document.tunes and job.document.batch.global_max:
            most = min(most, max(_TUNED, job.document.replicas.min))
        return max((size for size in job.document.replicas.sizes() if size <= most), default=None)

    def waits(self, job: Job, replicas: int) -> str | None:
        """Return the reason why a job whose script is known does not start with ``replicas`` yet.

        The job waits for one round, because the round's size saves a later restart. Returns None if
        a job that Brain cannot shrink would take the free accelerators.
        """
        patient = (self.now - job.created_at).total_seconds() <= PATIENCE_SECONDS
        if not patient or not self._knows(job):
            return None
        if not all(yields(other, self.settings) for other in self.queue):
            return None
        granted = self.memo.granted.get(job.id)
        if granted is None:
            return (
                "earlier runs of the script are known: the pool's next round chooses the job's size"
            )
        size, kind = granted.replicas, granted.accelerator
        if replicas < size or sum(self._rooms(job)[kind].values()) < size:
            return f"the pool granted {count(size, 'replica')}, but not all of them are free yet"
        return None

    def nodes(self, job: Job, replicas: int) -> tuple[tuple[NodeName, int], ...]:
        """Return the nodes on which ``job`` begins; empty if its pool has one kind of accelerator.

        The nodes have the kind of accelerator that the round granted, or else the fastest kind that
        has room, according to the pool's measurements.
        """
        rooms = self._rooms(job)
        fitting = [kind for kind, room in rooms.items() if sum(room.values()) >= replicas]
        if len(rooms) < 2 or not fitting or job.document.groups:
            return ()
        granted, speeds = self.memo.granted.get(job.id), self.memo.speeds(self.tx, job.id, None)

        def rank(kind: str) -> tuple[bool, float, int]:
            chosen = granted is not None and kind == granted.accelerator
            faster = speeds.ratio(kind, fitting[0]).log_mean
            return chosen, faster, sum(rooms[kind].values())

        return _packed(rooms[max(fitting, key=rank)], replicas)

    def _rooms(self, job: Job) -> Mapping[str, Mapping[NodeName, int]]:
        """Return how many replicas of ``job`` each node has room for, by kind of accelerator."""
        gpus, found = job.resources.gpus > 0, self.memo.ledger.rooms(job)
        rooms: dict[str, dict[NodeName, int]] = defaultdict(dict)
        for node in self.memo.nodes:
            if node.name in found:
                rooms[kind_of(node, gpus=gpus)][node.name] = found[node.name]
        return rooms

    def _knows(self, job: Job) -> bool:
        return known_before(self.tx, self.memo, job, self.settings) is not None


def _packed(rooms: Mapping[NodeName, int], replicas: int) -> tuple[tuple[NodeName, int], ...]:
    """Return few nodes with room for ``replicas``: the roomiest ones, and for the rest the node
    where the least room is left.

    >>> _packed({NodeName("a"): 4, NodeName("b"): 8, NodeName("c"): 3}, 10)
    (('b', 8), ('c', 2))
    """
    found, left = dict[NodeName, int](), replicas
    for name in sorted(rooms, key=lambda name: (-rooms[name], name)):
        enough = [one for one in rooms if one not in found and rooms[one] >= left]
        if enough:
            found[min(enough, key=lambda one: (rooms[one], one))] = left
            break
        found[name] = rooms[name]
        left -= rooms[name]
    return tuple(found.items())
