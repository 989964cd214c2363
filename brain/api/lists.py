"""Builds the server-sent frames ``event: changed``, which report changes of lists that no other
event reports.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime

from brain import wire
from brain.api import views
from brain.ports import Clock, Transaction

#: Replaces the time of a node's last report in marks, because clients compute its age themselves.
_ANY = datetime.min.replace(tzinfo=UTC)


class ListMarks:
    """The state of the lists at the last check; used by one thread at a time.

    Comparing states finds changes that no event reports: a node stopped responding, a round divided
    a pool again, the audit log has a new entry, or a part of the service fails. ``degraded``
    returns a sentence for each part that fails.
    """

    def __init__(self, clock: Clock, degraded: Callable[[], Iterable[str]]) -> None:
        self._clock, self._degraded = clock, degraded
        #: A mark by list; a mark changes whenever values of the list that clients show change.
        self._seen: dict[str, object] = {}

    def forget(self) -> None:
        """Forget the state of the lists; new clients read the complete lists before they follow
        changes.
        """
        self._seen.clear()

    def changes(self, tx: Transaction, *, all: bool) -> bytes:
        """Return a server-sent frame with the names of the lists that changed since the last check.

        Without ``all``, only the audit log is checked. The result is empty if no list changed.
        """
        found = self._marks(tx) if all else {}
        found["audit"] = [entry.id for entry in tx.audit.page(after=None, size=1)]
        lists = [name for name, mark in found.items() if self._seen.get(name, mark) != mark]
        self._seen |= found
        return b"event: changed\ndata: %s\n\n" % wire.encode({"lists": lists}) if lists else b""

    def _marks(self, tx: Transaction) -> dict[str, object]:
        nodes = [
            replace(node, seen_at=_ANY) for node in views.nodes(tx, tx.nodes.of(), self._clock())
        ]
        jobs = Counter((job.pool, job.document.optimize_mode) for job in tx.jobs.unfinished())
        pools = sorted({node.pool for node in nodes} | {pool for pool, _ in jobs})
        rounds = [last and last.decided_at for last in map(tx.pools.round, pools)]
        policies = [(policy.pool, policy.version) for policy in tx.pools.policies()]
        return {
            "nodes": nodes,
            "pools": (rounds, policies, jobs),
            "health": (pools, tuple(self._degraded())),
        }
