"""The stores on SQL: SQLite and PostgreSQL through SQLAlchemy Core.

Rows never leave this package, and nothing here commits but the end of a transaction.
"""

from brain.db.schema import MigrationResult, missing, prepare
from brain.db.stores import SqlStores

__all__ = ["MigrationResult", "SqlStores", "missing", "prepare"]
