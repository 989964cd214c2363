"""Translation of a database's failures into messages with remedies.

Only failures that are not bugs are translated; the error of a wrong SQL statement stays as it is.
Agents read these messages, too, so addresses and the driver's message go into the error's
``cause``, which no answer shows.
"""

import sqlite3

import psycopg
import sqlalchemy as sa
from psycopg.errors import (
    DataCorrupted,
    IdleInTransactionSessionTimeout,
    IndexCorrupted,
    InternalError_,
    ProgramLimitExceeded,
    ReadOnlySqlTransaction,
    TransactionTimeout,
)

from brain.errors import BadInput, BrainError, Unavailable

#: Execution option of transactions that promised not to write; a write in one is a bug.
READ_ONLY = "brain_read_only"

#: SQLite's primary result codes of failures that the environment causes, not the statement.
_SQLITE = {
    sqlite3.SQLITE_FULL: (
        "the disk is full, so nothing of this transaction was stored; free some space"
    ),
    sqlite3.SQLITE_READONLY: "the file cannot be written; give this user write permission on the "
    "file and its directory",
    sqlite3.SQLITE_BUSY: "another process holds its lock; end that process, or wait and try again",
    sqlite3.SQLITE_LOCKED: "another connection holds its lock; wait and try again",
    sqlite3.SQLITE_IOERR: "its disk reported an I/O error; look at the kernel's log",
    sqlite3.SQLITE_CANTOPEN: "the file cannot be opened; check that its directory exists and that "
    "this user owns it",
    sqlite3.SQLITE_PERM: (
        "this user may not open the file; give the user permission to read and write it"
    ),
    sqlite3.SQLITE_CORRUPT: "the file is damaged; put back the newest brain.db.before-* copy",
    sqlite3.SQLITE_NOTADB: "the file is not an SQLite database; check the path in database_url",
}

#: Exceptions of PostgreSQL's driver whose cause is not the statement.
_FAULTS = (
    psycopg.OperationalError,
    psycopg.InterfaceError,
    IdleInTransactionSessionTimeout,
    TransactionTimeout,
    InternalError_,
    DataCorrupted,
    IndexCorrupted,
)

#: Messages of PostgreSQL and PgBouncer about their limits of connections; an error at connecting
#: has no code.
_NO_SLOT = (
    "too many clients",
    "too many connections",
    "connection slots are reserved",
    "no more connections allowed",
)


def install(engine: sa.Engine) -> None:
    """Make every statement, commit and connection of ``engine`` raise domain errors."""
    where = engine.url.render_as_string(hide_password=True)

    @sa.event.listens_for(engine, "handle_error")
    def translate(context: sa.ExceptionContext) -> None:
        connection = context.connection
        promised = bool(connection and connection.get_execution_options().get(READ_ONLY))
        known = domain_error(context.original_exception, where, promised_not_to_write=promised)
        if known is not None:
            raise known from context.original_exception


def domain_error(
    said: BaseException, where: str, *, promised_not_to_write: bool = False
) -> BrainError | None:
    """Return the error for the message of a driver; None for a bug, or a broken constraint."""
    if isinstance(said, psycopg.DataError):
        return BadInput(f"a value cannot be stored: {_line(said)}")
    if _refused_writing(said) and promised_not_to_write:
        return None
    remedy = _remedy(said)
    if remedy is None:
        return None
    return Unavailable(f"the database cannot be used: {remedy}", cause=f"{where}: {_line(said)}")


def _refused_writing(said: BaseException) -> bool:
    return isinstance(said, ReadOnlySqlTransaction) or _sqlite_code(said) == sqlite3.SQLITE_READONLY


def _remedy(said: BaseException) -> str | None:
    if isinstance(said, sqlite3.Error):
        return _SQLITE.get(_sqlite_code(said))
    if isinstance(said, ReadOnlySqlTransaction):
        return "the server takes no writes; point database_url at the primary"
    if isinstance(said, ProgramLimitExceeded):
        return None
    if isinstance(said, _FAULTS):
        if any(words in str(said) for words in _NO_SLOT):
            return (
                "the server admits no more connections; end other programs' connections, raise "
                "the server's limit, or lower database_connections of the service"
            )
        return (
            "the connection was lost, or the server ended a statement; check that the server "
            "runs and has disk space, then retry"
        )
    return None


def _sqlite_code(said: BaseException) -> int:
    # The low byte is the primary code; the other bytes only add detail.
    return getattr(said, "sqlite_errorcode", 0) & 0xFF


def _line(said: BaseException) -> str:
    return str(said).strip().splitlines()[0] if str(said).strip() else type(said).__name__
