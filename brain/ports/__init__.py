"""Interfaces to everything that the core stores, times or traces; adapters implement them.

The stores can only be reached through a transaction. The code that opens a transaction owns it:
leaving the block commits everything, an exception undoes everything, and adapters never commit by
themselves. Transactions may not be nested. Values that were handed out are frozen; changing a thing
means storing another value. Every store raises ``Unavailable`` when its storage cannot be reached,
and nothing of the transaction is then stored.

``tests/contracts/`` holds one suite per port; every adapter passes it.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from typing import Protocol

from brain.ports.cluster import FreezeStore, LeaseStore, Mark, NodeStore, PoolStore, WorldStore
from brain.ports.jobs import JobStore, PlanStore
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

#: Opens a span of a trace, which lasts as long as the block: its name, and its attributes, to which
#: the block may add. The attribute ``error.type`` marks a span that failed.
Tracer = Callable[[str, dict[str, str | int]], AbstractContextManager[object]]


def untraced(name: str, attributes: dict[str, str | int]) -> AbstractContextManager[None]:
    """Record no spans: the ``Tracer`` for installations without traces."""
    return nullcontext()


class Transaction(Protocol):
    """All stores, in one consistent state.

    Transactions that write run one after the other, except those that write only ``telemetry`` and
    ``uses``: if the database supports it, these neither wait nor make others wait.
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

        A ``read_only`` transaction sees the same state throughout. It never waits for writers, and
        writers never wait for it. A write in it is a bug.

        Raises:
            Unavailable: the storage cannot be reached, is read-only or full.
        """
        ...

    def size_bytes(self) -> int:
        """Return the bytes on storage, for ``/metrics`` and ``brain doctor``."""
        ...

    def close(self) -> None: ...
