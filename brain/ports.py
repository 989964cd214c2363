"""What the core needs from outside: stores and a clock.

A transaction is the only door to the stores. Whoever opens one owns it: leaving the block
commits everything, an exception undoes everything, and adapters never commit by themselves.
Transactions may not be nested. Values that were handed out are frozen; changing a thing means
storing another value. Every store raises ``Unavailable`` when the place it keeps things in
cannot be reached, and nothing of the transaction is then stored.

``tests/contracts/`` holds one suite per port; every adapter passes it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from brain.types.job import Job, JobId, JobState
from brain.types.plan import ScalePlan
from brain.types.pool import Freeze, Lease
from brain.types.recommendation import Recommendation
from brain.types.record import AuditEntry, Event, Token
from brain.types.resources import Node, NodeName, PoolName
from brain.types.sharing import PoolRound, StoredPolicy
from brain.types.telemetry import (
    HostSample,
    Losses,
    Receipt,
    Sample,
    SaveSample,
    ThroughputSample,
)
from brain.types.world import Replica, World

#: Returns the present instant, timezone-aware UTC.
Clock = Callable[[], datetime]


class JobStore(Protocol):
    """Jobs, unfinished and finished; none is ever forgotten."""

    def add(self, job: Job) -> None:
        """Store a new job.

        Raises:
            NameTaken: an unfinished job of its project has this name.
        """
        ...

    def get(self, job: str, project: str = "default") -> Job:
        """Return the job of this id, or the unfinished (else newest) job of this name.

        Raises:
            UnknownJob: there is neither.
        """
        ...

    def put(self, job: Job) -> Job:
        """Store a changed job and return it with its version grown by one.

        Raises:
            VersionMismatch: it was changed since ``job.version`` was read.
            UnknownJob: it was never added.
        """
        ...

    def unfinished(self, pool: PoolName) -> Sequence[Job]:
        """Jobs of a pool that are not finished, oldest first."""
        ...

    def page(self, *, after: str | None, size: int) -> Sequence[Job]:
        """Up to ``size`` jobs, newest first, of ids below ``after``."""
        ...

    def pools(self) -> Sequence[PoolName]:
        """Pools that have an unfinished job."""
        ...


class PlanStore(Protocol):
    """Plans are totally ordered per job by generation; the generation is the fencing token.

    Two Brains may race: one of them gets ``StalePlan``. At most one plan of a job is active.
    """

    def add(self, plan: ScalePlan) -> None:
        """Store a new plan.

        Raises:
            StalePlan: a plan of this generation or a later one is already stored.
            Conflict: another plan of the job is active; supersede it first.
        """
        ...

    def put(self, plan: ScalePlan) -> ScalePlan:
        """Store a changed plan and return it with its version grown by one.

        Raises:
            VersionMismatch: it was changed since ``plan.version`` was read.
            UnknownPlan: it was never added.
        """
        ...

    def get(self, job: JobId, generation: int) -> ScalePlan:
        """Return one plan.

        Raises:
            UnknownPlan: the job has no plan of this generation.
        """
        ...

    def of(self, job: JobId) -> Sequence[ScalePlan]:
        """All plans of a job, highest generation first."""
        ...

    def active(self, job: JobId) -> ScalePlan | None:
        """The job's active plan."""
        ...

    def page(self, *, after: tuple[datetime, JobId, int] | None, size: int) -> Sequence[ScalePlan]:
        """Up to ``size`` plans of all jobs, newest first, before (created_at, job, generation)."""
        ...

    def decide(self, job: JobId, recommendation: Recommendation) -> None:
        """Keep ``recommendation`` as the latest decision about a job, hold or not."""
        ...

    def decision(self, job: JobId) -> Recommendation | None:
        """The latest decision about a job."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One bucket of a series: of a metric over time, downsampled for a pixel width."""

    at: datetime
    mean: float
    low: float
    high: float


