"""Implements every port with dictionaries, for tests, replay and simulation; behaves like
``brain.db``.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import Lock
from typing import Any

from brain.errors import Unavailable
from brain.inmemory.jobs import MemoryJobs, MemoryPlans
from brain.inmemory.pools import MemoryPools
from brain.inmemory.records import (
    MemoryAccess,
    MemoryAudit,
    MemoryEvents,
    MemoryFreezes,
    MemoryTokenUses,
)
from brain.inmemory.rows import Rows
from brain.inmemory.telemetry import MemoryTelemetry
from brain.inmemory.worlds import MemoryFits, MemoryLeases, MemoryNodes, MemoryWorlds

_TABLES = (
    "jobs",
    "plans",
    "decisions",
    "samples",
    "sources",
    "retired_steps",
    "minutes",
    "hours",
    "fits",
    "leases",
    "worlds",
    "replicas",
    "nodes",
    "events",
    "audit",
    "tokens",
    "codes",
    "answers",
    "sealed",
    "freezes",
    "policies",
    "rounds",
)


class MemoryTransaction:
    """All stores of one transaction; other transactions see its changes only after its end."""

    def __init__(self, committed: Mapping[str, dict[Any, Any]]) -> None:
        rows: dict[str, Rows[Any, Any]] = {name: Rows(table) for name, table in committed.items()}
        self._rows = rows
        self.jobs = MemoryJobs(rows["jobs"], rows["fits"])
        self.plans = MemoryPlans(rows["plans"], rows["decisions"], rows["jobs"])
        self.telemetry = MemoryTelemetry(
            rows["samples"],
            rows["sources"],
            rows["retired_steps"],
            rows["minutes"],
            rows["hours"],
            rows["worlds"],
        )
        self.fits = MemoryFits(rows["fits"])
        self.leases = MemoryLeases(rows["leases"])
        self.worlds = MemoryWorlds(rows["worlds"], rows["replicas"], rows["jobs"])
        self.nodes = MemoryNodes(rows["nodes"])
        self.events = MemoryEvents(rows["events"])
        self.audit = MemoryAudit(rows["audit"])
        self.access = MemoryAccess(rows["tokens"], rows["codes"], rows["answers"], rows["sealed"])
        self.uses = MemoryTokenUses(rows["tokens"], rows["jobs"])
        self.freezes = MemoryFreezes(rows["freezes"])
        self.pools = MemoryPools(rows)

    def commit(self) -> None:
        """Let other transactions see the changes of this transaction."""
        for rows in self._rows.values():
            rows.commit()


class MemoryStores:
    """Stores in the memory of the process; transactions run one after another."""

    def __init__(self, *, patience_seconds: float = 10.0) -> None:
        self._committed: dict[str, dict[Any, Any]] = {name: {} for name in _TABLES}
        self._turn = Lock()
        self._patience_seconds = patience_seconds

    @contextmanager
    def transaction(self, *, read_only: bool = False) -> Iterator[MemoryTransaction]:
        """Open a transaction; a read-only transaction changes nothing."""
        if not self._turn.acquire(timeout=self._patience_seconds):
            raise Unavailable(
                f"another transaction has been open for {self._patience_seconds:g} s; "
                "transactions may not be nested"
            )
        try:
            transaction = MemoryTransaction(self._committed)
            yield transaction
            if not read_only:
                transaction.commit()
        finally:
            self._turn.release()

    def size_bytes(self) -> int:
        """Return 0, because nothing is on storage."""
        return 0

    def close(self) -> None:
        """Do nothing: there is no connection to close."""
