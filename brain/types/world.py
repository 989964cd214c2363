"""Worlds: the workers that met, what is wished of them, and what was observed."""

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

#: A node that a job left as sick or slow is not chosen again for that job for so long.
UNFIT = timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredWorld:
    """The world that the standing target and an applying plan ask for.

    The coordinator long-polls it (ETag = generation and version) and keeps the last answer
    on disk. Nobody pushes it.
    """

    v: int = 1
    job: JobId
    #: Generation that this wish comes from.
    generation: int
    #: Differs whenever anything here does, and grows with every stored change of the job or its
    #: plans; the ETag.
    version: int
    intent: Intent
    #: Replicas wished for; 0 where ``intent`` is not run.
    replicas: int
    processes_per_replica: int
    unit: int
    minimum: int
    #: A planned growth that is short of replicas for so long is met partly, in units.
    patience_seconds: float
    #: True: no planned change begins; healing goes on.
    frozen: bool = False
    #: Failures after which the job is given up.
    restart_limit: int
    #: Replicas on each node, where Brain chose them; empty: wherever they fit.
    nodes: tuple[tuple[NodeName, int], ...] = ()
    #: What the script is asked to take; None where it does not ask, or nobody knows better than it.
    batch: BatchWish | None = None
    #: What each replica shall reserve; None: what the document says.
    resources: Resources | None = None
    #: Roles of the first replicas, in order of rank; all others are workers.
    roles: Roles = ()

    @property
    def etag(self) -> str:
        """The ETag of ``jobs/{job}/world``, to be quoted in headers."""
        return f"{self.generation}.{self.version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryCheckpoint:
    """How far a replica's checkpoints in memory are ahead of storage."""

    #: When the oldest one was saved that is not on storage; None: all are.
    ahead_since: datetime | None = None
    #: Whether another host has the newest one; None: it is not to have it.
    buddy: bool | None = None
    #: Why checkpoints go to storage as always although memory was asked for; empty: they do not.
    off: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One replica of a world."""

    replica: int
    #: GROUP_RANK of its agent.
    group_rank: int
    processes: int
    node: NodeName
    #: host:port where its agent answers who coordinates.
    address: str
    #: Where it is, outermost first: zone, spine, rack, switch; empty: not known.
    topology: tuple[str, ...] = ()
    #: Of its checkpoints in memory, as last reported; None: it keeps none there.
    memory: MemoryCheckpoint | None = None
    role: str = WORKER
    #: Port that was free on its machine, for a process that others ask; 0: none was looked for.
    port: int = 0


class Cause(StrEnum):
    """Why a world was formed."""

    START = "start"
    PLAN = "plan"
    #: A worker failed.
    FAILURE = "failure"
    #: An agent or node was lost, or came back.
    MEMBERSHIP = "membership"
    #: A change that failed was undone.
    REVERT = "revert"


class WorldEvent(StrEnum):
    """What a coordinator observed."""

    #: The workers were started.
    FORMED = "formed"
    #: The first step was seen (or, without a probe, the workers are known to run).
    STEPPING = "stepping"
    #: A planned change waits or was given up; ``detail`` says why.
    HELD = "held"
    #: The planned world could not be used and the old one came back.
    CHANGE_FAILED = "change-failed"
    #: The world ended by failure; another follows unless ``final``.
    LOST = "lost"
    #: All workers ended with 0.
    FINISHED = "finished"
    #: Stopped because the owner said so.
    STOPPED = "stopped"
    #: No worker moves; ``diagnosis`` says what was found. Where it is ended for that, LOST follows.
    HUNG = "hung"
    #: How far memory is ahead of storage has changed; ``members`` say it.
    MEMORY = "memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldReport:
    """What the coordinator tells Brain about the world; idempotent by (epoch, event)."""

    v: int = 1
    job: JobId
    event: WorldEvent
    epoch: int
    #: Generation of the wish that this world answers.
    generation: int
    cause: Cause
    members: tuple[Member, ...]
    at: datetime
    #: Old world's last step to new world's first one; with STEPPING.
    downtime_seconds: float | None = None
    steps_redone: int | None = None
    #: Whether all its workers can go over into another world without being ended; with STEPPING.
    elastic: bool = False
    #: Checkpoint that the world was seen to load.
    loaded: str | None = None
    exit_code: int | None = None
    #: True where no further world follows.
    final: bool = False
    detail: str = ""
    #: Who failed first and why; with LOST and HUNG, where it is known.
    diagnosis: Diagnosis | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """The latest world of a job as its coordinator reported it."""

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
    #: Whether all its workers can go over into another world without being ended.
    elastic: bool = False
    detail: str = ""
    #: Why it was lost, or stood still; None where neither happened.
    diagnosis: Diagnosis | None = None

    @property
    def replicas(self) -> int:
        """The number of replicas in the world."""
        return len(self.members)

    @property
    def processes(self) -> int:
        """The number of processes in the world: its WORLD_SIZE."""
        return sum(member.processes for member in self.members)


class ReplicaState(StrEnum):
    """Where a replica stands, as its scaler sees it."""

    #: The intent is written, the agent does not run yet.
    STARTING = "starting"
    RUNNING = "running"
    EXITED = "exited"


class ReplicaExit(StrEnum):
    """How a replica ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    #: Let go by the coordinator.
    LEFT = "left"
    CANCELLED = "cancelled"
    #: The agent is gone and left no word.
    LOST = "lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """One replica as its scaler observes it. Ids are never reused."""

    id: int
    role: str = WORKER
    node: NodeName
    state: ReplicaState
    #: Generation that it was started for.
    generation: int
    started_at: datetime
    ended_at: datetime | None = None
    exit: ReplicaExit | None = None
    exit_code: int | None = None
    detail: str = ""
    #: Why its job left the node that it was on; empty: the node is not to blame.
    unfit: str = ""
    #: What it reserves, as its scaler measured; None: its scaler does not say.
    resources: Resources | None = None
    #: What of that nothing holds it to, and why; empty: it is held to all of it.
    unenforced: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaEnd:
    """How a replica ended: ``exit.json``, a pod's termination message, or its scaler's record."""

    exit: ReplicaExit
    #: None: nobody saw its process end.
    exit_code: int | None = None
    detail: str = ""
    #: None: not known yet.
    at: datetime | None = None
    #: Why its node is not to be chosen again for a while; empty: it may be.
    unfit: str = ""

    @property
    def status(self) -> int:
        """Exit status of the agent's own process; 1 where no code is known."""
        return 1 if self.exit_code is None else self.exit_code


class Ended(Protocol):
    """What is asked of a replica here, whoever saw it."""

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
    """Nodes that a job left as sick or slow within ``UNFIT``, each with the last one that left it;
    None is the only node that there is."""
    left = [each for each in replicas if each.unfit and each.ended_at is not None]
    left.sort(key=lambda each: each.id)
    return {each.node: each for each in left if each.ended_at and now < each.ended_at + UNFIT}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaReport:
    """All replicas of a job that a scaler knows, and what it cannot place."""

    v: int = 1
    job: JobId
    replicas: tuple[Replica, ...]
    #: Why the job waits, where it does; one sentence.
    waiting: str | None = None
    at: datetime
