"""Stores of events, of the audit log, and of tokens and secrets."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Protocol

from brain.types.job import JobId
from brain.types.order import AUDIT, Order, Place
from brain.types.record import AuditEntry, Event, Token


class EventStore(Protocol):
    """Events of jobs and pools, in one order for all readers."""

    def add(self, event: Event) -> Event:
        """Append an event; return it with its id. Ids increase in the order of commits."""
        ...

    def after(self, id: int, *, limit: int = 500, job: JobId | None = None) -> Sequence[Event]:
        """Return at most ``limit`` events with ids above ``id``, in the order of their ids; if
        ``job`` is given, only events of this job.
        """
        ...

    def last_id(self) -> int:
        """Return the id of the newest event; 0 if there is no event."""
        ...


class AuditStore(Protocol):
    """The log of all actions of people and of Brain; entries never change."""

    def add(self, entry: AuditEntry) -> AuditEntry:
        """Append an entry and return it with its id."""
        ...

    def page(self, *, after: Place | None, size: int, order: Order = AUDIT) -> Sequence[AuditEntry]:
        """Return at most ``size`` entries that follow the row ``after`` in ``order``, or the first
        entries if ``after`` is None. The default order is newest first.
        """
        ...


class TokenUses(Protocol):
    """The times at which tokens were last used; storing such a time does not count as a change of
    the token.
    """

    def note(self, ids: Collection[str], at: datetime) -> None:
        """Store ``at`` as the time of these tokens' last use; skip tokens that another writer is
        changing.
        """
        ...

    def doubtful(self, ids: Collection[str]) -> frozenset[str]:
        """Return those of ``ids`` whose token was revoked or deleted, or belongs to a job that has
        finished.
        """
        ...


class AccessStore(Protocol):
    """Tokens, sign-in codes, stored answers to requests, and secret values of jobs."""

    def add_token(self, token: Token) -> None:
        """Store a token.

        Raises:
            Conflict: a token with this id or hash is already stored.
        """
        ...

    def put_token(self, token: Token) -> None:
        """Replace the token of the same id, for example with its revoked copy.

        Raises:
            NotFound: no token has this id.
        """
        ...

    def token(self, sha256: str) -> Token | None:
        """Return the token with this hash; None if there is none."""
        ...

    def tokens(self) -> Sequence[Token]:
        """Return all tokens, newest first."""
        ...

    def forget_tokens(self, *, before: datetime) -> int:
        """Delete tokens that have an expiry, and that expired or were revoked before ``before``.

        A revoked token without an expiry stays. A state directory may still contain its secret, and
        without the stored token Brain would accept this secret as a new token.
        """
        ...

    def put_code(self, sha256: str, *, expires_at: datetime) -> None:
        """Store a one-time sign-in code."""
        ...

    def take_code(self, sha256: str, *, now: datetime) -> bool:
        """Mark a code as used; return False if the code is unknown, used or expired."""
        ...

    def answer(self, key: str, principal: str, route: str) -> tuple[str, int, str] | None:
        """Return what is stored for an idempotency key: the hash of the request's query and body,
        and the status and body of the answer. None if nothing is stored.
        """
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
        """Store an answer for 24 h.

        Raises:
            Conflict: another writer has stored an answer for this key; end the transaction and read
                that answer.
        """
        ...

    def forget_answers(self, *, before: datetime) -> int:
        """Delete stored answers and sign-in codes that were stored before ``before``."""
        ...

    def put_secrets(self, job: JobId, sealed: bytes) -> None:
        """Store a job's environment, sealed with the installation's key."""
        ...

    def secrets(self, job: JobId) -> bytes | None:
        """Return the sealed environment of a job; None if it has none."""
        ...
