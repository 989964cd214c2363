"""Free pages of SQLite files, and their return to the file system."""

import sqlite3
from contextlib import closing

import sqlalchemy as sa

from brain.db.engine import sqlite_file

#: Pages that one transaction gives back; they are few, because writers wait for it.
_PAGES = 2_000
#: Value of ``PRAGMA auto_vacuum`` in a file that can give pages back.
_INCREMENTAL = 2


def give_back(connection: sa.Connection, most: int) -> None:
    """Return at most ``most`` free pages to the file system, in the caller's transaction.

    Each statement frees one page, because the driver executes only the first step of a statement
    without columns.
    """
    free = connection.exec_driver_sql("PRAGMA freelist_count").scalar_one()
    with closing(connection.connection.cursor()) as cursor:
        for _ in range(min(free, most)):
            cursor.execute("PRAGMA incremental_vacuum(1)")


def free_bytes(engine: sa.Engine) -> int:
    return _number(engine, "freelist_count") * _number(engine, "page_size")


def shrink(engine: sa.Engine, *, whole: bool) -> int:
    """Give all free pages back to the file system; return the number of freed bytes.

    With ``whole``, a file from an earlier release, which kept its free pages, is rewritten.
    """
    before = free_bytes(engine)
    if _number(engine, "auto_vacuum") != _INCREMENTAL:
        if whole:
            _rewrite(engine)
        return before - free_bytes(engine)
    while free := _number(engine, "freelist_count"):
        with engine.begin() as connection:
            give_back(connection, _PAGES)
        if _number(engine, "freelist_count") >= free:
            break  # others free pages faster than this gives them back
    _checkpoint(engine)
    return before - free_bytes(engine)


def _number(engine: sa.Engine, pragma: str) -> int:
    with engine.connect() as connection:
        return int(connection.exec_driver_sql(f"PRAGMA {pragma}").scalar_one())


def _rewrite(engine: sa.Engine) -> None:
    # In a separate connection: the engine's begin a transaction, in which VACUUM fails.
    with closing(sqlite3.connect(sqlite_file(engine.url), isolation_level=None)) as connection:
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.execute("VACUUM")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _checkpoint(engine: sa.Engine) -> None:
    # The file itself shrinks only once its log is written into it.
    with closing(sqlite3.connect(sqlite_file(engine.url), isolation_level=None)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
