"""The port to the place where replicas run: the scaler's demands on it, and its view of it.

``tests/contracts/test_job_backend.py`` holds every backend, the in-memory twin included, to what
is written here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from brain import wire
from brain.types.grace import leave_seconds
from brain.types.job import JobDocument, JobId
from brain.types.resources import Node, NodeName, Resources
from brain.types.roles import WORKER, RoleSize
from brain.types.world import ReplicaExit
from brain.views import DesiredJob

NOTHING = Resources()


def document(wish: DesiredJob) -> JobDocument:
    """The job's document, without its environment: of that a wish has no values.

    Raises:
        BadInput: this version of the scaler cannot read it.
    """
    return wire.job_document({k: v for k, v in wish.document.items() if k != "environment"})


def reserved(wish: DesiredJob, role: str = WORKER) -> Resources:
    """Return what each replica of a role shall reserve by a wish.

    Raises:
        BadInput: as ``document``.
    """
    own = dict(wish.wish.roles).get(role, RoleSize()).resources
    asked = wish.wish.resources if own is None else own
    return document(wish).resources if asked is None else asked


class ReplicaPhase(StrEnum):
    """The phase of a replica, by what can be proved from outside."""

    #: Written down; surely nothing was started for it yet.
    INTENDED = "intended"
    #: Its agent was started and has not reported in.
    STARTING = "starting"
    RUNNING = "running"
    #: Its agent is gone without a word, and that is not written down yet.
    GONE = "gone"
    #: Ended, and it is written down how.
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSeen:
    """One replica as it was found."""

    id: int
    phase: ReplicaPhase
    #: Generation of the wish that it was written down for.
    generation: int
    #: What it reserves while it is alive.
    resources: Resources = NOTHING
    #: In the job's last world; before it is in one, it counts as a worker.
    role: str = WORKER
    started_at: datetime
    #: Set if and only if ENDED, as is ``exit``.
    ended_at: datetime | None = None
    exit: ReplicaExit | None = None
    exit_code: int | None = None
    detail: str = ""
    #: When this scaler first asked it to end; None: it did not.
    asked_at: datetime | None = None
    #: Where it runs; None: on the only node there is, or nowhere yet.
    node: NodeName | None = None
    #: It was told to end and will, whoever said so: others are started in its place meanwhile.
    leaving: bool = False
    #: Why its job left the node that it was on; empty: the node is not to blame.
    unfit: str = ""
    #: What of its reservation nothing holds it to, and why; empty: it is held to all of it.
    unenforced: str = ""
    #: What it reserves can be changed while it runs.
    adjustable: bool = False
    #: How long it may take to end once it is asked to: to a safe point, and its script's grace.
    leave_seconds: float = leave_seconds()

    @property
    def alive(self) -> bool:
        """True if it runs or is about to: it reserves resources and counts towards the wish."""
        going = self.phase in (ReplicaPhase.INTENDED, ReplicaPhase.STARTING, ReplicaPhase.RUNNING)
        return going and not self.leaving


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """Everything that can be seen of one job at one moment."""

    job: JobId
    #: Every replica that the job ever had here, lowest id first.
    replicas: tuple[ReplicaSeen, ...] = ()
    #: Above every id that was ever used, those of unreadable remains included.
    next_id: int = 0
    #: Replicas that the job's last world document names.
    named: frozenset[int] = frozenset()
    #: What no replica of any job reserves.
    free: Resources = NOTHING
    #: Why no agent can be started just now (no token, no environment); None: one can.
    lacking: str | None = None


class JobBackend(Protocol):
    """A place where replicas run: this machine, later a cluster's API.

    A backend acts and observes; it decides nothing. What it observes is what is true there, not
    what it was asked to do: after a crash at any point, a new backend in the same place sees the
    same replicas. Every method may be repeated after a crash. Several scalers may act in one
    place at once: an id is started once, whoever asks.
    """

    def nodes(self, now: datetime) -> Sequence[Node]:
        """Describe the places: what can be reserved on each in all, and its accelerator."""
        ...

    def jobs(self) -> Sequence[JobId]:
        """Every job that left anything here, running or not."""
        ...

    def observe(self, job: JobId, now: datetime) -> Observed:
        """Look at one job. A job that was never here has no replicas and ``next_id`` 0."""
        ...

    def start(
        self, wish: DesiredJob, replica: int, environment: Mapping[str, str], now: datetime
    ) -> None:
        """Write the replica down, then start its agent.

        An INTENDED replica is started as it was written down; any other that exists is left
        alone, so that no id is ever started twice. What cannot be started at all (its directory
        does not exist, say) ENDS as failed with the reason.
        """
        ...

    def reserve(self, wish: DesiredJob, replica: int, now: datetime) -> None:
        """Let a living ``adjustable`` replica reserve what the wish says, without a restart.

        One that uses more than that now keeps what it has, and says so.
        """
        ...

    def stop(self, job: JobId, replica: int, *, force: bool, now: datetime) -> None:
        """Ask a replica's agent to leave, or with ``force`` end it; its workers die with it.

        Never touches a process that is not provably that agent; one already gone is no error.
        """
        ...

    def close(
        self, job: JobId, replica: int, exit: ReplicaExit, detail: str, now: datetime
    ) -> None:
        """Write down that a GONE or INTENDED replica ended, and how. One that lives is left."""
        ...

    def has_token(self, job: JobId) -> bool:
        """True if the job's agents have a token to use."""
        ...

    def put_token(self, job: JobId, secret: str) -> None:
        """Give the job's agents their token, readable by no one else."""
        ...

    def environment(self, job: JobId, names: frozenset[str]) -> Mapping[str, str] | None:
        """The values of ``names`` as a living agent of the job got them; None if none lives."""
        ...

    def clear(self, job: JobId) -> None:
        """Remove what a finished job needs no more (its token); records and output stay."""
        ...
