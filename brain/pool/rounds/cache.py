"""The cache of a pool, which is kept between turns."""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from brain.lifecycle.capacity import holding, on_silent
from brain.lifecycle.desired import FIRST_NODES
from brain.lifecycle.earlier import compared
from brain.lifecycle.ledger import Holding, Ledger
from brain.lifecycle.nodes import heard
from brain.models.job import JobModel
from brain.models.step_time.kinds import KindSpeeds, learn
from brain.pool.allocator import JobPlacement
from brain.pool.rounds.looks import CachedLook
from brain.ports import Mark, Transaction
from brain.types.job import Job, JobId, JobState
from brain.types.recommendation import Recommendation
from brain.types.resources import Node, PoolName, Resources

#: Number of new events from which on the marks show the changed jobs faster than the events do.
_MANY = 50
#: The most jobs, the newest ones, by which kinds of accelerator are compared.
_COMPARED = 200


class Memo:
    """A cache of a pool's jobs: a job's mark shows if the stored job has changed since it was read.

    The stores are authoritative, and the cache has copies. A Brain with an empty cache reads every
    job. It may have been stopped for a long time, so its first round only observes.
    """

    def __init__(self, pool: PoolName) -> None:
        self.pool = pool
        #: Marks of all unfinished jobs, oldest job first.
        self.marks: Mapping[JobId, Mark] = {}
        self.looked: dict[JobId, CachedLook] = {}
        #: Decisions of rounds, as last stored.
        self.decided: dict[JobId, Recommendation] = {}
        #: Time of the last round, and the inputs on which it rested.
        self.round_at: datetime | None = None
        self.rested_on: object = None
        #: First placements of waiting jobs, from the last round.
        self.granted: Mapping[JobId, JobPlacement] = {}
        #: Models from earlier runs of waiting jobs' scripts, with the jobs' work if that is known;
        #: every turn asks for them.
        self.foreseen: dict[JobId, tuple[JobModel, float | None] | None] = {}
        #: Log step times by kind of accelerator, of one configuration, by job, ended jobs included;
        #: None: not read yet.
        self._compared: dict[JobId, Mapping[str, float]] | None = None
        self._speeds = learn(())
        #: Bugs by which jobs were left out of that comparison, until ``take_bugs`` returns them.
        self._bugs: list[Exception] = []
        #: Silent nodes accept no replicas here; ``_known`` has the nodes as their scalers report.
        self.nodes: tuple[Node, ...] = ()
        self._known: Sequence[Node] = ()
        self.ledger = Ledger((), ())
        self._jobs: dict[JobId, Job] = {}
        self._holdings: dict[JobId, Holding] = {}
        self._lives: dict[JobId, str] = {}
        self._event = -1

    def catch_up(self, tx: Transaction, now: datetime) -> None:
        """Read again the jobs that other processes changed since the last read; this is cheap if no
        job changed.
        """
        news = tx.events.after(self._event, limit=_MANY) if self._event >= 0 else ()
        if self._event < 0 or len(news) == _MANY or any(event.job is None for event in news):
            self.read(tx, now)
        elif news:
            self.wrote(tx, {event.job for event in news if event.job is not None})

    def read(self, tx: Transaction, now: datetime) -> None:
        """Read the jobs that changed since the last time, and the nodes as they count now."""
        self.marks = tx.pools.marks(self.pool)
        changed = [id for id, mark in self.marks.items() if self._lives.get(id) != mark.life]
        for gone in self._jobs.keys() - self.marks.keys():
            self._forget(gone)
        self._see(tx.nodes.of(self.pool), now)
        self._event = tx.events.last_id()
        _read_ahead(tx, changed)
        for id in changed:
            job = tx.jobs.get(id)
            self._note(job, holding(tx, job), self.marks[id].life)

    def job(self, id: JobId) -> Job:
        """Return a job as it was last read."""
        return self._jobs[id]

    def jobs(self) -> list[Job]:
        """Return all unfinished jobs, as they were last read."""
        return list(self._jobs.values())

    def queued(self) -> list[Job]:
        """Return the jobs that wait to start."""
        known = (self._jobs[id] for id in self.marks if id in self._jobs)
        return [job for job in known if job.state is JobState.QUEUED]

    def life(self, id: JobId) -> str:
        """Return a mark that changes whenever the job, its plans, worlds or replicas change."""
        return self._lives.get(id, "")

    def due(self, id: JobId, now: datetime) -> bool:
        """Return True if a job changed since the last decision about it, or the next decision is
        due.
        """
        last = self.looked.get(id)
        return last is None or last.mark != self.marks[id] or now >= last.again_at

    def speeds(self, tx: Transaction, id: JobId, model: JobModel | None) -> KindSpeeds:
        """Return the speeds of the pool's kinds of accelerator, from the newest jobs that ran on
        several kinds.

        ``model`` is the model of the job ``id``, whose measurements are included.
        """
        known = compared(tx, self.pool, self._bugs) if self._compared is None else self._compared
        told = {} if model is None else _measured(model)
        if len(told) > 1 and known.get(id) != told:
            known.pop(id, None)
            known[id] = told
            for oldest in list(known)[:-_COMPARED]:
                del known[oldest]
        elif self._compared is not None:
            return self._speeds
        self._compared, self._speeds = known, learn(known.values())
        return self._speeds

    def take_bugs(self) -> list[Exception]:
        """Return the exceptions because of which ``speeds`` left jobs out; each exception is
        returned once.
        """
        found, self._bugs = self._bugs, []
        return found

    def size(self, id: JobId) -> int:
        """Return the number of replicas that a job would have if it ran."""
        return self._holdings[id].target.replicas

    def by_project(self, *, without: Container[JobId] = ()) -> dict[str, Resources]:
        """Return the amounts that the jobs of each project reserve, ``without`` some jobs."""
        found: dict[str, Resources] = {}
        for job in self._jobs.values():
            if job.id not in without:
                project = job.document.project
                found[project] = found.get(project, Resources()) + self.ledger.reserved(job.id)
        return found

    def total(self, id: JobId, replicas: int) -> Resources:
        """Return the amounts that all of a job's replicas would reserve if the job had
        ``replicas``.
        """
        return replace(self._holdings[id].target, replicas=replicas).total

    def room(self, tx: Transaction, job: Job, now: datetime) -> int:
        """Return how many replicas of ``job`` the pool has room for, computed from the cache."""
        return self.ledger.room(job) + on_silent(self._known, self.ledger.held(job.id), now)

    def wrote(self, tx: Transaction, jobs: Iterable[JobId]) -> None:
        """Read ``jobs`` again after the transaction changed them; call this at the transaction's
        end.
        """
        self._event, ids = tx.events.last_id(), list(jobs)
        _read_ahead(tx, ids)
        for id in ids:
            job = tx.jobs.get(id)
            if job.finished:
                self._forget(id)
            elif job.pool == self.pool:
                # The job has a new mark, so the next reading looks at it again.
                self._note(job, holding(tx, job), f"event {self._event}")

    def undone(self, *looked_at: JobId) -> None:
        """Forget every job that a failed transaction could have changed, so that the next turn
        reads them again.
        """
        for job in looked_at:
            self.looked.pop(job, None)
        self._event = -1
        self._lives.clear()
        self.decided.clear()

    def _see(self, nodes: Sequence[Node], now: datetime) -> None:
        found = heard(nodes, now)
        if [_shape(node) for node in found] != [_shape(node) for node in self.nodes]:
            self.ledger = Ledger(found, self._holdings.values())
            self.looked.clear()
            self.foreseen.clear()
        self.nodes, self._known = found, nodes

    def _note(self, job: Job, held: Holding, life: str) -> None:
        self._jobs[job.id], self._holdings[job.id], self._lives[job.id] = job, held, life
        self.ledger.note(held)
        self.foreseen.pop(job.id, None)

    def _forget(self, id: JobId) -> None:
        for known in (self._jobs, self._holdings, self._lives, self.looked, self.decided):
            known.pop(id, None)
        self.foreseen.pop(id, None)
        self.ledger.drop(id)


def _read_ahead(tx: Transaction, jobs: Sequence[JobId]) -> None:
    """Read, with few statements, what ``holding`` needs to know about these jobs."""
    if len(jobs) < 2:
        return
    tx.jobs.read_ahead(jobs)
    tx.plans.read_ahead(jobs)
    tx.worlds.read_ahead(jobs)
    tx.fits.read_ahead(jobs, FIRST_NODES)


def _measured(model: JobModel) -> Mapping[str, float]:
    """Return the log step times of the kinds that a job had itself.

    Kinds that only earlier runs of the script had are left out: otherwise each job of the script
    would count the same measurement again.
    """
    own = {point.accelerator for point in model.points}
    return {kind: ratio for kind, ratio in model.times.ratios.items() if kind in own}


def _shape(node: Node) -> tuple[object, ...]:
    return node.name, node.capacity, node.accelerator, node.schedulable
