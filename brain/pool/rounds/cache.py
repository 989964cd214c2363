"""The state that the turns of one pool keep from one to the next."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from brain.lifecycle.capacity import Holding, Ledger, holding
from brain.models.job import JobModel
from brain.pool.division import PoolMember
from brain.ports import Mark, Transaction
from brain.types.job import Job, JobId, JobState
from brain.types.recommendation import Recommendation
from brain.types.resources import Node, PoolName

#: From so many changed jobs on, one question for all of them is faster than one for each.
_MANY = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedLook:
    """The result of the last look at a job."""

    mark: Mark
    #: It is looked at again then, whether anything happened to it or not.
    again_at: datetime
    #: As one that shares the pool; None where it is decided about alone.
    member: PoolMember | None = None
    #: What its telemetry is waited for: it cannot be decided about, or not be judged, without.
    awaited: bool = False


class Memo:
    """Saves reads of unchanged jobs: a job's mark tells whether any store changed the job.

    Nothing in the memo is the truth. A Brain that loses it reads everything again. Because that
    Brain may have been away for long, it only looks at its first round.
    """

    def __init__(self, pool: PoolName) -> None:
        self.pool = pool
        #: Of all unfinished jobs, oldest first.
        self.marks: Mapping[JobId, Mark] = {}
        self.looked: dict[JobId, CachedLook] = {}
        #: Decisions of rounds as they were last stored.
        self.decided: dict[JobId, Recommendation] = {}
        #: When the last round was, and what it rested on.
        self.round_at: datetime | None = None
        self.rested_on: object = None
        #: With how many replicas those begin that it found waiting.
        self.granted: Mapping[JobId, int] = {}
        #: What earlier runs make believe of those that wait; it is asked at every turn.
        self.foreseen: dict[JobId, JobModel | None] = {}
        self.nodes: tuple[Node, ...] = ()
        self.ledger = Ledger((), ())
        self._jobs: dict[JobId, Job] = {}
        self._holdings: dict[JobId, Holding] = {}
        self._lives: dict[JobId, str] = {}
        self._event = -1

    def catch_up(self, tx: Transaction) -> None:
        """Read again the jobs that others changed since; costs next to nothing where none did."""
        if tx.events.last_id() != self._event:
            self.read(tx)

    def read(self, tx: Transaction) -> None:
        """Read what changed since the last time."""
        self.marks = tx.pools.marks(self.pool)
        changed = [id for id, mark in self.marks.items() if self._lives.get(id) != mark.life]
        for gone in self._jobs.keys() - self.marks.keys():
            self._forget(gone)
        self._see(tx.nodes.of(self.pool))
        self._event = tx.events.last_id()
        for job in self._read(tx, changed):
            self._note(job, holding(tx, job), self.marks[job.id].life)

    def job(self, id: JobId) -> Job:
        """A job as it was last read."""
        return self._jobs[id]

    def jobs(self) -> list[Job]:
        """All unfinished jobs, as they were last read."""
        return list(self._jobs.values())

    def queued(self) -> list[Job]:
        """Jobs that wait to start."""
        known = (self._jobs[id] for id in self.marks if id in self._jobs)
        return [job for job in known if job.state is JobState.QUEUED]

    def life(self, id: JobId) -> str:
        """Return the mark that changes whenever the job, its plans, worlds or replicas do."""
        return self._lives.get(id, "")

    def due(self, id: JobId, now: datetime) -> bool:
        """True if anything happened to a job since it was looked at, or time did."""
        last = self.looked.get(id)
        return last is None or last.mark != self.marks[id] or now >= last.again_at

    def size(self, id: JobId) -> int:
        """Replicas that a job would have if it ran."""
        return self._holdings[id].target

    def room(self, tx: Transaction, job: Job) -> int:
        """``lifecycle.capacity.room``, from what is known here."""
        return self.ledger.room(job)

    def wrote(self, tx: Transaction, jobs: Iterable[JobId]) -> None:
        """Read again ``jobs`` that the transaction changed; call it at the transaction's end."""
        for id in jobs:
            job = tx.jobs.get(id)
            if job.finished:
                self._forget(id)
            else:
                # Its mark is another now; the next reading looks at it again.
                self._note(job, holding(tx, job), "")
        self._event = tx.events.last_id()

    def undone(self, *looked_at: JobId) -> None:
        """A transaction came to nothing: read everything that it might have changed again."""
        for job in looked_at:
            self.looked.pop(job, None)
        self._event = -1
        self._lives.clear()
        self.decided.clear()

    def _see(self, nodes: Iterable[Node]) -> None:
        found = tuple(nodes)
        if [_shape(node) for node in found] != [_shape(node) for node in self.nodes]:
            self.ledger = Ledger(found, self._holdings.values())
            self.looked.clear()
            self.foreseen.clear()
        self.nodes = found

    def _read(self, tx: Transaction, ids: list[JobId]) -> list[Job]:
        if len(ids) < _MANY:
            return [tx.jobs.get(id) for id in ids]
        wanted = set(ids)
        return [job for job in tx.jobs.unfinished(self.pool) if job.id in wanted]

    def _note(self, job: Job, held: Holding, life: str) -> None:
        self._jobs[job.id], self._holdings[job.id], self._lives[job.id] = job, held, life
        self.ledger.note(held)
        self.foreseen.pop(job.id, None)

    def _forget(self, id: JobId) -> None:
        for known in (self._jobs, self._holdings, self._lives, self.looked, self.decided):
            known.pop(id, None)
        self.foreseen.pop(id, None)
        self.ledger.drop(id)


def _shape(node: Node) -> tuple[object, ...]:
    return node.name, node.capacity, node.accelerator, node.schedulable