class TelemetryStore(Protocol):
    """Samples, exactly once by (source, measured_at as it was sent), in whatever order they come.

    Instants go in as the sender's clock had them and come out on service time. The store keeps
    both: by the first it knows a sample again; by the second it selects, sorts and retires, and
    ``measured_at`` of a sample that it hands out is the second.
    """

    def add(
        self, samples: Sequence[Sample], *, received_at: datetime, offset_seconds: float = 0.0
    ) -> Receipt:
        """Store what is new; ``duplicates`` counts what was known. Nothing is rejected here.

        ``offset_seconds`` is service time less the sender's when the batch was sent, as measured;
        ``brain.clocks`` says what becomes of it. Each source keeps its own offset, begins with
        none, and moves to a measured one from which it differs by more than ``clocks.TOLERANCE``;
        what is within that of zero counts as none. Samples newer than all of their source get the
        offset it has then, and stand after those that came before; samples that come late get
        the one it had. What is stored is not moved again.
        """
        ...

    def throughput(
        self, job: JobId, *, since: datetime, epoch: int | None = None
    ) -> Sequence[ThroughputSample]:
        """Throughput samples of all workers of a job, oldest first."""
        ...

    def saves(self, job: JobId, *, since: datetime) -> Sequence[SaveSample]:
        """Completed checkpoints of a job, oldest first."""
        ...

    def hosts(self, job: JobId, *, since: datetime) -> Sequence[HostSample]:
        """Host samples that belong to a job, oldest first."""
        ...

    def losses(self, job: JobId) -> Losses:
        """Gaps between sequence numbers, and what senders told of drops."""
        ...

    def series(
        self, job: JobId, metric: str, *, since: datetime, until: datetime, points: int
    ) -> Sequence[Point]:
        """At most ``points`` buckets of one metric, empty buckets left out.

        ``since`` is in, ``until`` is not; a point stands at the beginning of its bucket.
        ``brain.series`` says how readings become points.

        Metrics: ``examples_per_second`` (sum over the workers of a world, ``steps_per_second``
        likewise where no batch size is known), ``steps_per_second``, ``step_seconds``,
        ``data_wait_share``, ``cpu_share``, ``memory_share``, ``gpu_share``, ``gpu_memory_share``,
        ``replicas``. Only the phase ``training`` counts for the first four.

        Raises:
            BadInput: no such metric, or fewer than one point.
        """
        ...

    def retire(self, *, raw_before: datetime, means_before: datetime) -> int:
        """Fold raw samples older than ``raw_before`` into 1-minute means, drop older means.

        Returns how many rows went. Safe to call again after a crash at any point.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFit:
    """A fitted model's parameters as JSON, with the version of the code that wrote them."""

    job: JobId
    kind: str
    parameters: str
    fitted_at: datetime


class FitStore(Protocol):
    """The latest fit per job and kind."""

    def put(self, fit: StoredFit) -> None:
        """Replace the fit of this job and kind."""
        ...

    def get(self, job: JobId, kind: str) -> StoredFit | None:
        """The latest fit of this job and kind."""
        ...


class LeaseStore(Protocol):
    """One holder per pool at a time."""

    def acquire(
        self, pool: PoolName, holder: str, *, until: datetime, now: datetime
    ) -> Lease | None:
        """Take, keep or take over the lease; None while another holds an unexpired one.

        ``term`` grows whenever the holder changes. A lease that ends more than twice as far ahead
        as this one would was taken before the clock was set back, and counts as expired.
        """
        ...

    def release(self, pool: PoolName, holder: str) -> None:
        """Let go, so that another needs not wait; nothing happens if ``holder`` has it not."""
        ...


class WorldStore(Protocol):
    """Worlds and replicas as coordinators and scalers observed them."""

    def put(self, world: World) -> None:
        """Store or replace the world of (job, epoch)."""
        ...

    def latest(self, job: JobId) -> World | None:
        """The world of the highest epoch."""
        ...

    def of(self, job: JobId) -> Sequence[World]:
        """All worlds of a job, highest epoch first."""
        ...

    def put_replicas(self, job: JobId, replicas: Iterable[Replica]) -> None:
        """Store or replace replicas by (job, role, id); those not named stay."""
        ...

    def replicas(self, job: JobId) -> Sequence[Replica]:
        """All replicas a job ever had, lowest id first."""
        ...


class NodeStore(Protocol):
    """Nodes as their scalers last described them."""

    def put(self, node: Node) -> None:
        """Store or replace a node by name."""
        ...

    def of(self, pool: PoolName | None = None) -> Sequence[Node]:
        """Nodes of a pool, or all, by name."""
        ...

    def get(self, name: NodeName) -> Node:
        """One node.

        Raises:
            UnknownNode: none of this name registered.
        """
        ...


class EventStore(Protocol):
    """What happened, in one order for everybody."""

    def add(self, event: Event) -> Event:
        """Append and return the event with its id. Ids rise in the order of commits."""
        ...

    def after(self, id: int, *, limit: int = 500, job: JobId | None = None) -> Sequence[Event]:
        """Events of ids above ``id``, oldest first."""
        ...

    def last_id(self) -> int:
        """The highest id, 0 when there is none."""
        ...


class AuditStore(Protocol):
    """Every action, automatic ones too; append-only."""

    def add(self, entry: AuditEntry) -> AuditEntry:
        """Append and return the entry with its id."""
        ...

    def page(self, *, after: int | None, size: int) -> Sequence[AuditEntry]:
        """Up to ``size`` entries, newest first, of ids below ``after``."""
        ...


