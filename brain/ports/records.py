"""Stores of events, the audit log, and the tokens and roles of access."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Protocol

from brain.types.job import JobId
from brain.types.record import AuditEntry, Event, Token


class EventStore(Protocol):
    """The events, in one order for every reader."""

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


class TokenUses(Protocol):
    """The last uses of tokens; noted without regard to other changes of the tokens."""

    def note(self, ids: Collection[str], at: datetime) -> None:
        """Keep that tokens were used; forgone of those that another writer changes just now."""
        ...

    def doubtful(self, ids: Collection[str]) -> frozenset[str]:
        """Those of the tokens that were revoked or forgotten, or whose job has finished."""
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
        """Replace a token by id (revoked).

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

    def forget_tokens(self, *, before: datetime) -> int:
        """Drop tokens that were made with an end and expired, or were revoked, before ``before``.

        A token without an end stays, revoked or not: its secret may still lie in a state directory
        and would be taken for a new one.
        """
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
