"""Worlds: the desired world of a job, the observed world, and the replicas."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol, TypeVar

from brain.types.batch import BatchWish
from brain.types.diagnosis import Diagnosis
from brain.types.job import Intent, JobId
from brain.types.resources import NodeName, Resources
from brain.types.roles import WORKER, Roles

#: Time for which a job does not return to a node that it left as sick or slow.
UNFIT = timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredWorld:
    """The world that a job should have: the present target, and a plan in progress.

    The coordinator long-polls it (ETag = generation and version), and keeps the last answer on
    disk.
    """

    v: int = 1
    job: JobId
    #: Generation that this wish comes from.
    generation: int
    #: Part of the ETag: differs whenever another field does, and grows with every stored change of
    #: the job or its plans.
    version: int
    intent: Intent
    #: Replicas wished for; 0 where ``intent`` is not run.
    replicas: int
    processes_per_replica: int
    unit: int
    minimum: int
    #: Seconds for which a planned growth waits for all replicas; then it is met partly, in units.
    patience_seconds: float
    #: True: no planned change begins; failed replicas are still replaced.
    frozen: bool = False
    #: Failures after which the job ends as Failed.
    restart_limit: int
    #: Replicas on each node, if Brain chose them; empty: any nodes where they fit.
    nodes: tuple[tuple[NodeName, int], ...] = ()
    #: Batch for the script to take; None if the script does not ask, or no better batch is known.
    batch: BatchWish | None = None
    #: Amounts that each replica shall reserve; None: those of the document.
    resources: Resources | None = None
    #: Roles of the first replicas, in order of rank, or groups; all others are workers.
    roles: Roles = ()
    #: True: a world of an earlier generation ends at its safe point, even if it has this size, and
    #: all its workers start anew.
    anew: bool = False

    @property
    def etag(self) -> str:
        """Return the ETag of ``jobs/{job}/world``, to be quoted in headers."""
        return f"{self.generation}.{self.version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryCheckpoint:
    """The state of a replica's checkpoints that are in memory and not on storage yet."""

    #: Time of the oldest save that is not on storage; None: all are.
    ahead_since: datetime | None = None
    #: True if another host has the newest checkpoint; None: no other host is meant to have it.
    buddy: bool | None = None
    #: The reason why checkpoints go to storage directly although the job asks for memory; empty:
    #: they do not.
    off: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    replica: int
    #: GROUP_RANK of its agent.
    group_rank: int
    processes: int
    node: NodeName
    #: host:port on which its agent answers requests for the coordinator's address.
    address: str
    #: Path of the member in the network, widest part first: zone, spine, rack, switch; empty:
    #: unknown.
    topology: tuple[str, ...] = ()
    #: State of its checkpoints in memory, as last reported; None: it keeps none there.
    memory: MemoryCheckpoint | None = None
    role: str = WORKER
    #: Free port on its machine, for a process that others connect to; 0: none was searched for.
    port: int = 0


class Cause(StrEnum):
    START = "start"
    PLAN = "plan"
    #: A worker failed.
    FAILURE = "failure"
    #: An agent or node was lost, or came back.
    MEMBERSHIP = "membership"
    #: A change that failed was undone.
    REVERT = "revert"