class AccessStore(Protocol):
    """Tokens, sign-in codes, remembered answers and secret values."""

    def add_token(self, token: Token) -> None:
        """Store a token.

        Raises:
            Conflict: its id or hash is already stored.
        """
        ...

    def put_token(self, token: Token) -> None:
        """Replace a token by id (revoked, used).

        Raises:
            NotFound: no token has this id.
        """
        ...

    def token(self, sha256: str) -> Token | None:
        """The token with this hash."""
        ...

    def tokens(self) -> Sequence[Token]:
        """All tokens, newest first."""
        ...

    def put_code(self, sha256: str, *, expires_at: datetime) -> None:
        """Store a one-time sign-in code."""
        ...

    def take_code(self, sha256: str, *, now: datetime) -> bool:
        """Use up a code; False if it is unknown, used or expired."""
        ...

    def answer(self, key: str, principal: str, route: str) -> tuple[str, int, str] | None:
        """(body hash, status, body) remembered for an idempotency key."""
        ...

    def remember(
        self,
        key: str,
        principal: str,
        route: str,
        *,
        body_sha256: str,
        status: int,
        body: str,
        at: datetime,
    ) -> None:
        """Remember an answer; kept 24 h.

        Raises:
            Conflict: this key was answered meanwhile; let the transaction go and look again.
        """
        ...

    def forget_answers(self, *, before: datetime) -> int:
        """Drop remembered answers and codes older than ``before``."""
        ...

    def put_secrets(self, job: JobId, sealed: bytes) -> None:
        """Keep a job's environment, sealed with the installation's key."""
        ...

    def secrets(self, job: JobId) -> bytes | None:
        """The sealed environment of a job."""
        ...


class FreezeStore(Protocol):
    """What is frozen, and by whom."""

    def put(self, freeze: Freeze) -> None:
        """Freeze; replaces a freeze of the same scope and target."""
        ...

    def remove(self, scope: str, target: str) -> bool:
        """Thaw; False if nothing was frozen."""
        ...

    def all(self) -> Sequence[Freeze]:
        """Everything frozen."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """What tells whether anything of a job changed since its last mark, telemetry included."""

    state: JobState
    #: Differs whenever the job, its plans, worlds or replicas were changed.
    life: str
    #: Differs whenever samples of the job were stored.
    heard: str


class PoolStore(Protocol):
    """How pools are divided, and what the latest round of each came to."""

    def marks(self, pool: PoolName) -> Mapping[JobId, Mark]:
        """Of every unfinished job of a pool, oldest first: whoever keeps what was read of a job
        needs not read it again while its mark stays."""
        ...

    def policy(self, pool: PoolName) -> StoredPolicy | None:
        """The policy of a pool."""
        ...

    def put_policy(self, policy: StoredPolicy) -> StoredPolicy:
        """Store or replace the policy of a pool and return it with its version grown by one.

        Raises:
            VersionMismatch: it was changed since ``policy.version`` was read; 0 where none was.
        """
        ...

    def remove_policy(self, pool: PoolName) -> bool:
        """Drop the policy of a pool; False if there was none."""
        ...

    def policies(self) -> Sequence[StoredPolicy]:
        """All policies, by pool."""
        ...

    def round(self, pool: PoolName) -> PoolRound | None:
        """The latest round of a pool."""
        ...

    def put_round(self, round: PoolRound) -> None:
        """Replace the latest round of its pool."""
        ...


class Transaction(Protocol):
    """The stores, seeing and writing one consistent state."""

    @property
    def jobs(self) -> JobStore: ...
    @property
    def plans(self) -> PlanStore: ...
    @property
    def telemetry(self) -> TelemetryStore: ...
    @property
    def fits(self) -> FitStore: ...
    @property
    def leases(self) -> LeaseStore: ...
    @property
    def worlds(self) -> WorldStore: ...
    @property
    def nodes(self) -> NodeStore: ...
    @property
    def events(self) -> EventStore: ...
    @property
    def audit(self) -> AuditStore: ...
    @property
    def access(self) -> AccessStore: ...
    @property
    def freezes(self) -> FreezeStore: ...
    @property
    def pools(self) -> PoolStore: ...


class Stores(Protocol):
    """Where everything is kept."""

    def transaction(self, *, read_only: bool = False) -> AbstractContextManager[Transaction]:
        """Open a transaction.

        A ``read_only`` one sees one state throughout and never waits for writers, nor do they
        for it; whoever writes in it has a bug.

        Raises:
            Unavailable: the place cannot be reached, is read-only or full.
        """
        ...

    def size_bytes(self) -> int:
        """Bytes on storage, for ``/metrics`` and the doctor."""
        ...

    def close(self) -> None:
        """Let go of all connections."""
        ...
