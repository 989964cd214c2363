"""Stores of events, the audit log, and the tokens and roles of access."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Protocol

from brain.types.job import JobId
from brain.types.order import AUDIT, Order, Place
from brain.types.record import AuditEntry, Event, Token


class EventStore(Protocol):
    """Events of jobs and pools; every reader sees them in the same order."""

    def add(self, event: Event) -> Event:
        """Append an event and return it with its id. Ids rise in the order of commits."""
        ...

    def after(self, id: int, *, limit: int = 500, job: JobId | None = None) -> Sequence[Event]:
        """Return events with ids above ``id``, oldest first."""
        ...

    def last_id(self) -> int:
        """Return the highest id; 0 if there is none."""
        ...


class AuditStore(Protocol):
    """The log of all actions of people and of Brain itself; entries are never changed."""

    def add(self, entry: AuditEntry) -> AuditEntry:
        """Append an entry and return it with its id."""
        ...

    def page(self, *, after: Place | None, size: int, order: Order = AUDIT) -> Sequence[AuditEntry]:
        """Return at most ``size`` entries that follow the row ``after`` in the order, which is
        newest first unless given; without ``after``, the first ones.
        """
        ...


class TokenUses(Protocol):
    """The times of tokens' last uses; storing one does not count as a change of the token."""

    def note(self, ids: Collection[str], at: datetime) -> None:
        """Store that tokens were used at ``at``; tokens that another writer is changing are
        skipped.
        """
        ...

    def doubtful(self, ids: Collection[str]) -> frozenset[str]:
        """Return the tokens that were revoked or deleted, or whose job has finished."""
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
        """Replace a token by id, for example with its revoked copy.

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
        """Delete tokens with an expiry that expired, or were revoked, before ``before``.

        A token without an expiry stays, revoked or not: its secret may still be in a state
        directory, and would be taken for a new one.
        """
        ...

    def put_code(self, sha256: str, *, expires_at: datetime) -> None:
        """Store a one-time sign-in code."""
        ...

    def take_code(self, sha256: str, *, now: datetime) -> bool:
        """Use up a code; return False if it is unknown, used or expired."""
        ...

    def answer(self, key: str, principal: str, route: str) -> tuple[str, int, str] | None:
        """Return the stored answer (body hash, status, body) for an idempotency key; None if
        there is none.
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
            Conflict: this key was answered meanwhile; end the transaction and read the answer
                again.
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
