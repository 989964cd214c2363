"""Events, audit, access and freezes."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from brain import wire
from brain.db.columns import insert_new, page, row, upsert, value
from brain.db.tables import answers, audit, codes, events, freezes, secrets, tokens
from brain.errors import Conflict, NotFound
from brain.types.job import JobId
from brain.types.order import AUDIT, Order, Place
from brain.types.pool import Freeze
from brain.types.record import AuditEntry, Event, Token


class SqlEvents:
    """``EventStore``; ids rise in the order of commits because writers of events take turns."""

    def __init__(self, connection: sa.Connection) -> None:
        self._connection = connection

    def add(self, event: Event) -> Event:
        return replace(event, id=_append(self._connection, events, event))

    def after(self, id: int, *, limit: int = 500, job: JobId | None = None) -> Sequence[Event]:
        newer = sa.select(events).where(events.c.id > id).order_by(events.c.id).limit(limit)
        wanted = newer if job is None else newer.where(events.c.job == job)
        return [value(Event, found) for found in self._connection.execute(wanted).mappings()]

    def last_id(self) -> int:
        return self._connection.execute(_LAST_EVENT).scalar_one() or 0


class SqlAudit:
    def __init__(self, connection: sa.Connection) -> None:
        self._connection = connection

    def add(self, entry: AuditEntry) -> AuditEntry:
        return replace(entry, id=_append(self._connection, audit, entry))

    def page(self, *, after: Place | None, size: int, order: Order = AUDIT) -> Sequence[AuditEntry]:
        wanted = page(audit, order, after, size)
        return [value(AuditEntry, found) for found in self._connection.execute(wanted).mappings()]


_LAST_EVENT = sa.select(sa.func.max(events.c.id))
_APPEND = {table: sa.insert(table).returning(table.c.id) for table in (events, audit)}


def _append(connection: sa.Connection, table: sa.Table, record: Event | AuditEntry) -> int:
    given = row(record)
    del given["id"]
    return int(connection.execute(_APPEND[table], given).scalar_one())


class SqlTokenUses:
    """``TokenUses`` in one column of the tokens; it never waits for locks on the tokens' rows."""

    def __init__(self, connection: sa.Connection) -> None:
        self._connection = connection

    def note(self, ids: Collection[str], at: datetime) -> None:
        self._connection.execute(_NOTE_USE, {"ids": list(ids), "at": at})

    def doubtful(self, ids: Collection[str]) -> frozenset[str]:
        statement = _GOOD[self._connection.dialect.name]
        asked = (wire.encode(list(ids)).decode(),)
        good = (id for (id,) in self._connection.exec_driver_sql(statement, asked))
        return frozenset(ids).difference(good)


#: A locked row means that a holder of the writers' turn is changing the token.
_NOTE_USE = (
    sa.update(tokens)
    .where(
        tokens.c.id.in_(
            sa.select(tokens.c.id)
            .where(tokens.c.id.in_(sa.bindparam("ids", expanding=True)))
            .with_for_update(skip_locked=True)
        )
    )
    .values(last_used_at=sa.bindparam("at", type_=tokens.c.last_used_at.type))
)


_VALID = """
ON t.id = w.value LEFT JOIN jobs AS j ON j.id = t.job
WHERE t.revoked_at IS NULL AND j.finished_at IS NULL
"""
_GOOD = {
    "sqlite": f"SELECT t.id FROM json_each(?) AS w CROSS JOIN tokens AS t {_VALID}",
    "postgresql": f"SELECT t.id FROM json_array_elements_text(%s::json) AS w(value) "
    f"JOIN tokens AS t {_VALID}",
}


class SqlAccess:
    def __init__(self, connection: sa.Connection) -> None:
        self._connection = connection

    def add_token(self, token: Token) -> None:
        if not insert_new(self._connection, tokens, row(token)):
            raise Conflict(
                f"a token with the id {token.id} or with its hash is already stored; create another"
            )

    def put_token(self, token: Token) -> None:
        changed = sa.update(tokens).where(tokens.c.id == token.id).values(row(token))
        if not self._connection.execute(changed).rowcount:
            raise NotFound(f"no token has the id {token.id}; `brain tokens` lists the ids")

    def token(self, sha256: str) -> Token | None:
        return next(iter(self._read(sa.select(tokens).where(tokens.c.sha256 == sha256))), None)

    def tokens(self) -> Sequence[Token]:
        newest = sa.select(tokens).order_by(tokens.c.created_at.desc(), tokens.c.id.desc())
        return self._read(newest)

    def forget_tokens(self, *, before: datetime) -> int:
        of = tokens.c
        over = of.expires_at.is_not(None) & ((of.expires_at < before) | (of.revoked_at < before))
        return self._connection.execute(sa.delete(tokens).where(over)).rowcount

    def put_code(self, sha256: str, *, expires_at: datetime) -> None:
        upsert(self._connection, codes, [{"sha256": sha256, "expires_at": expires_at}])

    def take_code(self, sha256: str, *, now: datetime) -> bool:
        used = sa.delete(codes).where(codes.c.sha256 == sha256).returning(codes.c.expires_at)
        expires_at = self._connection.execute(used).scalar_one_or_none()
        return expires_at is not None and expires_at > now

    def answer(self, key: str, principal: str, route: str) -> tuple[str, int, str] | None:
        columns = (answers.c.body_sha256, answers.c.status, answers.c.body)
        asked = {"key": key, "principal": principal, "route": route}
        found = self._connection.execute(sa.select(*columns).filter_by(**asked)).one_or_none()
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
        asked = {"key": key, "principal": principal, "route": route}
        given = {"body_sha256": body_sha256, "status": status, "body": body, "at": at}
        if not insert_new(self._connection, answers, asked | given):
            raise Conflict(
                f"a request with idempotency key {key} was answered in the meantime; send the "
                "request again"
            )

    def forget_answers(self, *, before: datetime) -> int:
        old = (
            sa.delete(answers).where(answers.c.at < before),
            sa.delete(codes).where(codes.c.expires_at < before),
        )
        return sum(self._connection.execute(statement).rowcount for statement in old)

    def put_secrets(self, job: JobId, sealed: bytes) -> None:
        upsert(self._connection, secrets, [{"job": job, "sealed": sealed}])

    def secrets(self, job: JobId) -> bytes | None:
        mine = sa.select(secrets.c.sealed).where(secrets.c.job == job)
        return self._connection.execute(mine).scalar_one_or_none()

    def _read(self, statement: sa.Select[Any]) -> list[Token]:
        return [value(Token, found) for found in self._connection.execute(statement).mappings()]


class SqlFreezes:
    """``FreezeStore``; ``known`` holds all freezes after the transaction has read them."""

    def __init__(self, connection: sa.Connection, known: list[Sequence[Freeze]]) -> None:
        self._connection = connection
        self._known = known

    def put(self, freeze: Freeze) -> None:
        self._known.clear()
        upsert(self._connection, freezes, [row(freeze)])

    def remove(self, scope: str, target: str) -> bool:
        self._known.clear()
        same = (freezes.c.scope == scope) & (freezes.c.target == target)
        return self._connection.execute(sa.delete(freezes).where(same)).rowcount > 0

    def all(self) -> Sequence[Freeze]:
        if not self._known:
            found = self._connection.execute(_FREEZES).mappings()
            self._known.append([value(Freeze, each) for each in found])
        return list(self._known[0])


_FREEZES = sa.select(freezes).order_by(freezes.c.at, freezes.c.scope, freezes.c.target)
