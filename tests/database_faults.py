"""A driver between Brain and PostgreSQL that harms one statement; the server says the rest."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa

from tests.postgresql import Server

#: What a statement becomes: the text that is executed in its place, None where it stays.
Harm = Callable[[Server, Any], str | None]


def _killed(server: Server, cursor: Any) -> None:
    pid = [cursor.connection.info.backend_pid]
    with server.connected("postgres") as admin:
        admin.execute("SELECT pg_terminate_backend(%s)", pid)
        # The statement is to meet a connection that is dead for certain.
        while admin.execute("SELECT 1 FROM pg_stat_activity WHERE pid = %s", pid).fetchone():
            pass


def _cancelled(server: Server, cursor: Any) -> str:
    return "SELECT pg_cancel_backend(pg_backend_pid()), pg_sleep(60)"


def _timed_out(server: Server, cursor: Any) -> str:
    cursor.execute("SET LOCAL statement_timeout = 1")
    return "SELECT pg_sleep(60)"


def _raised(sqlstate: str) -> Harm:
    """An error as the server raises it; deadlocks and full disks cannot be had on demand."""
    return lambda server, cursor: f"DO $$ BEGIN RAISE SQLSTATE '{sqlstate}'; END $$"


HARMS: Mapping[str, Harm] = {
    "killed": _killed,
    "cancelled": _cancelled,
    "timed out": _timed_out,
    "deadlock": _raised("40P01"),
    "recovery conflict": _raised("40001"),
    "full disk": _raised("53100"),
    "idle in transaction": _raised("25P03"),
    "internal error": _raised("XX000"),
    "damaged page": _raised("XX001"),
}


class Driver:
    """Counts what Brain sends to the database, commits included, and harms one of it."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._harm: Harm | None = None
        self._at = -1
        #: What was sent since ``arm``.
        self.sent: list[str] = []

    def arm(self, harm: Harm | None = None, *, at: int = -1) -> None:
        """Count from 0 on; harm the statement of this number, and no other."""
        self.sent, self._harm, self._at = [], harm, at

    @property
    def struck(self) -> bool:
        """Whether the statement to be harmed was sent."""
        return 0 <= self._at < len(self.sent)

    def execute(
        self, _: object, cursor: Any, statement: str, given: Any, __: object, many: bool
    ) -> tuple[str, Any]:
        """Stand before every statement."""
        if self._harm is None or not self._next(statement):
            return statement, given
        instead = self._harm(self._server, cursor)
        return (statement, given) if instead is None else (instead, [{}] if many else {})

    def commit(self, connection: sa.Connection) -> None:
        """Stand before every commit. Only a lost connection can be met there."""
        if self._harm is _killed and self._next("COMMIT"):
            assert connection.connection.dbapi_connection
            _killed(self._server, connection.connection.dbapi_connection.cursor())

    def _next(self, statement: str) -> bool:
        self.sent.append(statement)
        return len(self.sent) - 1 == self._at


@contextmanager
def driven(server: Server) -> Iterator[Driver]:
    """Let every engine of this process go through a driver, within the block."""
    driver = Driver(server)
    sa.event.listen(sa.Engine, "before_cursor_execute", driver.execute, retval=True)
    sa.event.listen(sa.Engine, "commit", driver.commit)
    try:
        yield driver
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", driver.execute)
        sa.event.remove(sa.Engine, "commit", driver.commit)
