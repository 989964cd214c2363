"""Interfaces through which the core stores values, reads the time and opens spans; adapters
implement them.

Every read and write of a store needs a transaction. The code that opens a transaction owns it: the
end of the block commits all changes, an exception undoes all changes, and adapters never commit.
Transactions must not be nested. All values are frozen; to change a stored value, store another one.
Every store raises ``Unavailable`` if its storage cannot be reached, and nothing of the transaction
is then stored.

``tests/contracts/`` holds one suite per port; every adapter passes it.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from typing import Protocol

from brain.ports.cluster import FreezeStore, LeaseStore, Mark, NodeStore, PoolStore, WorldStore
from brain.ports.jobs import JobChanges, JobStore, PlanStore
from brain.ports.records import AccessStore, AuditStore, EventStore, TokenUses
from brain.ports.telemetry import (
    FitStore,
    SampleBatch,
    SeriesBucket,
    SeriesStretch,
    StoredFit,
    TelemetryStore,
)

__all__ = [
    "AccessStore",
    "AuditStore",
    "Clock",
    "EventStore",
    "FitStore",
    "FreezeStore",
    "JobChanges",
    "JobStore",
    "LeaseStore",
    "Mark",
    "NodeStore",
    "PlanStore",
    "PoolStore",
    "SampleBatch",
    "SeriesBucket",
    "SeriesStretch",
    "StoredFit",
    "Stores",
    "TelemetryStore",
    "TokenUses",
    "Tracer",
    "Transaction",
    "WorldStore",
    "untraced",
]

#: Returns the present time, timezone-aware UTC.
Clock = Callable[[], datetime]

#: Opens a span with a name and attributes. The span lasts as long as the block, which may add
#: attributes. The attribute ``error.type`` marks a failed span.
Tracer = Callable[[str, dict[str, str | int]], AbstractContextManager[object]]


def untraced(name: str, attributes: dict[str, str | int]) -> AbstractContextManager[None]:
    """Record nothing; this is the ``Tracer`` of installations without traces."""
    return nullcontext()


class Transaction(Protocol):
    """All stores, in one consistent state.

    Writing transactions run one after the other. If the database supports it, a transaction that
    writes only ``telemetry`` and ``uses`` is an exception: it never waits for others, and others
    never wait for it.
    """

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
    def uses(self) -> TokenUses: ...
    @property
    def freezes(self) -> FreezeStore: ...
    @property
    def pools(self) -> PoolStore: ...


class Stores(Protocol):
    """The storage of one Brain; all reads and writes happen in transactions."""

    def transaction(self, *, read_only: bool = False) -> AbstractContextManager[Transaction]:
        """Open a transaction.

        A ``read_only`` transaction reads one state throughout. It never waits for writers, and
        writers never wait for it. A write in a ``read_only`` transaction is a bug.

        Raises:
            Unavailable: the storage cannot be reached, is read-only or is full.
        """
        ...

    def size_bytes(self) -> int:
        """Return the bytes that the stores occupy, for ``/metrics`` and ``brain doctor``."""
        ...

    def close(self) -> None: ...
