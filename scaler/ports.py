"""``JobBackend``, the scaler's interface to this machine or to a cluster, where replicas run.

``tests/contracts/test_job_backend.py`` tests that every backend, including the in-memory one, obeys
this contract.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from brain import wire
from brain.types.allocation import Allocation
from brain.types.grace import leave_seconds
from brain.types.job import JobDocument, JobId
from brain.types.resources import Node, NodeName, Resources
from brain.types.roles import WORKER, Roles, RoleSize, groups_of, is_group
from brain.types.world import ReplicaExit
from brain.views import DesiredJob

NOTHING = Resources()


def document(wish: DesiredJob) -> JobDocument:
    """Return the job's document, without the values of its environment.

    This function does not check sizes again, because Brain has checked the document. Since then,
    the groups of a running job may have grown beyond the job's least size.

    Raises:
        BadInput: this version of the scaler cannot read the document.
    """
    said = {k: v for k, v in wish.document.items() if k != "environment"}
    return wire.document(said, JobDocument)


def reserved(wish: DesiredJob, role: str = WORKER) -> Resources:
    """Return the amounts that each replica of a role should reserve, from the job's desired state.

    Raises:
        BadInput: this version of the scaler cannot read the job's document.
    """
    own = dict(wish.wish.roles).get(role, RoleSize()).resources
    asked = wish.wish.resources if own is None else own
    return document(wish).resources if asked is None else asked


def processes(wish: DesiredJob, group: str = WORKER) -> int:
    """Return the number of worker processes that each replica of a group starts."""
    own = dict(wish.wish.roles).get(group, RoleSize()).processes_per_replica
    return wish.wish.processes_per_replica if own is None else own


def mean(wish: DesiredJob) -> Resources:
    """Return the mean of the amounts that replicas reserve.

    Use the mean for replicas that are not in a world yet, because these have no role yet.

    Raises:
        BadInput: this version of the scaler cannot read the job's document.
    """
    size = max(1, wish.wish.replicas)
    return Allocation(replicas=size, resources=reserved(wish), roles=wish.wish.roles).each


class ReplicaPhase(StrEnum):
    """The phase of a replica, as far as other processes can prove it."""

    #: Written down; surely no agent was started for it yet.
    INTENDED = "intended"
    #: Its agent was started and has not reported in.
    STARTING = "starting"
    RUNNING = "running"
    #: Its agent is gone without a record, and its end is not written down yet.
    GONE = "gone"
    #: Ended, and its end is written down.
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSeen:
    """One replica, as the backend observed it."""

    id: int
    phase: ReplicaPhase
    #: Generation of the desired job that it was written down for.
    generation: int
    #: Amounts that it reserves while it is alive.
    resources: Resources = NOTHING
    #: Its group, else its role in the job's last world; before its first world, it counts as a
    #: worker.
    role: str = WORKER
    started_at: datetime
    #: Set if and only if ENDED, as is ``exit``.
    ended_at: datetime | None = None
    exit: ReplicaExit | None = None
    exit_code: int | None = None
    detail: str = ""
    #: Time at which this scaler first asked it to end; None if never.
    asked_at: datetime | None = None
    #: Its node; None for the only node, or if it has none yet.
    node: NodeName | None = None
    #: True if it was asked to end, by any process: others start in its place meanwhile.
    leaving: bool = False
    #: Why its job left its node; empty if the node is not to blame.
    unfit: str = ""
    #: The part of its reservation that is not enforced, and why; empty if all is enforced.
    unenforced: str = ""
    #: Its amounts can change while it runs.
    adjustable: bool = False
    #: Seconds it may take to end once it is asked to: to a safe point, and its script's grace.
    leave_seconds: float = leave_seconds()

    @property
    def group(self) -> str:
        """Return the group of the replica; ``worker`` if it is in none."""
        return self.role if is_group(self.role) else WORKER

    @property
    def alive(self) -> bool:
        """True if the replica runs or will run: it reserves resources and counts towards the
        size.
        """
        going = self.phase in (ReplicaPhase.INTENDED, ReplicaPhase.STARTING, ReplicaPhase.RUNNING)
        return going and not self.leaving


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """All facts about one job that can be observed at one time."""

    job: JobId
    #: Every replica that the job ever had here, lowest id first.
    replicas: tuple[ReplicaSeen, ...] = ()
    #: An id greater than every used id, those of unreadable remains included.
    next_id: int = 0
    #: Replicas that the job's last world document names.
    named: frozenset[int] = frozenset()
    #: Resources that no replica of any job reserves.
    free: Resources = NOTHING
    #: Most replicas of each group, and of each role that replicas have from their start, that a
    #: queue of the place admits; None if the job is in no queue.
    admitted: Mapping[str, int] | None = None
    #: Why no agent can be started at present (no token, no environment); None if one can.
    lacking: str | None = None
    #: True: nothing here changes but by an event of which the backend wakes the scaler.
    steady: bool = False
    #: True: a replica has its role from its start, as its amounts here depend on the role.
    fixed_roles: bool = False

    def kind(self, replica: ReplicaSeen) -> str:
        """Return the role or group in which a replica is counted.

        It is the replica's role if replicas have their roles from the start, else the replica's
        group.
        """
        return replica.role if self.fixed_roles else replica.group

    def kinds(self, roles: Roles) -> Roles:
        """Return the roles and groups that replicas have from their start."""
        return roles if self.fixed_roles else groups_of(roles)


class JobBackend(Protocol):
    """A place where replicas run: this machine, or a cluster.

    A backend acts and observes, but does not decide. It observes what exists in its place, and does
    not rely on a memory of its own requests, so after a crash a new backend in the same place sees
    the same replicas. Every method may be repeated after a crash. Several scalers may act in one
    place at the same time; even then no replica is started twice.
    """

    def nodes(self, now: datetime) -> Sequence[Node]:
        """Return the nodes, each with its total resources and its accelerator."""
        ...

    def jobs(self) -> Sequence[JobId]:
        """Return the ids of all jobs with files or objects in this place, running or not."""
        ...

    def observe(self, job: JobId, now: datetime) -> Observed:
        """Observe one job. A job that never ran here has no replicas and ``next_id`` 0."""
        ...

    def start(
        self,
        wish: DesiredJob,
        replica: int,
        environment: Mapping[str, str],
        now: datetime,
        *,
        group: str = WORKER,
    ) -> None:
        """Record the replica in its ``group``, then start its agent.

        An INTENDED replica is started as it was written down; any other existing replica is left
        alone, so that no id is ever started twice. A replica that cannot be started at all (its
        directory does not exist, say) becomes ENDED as failed, with the reason.
        """
        ...

    def reserve(self, wish: DesiredJob, replica: int, now: datetime) -> None:
        """Let a living ``adjustable`` replica reserve the desired amounts without a restart.

        A replica that uses more than the new amounts keeps its present amounts; its ``unenforced``
        has the reason.
        """
        ...

    def stop(self, job: JobId, replica: int, *, force: bool, now: datetime) -> None:
        """Ask a replica's agent to leave, or with ``force`` kill it; its workers die with it.

        This signals only a process that is certainly the agent. If the agent has ended, this does
        nothing.
        """
        ...

    def close(
        self, job: JobId, replica: int, exit: ReplicaExit, detail: str, now: datetime
    ) -> None:
        """Record how a GONE or INTENDED replica ended; do nothing to a living replica."""
        ...

    def has_token(self, job: JobId) -> bool:
        """True if the job's token is stored where the job's agents read it, or if the job has no
        agents.
        """
        ...

    def put_token(self, job: JobId, secret: str) -> None:
        """Store the job's token so that only its agents can read it."""
        ...

    def environment(self, job: JobId, names: frozenset[str]) -> Mapping[str, str] | None:
        """Return the environment variables ``names`` with which a living agent was started; None if
        no agent of the job is alive.
        """
        ...

    def clear(self, job: JobId) -> None:
        """Remove a finished job's unneeded files (its token); records and output stay."""
        ...
