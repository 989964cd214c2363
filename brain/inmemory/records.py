"""Stores events, the audit log, tokens and freezes in dictionaries."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from brain.errors import Conflict, NotFound
from brain.inmemory.rows import Rows
from brain.types.job import Job, JobId
from brain.types.order import AUDIT, Order, Place
from brain.types.pool import Freeze
from brain.types.record import AuditEntry, Event, Token


class MemoryEvents:
    """``EventStore`` that keeps events in a dictionary by id."""

    def __init__(self, rows: Rows[int, Event]) -> None:
        self._rows = rows

    def add(self, event: Event) -> Event:
        stored = replace(event, id=self.last_id() + 1)
        self._rows[stored.id] = stored
        return stored

    def after(self, id: int, *, limit: int = 500, job: JobId | None = None) -> Sequence[Event]:
        # Ids have no gaps here, so the first wanted one is found without a search.
        wanted = (self._rows[each] for each in range(max(id, 0) + 1, self.last_id() + 1))
        return [event for event in wanted if job is None or event.job == job][:limit]

    def last_id(self) -> int:
        return len(self._rows)


class MemoryAudit:
    """``AuditStore`` that keeps audit entries in a dictionary by id."""

    def __init__(self, rows: Rows[int, AuditEntry]) -> None:
        self._rows = rows

    def add(self, entry: AuditEntry) -> AuditEntry:
        stored = replace(entry, id=len(self._rows) + 1)
        self._rows[stored.id] = stored
        return stored

    def page(self, *, after: Place | None, size: int, order: Order = AUDIT) -> Sequence[AuditEntry]:
        return order.page(self._rows.values(), after=after, size=size)


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """An answer that is repeated if its idempotency key is sent again."""

    body_sha256: str
    status: int
    body: str
    at: datetime


class MemoryTokenUses:
    """``TokenUses`` that writes the last use into the dictionary of tokens."""

    def __init__(self, tokens: Rows[str, Token], jobs: Rows[JobId, Job]) -> None:
        self._tokens, self._jobs = tokens, jobs

    def note(self, ids: Collection[str], at: datetime) -> None:
        for id in ids:
            if id in self._tokens:
                self._tokens[id] = replace(self._tokens[id], last_used_at=at)

    def doubtful(self, ids: Collection[str]) -> frozenset[str]:
        return frozenset(id for id in ids if id not in self._tokens or self._is_doubtful(id))

    def _is_doubtful(self, id: str) -> bool:
        token = self._tokens[id]
        job = None if token.job is None else self._jobs.get(token.job)
        return token.revoked_at is not None or (job is not None and job.finished_at is not None)


class MemoryAccess:
    """``AccessStore`` that keeps its values in dictionaries."""

    def __init__(
        self,
        tokens: Rows[str, Token],
        codes: Rows[str, datetime],
        answers: Rows[tuple[str, str, str], StoredAnswer],
        sealed: Rows[JobId, bytes],
    ) -> None:
        self._tokens = tokens
        self._codes = codes
        self._answers = answers
        self._sealed = sealed

    def add_token(self, token: Token) -> None:
        if token.id in self._tokens or self.token(token.sha256):
            raise Conflict(
                f"a token with the id {token.id} or with its hash is already stored; create another"
            )
        self._tokens[token.id] = token

    def put_token(self, token: Token) -> None:
        if token.id not in self._tokens:
            raise NotFound(f"no token has the id {token.id}; `brain tokens` lists the ids")
        self._tokens[token.id] = token

    def token(self, sha256: str) -> Token | None:
        return next((each for each in self._tokens.values() if each.sha256 == sha256), None)

    def tokens(self) -> Sequence[Token]:
        found = self._tokens.values()
        return sorted(found, key=lambda token: (token.created_at, token.id), reverse=True)

    def forget_tokens(self, *, before: datetime) -> int:
        over = [
            token.id
            for token in self._tokens.values()
            if token.expires_at is not None
            and min(token.expires_at, token.revoked_at or token.expires_at) < before
        ]
        for id in over:
            del self._tokens[id]
        return len(over)

    def put_code(self, sha256: str, *, expires_at: datetime) -> None:
        self._codes[sha256] = expires_at

    def take_code(self, sha256: str, *, now: datetime) -> bool:
        expires_at = self._codes.pop(sha256, None)
        return expires_at is not None and expires_at > now

    def answer(self, key: str, principal: str, route: str) -> tuple[str, int, str] | None:
        found = self._answers.get((key, principal, route))
        return (found.body_sha256, found.status, found.body) if found else None

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
        if (key, principal, route) in self._answers:
            raise Conflict(
                f"a request with idempotency key {key} was answered in the meantime; send "
                "the request again"
            )
        self._answers[key, principal, route] = StoredAnswer(body_sha256, status, body, at)

    def forget_answers(self, *, before: datetime) -> int:
        answers = [key for key, answer in self._answers.items() if answer.at < before]
        codes = [code for code, expires_at in self._codes.items() if expires_at < before]
        for key in answers:
            del self._answers[key]
        for code in codes:
            del self._codes[code]
        return len(answers) + len(codes)

    def put_secrets(self, job: JobId, sealed: bytes) -> None:
        self._sealed[job] = sealed

    def secrets(self, job: JobId) -> bytes | None:
        return self._sealed.get(job)


class MemoryFreezes:
    """``FreezeStore`` that keeps freezes in a dictionary by scope and target."""

    def __init__(self, rows: Rows[tuple[str, str], Freeze]) -> None:
        self._rows = rows

    def put(self, freeze: Freeze) -> None:
        self._rows[str(freeze.scope), freeze.target] = freeze

    def remove(self, scope: str, target: str) -> bool:
        return self._rows.pop((str(scope), target), None) is not None

    def all(self) -> Sequence[Freeze]:
        found = self._rows.values()
        return sorted(found, key=lambda each: (each.at, each.scope, each.target))