class WorldEvent(StrEnum):
    """The kinds of events that a coordinator reports about a world."""

    #: The workers were started.
    FORMED = "formed"
    #: The first step was seen (or, without a probe, the workers are known to run).
    STEPPING = "stepping"
    #: A planned change waits, or was abandoned; ``detail`` has the reason.
    HELD = "held"
    #: The planned world could not be used and the old one came back.
    CHANGE_FAILED = "change-failed"
    #: The world ended by failure; another follows unless ``final``.
    LOST = "lost"
    #: All workers ended with exit code 0.
    FINISHED = "finished"
    #: Stopped at the owner's request.
    STOPPED = "stopped"
    #: No worker makes progress; ``diagnosis`` has the finding. If the world is ended because of it,
    #: LOST follows.
    HUNG = "hung"
    #: The state of checkpoints in memory has changed; ``members`` have it.
    MEMORY = "memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldReport:
    """A coordinator's report about the world; a repeated report (same epoch and event) changes
    nothing.
    """

    v: int = 1
    job: JobId
    event: WorldEvent
    epoch: int
    #: Generation of the wish that this world answers.
    generation: int
    cause: Cause
    members: tuple[Member, ...]
    at: datetime
    #: Seconds from the old world's last step to the new world's first one; with STEPPING.
    downtime_seconds: float | None = None
    steps_redone: int | None = None
    #: True if all its workers can change to another world in process; with STEPPING.
    elastic: bool = False
    #: Checkpoint that the world was seen to load.
    loaded: str | None = None
    exit_code: int | None = None
    #: True if no further world follows.
    final: bool = False
    detail: str = ""
    #: The first failure with its cause; with LOST and HUNG, if known.
    diagnosis: Diagnosis | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """The latest world of a job, as its coordinator reported it."""

    job: JobId
    epoch: int
    generation: int
    cause: Cause
    members: tuple[Member, ...]
    formed_at: datetime
    #: None until the first step was seen.
    stepping_at: datetime | None = None
    ended_at: datetime | None = None
    downtime_seconds: float | None = None
    steps_redone: int | None = None
    #: True if all its workers can change to another world in process.
    elastic: bool = False
    detail: str = ""
    #: The reason of a loss or hang; None if there was neither.
    diagnosis: Diagnosis | None = None

    @property
    def replicas(self) -> int:
        return len(self.members)

    @property
    def processes(self) -> int:
        """Return the number of processes in the world: its WORLD_SIZE."""
        return sum(member.processes for member in self.members)


class ReplicaState(StrEnum):
    """The state of a replica, as its scaler sees it."""

    #: The scaler has recorded its intent, and the agent does not run yet.
    STARTING = "starting"
    RUNNING = "running"
    EXITED = "exited"


class ReplicaExit(StrEnum):
    """The way in which a replica ended, for example by success, failure or loss."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    #: The coordinator released the replica.
    LEFT = "left"
    CANCELLED = "cancelled"
    #: The agent is gone and left no report.
    LOST = "lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """One replica, as its scaler observes it. Ids are never reused."""

    id: int
    role: str = WORKER
    node: NodeName
    state: ReplicaState
    #: Generation for which the replica was started.
    generation: int
    started_at: datetime
    ended_at: datetime | None = None
    exit: ReplicaExit | None = None
    exit_code: int | None = None
    detail: str = ""
    #: The reason why the job left the replica's node; empty: the replica ended for another reason.
    unfit: str = ""
    #: Amounts that the replica reserves, as its scaler measured; None: its scaler does not report
    #: them.
    resources: Resources | None = None
    #: Amounts that are not enforced, with the reason; empty: all are enforced.
    unenforced: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaEnd:
    """The end of a replica: ``exit.json``, a pod's termination message, or its scaler's record."""

    exit: ReplicaExit
    #: Exit code; None: the end of the process was not observed.
    exit_code: int | None = None
    detail: str = ""
    #: Time of the end; None: not known yet.
    at: datetime | None = None
    #: The reason not to choose the replica's node again for a while; empty: there is none.
    unfit: str = ""

    @property
    def status(self) -> int:
        """Return the exit status of the agent's own process; 1 if no code is known."""
        return 1 if self.exit_code is None else self.exit_code


class Ended(Protocol):
    """The fields of an ended replica that ``unfit_nodes`` reads."""

    @property
    def id(self) -> int: ...
    @property
    def node(self) -> NodeName | None: ...
    @property
    def ended_at(self) -> datetime | None: ...
    @property
    def unfit(self) -> str: ...


_Replica = TypeVar("_Replica", bound=Ended)


def unfit_nodes(replicas: Iterable[_Replica], now: datetime) -> Mapping[NodeName | None, _Replica]:
    """Return the nodes that a job left less than ``UNFIT`` ago because they were sick or slow, each
    with the last replica that left it; None stands for the unnamed node of a single machine.
    """
    left = [each for each in replicas if each.unfit and each.ended_at is not None]
    left.sort(key=lambda each: each.id)
    return {each.node: each for each in left if each.ended_at and now < each.ended_at + UNFIT}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaReport:
    """All replicas of one job that a scaler knows, and the replicas for which the scaler has no
    room.
    """

    v: int = 1
    job: JobId
    replicas: tuple[Replica, ...]
    #: The reason why the job waits, if it does; one sentence.
    waiting: str | None = None
    at: datetime
